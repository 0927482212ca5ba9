//! `lantern-index status`: shows a daemon's status in a terminal.

pub mod fetch;
mod target;
pub mod text;
mod watch;

use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use service::Readiness;
use service::report::Report;

use self::target::Target;
use crate::args::Status;
use crate::failure::{Failure, note};
use crate::print;

/// The refresh interval.
const PERIOD: Duration = Duration::from_secs(1);

/// The exit code if the daemon answers but accepts no builds.
const NOT_READY: u8 = 3;

/// Shows the status once, or with --watch until it is interrupted.
pub fn run(arguments: &Status) -> Result<(), Failure> {
    let target = Target::parse(&arguments.url).map_err(Failure::Usage)?;
    if !arguments.watch {
        let report = fetch::report(&target)?;
        let text = if arguments.json { json(&report, true)? } else { text::whole(&report, &target) };
        print(text)?;
        return if report.readiness == Readiness::Ready { Ok(()) } else { Err(Failure::Said(NOT_READY)) };
    }
    // While watching, failures are shown and retried; a wrong address should fail at once.
    let first = fetch::report(&target)?;
    if !arguments.json && stdout().is_terminal() {
        return watch::run(&target, &first);
    }
    let mut result = Ok(first);
    loop {
        match &result {
            Ok(report) if arguments.json => print(json(report, false)?)?,
            Ok(report) => print(format!("{}\n", text::whole(report, &target)))?,
            Err(error) => note(format_args!("{error:#}")),
        }
        thread::sleep(PERIOD);
        result = fetch::report(&target);
    }
}

fn json(report: &Report, pretty: bool) -> Result<String, Failure> {
    let text = if pretty { serde_json::to_string_pretty(report) } else { serde_json::to_string(report) };
    text.map(|text| text + "\n").map_err(|error| Failure::Other(anyhow!(error)))
}
