use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::scratch::Scratch;
use crate::{PgConfig, Session, cpu_seconds, processes, wait_for};

/// Settings for disposable data. JIT is off: the cost of a plan that `enable_…` discourages is so high that PostgreSQL would compile it.
/// Dynamic shared memory is in files: a container's `/dev/shm` is small, and a parallel build allocates all of maintenance_work_mem there.
const SETTINGS: &str = "
listen_addresses = ''
unix_socket_permissions = 0700
dynamic_shared_memory_type = mmap
shared_buffers = 256MB
maintenance_work_mem = 512MB
max_wal_size = 4GB
checkpoint_timeout = 1h
fsync = off
autovacuum = off
jit = off
log_min_messages = info
log_line_prefix = '%m [%p] '
";

/// A PostgreSQL cluster in a temporary directory, reached over its Unix socket. On drop it is stopped and deleted.
pub struct Cluster {
    config: PgConfig,
    account: Option<Account>,
    postmaster: Option<Child>,
    // The last field, so that the directory is deleted after all its processes have ended.
    scratch: Scratch,
}

impl Cluster {
    /// Starts a cluster of the PostgreSQL that [`PgConfig::require`] finds, with the extension preloaded.
    pub fn start() -> Result<Self> {
        Self::start_with(PgConfig::require()?, "shared_preload_libraries = 'lantern_index'")
    }

    /// Starts a cluster with the given lines in its `postgresql.conf`.
    pub fn start_with(config: PgConfig, settings: &str) -> Result<Self> {
        Self::start_initialized(config, settings, &[])
    }

    /// Starts a cluster with further arguments of `initdb`.
    pub fn start_initialized(config: PgConfig, settings: &str, initdb: &[&str]) -> Result<Self> {
        let mut cluster = Self::without_data(config)?;
        cluster.initdb(initdb)?;
        cluster
            .configure(&format!("{SETTINGS}unix_socket_directories = '{}'\n{settings}\n", cluster.dir().display()))?;
        cluster.run()?;
        Ok(cluster)
    }

    /// The directory of a cluster, without data.
    pub(crate) fn without_data(config: PgConfig) -> Result<Self> {
        let scratch = Scratch::new("cluster", 0o700)?;
        let account = Account::for_postgres()?;
        if let Some(account) = account {
            account.own(scratch.path())?;
        }
        Ok(Self { config, account, postmaster: None, scratch })
    }

    /// The directory of socket, log and data.
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// The PostgreSQL installation that it uses.
    pub fn config(&self) -> &PgConfig {
        &self.config
    }

    /// A new session in `database`.
    pub fn session(&self, database: &str) -> Result<Session> {
        Session::connect(&self.socket(), database).with_context(|| format!("cannot connect to {database}"))
    }

    /// Makes a database with pgvector in it and connects to it.
    pub fn database(&self, name: &str) -> Result<Session> {
        self.session("postgres")?.execute(&format!("CREATE DATABASE {name}"))?;
        let mut session = self.session(name)?;
        session.execute("CREATE EXTENSION vector")?;
        Ok(session)
    }

    /// Appends to `postgresql.conf`. Settings that need no restart take effect at [`Self::reload`].
    pub fn configure(&self, settings: &str) -> Result<()> {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path)?;
        text.push_str(settings);
        text.push('\n');
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Makes the server read its settings again.
    pub fn reload(&self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// Stops the server with a fast shutdown.
    pub fn stop(&mut self) -> Result<()> {
        self.end(Signal::INT)
    }

    /// Stops and starts the server.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.run()
    }

