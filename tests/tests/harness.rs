//! The harness itself, with stock pgvector: its measurements must be right before they compare anything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use harness::{
    Cluster, Column, Direction, Metric, PgConfig, Proxy, Recall, ValueType, copy_rows, data_set, exact_neighbors,
    recall,
};

#[test]
fn a_cluster_measures_recall_and_recovers_from_a_crash() {
    let mut cluster = Cluster::start_with(PgConfig::require().unwrap(), "").unwrap();
    let mut session = cluster.database("stock").unwrap();
    let (base, queries) = data_set("glove-100").unwrap();
    let queries = queries.truncated(300);
    copy_rows(&mut session, "items", Column::Vector, &base).unwrap();
    copy_rows(&mut session, "halves", Column::Halfvec, &base).unwrap();
    copy_rows(&mut session, "queries", Column::Vector, &queries).unwrap();
    let different: u32 =
        session.value("SELECT count(*) FROM items JOIN halves USING (id) WHERE items.v::halfvec <> halves.v").unwrap();
    assert_eq!(different, 0);

    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        let exact = exact_neighbors(&base, &queries, metric, 10);
        let sql = format!(
            "SELECT id FROM items ORDER BY v {} (SELECT v FROM queries WHERE id = 17) LIMIT 10",
            metric.operator()
        );
        let mut theirs: Vec<u32> =
            session.query(&sql).unwrap().iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
        let mut ours = exact[17].clone();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{metric:?}");
        let opclass = metric.operator_class(ValueType::Vector);
        session.execute(&format!("CREATE INDEX items_idx ON items USING hnsw (v {opclass})")).unwrap();
        let search = Recall { table: "items", queries: "queries", metric, exact: &exact };
        // pgvector draws other levels each time. With 200, some of its graphs find all neighbors.
        let found = [10, 200].map(|ef| recall(&mut session, search, ef).unwrap());
        assert!(found[0] > 0.4 && found[0] < 0.99 && found[1] > found[0], "{metric:?}: {found:?}");
        session.execute("DROP INDEX items_idx").unwrap();
    }

    assert!(cluster.cpu_seconds() > 0.5);
    let error = session.query("SELECT 1/0").unwrap_err();
    assert_eq!((error.server().sqlstate.as_str(), error.server().message.as_str()), ("22012", "division by zero"));
    session.execute("DO $$ BEGIN RAISE INFO 'so it is'; END $$").unwrap();
    assert_eq!(session.take_notices()[0].to_string(), "INFO:  so it is");

    let files = cluster.relation_files("stock").unwrap();
    cluster.crash().unwrap();
    assert!(session.query("SELECT 1").is_err());
    let mut session = cluster.session("stock").unwrap();
    assert_eq!(session.value::<u32>("SELECT count(*) FROM items").unwrap(), 7000);
    assert_eq!(cluster.relation_files("stock").unwrap(), files);
    let dir = cluster.dir().to_owned();
    drop(cluster);
    assert!(!dir.exists());
}

#[test]
fn proxy_stops_and_cuts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let (mut builder, _) = listener.accept().unwrap();
    let mut buffer = [0; 100];

    proxy.stop_after(Direction::ToBuilder, 30);
    client.write_all(&[7; 100]).unwrap();
    proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
    builder.read_exact(&mut buffer[..30]).unwrap();
    builder.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(builder.read(&mut buffer).is_err());
    proxy.reset();
    builder.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    builder.read_exact(&mut buffer[..70]).unwrap();

    builder.write_all(b"answer").unwrap();
    client.read_exact(&mut buffer[..6]).unwrap();
    assert_eq!(&buffer[..6], b"answer");
    assert_eq!(proxy.passed(Direction::ToClient), 6);

    // The bytes take five seconds.
    proxy.slow(Direction::ToClient, 40);
    builder.write_all(&[1; 200]).unwrap();
    thread::sleep(Duration::from_millis(50));
    client.set_nonblocking(true).unwrap();
    assert!(client.read(&mut buffer).is_err());
    client.set_nonblocking(false).unwrap();
    client.read_exact(&mut buffer).unwrap();

    proxy.cut();
    let mut rest = Vec::new();
    assert!(client.read_to_end(&mut rest).is_ok_and(|count| count <= 100));
}
