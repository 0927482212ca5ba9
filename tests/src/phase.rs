use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::{Direction, Proxy, Session, SqlError, wait_for};

/// A statement in the background, and its session.
pub type Building = JoinHandle<(Session, Result<(), SqlError>)>;

/// What a build is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows are being sent.
    Rows,
    /// All rows were sent, and no page has come.
    Graph,
    /// Pages are being received.
    Pages,
}

/// The phases of a statement in [`Phase::Graph`]; the first ends with the builder's first report of progress, perhaps at once.
const GRAPH: [&str; 4] = ["waiting for external build", "building graph", "choosing neighbors", "ordering elements"];

impl Phase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Graph, Self::Pages];

    /// Starts a build and comes back when it is in the middle of this phase, where `proxy`, through which it goes, holds it. The
    /// statement should take a while to build, and have some MB of rows and pages; `watcher` is a session of the same database.
    pub fn reach(self, proxy: &Proxy, mut session: Session, watcher: &mut Session, sql: &str) -> Result<Building> {
        const HELD: u64 = 1 << 20;
        proxy.reset();
        match self {
            Self::Rows => proxy.stop_after(Direction::ToBuilder, HELD),
            // Pages are held back, as nothing announces the end of the graph.
            Self::Graph | Self::Pages => proxy.stop_after(Direction::ToClient, HELD),
        }
        let sql = sql.to_owned();
        let building = thread::spawn(move || {
            let result = session.execute(&sql);
            (session, result)
        });
        match self {
            Self::Rows => proxy.wait_until_stopped(Direction::ToBuilder)?,
            Self::Pages => proxy.wait_until_stopped(Direction::ToClient)?,
            Self::Graph => wait_for_phase(watcher, &GRAPH)?,
        }
        Ok(building)
    }
}

/// Waits until a build of the session's database says that it is in one of these phases.
fn wait_for_phase(watcher: &mut Session, names: &[&str]) -> Result<()> {
    let sql = "SELECT phase FROM pg_stat_progress_create_index WHERE datname = current_database()";
    wait_for("the build's phase", Duration::from_secs(60), || {
        let rows = watcher.query(sql)?;
        let phase = rows.first().and_then(|row| row[0].clone()).unwrap_or_default();
        Ok(names.iter().any(|name| phase.contains(name)).then_some(()))
    })
}
