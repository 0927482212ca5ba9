//! pgbench, PostgreSQL's own load generator.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use harness::{Cluster, cores, step, wait_for};

use super::pin;

/// The load of the sessions.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub cluster: &'a Cluster,
    pub database: &'a str,
    /// A script in pgbench's language; empty for its built-in `simple-update` on the tables that [`Self::prepare`] makes.
    pub script: &'a str,
    pub clients: usize,
    /// Settings of the sessions.
    pub settings: &'a [(&'a str, &'a str)],
    /// The cores that pgbench itself runs on; `None` for all.
    pub cores: Option<&'a [usize]>,
}

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Seconds(u64),
    /// Transactions of all sessions together, rounded to a multiple of the number of sessions.
    Transactions(usize),
}

/// The result of a run of known length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Transactions per second, without the time for connecting.
    pub rate: f64,
    pub transactions: u64,
    /// Mean latency in milliseconds.
    pub latency: f64,
}

/// A transaction: its end in seconds since 1970, and its latency in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transaction {
    pub end: f64,
    pub seconds: f64,
}

impl Load<'_> {
    /// Makes the tables of pgbench's built-in scripts, with `scale` times 100,000 accounts.
    pub fn prepare(&self, scale: usize) -> Result<()> {
        let scale = scale.to_string();
        step::output(self.command().args(["-i", "-q", "-s", &scale, self.database])).map(drop)
    }

    /// Runs the sessions to their end.
    ///
    /// # Errors
    /// pgbench fails, or a transaction fails.
    pub fn run(&self, amount: Amount) -> Result<Outcome> {
        parse(&step::output(&mut self.sessions(amount, cores())?)?)
    }

    /// Runs the sessions until they are stopped, and logs each transaction.
    pub fn start(&self, most_seconds: u64) -> Result<Running> {
        let prefix = step::work_dir()?.join(format!("bench/pgbench-{}", std::process::id()));
        let mut command = self.sessions(Amount::Seconds(most_seconds), 1)?;
        command.arg("-l").arg("--log-prefix").arg(&prefix).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot run pgbench")?;
        // taskset replaces itself by pgbench, so the process id is the same.
        let log = PathBuf::from(format!("{}.{}", prefix.display(), child.id()));
        Ok(Running { child, log })
    }

    fn sessions(&self, amount: Amount, threads: usize) -> Result<Command> {
        let mut command = self.command();
        command.args(["-n", "-M", "prepared", "-c", &self.clients.to_string()]);
        match amount {
            Amount::Seconds(seconds) => command.args(["-T", &seconds.to_string()]),
            Amount::Transactions(count) => command.args(["-t", &each(count, self.clients).to_string()]),
        };
        command.args(["-j", &threads.min(self.clients).to_string()]);
        if self.script.is_empty() {
            command.args(["-b", "simple-update"]);
        } else {
            let dir = step::work_dir()?.join("bench");
            fs::create_dir_all(&dir)?;
            let path = dir.join("pgbench.sql");
            fs::write(&path, self.script)?;
            command.arg("-f").arg(path);
        }
        command.arg(self.database);
        Ok(command)
    }

    fn command(&self) -> Command {
        let mut command = pin::command(self.cores, &self.cluster.config().program("pgbench"));
        let options = self.settings.iter().map(|(name, value)| format!("-c {name}={value} "));
        command.env("PGOPTIONS", options.collect::<String>()).env("LC_ALL", "C").stdin(Stdio::null());
        command.arg("-h").arg(self.cluster.dir()).args(["-U", "postgres"]);
        command
    }
}

/// A running pgbench.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Stops the sessions once the log is complete up to now; returns all transactions.
    pub fn stop(mut self) -> Result<Vec<Transaction>> {
        let now = now();
        wait_for("the log of pgbench", Duration::from_secs(60), || {
            ensure!(self.child.try_wait()?.is_none(), "pgbench has ended before it was stopped");
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            Ok(transactions(&text).last().is_some_and(|last| last.end > now).then_some(()))
        })?;
        let text = fs::read_to_string(&self.log)?;
        Ok(transactions(&text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

/// The time in seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Transactions per second that ended between `from` and `to`.
pub fn rate(transactions: &[Transaction], from: f64, to: f64) -> f64 {
    let count = transactions.iter().filter(|transaction| (from..to).contains(&transaction.end)).count();
    count as f64 / (to - from).max(1e-9)
}

/// The latency in milliseconds at the quantile `share`, of transactions that ended between `from` and `to`; `None` if there were none.
pub fn latency(transactions: &[Transaction], from: f64, to: f64, share: f64) -> Option<f64> {
    let within = transactions.iter().filter(|transaction| (from..to).contains(&transaction.end));
    let mut all: Vec<f64> = within.map(|transaction| 1e3 * transaction.seconds).collect();
    all.sort_unstable_by(f64::total_cmp);
    let at = ((all.len() as f64 * share) as usize).min(all.len().checked_sub(1)?);
    Some(all[at])
}

/// The number of transactions per session.
pub fn each(transactions: usize, clients: usize) -> usize {
    (transactions / clients).max(1)
}

/// Parses pgbench's final output.
fn parse(text: &str) -> Result<Outcome> {
    let fields: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once([':', '=']).map(|(name, value)| (name.trim(), value.trim())))
        .collect();
    let number = |name: &str| -> Result<f64> {
        let value = fields.get(name).and_then(|value| value.split([' ', '/']).next()?.parse().ok());
        value.with_context(|| format!("pgbench does not tell its {name}:\n{text}"))
    };
    let failed = number("number of failed transactions")?;
    ensure!(failed == 0.0, "{failed} transactions failed");
    let transactions = number("number of transactions actually processed")? as u64;
    Ok(Outcome { rate: number("tps")?, transactions, latency: number("latency average")? })
}

/// Parses a log. Its columns are client, number, microseconds, script, seconds since 1970 and
/// microseconds; the last line may be incomplete.
fn transactions(log: &str) -> Vec<Transaction> {
    let of = |line: &str| {
        let mut fields = line.trim_end_matches('\n').split(' ').skip(2);
        let seconds = fields.next()?.parse::<f64>().ok()? / 1e6;
        let end = fields.nth(1)?.parse::<f64>().ok()?;
        Some(Transaction { end: end + fields.next()?.parse::<f64>().ok()? / 1e6, seconds })
    };
    log.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "pgbench (15.8 (Debian))\ntransaction type: a.sql\nscaling factor: 1\nquery mode: prepared\n\
        number of clients: 4\nnumber of threads: 2\nmaximum number of tries: 1\nduration: 2 s\n\
        number of transactions actually processed: 1302\nnumber of failed transactions: 0 (0.000%)\n\
        latency average = 6.145 ms\ninitial connection time = 4.210 ms\ntps = 650.910342 (without initial connection time)\n";

    #[test]
    fn the_output_of_pgbench_is_parsed() {
        assert_eq!(parse(SAID).unwrap(), Outcome { rate: 650.910342, transactions: 1302, latency: 6.145 });
        assert!(parse(&SAID.replace("transactions: 0", "transactions: 3")).is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn the_log_of_pgbench_is_parsed() {
        let log = "0 1 500000 0 100 250000\n1 1 1000 0 100 750000\n0 2 2000 0 101 1\n1 2 10";
        let found = transactions(log);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], Transaction { end: 100.25, seconds: 0.5 });
        assert_eq!(rate(&found, 100.0, 101.0), 2.0);
        assert_eq!(latency(&found, 100.0, 101.0, 0.99), Some(500.0));
        assert_eq!(latency(&found, 200.0, 201.0, 0.5), None);
    }
}
