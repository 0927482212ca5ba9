use std::fmt;
use std::process::ExitCode;

/// The exit code for arguments and settings that cannot work (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// Why a command failed.
pub enum Failure {
    /// The arguments or the files they name must change first.
    Usage(anyhow::Error),
    /// Anything else.
    Other(anyhow::Error),
    /// Everything has been said; this is the exit code.
    Said(u8),
}

impl Failure {
    /// Arguments or settings that cannot work.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Says why on stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        if let Self::Said(code) = self {
            return ExitCode::from(code);
        }
        eprintln!("lantern-index: {self}");
        if let Self::Usage(_) = self { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }
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
