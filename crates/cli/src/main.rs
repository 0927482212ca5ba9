//! The `lantern-index` binary: parses arguments and calls the libraries.

mod advise;
mod args;
mod config;
mod count;
mod cpu;
mod daemon;
mod documents;
mod estimate;
mod failure;
mod gen_cert;
mod inspect;
mod maintain;
mod operator;
mod period;
#[cfg(feature = "kubernetes")]
mod pods;
mod router;
mod router_config;
mod serve;
mod status;
mod token;
mod vectors;

use std::env;
use std::ffi::OsString;
use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;

use crate::args::{Arguments, Command, ConfigCommand, TokenCommand};
use crate::config::Stop;
use crate::failure::{Failure, USAGE};

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let matches = config::parse(&config::command(), &words);
    let arguments = matches.and_then(|matches| Arguments::from_arg_matches(&matches).map_err(Stop::Clap));
    let result = match arguments {
        Ok(arguments) => run(&arguments.command),
        Err(Stop::Clap(error)) => {
            // --help and --version arrive here too, though they are no errors.
            let code = if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
        Err(Stop::Mistakes(mistakes)) => Err(Failure::usage(mistakes)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Serve(serve) => serve::run(serve),
        Command::Router(router) => router::run(router),
        Command::GenCert(gen_cert) => gen_cert::run(gen_cert),
        Command::Token(TokenCommand::New(new)) => token::new(new),
        Command::Inspect(inspect) => inspect::run(inspect),
        Command::Maintain(maintain) => maintain::run(maintain),
        Command::Advise(advise) => advise::run(advise),
        Command::Estimate(estimate) => estimate::run(estimate),
        Command::Cpu => cpu::run(),
        Command::Man { dir } => documents::man(dir),
        Command::Completions { shell } => documents::completions(*shell),
        Command::Builds(socket) => operator::builds(socket),
        Command::Cancel(cancel) => operator::cancel(cancel),
        Command::Drain(drain) => operator::drain(drain),
        Command::Status(status) => status::run(status),
        Command::Config(ConfigCommand::Check) => config::check(),
        Command::Config(ConfigCommand::Show) => config::show(),
    }
}

/// Writes to stdout.
fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(())
}