    /// Kills all of the server's processes at once and restarts it: it replays its WAL.
    pub fn crash(&mut self) -> Result<()> {
        let pid = self.postmaster().context("the server is not running")?;
        let children = processes::children(pid);
        self.end(Signal::KILL)?;
        for child in children.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            let _ = kill_process(child, Signal::KILL);
        }
        await_end(&children)?;
        self.run()
    }

    /// Kills only the postmaster, and restarts the server once all other processes have noticed and ended.
    pub fn lose_postmaster(&mut self) -> Result<()> {
        let children = processes::children(self.postmaster().context("the server is not running")?);
        self.end(Signal::KILL)?;
        await_end(&children)?;
        self.run()
    }

    /// Runs a PostgreSQL program with `-D` and the data directory, under the server's account; returns its output.
    pub fn program(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = self.command(program).arg("-D").arg(self.data()).args(arguments).output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        ensure!(output.status.success(), "{program} failed: {text}");
        Ok(text)
    }

    /// The content of the server's log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir().join("log")).expect("the server's log")).into_owned()
    }

    /// The process id of the postmaster, while it runs.
    pub fn postmaster(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    /// CPU seconds that the server has used so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.postmaster().map_or(0.0, cpu_seconds)
    }

    /// The names of the relation files of a database.
    pub fn relation_files(&self, database: &str) -> Result<Vec<String>> {
        let mut session = self.session(database)?;
        // The file of a dropped relation remains, empty, until the next checkpoint.
        session.execute("CHECKPOINT")?;
        let oid: u32 = session.value("SELECT oid FROM pg_database WHERE datname = current_database()")?;
        let mut names: Vec<String> = fs::read_dir(self.data().join(format!("base/{oid}")))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.retain(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        names.sort();
        Ok(names)
    }

    /// The file of a relation's main fork, after a checkpoint.
    pub fn relation_file(&self, session: &mut Session, relation: &str) -> Result<PathBuf> {
        session.execute("CHECKPOINT")?;
        let path: String = session.value(&format!("SELECT pg_relation_filepath('{relation}')"))?;
        Ok(self.data().join(path))
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        tail(&self.dir().join("log"), 40)
    }

    /// Leaves the server running, with its directory, and returns a command that stops it.
    pub fn keep(mut self) -> String {
        self.scratch.keep();
        let pid = self.postmaster.take().map_or(0, |child| child.id());
        format!("kill -INT {pid}; sleep 2; rm -rf {}", self.dir().display())
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.dir().join(".s.PGSQL.5432")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.config.program(program));
        // Started like a service, without a developer's environment variables.
        command.current_dir(self.dir()).env_clear().envs([("LC_ALL", "C"), ("PATH", "/usr/bin:/bin")]);
        command.stdin(Stdio::null());
        if let Some(account) = self.account {
            account.apply(&mut command);
        }
        command
    }

    fn initdb(&self, arguments: &[&str]) -> Result<()> {
        let usual = ["--no-sync", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        self.program("initdb", &[&usual[..], arguments].concat()).map(drop)
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.dir().join("log"))?;
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).stdout(log.try_clone()?).stderr(log);
        // A process group of its own: Ctrl-C ends only this process, which then stops the server.
        let child = postgres.process_group(0).spawn().context("cannot start postgres")?;
        self.scratch.guard(child.id())?;
        self.postmaster = Some(child);
        let socket = self.socket();
        let started = wait_for("PostgreSQL to start", Duration::from_secs(120), || {
            if let Some(child) = &mut self.postmaster
                && let Some(status) = child.try_wait()?
            {
                bail!("PostgreSQL ended at once: {status}");
            }
            Ok(Session::connect(&socket, "postgres").ok())
        });
        started.map(drop).with_context(|| format!("the cluster did not start; its log ends with\n{}", self.log_tail()))
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        if self.postmaster.is_some() {
            self.signal(signal)?;
        }
        if let Some(mut child) = self.postmaster.take() {
            child.wait()?;
        }
        self.scratch.unguard();
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid =
            self.postmaster().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("the server is not running")?;
        kill_process(pid, signal).context("cannot signal the server")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("PostgreSQL's log ends with\n{}", self.log_tail());
        }
        // Immediate shutdown: the data is not needed any more.
        let _ = self.end(Signal::QUIT);
    }
}

/// Waits for the processes of a dead server that hold its shared memory: until then no other server starts.
fn await_end(processes: &[u32]) -> Result<()> {
    wait_for("the dead server's processes to end", Duration::from_secs(60), || {
        Ok((!processes.iter().any(|&pid| processes::is_running(pid))).then_some(()))
    })
}

/// The last `lines` of a text file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
