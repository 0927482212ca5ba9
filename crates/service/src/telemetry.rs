use std::fmt;
use std::io::{IsTerminal, stderr};
use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for humans.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(TelemetryError::Format(other.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Why the logs could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// An unknown format.
    #[error("log format is \"{0}\", must be text or json")]
    Format(String),
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

/// Sets up the logs of the process: to stderr, `level` and above.
///
/// `level` is one of error, warn, info, debug, trace, or a list of filters like `info,lantern_index_server=debug`.
///
/// # Errors
/// If the level is invalid, or logs have been set up before.
pub fn init(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    filter(level)?;
    // The router reports once that Kubernetes is away; the library reports each request.
    let level = format!("kube_client=off,{level}");
    // Nowhere is left to report an error of stderr, as of a full disk: to print it there panics.
    let builder = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter(&level)?)
        .with_writer(stderr)
        .with_target(false);
    match format {
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    }
    .map_err(|problem| TelemetryError::Twice(problem.to_string()))
}
