//! Messages for users name the index, the reason, and the remedy.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::time::Duration;

use harness::{Builder, BuilderOptions, Cluster, Notice, Scratch, Session, diagnose, make_diagnose, within};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

const CREATE: &str = "CREATE INDEX i ON t USING hnsw (v vector_l2_ops) WITH (external = true)";

fn database(name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    session
        .execute(
            "CREATE TABLE t (v vector(3)); INSERT INTO t SELECT ARRAY[i, 1, 2]::vector FROM generate_series(1, 100) i;
             SET hnsw.external_index_connect_timeout = 60",
        )
        .unwrap();
    session
}

fn set(session: &mut Session, name: &str, value: &str) {
    session.execute(&format!("SET hnsw.external_index_{name} = '{value}'")).unwrap();
}

fn fails(session: &mut Session, statement: &str) -> Notice {
    let error = within("the failure", Duration::from_secs(30), || session.execute(statement).unwrap_err());
    println!("{error}\n");
    error.server().clone()
}

#[test]
fn a_tls_mismatch_is_named() {
    let plain = Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::default() }).unwrap();
    let encrypted = Builder::start().unwrap();
    let mut session = database("tls_or_not");
    for (builder, secure, detail, hint) in [
        (&plain, "on", "The server does not use TLS.", "Set hnsw.external_index_secure to off"),
        (&encrypted, "off", "The server uses TLS.", "Set hnsw.external_index_secure to on."),
    ] {
        builder.attach(&mut session).unwrap();
        session.execute(CREATE).unwrap();
        session.execute("DROP INDEX i").unwrap();
        set(&mut session, "secure", secure);
        let found = fails(&mut session, CREATE);
        assert_eq!((found.sqlstate.as_str(), found.detail.as_str()), ("08006", detail));
        assert!(found.message.starts_with("could not agree on TLS with external indexing server on 127.0.0.1:"));
        assert!(found.hint.starts_with(hint), "{found}");
    }
}

/// The greeting of a builder without TLS may become readable at any moment, and in pieces.
#[test]
fn a_greeting_in_pieces_is_recognised() {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (stream, first) in listener.incoming().zip([1, 3, 5, 7]) {
            let mut stream = stream.unwrap();
            let greeting = protocol::Greeting::builder().to_bytes();
            let (start, rest) = greeting.split_at(first);
            stream.write_all(start).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            // The client may have understood and closed.
            let _ = stream.write_all(rest);
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let mut session = database("pieces");
    set(&mut session, "port", &port.to_string());
    set(&mut session, "secure", "on");
    for _ in 0..4 {
        assert_eq!(fails(&mut session, CREATE).detail, "The server does not use TLS.");
    }
}

/// Another server listens on the port: the hint must not suggest to turn encryption off.
#[test]
fn no_hint_turns_encryption_off_for_another_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let mut session = database("another_server");
    set(&mut session, "port", &port.to_string());
    for secure in ["on", "off"] {
        set(&mut session, "secure", secure);
        let found = fails(&mut session, CREATE);
        assert!(found.sqlstate.starts_with("08"), "{found}");
        assert!(found.hint.contains("hnsw.external_index_port") && !found.hint.contains("secure"), "{found}");
    }
}

