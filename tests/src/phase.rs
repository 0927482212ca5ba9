use std::time::Duration;

use anyhow::Result;

use crate::{Building, Direction, Proxy, Session, wait_for};

/// The phase in which a build is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows are being sent.
    Rows,
    /// All rows have been sent, and no page has been received.
    Graph,
    /// Pages are being received.
    Pages,
}

/// Names of the phases for [`Phase::Graph`]. The first ends at the builder's first progress report, perhaps at once.
const GRAPH: [&str; 4] = ["waiting for external build", "building graph", "choosing neighbors", "ordering elements"];

impl Phase {
    /// All phases.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Graph, Self::Pages];

    /// Starts a build and returns when it is in the middle of this phase, where `proxy`, through which it connects, stops it. The build
    /// should take a while, and have some MB of rows and pages; `watcher` is a session of the same database.
    pub fn reach(self, proxy: &Proxy, session: Session, watcher: &mut Session, sql: &str) -> Result<Building> {
        const HELD: u64 = 1 << 20;
        proxy.reset();
        match self {
            Self::Rows => proxy.stop_after(Direction::ToBuilder, HELD),
            // Hold pages back, since nothing announces the end of the graph.
            Self::Graph | Self::Pages => proxy.stop_after(Direction::ToClient, HELD),
        }
        let building = session.start(sql);
        match self {
            Self::Rows => proxy.wait_until_stopped(Direction::ToBuilder)?,
            Self::Pages => proxy.wait_until_stopped(Direction::ToClient)?,
            Self::Graph => wait_for_phase(watcher, &GRAPH)?,
        }
        Ok(building)
    }
}

/// Waits until a build of the session's database reports one of these phases.
fn wait_for_phase(watcher: &mut Session, names: &[&str]) -> Result<()> {
    let sql = "SELECT phase FROM pg_stat_progress_create_index WHERE datname = current_database()";
    wait_for("the build's phase", Duration::from_secs(60), || {
        let rows = watcher.query(sql)?;
        let phase = rows.first().and_then(|row| row[0].clone()).unwrap_or_default();
        Ok(names.iter().any(|name| phase.contains(name)).then_some(()))
    })
}
