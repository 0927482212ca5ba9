//! Settings: their defaults, who may change them, and what each TLS mode accepts.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::Duration;

use harness::{Builder, Cluster, PgConfig, Proxy, Session, root, skipped, within};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().unwrap());

const CREATE: &str = "CREATE INDEX ON t USING hnsw (v vector_l2_ops) WITH (external = true)";

fn database(name: &str) -> Session {
    let mut session = CLUSTER.database(name).unwrap();
    session
        .execute(
            "CREATE TABLE t (v vector(3)); INSERT INTO t SELECT ARRAY[i, 1, 2]::vector FROM generate_series(1, 100) i",
        )
        .unwrap();
    session
}

/// Sets settings of the session, by the last part of their names, such as `sslmode = 'require'`.
fn set(session: &mut Session, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        session.execute(&format!("SET hnsw.external_index_{name} = '{value}'")).unwrap();
    }
}

#[test]
fn defaults_are_as_documented() {
    let mut session = CLUSTER.database("defaults").unwrap();
    let documented = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let rows = documented.lines().filter_map(|line| line.strip_prefix("| `hnsw.")?.split_once("` | "));
    let rows: Vec<_> = rows.map(|(name, rest)| (name, rest.split(" | ").next().unwrap())).collect();
    assert!(rows.contains(&("external_index_port", "`8998`")), "{rows:?}");
    for (name, default) in rows {
        let default = if default == "empty" { "" } else { default.trim_matches('`') };
        assert_eq!(session.value::<String>(&format!("SHOW hnsw.{name}")).unwrap(), default, "{name}");
    }
    // As a whole number of seconds it would be 0, which is no limit.
    session.execute("SET hnsw.external_index_connect_timeout = '500ms'").unwrap();
    assert_eq!(session.value::<String>("SHOW hnsw.external_index_connect_timeout").unwrap(), "500ms");
    session.execute("RESET hnsw.external_index_connect_timeout").unwrap();
    for nonsense in ["port = 0", "port = 65536", "sslmode = 'perhaps'", "secure = 'maybe'", "connect_timeout = -5"] {
        assert!(session.execute(&format!("SET hnsw.external_index_{nonsense}")).is_err(), "{nonsense}");
    }
}

#[test]
fn addresses_and_files_are_the_superusers() {
    let mut session = CLUSTER.database("rights").unwrap();
    session.execute("CREATE ROLE someone; SET ROLE someone").unwrap();
    for name in ["host", "port", "secure", "sslmode", "sslrootcert", "sslcert", "sslkey", "token_file"] {
        let value: String = session.value(&format!("SHOW hnsw.external_index_{name}")).unwrap();
        let error = session.execute(&format!("SET hnsw.external_index_{name} = '{value}'")).unwrap_err();
        assert_eq!(error.server().sqlstate, "42501", "{name}: {error}");
    }
    if CLUSTER.config().major >= 15 {
        session
            .execute("RESET ROLE; GRANT SET ON PARAMETER hnsw.external_index_host TO someone; SET ROLE someone")
            .unwrap();
        session.execute("SET hnsw.external_index_host = 'builder.example'").unwrap();
    }
    session.execute("RESET ROLE; RESET hnsw.external_index_host").unwrap();
}

#[test]
fn an_owner_who_is_no_superuser_may_build() {
    let builder = Builder::start().unwrap();
    let mut session = CLUSTER.database("owner").unwrap();
    builder.attach(&mut session).unwrap();
    session
        .execute(
            "CREATE ROLE owner; GRANT CREATE ON SCHEMA public TO owner; SET ROLE owner; \
             CREATE TABLE t (v vector(3)); INSERT INTO t VALUES ('[1,2,3]')",
        )
        .unwrap();
    session.execute(CREATE).unwrap();
}

#[test]
fn an_unverified_builder_is_warned_of_once() {
    let builder = Builder::start().unwrap();
    let mut session = database("require");
    builder.attach(&mut session).unwrap();
    session.take_notices();
    session.execute(CREATE).unwrap();
    let warned = |session: &mut Session| session.take_notices().iter().filter(|n| n.message.contains("verif")).count();
    assert_eq!(warned(&mut session), 1, "that nobody verifies the builder is said");
    session.execute(CREATE).unwrap();
    assert_eq!(warned(&mut session), 0, "but only once");
}

#[test]
fn each_sslmode_verifies_what_it_says() {
    let builder = Builder::start().unwrap();
    let stranger = Builder::start().unwrap();
    // An address that is not in the certificate.
    let elsewhere = Proxy::start_on(Ipv4Addr::new(127, 0, 0, 2), builder.address()).unwrap();
    let (here, there) = (("127.0.0.1", builder.address().port()), ("127.0.0.2", elsewhere.port()));
    let mut session = database("verify");
    let root = |builder: &Builder| builder.certificate().display().to_string();
    for ((host, port), certificate, sslmode, works) in [
        (here, root(&builder), "verify-full", true),
        (here, root(&builder), "verify-ca", true),
        (here, root(&builder), "require", true),
        (here, root(&stranger), "verify-full", false),
        (here, root(&stranger), "verify-ca", false),
        (there, root(&builder), "verify-full", false),
        (there, root(&builder), "verify-ca", true),
        (here, "/does/not/exist.pem".to_owned(), "verify-full", false),
        (here, String::new(), "verify-full", false),
    ] {
        set(
            &mut session,
            &[("host", host), ("port", &port.to_string()), ("sslmode", sslmode), ("sslrootcert", &certificate)],
        );
        let result = within("a build or its refusal", Duration::from_secs(30), || session.execute(CREATE));
        match result {
            Ok(()) => assert!(works, "{sslmode} with {certificate:?} was accepted"),
            Err(error) => {
                assert!(!works, "{sslmode} with {certificate:?}: {error}");
                assert!(!error.server().hint.is_empty() || !error.server().detail.is_empty(), "{error}");
            }
        }
    }
}

#[test]
fn a_configured_address_survives_pgvector() {
    let builder = Builder::start().unwrap();
    assert!(fs::metadata(builder.certificate()).unwrap().len() > 0);
    let cluster = Cluster::start_with(PgConfig::require().unwrap(), &builder.settings()).unwrap();
    let mut session = cluster.database("configured").unwrap();
    session.execute("CREATE TABLE t (v vector(3)); INSERT INTO t VALUES ('[1,2,3]')").unwrap();
    session.execute(CREATE).unwrap();
    assert_eq!(session.value::<u16>("SHOW hnsw.external_index_port").unwrap(), builder.address().port());
}

/// pgvector discards settings of its prefix that are not defined when it is loaded.
#[test]
fn the_wrong_order_of_libraries_is_warned_of() {
    let config = CLUSTER.config().clone();
    if config.major < 15 {
        return skipped("the order of libraries, which does not matter before PostgreSQL 15");
    }
    let lines = "shared_preload_libraries = 'vector, lantern_index'\nhnsw.external_index_port = 1234";
    let cluster = Cluster::start_with(config, lines).unwrap();
    let shown: String = cluster.session("postgres").unwrap().value("SHOW hnsw.external_index_port").unwrap();
    assert_eq!(shown, "8998");
    let log = cluster.log();
    assert!(log.contains("settings hnsw.external_index_* of the configuration file, if any, are ignored"), "{log}");
}
