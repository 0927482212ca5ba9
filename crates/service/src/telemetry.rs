use std::io::{IsTerminal, stderr};

use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// Why the logs could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// An invalid level or filter.
    #[error("log level \"{level}\" is not one: {problem}")]
    Level {
        /// The level given.
        level: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Logs have been set up before.
    #[error("logs were set up twice: {0}")]
    Twice(String),
}

/// Checks a level, and returns it if it is valid.
///
/// # Errors
/// If the level is invalid.
pub fn check_level(level: &str) -> Result<String, TelemetryError> {
    filter(level).map(|_| level.to_owned())
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let problem = match EnvFilter::builder().parse(level) {
        Ok(filter) => return Ok(filter),
        Err(problem) => problem.to_string(),
    };
    Err(TelemetryError::Level { level: level.to_owned(), problem })
}

/// Sets up the logs of the process: to stderr, `level` and above, as text or with one JSON object per line.
///
/// `level` is one of error, warn, info, debug, trace, or a list of filters like `info,lantern_index_server=debug`.
///
/// # Errors
/// If the level is invalid, or logs have been set up before.
pub fn init(json: bool, level: &str) -> Result<(), TelemetryError> {
    filter(level)?;
    // The router itself logs once that Kubernetes does not answer; the library would log each request.
    let level = format!("kube_client=off,{level}");
    // Errors of stderr, such as a full disk, cannot be reported anywhere: printing them on stderr would panic.
    let builder = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter(&level)?)
        .with_writer(stderr)
        .with_target(false);
    let begun = if json {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        builder.with_ansi(stderr().is_terminal()).try_init()
    };
    begun.map_err(|problem| TelemetryError::Twice(problem.to_string()))
}
