use std::io::{
    self,
    ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof},
};
use std::time::Duration;

use advise::AdviseError;
use hnsw::BuildError;
use node_file::NodeFileError;
use protocol::v1::V1Error;
use protocol::{ErrorReport, ProtocolError, SqlState};
use service::{Closed, CodecError, Outcome, Size};
use thiserror::Error;

/// Why a session ended early.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    #[error("build cancelled by the client")]
    Cancelled,
    #[error("build cancelled by the builder's operator")]
    Operator,
    #[error("client left")]
    Left,
    #[error("connection failed: {0}")]
    Connection(io::Error),
    #[error("client sent nothing for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("no Hello within {} s", .0.as_secs_f64())]
    Late(Duration),
    #[error("client read nothing for {} s", .0.as_secs_f64())]
    Unread(Duration),
    #[error("build took longer than {} s", .0.as_secs_f64())]
    Overdue(Duration),
    #[error("rows took longer than {} s", .0.as_secs_f64())]
    RowsOverdue(Duration),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("{received} rows received, the client counts {sent}")]
    RowCount { received: u64, sent: u64 },
    #[error("rows have checksum {received:#010x}, the client's have {sent:#010x}")]
    RowChecksum { received: u32, sent: u32 },
    #[error("pages {first} to {} of the index received, page {due} of {blocks} expected", .first.saturating_add(*.count).saturating_sub(1))]
    IndexPages { first: u32, count: u32, due: u32, blocks: u32 },
    #[error("{received} pages received of {blocks}, the client counts {sent}")]
    IndexBlocks { received: u32, sent: u32, blocks: u32 },
    #[error("pages have checksum {received:#010x}, the client's have {sent:#010x}")]
    IndexChecksum { received: u32, sent: u32 },
    #[error("sample has more than the {most} rows that were announced")]
    Sample { most: u64 },
    #[error(transparent)]
    NoAdvice(AdviseError),
    #[error("more than {0} rows")]
    TooManyRows(u64),
    #[error("build needs more memory than was reserved, and no more is available")]
    Outgrown { rows: u64, needed: u64, reserved: u64, free: u64 },
    #[error(transparent)]
    V1(#[from] V1Error),
    #[error("client sent more after the end of its rows")]
    BeyondEnd,
    #[error(transparent)]
    NodeFile(#[from] NodeFileError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("builder defect: {0}")]
    Defect(String),
    #[error("builder is shutting down")]
    Shutdown,
}

impl SessionError {
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Cancelled
            | Self::Operator
            | Self::Left
            | Self::Connection(_)
            | Self::Silent(_)
            | Self::Late(_)
            | Self::Unread(_)
            | Self::Shutdown => Outcome::Cancelled,
            Self::NoAdvice(_) => Outcome::Refused,
            Self::Protocol(_)
            | Self::V1(_)
            | Self::BeyondEnd
            | Self::NodeFile(_)
            | Self::RowCount { .. }
            | Self::RowChecksum { .. }
            | Self::IndexPages { .. }
            | Self::IndexBlocks { .. }
            | Self::IndexChecksum { .. }
            | Self::Sample { .. }
            | Self::TooManyRows(_)
            | Self::Outgrown { .. }
            | Self::Overdue(_)
            | Self::RowsOverdue(_)
            | Self::Build(_)
            | Self::Defect(_) => Outcome::Failed,
        }
    }

    /// How the status page counts a connection that closed before its client requested a build.
    pub(crate) fn closed(&self) -> Closed {
        match self {
            Self::Late(_) => Closed::Timeout,
            Self::Left | Self::Connection(_) | Self::Shutdown => Closed::Broken,
            _ => Closed::Protocol,
        }
    }

    /// The error report for the client; `None` if the client cannot be reached.
    pub(crate) fn report(&self) -> Option<ErrorReport> {
        let sqlstate = match self {
            Self::Left | Self::Connection(_) | Self::Unread(_) => return None,
            Self::Cancelled | Self::Operator => SqlState::QUERY_CANCELED,
            Self::Silent(_) | Self::Late(_) => SqlState::CONNECTION_FAILURE,
            Self::Protocol(error) => error.sqlstate(),
            Self::V1(_) | Self::BeyondEnd | Self::IndexPages { .. } | Self::Sample { .. } => {
                SqlState::PROTOCOL_VIOLATION
            }
            Self::NodeFile(_) => SqlState::PROGRAM_LIMIT_EXCEEDED,
            Self::RowCount { .. }
            | Self::RowChecksum { .. }
            | Self::IndexBlocks { .. }
            | Self::IndexChecksum { .. } => SqlState::DATA_CORRUPTED,
            Self::TooManyRows(_) | Self::Overdue(_) | Self::RowsOverdue(_) => SqlState::PROGRAM_LIMIT_EXCEEDED,
            Self::Outgrown { .. } => SqlState::OUT_OF_MEMORY,
            Self::NoAdvice(error) => advice_sqlstate(error),
            Self::Build(error) => build_sqlstate(error),
            Self::Defect(_) => SqlState::INTERNAL_ERROR,
            Self::Shutdown => SqlState::ADMIN_SHUTDOWN,
        };
        let hint = match self {
            Self::Silent(_) => "The builder's idle timeout can be raised with --idle-timeout.",
            Self::Build(BuildError::Memory(_)) => {
                "Use a builder with more memory, or wait for its other builds to end."
            }
            Self::Overdue(_) => "The builder's limit is --max-build-time.",
            Self::RowsOverdue(_) => "The builder's limit is --max-rows-time.",
            Self::TooManyRows(_) => {
                "The limit is the builder's --max-rows, or stands beside the client's token in the --token-file."
            }
            Self::Outgrown { .. } => {
                "ANALYZE the table, so that the builder knows beforehand how many rows there are, use a builder with more memory, or raise the client's limit in \
                 the --token-file if it has one."
            }
            Self::Build(BuildError::SpoolFull(_)) => {
                "Give the builder's --spool-dir more space, or use a builder with more memory."
            }
            Self::Build(BuildError::Internal(_)) | Self::Defect(_) => "The builder's log may say more.",
            Self::NodeFile(NodeFileError::Empty) => "Create the index without the option external.",
            Self::NoAdvice(AdviseError::TooFew { .. }) => {
                "So few rows are searched exactly within milliseconds, without an index. If the table has more, ask with a larger sample."
            }
            Self::NoAdvice(AdviseError::TooFewQueries { .. }) => {
                "Give more queries, or take a larger sample (at most a tenth of it serves as queries), or ask for a lower target recall."
            }
            Self::Shutdown => "Try again when the builder is back.",
            _ => "",
        };
        Some(ErrorReport::new(sqlstate, self.to_string()).detail(self.detail()).hint(hint))
    }

    fn detail(&self) -> String {
        match *self {
            Self::Outgrown { rows, needed, reserved, free } => {
                let [needed, reserved, free] = [needed, reserved, free].map(Size);
                format!(
                    "{rows} rows have come and need {needed}; {reserved} are reserved for the build and {free} are free."
                )
            }
            _ => String::new(),
        }
    }
}

