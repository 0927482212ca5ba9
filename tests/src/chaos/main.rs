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

use anyhow::{Context, Result, bail};

use fault::Mode;
use plan::Plans;
use round::Rounds;

const USAGE: &str = "\
usage: cargo xtask chaos [--kubernetes] [--seed S] [--rounds N] [--first R] [--only WORD]

Drives builds of several databases through builders and routers, and lets something go wrong in each of N rounds (50). The
same seed (1) gives the same rounds; --first leaves out those before round R, and --only those whose line does not contain
WORD, as in --only Kill or --only 'Static TLS'. With --kubernetes all builders are pods on a real control plane, parts of which
fail as well; it is built once, which needs Go and takes minutes. The exit code is 1 if anything was found.";

struct Options {
    kubernetes: bool,
    seed: u64,
    rounds: u32,
    first: u32,
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
    let Some(options) = parse(std::env::args().skip(1))? else {
        println!("{USAGE}");
        return Ok(true);
    };
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
    Ok(rounds.report.is_clean())
}

/// `None`: print the help.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Options>> {
    let mut options = Options { kubernetes: false, seed: 1, rounds: 50, first: 1, only: String::new() };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        let mut number = || -> Result<u64> {
            let value = value()?;
            value.parse().with_context(|| format!("{word} wants a number, not {value:?}"))
        };
        match word.as_str() {
            "--kubernetes" => options.kubernetes = true,
            "--only" => options.only = value()?,
            "--seed" => options.seed = number()?,
            "--rounds" => options.rounds = number()?.try_into()?,
            "--first" => options.first = u32::try_from(number()?)?.max(1),
            "--help" | "-h" => return Ok(None),
            _ => bail!("unknown option {word}\n\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn commands_are_taken_as_documented() {
        let commands = harness::documented_commands("cargo xtask chaos").unwrap();
        assert!(!commands.is_empty());
        for command in commands {
            assert!(parse(command.shown.iter().cloned()).is_ok(), "{command:?}");
        }
        assert!(parse(std::iter::once("--dance".to_owned())).is_err());
    }
}
