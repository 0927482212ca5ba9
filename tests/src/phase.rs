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

/// The phase that ends at the builder's first progress report.
const WAITING: &str = "waiting for external build";

impl Phase {
    /// All phases.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Graph, Self::Pages];

    /// Starts a build and returns when it is in the middle of this phase, where `proxy`, through which it connects, stops it. The build
    /// must have some MB of rows and pages; `watcher` is a session of the same database.
    pub fn reach(self, proxy: &Proxy, session: Session, watcher: &mut Session, sql: &str) -> Result<Building> {
        const HELD: u64 = 1 << 20;
        proxy.reset();
        let held = if self == Self::Pages { Direction::ToClient } else { Direction::ToBuilder };
        proxy.stop_after(held, HELD);
        let building = session.start(sql);
        proxy.wait_until_stopped(held)?;
        if self == Self::Graph {
            // The builder has accepted the build: what it sends from here on would end the phase.
            proxy.stop_after(Direction::ToClient, 0);
            proxy.stop_after(Direction::ToBuilder, u64::MAX);
            wait_for_phase(watcher, WAITING)?;
        }
        Ok(building)
    }
}

/// Waits until a build of the session's database reports a phase whose name has these words; returns the name. There must be one build.
pub fn wait_for_phase(watcher: &mut Session, words: &str) -> Result<String> {
    let sql = "SELECT phase FROM pg_stat_progress_create_index WHERE datname = current_database()";
    wait_for(&format!("the phase {words}"), Duration::from_secs(60), || {
        let rows = watcher.query(sql)?;
        Ok(rows.first().and_then(|row| row[0].clone()).filter(|phase| phase.contains(words)))
    })
}