impl From<CodecError> for SessionError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Protocol(error) => Self::Protocol(error),
            // A cancelled backend disconnects without a message: in the middle of a frame, without closing TLS, or with bytes unread.
            CodecError::Io(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => Self::Left,
            CodecError::Io(error) => Self::Connection(error),
        }
    }
}

fn advice_sqlstate(error: &AdviseError) -> SqlState {
    match error {
        AdviseError::TooFew { .. } | AdviseError::TooFewQueries { .. } | AdviseError::NoQueries => {
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        }
        AdviseError::Unsupported { .. } => SqlState::FEATURE_NOT_SUPPORTED,
        AdviseError::Build(error) => build_sqlstate(error),
    }
}

fn build_sqlstate(error: &BuildError) -> SqlState {
    match error {
        BuildError::Cancelled => SqlState::QUERY_CANCELED,
        BuildError::Unsupported { .. } => SqlState::FEATURE_NOT_SUPPORTED,
        BuildError::Parameter { .. } => SqlState::INVALID_PARAMETER,
        BuildError::ValueLength { .. }
        | BuildError::TrailingBytes(_)
        | BuildError::Value { .. }
        | BuildError::HeapTid { .. } => SqlState::DATA_EXCEPTION,
        BuildError::TooManyElements(_) => SqlState::PROGRAM_LIMIT_EXCEEDED,
        BuildError::Memory(_) => SqlState::OUT_OF_MEMORY,
        BuildError::SpoolFull(_) => SqlState::DISK_FULL,
        BuildError::Spool { .. } | BuildError::Internal(_) => SqlState::INTERNAL_ERROR,
    }
}
