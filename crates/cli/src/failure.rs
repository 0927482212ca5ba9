use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code for invalid arguments and settings (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// Why a command failed.
pub enum Failure {
    /// Arguments or the files they name are invalid.
    Usage(anyhow::Error),
    /// Any other failure.
    Other(anyhow::Error),
    /// Everything has been printed; only the exit code remains.
    Said(u8),
}

impl Failure {
    /// A failure by invalid arguments or settings.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Prints the reason on stderr and returns the exit code.
    pub fn report(self) -> ExitCode {
        if let Self::Said(code) = self {
            return ExitCode::from(code);
        }
        note(&self);
        if let Self::Usage(_) = self { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }
}

/// Prints a line on stderr. `eprintln!` panics if stderr is gone, and the exit code would be lost.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "lantern-index: {text}");
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) | Self::Other(error) => write!(f, "{error:#}"),
            Self::Said(code) => write!(f, "exit code {code}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<database::Error> for Failure {
    fn from(error: database::Error) -> Self {
        Self::Other(error.into())
    }
}
