//! A router authenticates clients before it reserves a builder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use harness::{Builder, BuilderOptions, Scratch, binary, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{CREATE_QUICKLY, PATIENCE, Scene, builders, wait_for_builders};

const TOKEN: &str = "token-0123456789abcdef";
const NEXT: &str = "token-fedcba9876543210";

/// A scene whose router requires a token.
fn scene(database: &str, tokens: &Scratch, arguments: &[&str]) -> Scene {
    let file = tokens.path().join("tokens");
    write(tokens, &format!("tenant-a {TOKEN} builds=1 waiting=1\n"));
    let file = file.display().to_string();
    Scene::new(database, &[&["--token-file", &file], arguments].concat())
}

fn write(tokens: &Scratch, text: &str) {
    let file = tokens.path().join("tokens");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Makes the router reload its files.
fn hang_up(router: &Builder) {
    let before = router.log().matches("read again").count();
    kill_process(Pid::from_raw(router.pid().unwrap().cast_signed()).unwrap(), Signal::HUP).unwrap();
    wait_for("files to be read", PATIENCE, || Ok((router.log().matches("read again").count() > before).then_some(())))
        .unwrap();
}

#[test]
fn other_machines_are_asked_or_not_served() {
    let scratch = Scratch::new("exposed", 0o700).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| scratch.path().join(name).display().to_string());
    let run = |arguments: &[&str]| Command::new(binary().unwrap()).args(arguments).output().unwrap();
    assert!(run(&["gen-cert", "--cert", &cert, "--key", &key]).status.success());
    let router = ["router", "--config", "/dev/null", "--host", "0.0.0.0", "--port", "0", "--status-port", "0"];
    let output = run(&[&router[..], &["--cert", &cert, "--key", &key]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("not authenticated") && said.contains("--allow-anonymous"), "{said}");
}

#[test]
fn an_unauthenticated_client_gets_no_builder() {
    let tokens = Scratch::new("router-tokens", 0o700).unwrap();
    let mut scene = scene("strangers", &tokens, &["--idle-ttl", "1s"]);
    let session = scene.session.as_mut().unwrap();
    for (token, hint) in [("", "hnsw.external_index_token"), (NEXT, "--token-file")] {
        session.execute(&format!("SET hnsw.external_index_token = '{token}'")).unwrap();
        let error = session.execute(CREATE_QUICKLY).unwrap_err();
        let notice = error.server();
        assert_eq!(notice.sqlstate, "28000", "{error}");
        assert!(notice.message.contains("router") && notice.hint.contains(hint), "{error}");
    }
    assert!(!scene.router.log().contains("builder started"), "a builder was started for a stranger");
    let refused = scene.router.metric("lantern_index_builds_refused_total{reason=\"access\"}").unwrap();
    assert_eq!(refused, 2.0);

    session.execute(&format!("SET hnsw.external_index_token = '{TOKEN}'")).unwrap();
    scene.build_and_drop();
    // The builder's log is part of the router's.
    let log = wait_for("one line of the router and one of the builder", PATIENCE, || {
        let log = scene.router.log();
        let lines = log.lines().filter(|line| line.contains("build ended") && line.contains("tenant-a (127.0.0.1)"));
        Ok((lines.count() == 2).then_some(log))
    })
    .unwrap();
    let line = log.lines().find(|line| line.contains("build ended")).unwrap();
    assert!(line.contains("client=\"tenant-a (127.0.0.1)\"") && line.contains("outcome=\"succeeded\""), "{line}");
    // Both use the same names for client and build.
    let build = line.split("build=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(log.matches(build).count() > 3, "{log}");
    wait_for_builders(&scene.router, 0);
    assert!(!scene.router.log().contains("builder lost"), "a builder that the router stops is not lost");
}

#[test]
fn tokens_and_certificates_are_renewed_while_a_build_runs() {
    let tokens = Scratch::new("router-renewal", 0o700).unwrap();
    let mut scene = scene("renewal", &tokens, &[]);
    let session = scene.session.as_mut().unwrap();
    session.execute(&format!("SET hnsw.external_index_token = '{TOKEN}'")).unwrap();
    let building = scene.build_until(harness::Phase::Graph);

    write(&tokens, &format!("{NEXT}\n"));
    let certificate = scene.router.certificate();
    let before = fs::read(&certificate).unwrap();
    let key = certificate.with_file_name("key.pem");
    let gen_cert = |cert: &std::path::Path, key: &std::path::Path| {
        let mut command = Command::new(binary().unwrap());
        assert!(
            command.arg("gen-cert").arg("--cert").arg(cert).arg("--key").arg(key).output().unwrap().status.success()
        );
    };
    let fresh = [tokens.path().join("cert.pem"), tokens.path().join("key.pem")];
    gen_cert(&fresh[0], &fresh[1]);
    fs::copy(&fresh[1], &key).unwrap();
    fs::copy(&fresh[0], &certificate).unwrap();
    assert_ne!(fs::read(&certificate).unwrap(), before);
    hang_up(&scene.router);

    scene.proxy.reset();
    let (session, result) = building.join().unwrap();
    result.unwrap();
    scene.session = Some(session);
    let session = scene.session.as_mut().unwrap();
    session.execute("DROP INDEX items_idx").unwrap();
    assert_eq!(session.execute(CREATE_QUICKLY).unwrap_err().server().sqlstate, "28000", "the old token is gone");
    session.execute(&format!("SET hnsw.external_index_token = '{NEXT}'")).unwrap();
    // The builder is the same, and uses the new certificate or still the old one.
    scene.build_and_drop();
    // A client that verifies certificates gets the new one.
    let session = scene.session.as_mut().unwrap();
    let own = certificate.display();
    session
        .execute(&format!(
            "SET hnsw.external_index_sslmode = 'verify-ca'; SET hnsw.external_index_sslrootcert = '{own}'"
        ))
        .unwrap();
    scene.build_and_drop();
}

#[test]
fn files_that_change_are_read_without_a_signal() {
    let tokens = Scratch::new("router-watch", 0o700).unwrap();
    let scene = scene("watch", &tokens, &[]);
    write(&tokens, &format!("tenant-b {NEXT}\n"));
    wait_for("tokens to be read", PATIENCE, || Ok(scene.router.log().contains("tokens read again").then_some(())))
        .unwrap();
    write(&tokens, "short\n");
    wait_for("an error", PATIENCE, || Ok(scene.router.log().contains("tokens not read again").then_some(()))).unwrap();
}

#[test]
fn static_builders_are_used_again_after_they_were_idle() {
    let builder = Builder::start().unwrap();
    let address = format!("127.0.0.1:{}/{}", builder.address().port(), builder.status_address().port());
    let certificate = builder.certificate().display().to_string();
    let arguments = ["--builders", "static", "--builder", &address, "--builder-ca", &certificate];
    let options =
        BuilderOptions::router(&[&arguments[..], &["--builder-name", "localhost", "--idle-ttl", "1s"]].concat());
    let mut scene = Scene::with("static_idle", &options);
    for _ in 0..3 {
        let stopped = scene.router.log().matches("builder is stopped").count();
        scene.build_and_drop();
        wait_for("the builder to be put back", PATIENCE, || {
            Ok((scene.router.log().matches("builder is stopped").count() > stopped).then_some(()))
        })
        .unwrap();
    }
    assert_eq!(builders(&scene.router), Vec::<u32>::new());
}
