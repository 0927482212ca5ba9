//! A table on two servers behind a third one, the head: both indexes are built at the same time through one router, and a query on the head
//! finds the nearest rows of both.

use std::thread;

use harness::{
    Builder, BuilderOptions, Cluster, Column, Direction, Metric, PgConfig, Proxy, Session, children, copy_rows,
    data_set, exact_neighbors, federate, federate_ef_search, inspect, skipped,
};

const DATABASE: &str = "vectors";
const CREATE: &str = "CREATE INDEX items_idx ON items USING hnsw (v vector_cosine_ops) WITH (external = true)";
const NEIGHBORS: usize = 10;
const QUERIES: usize = 50;
const EF_SEARCH: u32 = 40;

/// The ids that a statement returns for each query, nearest first; `$query` in the statement stands for the query vector.
fn found(session: &mut Session, nearest: &str) -> Vec<Vec<u32>> {
    let of = |query: usize| {
        let vector: String = session.value(&format!("SELECT v FROM queries WHERE id = {query}")).unwrap();
        let rows = session.query(&nearest.replace("$query", &format!("'{vector}'"))).unwrap();
        rows.iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect()
    };
    (0..QUERIES).map(of).collect()
}

fn recall(found: &[Vec<u32>], exact: &[Vec<u32>]) -> f64 {
    let hits = |(found, exact): (&Vec<u32>, &Vec<u32>)| found.iter().filter(|id| exact.contains(id)).count();
    found.iter().zip(exact).map(hits).sum::<usize>() as f64 / (QUERIES * NEIGHBORS) as f64
}

fn nearest(table: &str) -> String {
    format!("SELECT id, v <=> $query AS distance FROM {table} ORDER BY distance LIMIT {NEIGHBORS}")
}

/// Makes a database with the queries and an empty table.
fn node(cluster: &Cluster, column: &str) -> Session {
    let mut session = cluster.database(DATABASE).unwrap();
    session.execute(&format!("CREATE TABLE items (id int, {column}); SET enable_seqscan = off")).unwrap();
    session.execute(&format!("SET hnsw.ef_search = {EF_SEARCH}")).unwrap();
    session
}

#[test]
fn two_nodes_built_at_once_find_what_one_finds() {
    if PgConfig::require().unwrap().major < 15 {
        return skipped("two nodes, which the head asks at once only from PostgreSQL 15 on");
    }
    let (base, queries) = data_set("minilm-384").unwrap();
    let (base, queries) = (base.truncated(4000), queries.truncated(QUERIES));
    let exact = exact_neighbors(&base, &queries, Metric::Cosine, NEIGHBORS);
    let clusters: Vec<Cluster> = (0..3).map(|_| Cluster::start().unwrap()).collect();
    let [first, second, other] = &clusters[..] else { unreachable!() };
    let column = format!("v vector({})", base.dims());

    // Another database of the head has all rows in one table, for comparison.
    let mut nodes = [node(first, &column), node(second, &column)];
    let mut head = other.database(DATABASE).unwrap();
    federate(&mut head, &format!("id int, {column}"), &[first, second], DATABASE).unwrap();
    copy_rows(&mut head, "loaded", Column::Vector, &base).unwrap();
    head.execute("INSERT INTO items SELECT * FROM loaded; DROP TABLE loaded").unwrap();
    let mut single = other.database("single").unwrap();
    copy_rows(&mut single, "items", Column::Vector, &base).unwrap();
    for session in nodes.iter_mut().chain([&mut head, &mut single]) {
        copy_rows(session, "queries", Column::Vector, &queries).unwrap();
    }

    let router = Builder::start_with(&BuilderOptions::router(&["--max-builders", "2"])).unwrap();
    let proxy = Proxy::start(router.address()).unwrap();
    proxy.stop_after(Direction::ToBuilder, 1 << 20);
    for session in nodes.iter_mut().chain([&mut single]) {
        router.attach(session).unwrap();
        session.execute("ANALYZE items").unwrap();
    }
    router.attach_through(&mut nodes[0], proxy.port()).unwrap();
    // One index is built completely while the rows of the other are being sent.
    let [node_1, node_2] = &mut nodes;
    thread::scope(|scope| {
        scope.spawn(|| node_1.execute(CREATE).unwrap());
        proxy.wait_until_stopped(Direction::ToBuilder).unwrap();
        node_2.execute(CREATE).unwrap();
        assert_eq!(router.pid().map(children).unwrap().len(), 2);
        proxy.reset();
    });
    single.execute(CREATE).unwrap();
    router.expect_builds(3).unwrap();
    for (cluster, session) in clusters.iter().zip(&mut nodes) {
        inspect(cluster, session, "items_idx").unwrap();
    }

    single.execute(&format!("SET enable_seqscan = off; SET hnsw.ef_search = {EF_SEARCH}")).unwrap();
    federate_ef_search(&mut head, 2, EF_SEARCH).unwrap();
    for session in nodes.iter_mut().chain([&mut single]) {
        let nearest = nearest("items").replace("$query", "(SELECT v FROM queries WHERE id = 0)");
        session.expect_index_scan("items_idx", &nearest).unwrap();
    }
    // Two forms of the query: one on the partitioned table, and one with a LIMIT for each node, so that both nodes search at the same time.
    let each = format!(
        "SELECT id, distance FROM (({}) UNION ALL ({}) OFFSET 0) near ORDER BY distance LIMIT {NEIGHBORS}",
        nearest("items_1"),
        nearest("items_2")
    );
    let of_one = found(&mut single, &nearest("items"));
    let of_two = found(&mut head, &nearest("items"));
    let at_once = found(&mut head, &each);
    let [one, two] = [recall(&of_one, &exact), recall(&of_two, &exact)];
    println!("recall of one node {one}, of two {two}");
    assert!(one >= 0.95 && two >= 0.97 && two >= one - 0.01, "recall of one node {one}, of two {two}");
    assert_eq!(of_two, at_once);

    // The head merges the results of its nodes.
    let parts = nodes.each_mut().map(|node| found(node, &nearest("items")));
    for (query, found) in of_two.iter().enumerate() {
        let all: Vec<u32> = parts.iter().flat_map(|part| &part[query]).copied().collect();
        assert!(found.iter().all(|id| all.contains(id)), "query {query}: {found:?} of {all:?}");
        assert_eq!(parts.iter().map(|part| part[query].len()).sum::<usize>(), 2 * NEIGHBORS);
        let kept = exact[query].iter().filter(|id| all.contains(id));
        assert!(kept.clone().all(|id| found.contains(id)), "query {query}: a near row of a node is lost");
    }

    let plan = |session: &mut Session, nearest: &str| {
        let vector: String = session.value("SELECT v FROM queries WHERE id = 0").unwrap();
        session.plan(&nearest.replace("$query", &format!("'{vector}'"))).unwrap()
    };
    let count = |plan: &str, words: &str| plan.lines().filter(|line| line.contains(words)).count();
    let pushed = plan(&mut head, &nearest("items"));
    assert_eq!((count(&pushed, "ORDER BY"), count(&pushed, "LIMIT")), (2, 0), "{pushed}");
    let pushed = plan(&mut head, &each);
    assert_eq!((count(&pushed, "Async Foreign Scan"), count(&pushed, "LIMIT 10")), (2, 2), "{pushed}");
}
