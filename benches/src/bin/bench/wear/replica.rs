//! How much WAL does a step write, and how far does a replica fall behind?

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use harness::{Cluster, Session, wait_for};

/// Interval of samples.
const PAUSE: Duration = Duration::from_millis(100);
/// Time in which the replica must catch up.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a step demands of a replica.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// Bytes of WAL that the step wrote.
    pub written: u64,
    /// The most of these bytes that the replica had not yet replayed, while the step ran.
    pub behind: u64,
    /// Seconds from the end of the step until the replica had replayed all.
    pub seconds: f64,
}

/// A hot standby with streaming replication. Without `hot_standby_feedback`, so that VACUUM may remove dead rows.
pub struct Replica(Cluster);

impl Replica {
    pub fn start(primary: &Cluster) -> Result<Self> {
        let mut standby = primary.standby()?;
        // The primary keeps WAL until the replica has it, and the replica keeps little, because the disk is shared.
        primary.session("postgres")?.execute("SELECT pg_create_physical_replication_slot('replica')")?;
        standby.configure("primary_slot_name = 'replica'\nmax_wal_size = 2GB")?;
        standby.restart()?;
        Ok(Self(standby))
    }

    /// Waits until the replica has caught up, and watches it from then on.
    pub fn follow(&self, primary: &Cluster) -> Result<Follower> {
        let mut sessions = Sessions { primary: primary.session("postgres")?, standby: self.0.session("postgres")? };
        let start = sessions.catch_up()?;
        let (over, ended) = channel();
        let thread = thread::spawn(move || {
            let (behind, ended) = most(&ended, || sessions.behind())?;
            let written = sessions.catch_up()? - start;
            Ok(Replay { written, behind, seconds: ended.elapsed().as_secs_f64() })
        });
        Ok(Follower { over, thread })
    }
}

/// A thread that watches the replica during a step.
pub struct Follower {
    over: Sender<Instant>,
    thread: JoinHandle<Result<Replay>>,
}

impl Follower {
    /// The step ends now.
    pub fn end(&self) {
        // If the thread has failed, `replay` returns its error.
        let _ = self.over.send(Instant::now());
    }

    /// Waits until the replica has caught up.
    pub fn replay(self) -> Result<Replay> {
        self.thread.join().map_err(|_| anyhow!("the thread that watched the replica panicked"))?
    }
}

struct Sessions {
    primary: Session,
    standby: Session,
}

impl Sessions {
    /// Bytes that the primary has written and the replica has not replayed; never too many, as the primary is asked first.
    fn behind(&mut self) -> Result<u64> {
        let inserted: u64 = self.primary.value("SELECT pg_current_wal_insert_lsn() - pg_lsn '0/0'")?;
        Ok(inserted.saturating_sub(self.replayed()?))
    }

    fn replayed(&mut self) -> Result<u64> {
        self.standby.value("SELECT pg_last_wal_replay_lsn() - pg_lsn '0/0'")
    }

    /// Waits until the replica has replayed all that is written by now, and returns the WAL's position. The position is that of a message
    /// whose commit flushes the WAL: only flushed WAL is sent, and VACUUM need not flush what it wrote.
    fn catch_up(&mut self) -> Result<u64> {
        let end: u64 = self.primary.value("SELECT pg_logical_emit_message(true, 'bench', '') - pg_lsn '0/0'")?;
        wait_for("the replica to catch up", PATIENCE, || Ok((self.replayed()? >= end).then_some(end)))
    }
}

/// The maximum of samples, the last of which is taken at the end; and the time of the end.
fn most(ended: &Receiver<Instant>, mut sample: impl FnMut() -> Result<u64>) -> Result<(u64, Instant)> {
    let mut most = 0;
    loop {
        let heard = ended.recv_timeout(PAUSE);
        most = most.max(sample()?);
        if heard != Err(RecvTimeoutError::Timeout) {
            return Ok((most, heard?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_includes_the_last_sample() {
        for (samples, largest) in [([1, 9, 2], 9), ([1, 2, 9], 9)] {
            let (over, ended) = channel();
            let (end, mut taken) = (Instant::now(), 0);
            let sample = || {
                taken += 1;
                if taken == 2 {
                    over.send(end)?;
                }
                Ok(samples[taken - 1])
            };
            assert_eq!(most(&ended, sample).unwrap(), (largest, end));
        }
    }

    #[test]
    fn a_step_that_fails_ends_the_samples() {
        let (over, ended) = channel();
        drop(over);
        assert!(most(&ended, || Ok(1)).is_err());
    }
}
