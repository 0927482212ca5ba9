//! A second router, as in a Deployment: the two share nothing but the state in Kubernetes.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::{is_running, wait_for};
use rustix::process::Signal;

use super::{Rig, in_pods};
use crate::daemon::Daemon;
use crate::strike::signal;

/// Its name among pods.
const IDENTITY: &str = "router-b";
/// How soon it ends when asked to: longer than the grace period of builds.
const END: Duration = Duration::from_secs(20);

impl Rig {
    /// Starts it. Every other build uses it from now on.
    pub fn start_replica(&mut self) -> Result<()> {
        let arguments: Vec<&str> = self.of_router.iter().map(String::as_str).collect();
        let variables = [("TMPDIR".to_owned(), self.folder.path().join("tmp").display().to_string())];
        let options = in_pods(self.pods()?, IDENTITY, &arguments, self.tls, &variables)?;
        self.replica = Some(Daemon::start("second router", options)?);
        self.trust(&[])
    }

    /// Kills it, and its pod is no more.
    pub fn lose_replica(&mut self) -> Result<()> {
        self.replica.as_mut().context("there is one router")?.process.kill();
        self.pods()?.forget(IDENTITY)
    }

    /// Waits until it has ended, and has it end unless it is told to already; what is wrong with that.
    pub fn end_replica(&mut self, is_told: bool) -> Result<Option<String>> {
        let Some(mut replica) = self.replica.take() else { return Ok(None) };
        let mut wrong = None;
        // Otherwise it is lost already.
        if let Some(pid) = replica.process.pid() {
            if !is_told {
                signal(Some(pid), Signal::TERM);
            }
            let ended = wait_for("the end of the second router", END, || Ok((!is_running(pid)).then_some(())));
            wrong = ended.err().map(|error| format!("{error}: {}", replica.trouble()));
            replica.process.kill();
            self.pods()?.forget(IDENTITY)?;
        }
        self.trust(&[])?;
        Ok(wrong)
    }
}
