//! Causes the faults.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use harness::{Direction, wait_for};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::databases::Databases;
use crate::fault::{Fault, Party};
use crate::plan::{Build, Moment, Plan};
use crate::rig::Rig;

/// Bytes per second.
const SLOWLY: u32 = 100_000;
/// The longest wait for the moment of a fault.
const PATIENCE: Duration = Duration::from_secs(5);

/// Processes that cannot allocate memory, until this is dropped.
#[derive(Default)]
pub struct Starving(Vec<u32>);

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.iter().for_each(|&pid| limit(pid, None));
    }
}

/// Makes the proxy stop at the moment, if it is given in bytes.
pub fn arm(rig: &Rig, moment: Moment, bytes: u64) {
    if let Moment::Bytes(direction, share) = moment {
        rig.proxy.stop_after(direction, part(bytes, share));
    }
}

fn part(bytes: u64, share: f32) -> u64 {
    (bytes as f64 * f64::from(share)) as u64
}

/// Waits for the moment, for the time limit, or until `over`.
pub fn await_moment(rig: &Rig, moment: Moment, bytes: u64, usual: Duration, over: impl Fn() -> bool) {
    match moment {
        Moment::Time(share) => thread::sleep(usual.mul_f32(share)),
        Moment::Bytes(direction, share) => {
            let at = part(bytes, share);
            let is_there = || Ok((rig.proxy.passed(direction) >= at || over()).then_some(()));
            let _ = wait_for("the moment", PATIENCE, is_there);
        }
    }
}

/// Causes the fault. `backend` is the process id of the first build's backend.
pub fn strike(
    plan: &Plan,
    rig: &mut Rig,
    databases: &mut Databases,
    backend: u32,
    starving: &mut Starving,
) -> Result<()> {
    let first: &Build = &plan.builds[0];
    let target = |rig: &Rig, party: Party| -> Option<u32> {
        let pids = match party {
            Party::Backend => vec![backend],
            _ => rig.pids(party),
        };
        pids.get(plan.pick % pids.len().max(1)).copied()
    };
    match plan.fault {
        Fault::Kill(Party::Postmaster) if plan.pick.is_multiple_of(2) => databases.cluster(first.database).crash()?,
        Fault::Kill(Party::Postmaster) => databases.cluster(first.database).lose_postmaster()?,
        Fault::Terminate(Party::Postmaster) => databases.cluster(first.database).restart()?,
        Fault::Hangup(Party::Postmaster) => databases.cluster(first.database).reload()?,
        Fault::Stop(Party::Postmaster, time) => {
            stop(databases.cluster(first.database).postmaster(), time);
        }
        Fault::Kill(Party::Replica) => rig.lose_replica()?,
        Fault::Kill(party) => signal(target(rig, party), Signal::KILL),
        Fault::Terminate(party) => {
            let pid = target(rig, party);
            signal(pid, Signal::TERM);
            rig.expect_end(pid.filter(|_| party != Party::Backend));
        }
        Fault::Hangup(party) => signal(target(rig, party), Signal::HUP),
        Fault::Stop(party, time) => stop(target(rig, party), time),
        Fault::Starve(party) => {
            if let Some(pid) = target(rig, party) {
                starving.0.push(pid);
                limit(pid, Some(writable_bytes(pid)));
            }
        }
        Fault::Cancel => signal(Some(backend), Signal::INT),
        Fault::RenewCertificate => {
            rig.renew_certificate()?;
            hang_up(rig);
        }
        Fault::RenewToken => {
            rig.renew_token()?;
            hang_up(rig);
        }
        Fault::Cut => rig.proxy.cut(),
        Fault::ApiServer(time) => rig.pods()?.kubernetes.lose_api_server(time)?,
        Fault::DeletePod => {
            let is_hurried = (plan.pick >> 8).is_multiple_of(2);
            rig.pods()?.delete_one(plan.pick % plan.builds.len(), is_hurried)?;
        }
        Fault::Slow(_) | Fault::Delay(_) => {}
        Fault::Calm | Fault::Replica | Fault::FullDisk | Fault::LittleMemory | Fault::Strangers(..) => {}
    }
    // Releases the bytes that the proxy holds.
    rig.proxy.reset();
    match plan.fault {
        Fault::Slow(direction) => rig.proxy.slow(direction, SLOWLY),
        Fault::Delay(time) => {
            for direction in [Direction::ToBuilder, Direction::ToClient] {
                rig.proxy.delay(direction, time);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Makes the daemons reload their files, by SIGHUP.
pub fn hang_up(rig: &Rig) {
    // Signal only daemons that the test has started, not a router's builders.
    for party in [Party::Router, Party::Builder] {
        if party == Party::Router || !rig.mode().starts_builders() {
            rig.pids(party).into_iter().for_each(|pid| signal(Some(pid), Signal::HUP));
        }
    }
}

/// Sends a signal; ignores a process that has ended.
pub fn signal(pid: Option<u32>, signal: Signal) {
    if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

fn stop(pid: Option<u32>, time: Duration) {
    signal(pid, Signal::STOP);
    thread::sleep(time);
    signal(pid, Signal::CONT);
}

/// Limits the size of a process' writable memory.
fn limit(pid: u32, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    let _ = prlimit(Pid::from_raw(pid.cast_signed()), Resource::Data, limit);
}

/// The size of a process' writable memory in bytes.
fn writable_bytes(pid: u32) -> u64 {
    harness::proc_bytes(&format!("/proc/{pid}/status"), "VmData")
}
