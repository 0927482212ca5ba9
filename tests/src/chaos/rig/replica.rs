//! A second router, as in a Deployment with two replicas: the routers share only the state in Kubernetes.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::{is_running, wait_for};
use rustix::process::Signal;

use super::{Rig, in_pods};
use crate::daemon::Daemon;
use crate::strike::signal;

/// The second router's identity in Kubernetes.
const IDENTITY: &str = "router-b";
/// The time limit for its end after SIGTERM; longer than the grace period of builds.
const END: Duration = Duration::from_secs(20);

impl Rig {
    /// Starts the second router. Every other build uses it from now on.
    pub fn start_replica(&mut self) -> Result<()> {
        let arguments: Vec<&str> = self.of_router.iter().map(String::as_str).collect();
        let variables = [("TMPDIR".to_owned(), self.folder.path().join("tmp").display().to_string())];
        let options = in_pods(self.pods()?, IDENTITY, &arguments, self.tls, &variables)?;
        self.replica = Some(Daemon::start("second router", options)?);
        self.trust(&[])
    }

    /// Kills the second router and deletes its pod.
    pub fn lose_replica(&mut self) -> Result<()> {
        self.replica.as_mut().context("there is one router")?.process.kill();
        self.pods()?.forget(IDENTITY)
    }

    /// Stops the second router, unless it has been asked to end (`is_ending`), and waits for its end. Returns what went wrong.
    pub fn end_replica(&mut self, is_ending: bool) -> Result<Option<String>> {
        let Some(mut replica) = self.replica.take() else { return Ok(None) };
        let mut wrong = None;
        // Without a process it was killed before.
        if let Some(pid) = replica.process.pid() {
            if !is_ending {
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
