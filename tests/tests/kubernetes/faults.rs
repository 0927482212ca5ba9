//! Failures of the cluster are reported to the client, nothing is left over, and the next build works.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::scene::{CREATE, KUBERNETES, PATIENCE, Scene};

fn expect(failure: &(String, String), words: &[&str]) {
    assert_eq!(failure.0, "57000", "{}", failure.1);
    for word in words {
        assert!(failure.1.contains(word), "{word} is missing: {}", failure.1);
    }
}

fn with_image(image: &str) -> Value {
    Scene::template(|pod| pod["spec"]["containers"][0]["image"] = image.into())
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_cluster_without_room_is_reported() {
    let mut scene = Scene::new("no-room");
    let sizes = ["--builder-min-memory", "4TB", "--builder-max-memory", "8TB", "--start-timeout", "3s"];
    let router = scene.router("router-a", &Scene::template(|_| {}), &sizes);
    let failure = scene.build_and_fail(&router);
    expect(&failure, &["no builder was ready within 3 s", "0/1 nodes are available", "Insufficient memory"]);
    scene.wait_for_pods(0);
    let router = scene.router("router-b", &Scene::template(|_| {}), &[]);
    scene.build_and_drop(&router);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn an_image_that_cannot_be_pulled_is_reported() {
    let mut scene = Scene::new("bad-image");
    let router = scene.router("router-a", &with_image("registry.example/absent"), &[]);
    expect(&scene.build_and_fail(&router), &["cannot start a builder", "ImagePullBackOff", "registry.example/absent"]);
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_container_that_ends_at_once_is_reported() {
    let mut scene = Scene::new("ends-at-once");
    let template = Scene::template(|pod| pod["spec"]["containers"][0]["args"] = json!(["serve", "--engine", "none"]));
    let router = scene.router("router-a", &template, &[]);
    expect(&scene.build_and_fail(&router), &["cannot start a builder", "exit code 64"]);
    scene.wait_for_pods(0);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_used_up_quota_is_reported() {
    let mut scene = Scene::new("quota");
    let router = scene.router("router-a", &Scene::template(|_| {}), &[]);
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } },
    }));
    expect(&scene.build_and_fail(&router), &["exceeded quota", "no room for another builder"]);
    scene.kubectl(&["delete", "resourcequota", "none"]);
    // The pause after the failures has passed.
    thread::sleep(Duration::from_secs(5));
    scene.build_and_drop(&router);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_missing_role_is_reported() {
    let mut scene = Scene::new("no-role");
    let router = scene.router("router-a", &Scene::template(|_| {}), &[]);
    scene.kubectl(&["delete", "rolebinding", "lantern-index-router"]);
    thread::sleep(Duration::from_secs(1));
    expect(&scene.build_and_fail(&router), &["cannot create pod", "forbidden", "role of the router's service account"]);
    assert_eq!(scene.pods(), Vec::<String>::new());
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn an_invalid_pod_template_is_reported() {
    let mut scene = Scene::new("bad-template");
    let template = Scene::template(|pod| pod["spec"]["containers"][0]["name"] = "NOT A NAME".into());
    let router = scene.router("router-a", &template, &[]);
    expect(&scene.build_and_fail(&router), &["is invalid", "NOT A NAME", "template for builders"]);
}

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn a_lost_api_server_is_reported_and_builds_resume() {
    let mut scene = Scene::new("api-away");
    let _alone = scene.alone();
    let router = scene.router("router-a", &Scene::template(|_| {}), &[]);
    scene.build_and_drop(&router);
    scene.wait_for_pods(0);
    let mut kubernetes = KUBERNETES.write().unwrap();
    kubernetes.kill("kube-apiserver");
    let failure = scene.build_and_fail(&router);
    expect(&failure, &["cannot start a builder", "cannot create pod", "API server"]);
    kubernetes.start_part("kube-apiserver").unwrap();
    kubernetes.wait_until_ready().unwrap();
    drop(kubernetes);
    harness::wait_for("a build", PATIENCE, || {
        let built = scene.session.execute(CREATE);
        Ok(built.ok())
    })
    .unwrap();
    scene.wait_for_pods(0);
}
