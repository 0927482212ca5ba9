//! Builders that authenticate clients, by certificates or by tokens, which are replaced while they run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use harness::{Builder, BuilderOptions, Cluster, Direction, Notice, Proxy, Scratch, Session, wait_for};
use rustix::process::{Pid, Signal, kill_process};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

const CREATE: &str = "CREATE INDEX ON t USING hnsw (v vector_l2_ops) WITH (external = true)";
const OLD: &str = "old-0123456789abcdef";
const NEW: &str = "new-fedcba9876543210";

fn database(name: &str, rows: u32) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    let insert = format!("INSERT INTO t SELECT ARRAY[i, sin(i), 2]::vector FROM generate_series(1, {rows}) i");
    session.execute(&format!("CREATE TABLE t (v vector(3)); {insert}")).unwrap();
    session
}

fn builder(flag: &str, file: &Path) -> Builder {
    Builder::start_with(&BuilderOptions::serve(&[flag, &file.display().to_string()])).unwrap()
}

fn set(session: &mut Session, name: &str, value: &str) {
    session.execute(&format!("SET hnsw.external_index_{name} = '{value}'")).unwrap();
}

/// Tries a build and returns its refusal.
fn refused(session: &mut Session) -> Notice {
    let error = session.execute(CREATE).unwrap_err();
    println!("{error}\n");
    error.server().clone()
}

/// Makes the builder read its token file again, and waits until its log has the line `outcome`.
fn reload(builder: &Builder, outcome: &str) {
    let count = |log: &str| log.matches(outcome).count();
    let before = count(&builder.log());
    let pid = Pid::from_raw(builder.pid().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    wait_for(outcome, Duration::from_secs(60), || Ok((count(&builder.log()) > before).then_some(()))).unwrap();
}

#[test]
fn only_tokens_of_the_file_are_accepted_also_after_a_reload() {
    let scratch = Scratch::new("tokens", 0o700).unwrap();
    let file = scratch.path().join("tokens");
    fs::write(&file, format!("{OLD}\n")).unwrap();
    let builder = builder("--token-file", &file);
    let mut session = database("token", 100);
    builder.attach(&mut session).unwrap();

    let missing = refused(&mut session);
    assert_eq!(missing.sqlstate, "28000");
    assert!(missing.hint.contains("hnsw.external_index_token"), "{}", missing.hint);
    // A ping is refused for the same reason.
    session.execute("CREATE EXTENSION lantern_index").unwrap();
    let ping = session.execute("SELECT * FROM lantern_index.ping()").unwrap_err();
    assert_eq!((&ping.server().sqlstate, &ping.server().hint), (&missing.sqlstate, &missing.hint), "{ping}");
    for wrong in [NEW, "x", &OLD[1..], &format!("{OLD}0")] {
        set(&mut session, "token", wrong);
        let wrong = refused(&mut session);
        assert_eq!(wrong.sqlstate, "28000");
        assert!(wrong.hint.contains("--token-file"), "{}", wrong.hint);
        let ping = session.execute("SELECT * FROM lantern_index.ping()").unwrap_err();
        assert_eq!(ping.server().sqlstate, "28000", "{ping}");
    }
    set(&mut session, "token", OLD);
    session.execute(CREATE).unwrap();

    // During a rotation both tokens are valid.
    fs::write(&file, format!("{NEW}\n{OLD}\n")).unwrap();
    reload(&builder, "tokens read again");
    session.execute(CREATE).unwrap();
    set(&mut session, "token", NEW);
    session.execute(CREATE).unwrap();
    fs::write(&file, format!("{NEW}\n")).unwrap();
    reload(&builder, "tokens read again");
    session.execute(CREATE).unwrap();
    set(&mut session, "token", OLD);
    assert_eq!(refused(&mut session).sqlstate, "28000");

    // An invalid file leaves the tokens as they are.
    fs::write(&file, "short\n").unwrap();
    reload(&builder, "tokens not read again");
    assert_eq!(refused(&mut session).sqlstate, "28000");
    set(&mut session, "token", NEW);
    session.execute(CREATE).unwrap();

    builder.expect_idle(Duration::from_secs(60)).unwrap();
    for secret in [OLD, NEW] {
        assert!(!builder.log().contains(secret) && !CLUSTER.log().contains(secret), "a token is in a log");
    }
}

#[test]
fn a_running_build_goes_on_when_its_token_is_removed() {
    let scratch = Scratch::new("tokens", 0o700).unwrap();
    let file = scratch.path().join("tokens");
    fs::write(&file, OLD).unwrap();
    let builder = builder("--token-file", &file);
    let proxy = Proxy::start(builder.address()).unwrap();
    proxy.stop_after(Direction::ToBuilder, 64 << 10);
    let mut session = database("token_running", 10_000);
    builder.attach_through(&mut session, proxy.port()).unwrap();
    set(&mut session, "token", OLD);
    let build = thread::spawn(move || session.execute(CREATE));
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    fs::write(&file, NEW).unwrap();
    reload(&builder, "tokens read again");
    proxy.reset();
    build.join().unwrap().unwrap();
}

/// A certificate for a client and its key, which the account of PostgreSQL can read.
fn pair(scratch: &Scratch, name: &str) -> [PathBuf; 2] {
    let files = ["cert", "key"].map(|what| scratch.path().join(format!("{name}-{what}.pem")));
    let mut make = Command::new(harness::binary().unwrap());
    make.args(["gen-cert", "--client", "--cert"]).arg(&files[0]).arg("--key").arg(&files[1]);
    assert!(make.output().unwrap().status.success());
    for file in &files {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    files
}

#[test]
fn only_clients_with_a_known_certificate_are_accepted() {
    let scratch = Scratch::new("client", 0o755).unwrap();
    let (known, stranger) = (pair(&scratch, "known"), pair(&scratch, "stranger"));
    let builder = builder("--client-ca", &known[0]);
    let mut session = database("client_certificate", 100);
    builder.attach(&mut session).unwrap();
    let missing = refused(&mut session);
    assert_eq!(missing.sqlstate, "08006");
    assert!(missing.hint.contains("asks for a certificate") && missing.hint.contains("_sslcert"), "{}", missing.hint);
    for ([cert, key], welcome) in [(&stranger, false), (&known, true), (&stranger, false)] {
        set(&mut session, "sslcert", &cert.display().to_string());
        set(&mut session, "sslkey", &key.display().to_string());
        if welcome {
            session.execute(CREATE).unwrap();
        } else {
            let error = refused(&mut session);
            assert_eq!(error.sqlstate, "08006");
            assert!(error.hint.contains("hnsw.external_index_sslcert"), "{}", error.hint);
            assert!(error.hint.contains("--client-ca"), "{}", error.hint);
        }
    }
    builder.expect_builds(1).unwrap();
    assert!(builder.log().contains("no TLS handshake"), "{}", builder.log());
    // The client hears of a refusal before the builder counts it.
    let metric = "lantern_index_connections_closed_total{reason=\"certificate\"}";
    let counted = || Ok((builder.metric(metric)? >= 3.0).then_some(()));
    wait_for("3 refusals to be counted", Duration::from_secs(30), counted).unwrap();
}
