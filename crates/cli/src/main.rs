//! The `lantern-index` binary: arguments in, library calls out.

mod args;
mod failure;
mod gen_cert;
mod inspect;
mod period;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::failure::USAGE;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // --help and --version come here too, and are no errors.
            let code = if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
            let _ = error.print();
            return code;
        }
    };
    let result = match &arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::GenCert(gen_cert) => gen_cert::run(gen_cert),
        Command::Inspect(inspect) => inspect::run(inspect),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
