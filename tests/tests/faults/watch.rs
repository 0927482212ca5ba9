use harness::Cluster;

/// Crashes that PostgreSQL has logged so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crashes {
    /// A process died, so the postmaster ended all processes and replayed the WAL.
    pub of_processes: usize,
    /// The server started with crash recovery.
    pub of_servers: usize,
    pub panics: usize,
}

impl Crashes {
    pub fn count(cluster: &Cluster) -> Self {
        let log = cluster.log();
        Self {
            of_processes: log.matches(") was terminated by signal").count()
                + log.matches(") exited with exit code 2").count(),
            of_servers: log.matches("database system was not properly shut down").count(),
            panics: log.matches("PANIC:").count() + log.matches("TRAP:").count(),
        }
    }
}
