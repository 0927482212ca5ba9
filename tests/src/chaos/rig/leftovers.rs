//! Checks that builds leave nothing behind.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use harness::{is_running, wait_for};

use super::Rig;
use crate::daemon::{Daemon, Usage};
use crate::fault::Party;
use crate::pods::Pods;

/// The tolerance for a daemon's memory in bytes.
const SLACK: u64 = 32 << 20;
/// Connections to the API server that a router may keep: more than its concurrent requests.
const KEPT: usize = 16;
/// The time limit for everything of a build to be gone.
pub(super) const SOON: Duration = Duration::from_secs(15);
/// The limit if another router may have to take over builders: it searches for them four times a minute.
const TAKEN_OVER: Duration = Duration::from_secs(35);
/// The limit if a redirected client may have been cancelled on its way: its builder stays reserved for a minute.
const WAITED_FOR: Duration = Duration::from_secs(70);

impl Rig {
    /// Resident bytes of each daemon, at first and now.
    pub fn usage(&self) -> Vec<(&'static str, u64, u64)> {
        let of = |daemon: &Daemon| (daemon.what, daemon.first.resident, daemon.usage().resident);
        self.daemons.iter().map(of).collect()
    }

    /// Records the present state as the expected one.
    pub fn settle(&mut self) -> Result<Vec<String>> {
        let left = self.leftovers(&[], true);
        for daemon in &mut self.daemons {
            daemon.first = usage(daemon, self.pods.as_ref());
        }
        self.pods.as_mut().map_or(Ok(()), Pods::settle)?;
        Ok(left)
    }

    /// What is left of builds and clients after the time limit. `builders` are processes that were seen.
    pub fn leftovers(&self, builders: &[u32], is_first: bool) -> Vec<String> {
        let mut left = Vec::new();
        let patience = match self.mode {
            mode if mode.is_redirect() => WAITED_FOR,
            mode if mode.has_pods() => TAKEN_OVER,
            _ => SOON,
        };
        let mut expect = |what: &str, count: &mut dyn FnMut() -> Result<u64>| {
            let mut last = 0;
            let gone = wait_for(what, patience, || {
                last = count()?;
                Ok((last == 0).then_some(()))
            });
            if let Err(error) = gone {
                left.push(format!("{what}: {last} left ({error})"));
            }
        };
        for daemon in &self.daemons {
            expect(&format!("builds of the {}", daemon.what), &mut || Ok(daemon.builds()? as u64));
        }
        if self.mode.starts_builders() {
            expect("builder processes of the router", &mut || Ok(self.pids(Party::Builder).len() as u64));
            let running = || builders.iter().filter(|&&pid| is_running(pid)).count();
            expect("builder processes", &mut || Ok(running() as u64));
        }
        if let Some(pods) = &self.pods {
            expect("pods of builders", &mut || Ok(pods.builders()?.len() as u64));
            expect("objects of Kubernetes", &mut || Ok(if is_first { 0 } else { pods.new_objects()?.len() as u64 }));
        }
        for folder in ["tmp", "spool"] {
            let path = self.folder.path().join(folder);
            expect(&format!("files in the {folder} directory"), &mut || Ok(fs::read_dir(&path)?.count() as u64));
        }
        if !is_first {
            for daemon in &self.daemons {
                let more = || usage(daemon, self.pods.as_ref()).files.saturating_sub(daemon.first.files) as u64;
                expect(&format!("descriptors of the {}", daemon.what), &mut || Ok(more()));
            }
            if let Some(pods) = &self.pods {
                let kept = || self.pids(Party::Router).into_iter().map(|pid| pods.connections(pid)).sum::<usize>();
                let more = || Ok(kept().saturating_sub(KEPT) as u64);
                expect("more connections to the API server than are kept", &mut { more });
            }
        }
        let grown =
            self.daemons.iter().filter(|daemon| !is_first && daemon.usage().resident > daemon.first.resident + SLACK);
        left.extend(grown.map(|daemon| {
            let (first, now) = (daemon.first.resident >> 20, daemon.usage().resident >> 20);
            format!("memory of the {}: {now} MiB, at first {first}", daemon.what)
        }));
        left
    }
}

/// The resources of a daemon, without its idle connections to the API server: their number varies.
fn usage(daemon: &Daemon, pods: Option<&Pods>) -> Usage {
    let Usage { files, resident } = daemon.usage();
    let kept = pods.map_or(0, |pods| pods.connections(daemon.pid()));
    Usage { files: files.saturating_sub(kept), resident }
}
