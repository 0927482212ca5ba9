//! While the name server does not answer, a statement times out and can be cancelled.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use harness::{Builder, Cluster, Scratch, Session, inspect, skipped_for_lack, wait_for, within};

const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops) WITH (external = true)";

/// A script that runs a command in a mount namespace with another /etc/resolv.conf, its first argument.
const IN_NAMESPACE: &str = r#"mount --make-rprivate / && mount --bind "$1" /etc/resolv.conf && shift && exec "$@""#;

fn database(cluster: &Cluster, name: &str) -> Session {
    let mut session = cluster.database(name).unwrap();
    session
        .execute(
            "CREATE TABLE items (v vector(3));
             INSERT INTO items SELECT ARRAY[i, 1, 2]::vector FROM generate_series(1, 100) i",
        )
        .unwrap();
    session
}

#[test]
fn names_are_looked_up() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = database(&cluster, "localhost");
    builder.attach(&mut session).unwrap();
    session.execute("SET hnsw.external_index_host = 'localhost'").unwrap();
    session.execute(CREATE).unwrap();
    inspect(&cluster, &mut session, "items_idx").unwrap();
}

#[test]
fn a_silent_name_server() {
    // Only root can listen on port 53 and mount.
    let may_mount = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    let Some(server) = UdpSocket::bind("127.0.0.77:53").ok().filter(|_| may_mount) else {
        return skipped_for_lack("a silent name server, which needs root, mount namespaces, and port 53 of 127.0.0.77");
    };
    let directory = Scratch::new("resolver", 0o755).unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 127.0.0.77\noptions timeout:30 attempts:1\n").unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", IN_NAMESPACE, "sh"])
        .arg(&resolv_conf)
        .arg(env::current_exe().unwrap())
        .args(["--exact", "statements_end_while_the_name_server_is_silent", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // Check that the name server has received the request.
    server.set_nonblocking(true).unwrap();
    server.recv(&mut [0; 512]).unwrap();
}

#[test]
#[ignore = "a_silent_name_server runs it, where the name server is silent"]
fn statements_end_while_the_name_server_is_silent() {
    let cluster = Cluster::start().unwrap();
    let mut session = database(&cluster, "silent");
    session.execute("SET hnsw.external_index_host = 'builder.example'").unwrap();
    // A bound against hanging: the name server never answers.
    let soon = Duration::from_secs(30);

    session.execute("SET hnsw.external_index_connect_timeout = 0; SET statement_timeout = '1s'").unwrap();
    let error = within("the statement", soon, || session.execute(CREATE)).unwrap_err();
    assert_eq!(error.server().message, "canceling statement due to statement timeout", "{error}");
    session.execute("RESET statement_timeout").unwrap();

    let pid = session.pid();
    let (error, took) = thread::scope(|scope| {
        let building = scope.spawn(|| (session.execute(CREATE).unwrap_err(), Instant::now()));
        let mut other = cluster.session("postgres").unwrap();
        let runs = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'");
        wait_for("the statement", soon, || Ok((other.value::<u32>(&runs)? == 1).then_some(()))).unwrap();
        thread::sleep(Duration::from_secs(1));
        let since = Instant::now();
        other.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        let (error, ended) = building.join().unwrap();
        (error, ended - since)
    });
    assert!(took < soon, "{error}");
    assert_eq!(error.server().message, "canceling statement due to user request", "{error}");

    session.execute("SET hnsw.external_index_connect_timeout = 1").unwrap();
    let error = within("the statement", soon, || session.execute(CREATE)).unwrap_err();
    assert_eq!(error.server().sqlstate, "08001", "{error}");
    assert!(error.server().detail.contains("builder.example"), "{error}");
    session.execute("SET hnsw.external_index_fallback = local").unwrap();
    within("the statement", soon, || session.execute(CREATE)).unwrap();
    inspect(&cluster, &mut session, "items_idx").unwrap();
    // The session ends at once, in spite of pending requests to the resolver.
    let mut other = cluster.session("silent").unwrap();
    other.execute(&format!("SELECT pg_terminate_backend({pid}, 10000)")).unwrap();
    assert_eq!(other.value::<u32>(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")).unwrap(), 0);
}
