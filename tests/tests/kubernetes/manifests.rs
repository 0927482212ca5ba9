//! The manifests for installations without Helm, applied as `deploy/kubernetes/README.md` describes.

use std::fs;
use std::process::Command;

use harness::{binary, inspect, root, wait_for};

use crate::chart::attach;
use crate::scene::{CREATE, KUBERNETES, PATIENCE, POSTGRES, Scene};

#[test]
#[ignore = "needs Go, and minutes to build Kubernetes once: `cargo xtask test kubernetes`"]
fn the_manifests_give_two_routers_that_build() {
    let scene = Scene::new("manifests");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| scene.file(name, ""));
    let host = format!("lantern-index-router.{}.svc", scene.namespace);
    let made = Command::new(binary().unwrap())
        .args(["gen-cert", "--force", "--host", &host, "--cert", &cert, "--key", &key])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    scene.kubectl(&["create", "secret", "tls", "lantern-index-router-tls", "--cert", &cert, "--key", &key]);
    let ticket = format!("--from-literal=key={}", "fedcba9876543210".repeat(4));
    scene.kubectl(&["create", "secret", "generic", "lantern-index-router-ticket", &ticket]);
    let token = "known-to-databases";
    let tokens = format!("--from-literal=tokens={token}");
    scene.kubectl(&["create", "secret", "generic", "lantern-index-router-tokens", &tokens]);
    let manifests = fs::read_to_string(root().join("deploy/kubernetes/router.yaml")).unwrap();
    {
        let kubernetes = KUBERNETES.read().unwrap();
        let said = kubernetes.check(&scene.namespace, &manifests).unwrap();
        assert!(said.contains("deployment.apps/lantern-index-router created (server dry run)"), "{said}");
        kubernetes.apply(&scene.namespace, &manifests).unwrap();
    }
    let address = wait_for("two routers", PATIENCE, || {
        let columns = ["-o", "custom-columns=A:.status.podIP,R:.status.containerStatuses[0].ready", "--no-headers"];
        let routers = ["get", "pods", "-l", "app.kubernetes.io/component=router"];
        let text = scene.kubectl(&[&routers[..], &columns].concat());
        let ready: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_suffix("true")).collect();
        Ok((ready.len() == 2).then(|| ready[0].trim().to_owned()))
    })
    .unwrap();
    let mut session = scene.another_session();
    attach(&mut session, &address, 8998, &cert);
    session.execute(&format!("SET hnsw.external_index_token = '{token}'")).unwrap();
    session.execute(CREATE).unwrap();
    inspect(&POSTGRES, &mut session, "items_idx").unwrap();
    assert_eq!(scene.pods().len(), 1);
    // The pods of builders are deleted with their owner.
    KUBERNETES.read().unwrap().kubectl(&["delete", "namespace", &scene.namespace, "--wait=false"]).unwrap();
    scene.wait_for_pods(0);
}
