//! What is left of builds when they are over.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use harness::{is_running, wait_for};

use super::Rig;
use crate::fault::Party;

/// By how much a daemon's memory may vary.
const SLACK: u64 = 32 << 20;
/// How soon everything of a build must be gone.
const SOON: Duration = Duration::from_secs(15);
/// The same where a client that was sent to a builder, and did not come, is waited for: it may have been cancelled on its way.
const WAITED_FOR: Duration = Duration::from_secs(70);

impl Rig {
    /// Everything that is left of builds and clients, after some time for it to go. `builders` are processes that were seen.
    pub fn leftovers(&self, builders: &[u32], is_first: bool) -> Vec<String> {
        let mut left = Vec::new();
        let patience = if self.mode.is_redirect() { WAITED_FOR } else { SOON };
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
                let more = || daemon.usage().files.saturating_sub(daemon.first.files) as u64;
                expect(&format!("descriptors of the {}", daemon.what), &mut || Ok(more()));
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
