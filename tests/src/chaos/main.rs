//! Builds of several databases, with a fault in each round: no data may be lost, nothing may be left over, and the next build must work.
//!
//! The seed determines each round, except for the exact time of the fault, which also depends on the machine.

mod checks;
mod daemon;
mod databases;
mod disk;
mod documented;
mod fault;
mod plan;
mod pods;
mod report;
mod rig;
mod round;
mod strike;
mod tables;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use fault::Mode;
use plan::Plans;
use round::Rounds;

/// Drives builds of several databases through builders and routers, and lets something go wrong in each round
///
/// The same seed gives the same rounds. The exit code is 1 if anything was found.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask chaos")]
struct Options {
    /// All builders are pods on a real control plane, parts of which fail as well; it is built once, which needs Go and takes minutes
    #[arg(long)]
    kubernetes: bool,
    /// Determines the rounds
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 50)]
    rounds: u32,
    /// Leave out the rounds before this one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    first: u32,
    /// Only rounds whose line contains this text, such as `Kill` or `Static TLS`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether there were no findings.
fn run() -> Result<bool> {
    let options = Options::parse();
    let modes = if options.kubernetes { &Mode::OF_PODS[..] } else { &Mode::OF_PROCESSES };
    let mut plans = Plans::new(options.seed, modes);
    println!("seed {}", options.seed);
    let mut rounds = Rounds::start(options.seed, options.kubernetes)?;
    for number in 1..options.first + options.rounds {
        let plan = plans.next();
        if number >= options.first && plan.to_string().contains(&options.only) {
            rounds.run(number, &plan);
        }
    }
    rounds.report.print();
    ensure!(rounds.report.rounds() > 0, "no round was run");
    Ok(rounds.report.is_clean())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Options;

    #[test]
    fn commands_are_taken_as_documented() {
        let commands = harness::documented_commands("cargo xtask chaos").unwrap();
        assert!(!commands.is_empty());
        for command in commands {
            let parsed = Options::try_parse_from(std::iter::once("chaos".to_owned()).chain(command.shown.clone()));
            assert!(parsed.is_ok(), "{command:?}: {}", parsed.unwrap_err());
        }
        assert!(Options::try_parse_from(["chaos", "--dance"]).is_err());
    }
}