#[test]
fn the_reason_for_a_refused_certificate_is_named() {
    let scratch = Scratch::new("certificates", 0o755).unwrap();
    let directory = scratch.path();
    let write = |name: String, text: String, mode| {
        fs::write(directory.join(&name), text).unwrap();
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = || CertifiedIssuer::self_signed(params.clone(), KeyPair::generate().unwrap()).unwrap();
    let (ours, theirs) = (authority(), authority());
    write("ours.pem".to_owned(), ours.pem(), 0o644);
    let expired = date_time_ymd(2024, 2, 29) + Duration::from_secs((12 * 60 + 34) * 60 + 56);
    for (name, from, to, issuer) in [
        ("expired", date_time_ymd(2020, 1, 1), expired, &ours),
        ("early", date_time_ymd(2098, 1, 1), date_time_ymd(2099, 12, 31), &ours),
        ("good", date_time_ymd(2020, 1, 1), date_time_ymd(2099, 12, 31), &ours),
        ("strange", date_time_ymd(2020, 1, 1), date_time_ymd(2099, 12, 31), &theirs),
    ] {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        (params.not_before, params.not_after) = (from, to);
        let key = KeyPair::generate().unwrap();
        write(format!("{name}.pem"), params.signed_by(&key, issuer).unwrap().pem(), 0o644);
        write(format!("{name}.key"), key.serialize_pem(), 0o600);
    }
    let file = |name: &str| directory.join(name).display().to_string();
    let builder = |name: &str| {
        let arguments = ["--cert", &file(&format!("{name}.pem")), "--key", &file(&format!("{name}.key"))];
        Builder::start_with(&BuilderOptions { tls: false, ..BuilderOptions::serve(&arguments) }).unwrap()
    };
    let mut session = database("certificates");
    for (name, detail, hint) in [
        ("expired", "The builder's certificate expired on 2024-02-29 12:34:56 UTC.", "Renew the builder's certificate"),
        (
            "early",
            "The builder's certificate is not valid before 2098-01-01 00:00:00 UTC.",
            "Renew the builder's certificate",
        ),
        (
            "strange",
            "The builder's certificate was not signed by a certificate in hnsw.external_index_sslrootcert.",
            "Set hnsw.external_index_sslrootcert to the certificate that signed the builder's",
        ),
    ] {
        let builder = builder(name);
        set(&mut session, "port", &builder.address().port().to_string());
        set(&mut session, "sslrootcert", &file("ours.pem"));
        set(&mut session, "sslmode", "verify-full");
        let found = fails(&mut session, CREATE);
        assert_eq!(found.detail, detail, "{found}");
        assert!(found.hint.starts_with(hint), "{found}");
    }
    let good = builder("good");
    set(&mut session, "port", &good.address().port().to_string());
    session.execute(CREATE).unwrap();
}

/// The session's INFO lines about builds, without lines that occur once per session.
fn steps(session: &mut Session) -> Vec<String> {
    let notices = session.take_notices().into_iter().filter(|notice| !notice.message.contains("verified"));
    notices.map(|notice| notice.headline()).filter(|line| !line.starts_with("DEBUG")).collect()
}

#[test]
fn steps_of_a_build_are_info_lines() {
    let builder = Builder::start().unwrap();
    let mut session = database("steps");
    builder.attach(&mut session).unwrap();
    session.execute(CREATE).unwrap();
    let single = [
        format!("INFO:  connecting to external indexing server on {}", builder.address()),
        "INFO:  successfully connected to external indexing server".to_owned(),
        "INFO:  indexed 100 elements".to_owned(),
    ];
    assert_eq!(steps(&mut session), single);

    // client_min_messages suppresses them.
    for level in ["error", "warning"] {
        session.execute(&format!("DROP INDEX i; SET client_min_messages = {level}")).unwrap();
        session.execute(CREATE).unwrap();
        assert_eq!(steps(&mut session), [""; 0]);
    }
    session.execute("RESET client_min_messages").unwrap();

    session
        .execute(
            "CREATE TABLE p (id int, v vector(3)) PARTITION BY RANGE (id);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
             CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
             INSERT INTO p SELECT i, ARRAY[i, 1, 2]::vector FROM generate_series(0, 14) i",
        )
        .unwrap();
    session.execute("CREATE INDEX whole ON p USING hnsw (v vector_l2_ops) WITH (external = true)").unwrap();
    let partitions = [
        "INFO:  indexed 10 elements of partition \"p1\" in index \"p1_v_idx\"",
        "INFO:  indexed 5 elements of partition \"p2\" in index \"p2_v_idx\"",
    ];
    assert_eq!(steps(&mut session), partitions);
}

#[test]
fn failures_name_the_index() {
    let mut session = database("named");
    set(&mut session, "port", "1");
    make_diagnose(&mut session).unwrap();
    let diagnosed = diagnose(&mut session, CREATE).unwrap();
    assert!(diagnosed.contains(" | external build of index \"i\", build "), "{diagnosed}");
    let found = fails(&mut session, CREATE);
    assert!(!found.hint.contains("left behind"), "{found}");

    let concurrently = CREATE.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY");
    let found = fails(&mut session, &concurrently);
    assert!(found.hint.ends_with("An invalid index \"i\" is left behind: remove it with DROP INDEX."), "{found}");
    let found = fails(&mut session, "REINDEX INDEX CONCURRENTLY i");
    let words = "in _ccnew, or in _ccnew and a number, are left behind, \"i_ccnew\" and perhaps others: remove";
    assert!(found.hint.contains(words), "{found}");
    assert_eq!(
        session.value::<String>("SELECT indisvalid FROM pg_index WHERE indexrelid = 'i'::regclass").unwrap(),
        "f"
    );
    // Only the end of a name is REINDEX's.
    let found = fails(&mut session, &concurrently.replace(" i ON", " i_ccnews ON"));
    assert!(
        found.hint.ends_with("An invalid index \"i_ccnews\" is left behind: remove it with DROP INDEX."),
        "{found}"
    );
    session.execute("DROP INDEX i, i_ccnews").unwrap();
}

/// Settings that make the WAL of an index cost more than it must are named in the hint of the last line.
#[test]
fn settings_that_make_wal_costly_are_named() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = cluster.database("wal").unwrap();
    builder.attach(&mut session).unwrap();
    // An element takes a page of its own: 34 MB.
    session
        .execute(
            "CREATE TABLE large (v vector(1200));
             INSERT INTO large SELECT (ARRAY[i, i % 7] || array_fill(1, ARRAY[1198]))::real[]::vector FROM generate_series(1, 4200) i;
             CREATE UNLOGGED TABLE unlogged AS SELECT * FROM large;
             CREATE TABLE small AS SELECT * FROM large LIMIT 100",
        )
        .unwrap();
    let hint = |session: &mut Session, table: &str| {
        session.take_notices();
        session
            .execute(&format!(
                "CREATE INDEX i ON {table} USING hnsw (v vector_l2_ops) WITH (external = true, m = 2, ef_construction = 4); DROP INDEX i"
            ))
            .unwrap();
        let notices = session.take_notices();
        notices.iter().find(|notice| notice.message.starts_with("indexed ")).unwrap().hint.clone()
    };
    assert_eq!(hint(&mut session, "large"), "");
    session.execute("SET wal_compression = on").unwrap();
    let compressed = hint(&mut session, "large");
    assert!(compressed.contains("wal_compression") && !compressed.contains("max_wal_size"), "{compressed}");
    assert_eq!(hint(&mut session, "small"), "");

    cluster.configure("max_wal_size = 32MB").unwrap();
    cluster.reload().unwrap();
    harness::wait_for("the setting", Duration::from_secs(60), || {
        Ok((session.value::<String>("SHOW max_wal_size")? == "32MB").then_some(()))
    })
    .unwrap();
    let both = hint(&mut session, "large");
    assert!(both.contains("wal_compression") && both.contains("max_wal_size"), "{both}");
    assert_eq!(hint(&mut session, "unlogged"), "");
    session.execute("SET wal_compression = off").unwrap();
    let exceeded = hint(&mut session, "large");
    assert!(exceeded.contains("max_wal_size") && !exceeded.contains("wal_compression"), "{exceeded}");
}
