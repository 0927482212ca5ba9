use std::time::Duration;

use anyhow::{Context, Result};

use crate::{Cluster, Session, wait_for};

impl Cluster {
    /// Starts a hot standby of this cluster, with streaming replication over the socket.
    pub fn standby(&self) -> Result<Self> {
        let mut standby = Self::without_data(self.config().clone())?;
        let host = self.dir().to_str().context("the directory's name is no UTF-8")?;
        let how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"];
        standby.program("pg_basebackup", &[&["--host", host, "--username=postgres"][..], &how].concat())?;
        standby.configure(&format!("unix_socket_directories = '{}'\nhot_standby = on", standby.dir().display()))?;
        standby.run()?;
        Ok(standby)
    }

    /// Waits until this standby has replayed everything that its primary has committed.
    pub fn catch_up(&self, primary: &mut Session) -> Result<()> {
        let wanted: String = primary.value("SELECT pg_current_wal_flush_lsn()")?;
        let mut session = self.session("postgres")?;
        let sql = format!("SELECT (pg_last_wal_replay_lsn() >= '{wanted}')::text");
        wait_for("the standby to catch up", Duration::from_secs(60), || Ok(session.value::<bool>(&sql)?.then_some(())))
    }

    /// Promotes this standby.
    pub fn promote(&self) -> Result<()> {
        self.session("postgres")?.execute("SELECT pg_promote(true, 60)").context("cannot promote the standby")
    }
}
