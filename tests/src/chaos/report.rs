//! Findings, and statistics of all rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::rig::Rig;

/// A violated expectation.
struct Finding {
    round: u32,
    what: String,
}

/// Resident bytes of a daemon: at first, at last, and the most.
type Memory = [u64; 3];

/// The final report.
pub struct Report {
    seed: u64,
    /// The command that repeats the rounds.
    command: String,
    begun: Instant,
    rounds: u32,
    findings: Vec<Finding>,
    builds: u32,
    failed: u32,
    /// For each fault, how often it occurred and how many statements failed.
    faults: BTreeMap<String, [u32; 2]>,
    errors: BTreeMap<String, u32>,
    worst_recovery: Duration,
    memory: BTreeMap<String, Memory>,
}

impl Report {
    pub fn new(seed: u64, kubernetes: bool) -> Self {
        let kubernetes = if kubernetes { " --kubernetes" } else { "" };
        Self {
            seed,
            command: format!("cargo xtask chaos{kubernetes} --seed {seed}"),
            begun: Instant::now(),
            rounds: 0,
            findings: Vec::new(),
            builds: 0,
            failed: 0,
            faults: BTreeMap::new(),
            errors: BTreeMap::new(),
            worst_recovery: Duration::ZERO,
            memory: BTreeMap::new(),
        }
    }

    /// Adds a round.
    pub fn round(&mut self, plan: &Plan, errors: &[String], builds: u32, findings: &[String], number: u32) {
        self.rounds += 1;
        self.builds += builds;
        self.failed += errors.len() as u32;
        let counts = self.faults.entry(plan.fault.name()).or_default();
        counts[0] += 1;
        counts[1] += errors.len() as u32;
        errors.iter().for_each(|error| *self.errors.entry(without_numbers(error)).or_default() += 1);
        for what in findings {
            println!("  FINDING in round {number} of seed {}: {what}", self.seed);
            println!("    again: {} --first {number} --rounds 1", self.command);
            self.findings.push(Finding { round: number, what: what.clone() });
        }
    }

    /// Records the time from a fault until its statements had ended, daemons were restarted and a build had succeeded.
    pub fn recovered(&mut self, time: Duration) {
        self.worst_recovery = self.worst_recovery.max(time);
    }

    /// Records the resources of a rig's daemons.
    pub fn usage(&mut self, rig: &Rig) {
        for (what, first, now) in rig.usage() {
            let name = format!("{what}, {:?}", rig.mode());
            self.memory(&name, first);
            self.memory(&name, now);
        }
    }

    /// Records the resident bytes of a daemon.
    pub fn memory(&mut self, daemon: &str, bytes: u64) {
        let [_, last, most] = self.memory.entry(daemon.to_owned()).or_insert([bytes; 3]);
        (*last, *most) = (bytes, bytes.max(*most));
    }

    /// The number of rounds that were run.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Prints the whole report.
    pub fn print(&self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        println!(
            "\n{} rounds of seed {} in {seconds:.0} s; {} builds, {} statements failed; worst recovery {:.1} s",
            self.rounds,
            self.seed,
            self.builds,
            self.failed,
            self.worst_recovery.as_secs_f64()
        );
        println!("\nfault: rounds, failed statements");
        for (fault, [rounds, failed]) in &self.faults {
            println!("  {fault}: {rounds}, {failed}");
        }
        println!("\nerrors:");
        for (error, times) in &self.errors {
            println!("  {times} x {error}");
        }
        println!("\nresident MiB: at first, at last, the most");
        for (daemon, memory) in &self.memory {
            let [first, last, most] = memory.map(|bytes| bytes >> 20);
            println!("  {daemon}: {first}, {last}, {most}");
        }
        let mut kinds: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for finding in &self.findings {
            kinds.entry(without_numbers(&finding.what)).or_default().push(finding.round);
        }
        println!(
            "\n{} findings of {} kinds, with their rounds of seed {}",
            self.findings.len(),
            kinds.len(),
            self.seed
        );
        for (what, rounds) in &kinds {
            println!("  {rounds:?}: {what}");
        }
    }
}

/// Replaces numbers and addresses, so that texts that differ only in those become equal.
fn without_numbers(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => "#",
        _ if word.starts_with('/') => "#",
        _ if word.len() > 5 || !word.contains(|c: char| c.is_ascii_digit()) => word,
        _ => "#",
    });
    words.collect::<Vec<_>>().join(" ")
}
