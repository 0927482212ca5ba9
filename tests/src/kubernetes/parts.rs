//! The processes of a control plane. Processes that end by themselves are restarted, as by a kubelet: the scheduler ends when it sees an
//! impossible state, such as after the API server was down.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Scratch;

/// The interval at which the processes are checked.
const INTERVAL: Duration = Duration::from_millis(300);

/// The running parts.
pub(super) struct Parts(Arc<Mutex<Vec<Part>>>);

struct Part {
    name: &'static str,
    command: Command,
    child: Child,
    /// Ends the process if this one is killed.
    guard: Scratch,
}

impl Parts {
    /// Starts the thread that watches parts; there are none yet.
    pub(super) fn start() -> Self {
        let parts = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::downgrade(&parts);
        thread::spawn(move || watch(&seen));
        Self(parts)
    }

    /// Starts a part, whose output goes to a file.
    pub(super) fn add(&self, name: &'static str, mut command: Command, log: PathBuf) -> Result<()> {
        let log = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let guard = Scratch::new(name, 0o700)?;
        guard.guard(child.id())?;
        lock(&self.0).push(Part { name, command, child, guard });
        Ok(())
    }

    /// Kills a part and forgets it.
    pub(super) fn kill(&self, name: &str) {
        lock(&self.0).retain_mut(|part| {
            if part.name == name {
                part.end();
            }
            part.name != name
        });
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Their state is discarded, so they may be killed.
        lock(&self.0).drain(..).for_each(|mut part| part.end());
    }
}

impl Part {
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.guard.unguard();
    }

    /// Restarts the part if it has ended.
    fn mend(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            self.guard.unguard();
            self.child = self.command.spawn().with_context(|| format!("cannot start {} again", self.name))?;
            self.guard.guard(self.child.id())?;
        }
        Ok(())
    }
}

/// Checks the parts periodically, as long as they are needed.
fn watch(parts: &Weak<Mutex<Vec<Part>>>) {
    while let Some(parts) = parts.upgrade() {
        for part in lock(&parts).iter_mut() {
            if let Err(error) = part.mend() {
                eprintln!("{error:#}");
            }
        }
        drop(parts);
        thread::sleep(INTERVAL);
    }
}

fn lock(parts: &Mutex<Vec<Part>>) -> MutexGuard<'_, Vec<Part>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Parts, lock};
    use crate::{Scratch, wait_for};

    #[test]
    fn a_part_that_ends_is_restarted_until_it_is_killed() {
        let files = Scratch::new("parts-test", 0o700).unwrap();
        let log = files.path().join("log");
        let parts = Parts::start();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo here"]);
        parts.add("short", command, log.clone()).unwrap();
        let often = || Ok((std::fs::read_to_string(&log)?.lines().count() >= 3).then_some(()));
        wait_for("the third start", Duration::from_secs(20), often).unwrap();
        parts.kill("short");
        assert!(lock(&parts.0).is_empty());
    }
}
