//! A process that must survive the faults.

use anyhow::Result;
use harness::{Builder, BuilderOptions, open_files};

/// What a process uses: open files, and resident memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub files: usize,
    pub resident: u64,
}

/// A daemon, with its options for a restart and its resources at the start.
pub struct Daemon {
    pub what: &'static str,
    pub options: BuilderOptions,
    pub process: Builder,
    pub first: Usage,
}

impl Daemon {
    pub fn start(what: &'static str, options: BuilderOptions) -> Result<Self> {
        let process = Builder::start_with(&options)?;
        let options = BuilderOptions { ports: [process.address().port(), process.status_address().port()], ..options };
        Ok(Self { what, options, process, first: Usage::default() })
    }

    pub fn usage(&self) -> Usage {
        let pid = self.process.pid().unwrap_or(0);
        Usage { files: open_files(pid), resident: self.process.resident_bytes() }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid().unwrap_or(0)
    }

    /// The number of running and waiting builds.
    pub fn builds(&self) -> Result<f64> {
        Ok(self.process.metric("lantern_index_build_active")? + self.process.metric("lantern_index_queue_depth")?)
    }

    /// The last warnings and errors in its log.
    pub fn trouble(&self) -> String {
        let log = self.process.log();
        let is_trouble = |line: &&str| ["WARN", "ERROR", "panicked"].iter().any(|word| line.contains(word));
        let lines: Vec<&str> = log.lines().filter(is_trouble).collect();
        lines[lines.len().saturating_sub(3)..].join("\n    ")
    }
}
