use std::process::ExitCode;

/// The exit code for arguments and settings that cannot work (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// Why a command failed.
pub enum Failure {
    /// The arguments or the files they name must change first.
    Usage(anyhow::Error),
    /// Anything else.
    Other(anyhow::Error),
}

impl Failure {
    /// Arguments or settings that cannot work.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Says why on stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        let (error, code) = match self {
            Self::Usage(error) => (error, ExitCode::from(USAGE)),
            Self::Other(error) => (error, ExitCode::FAILURE),
        };
        eprintln!("lantern-index: {error:#}");
        code
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}
