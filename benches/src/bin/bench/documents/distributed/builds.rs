use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{Builder, children};

use super::super::super::options::Case;
use super::super::super::set::Set;
use super::super::super::stage::INDEX;
use super::super::super::{indexed, watch};
use super::nodes::Node;

/// The interval at which builders are counted.
const PAUSE: Duration = Duration::from_millis(5);

/// Seconds of builds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Builds {
    /// In the database: all rows on one node; each half on its node, one after the other; both halves concurrently.
    pub inside: [f64; 3],
    /// The same three builds through the router.
    pub outside: [f64; 3],
    /// The most concurrent builders of the router.
    pub builders: u64,
}

/// Builds on all nodes, in the databases and through a router. The indexes built through the router remain.
pub fn measure(single: &mut Node, nodes: &mut [Node; 2], router: &Builder, set: &Set, case: Case) -> Result<Builds> {
    let sql = |external| indexed::statement("items", &set.key(), case, external);
    let inside = of_all(single, nodes, &sql(false))?;
    for node in [&mut *single].into_iter().chain(&mut *nodes) {
        node.session.execute(&format!("DROP INDEX {INDEX}"))?;
        router.attach(&mut node.session)?;
    }
    let pid = router.pid().context("the router has ended")?;
    let look = || [children(pid).len() as u64];
    let (outside, [builders]) = watch::most(PAUSE, look, || of_all(single, nodes, &sql(true)));
    let outside = outside?;
    ensure!(builders == 2, "two builders at a time are expected, there were {builders}");
    println!("in the database {inside:.2?} s, through the router {outside:.2?} s");
    Ok(Builds { inside, outside, builders })
}

/// Seconds of builds on the single node, on both nodes one after the other, and on both concurrently; the last indexes remain.
fn of_all(single: &mut Node, [first, second]: &mut [Node; 2], sql: &str) -> Result<[f64; 3]> {
    let create = |node: &mut Node| anyhow::Ok(indexed::create(&mut node.session, sql)?.seconds);
    let alone = create(single)?;
    let mut turns = 0.0;
    for node in [&mut *first, &mut *second] {
        turns += create(node)?;
        node.session.execute(&format!("DROP INDEX {INDEX}"))?;
    }
    let start = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(|| create(first));
        let own = create(second);
        other.join().expect("no panic").and(own)
    })?;
    Ok([alone, turns, start.elapsed().as_secs_f64()])
}
