//! A cluster with a builder, worn indexes, and runs of `lantern-index maintain`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use harness::{Builder, Cluster, Proxy, Session, binary, wait_for};
use rustix::process::{Pid, Signal, kill_process};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose sessions connect to a builder through a proxy.
pub struct Scene {
    pub cluster: Cluster,
    pub builder: Builder,
    pub network: Proxy,
}

impl Scene {
    pub fn new() -> Self {
        let (cluster, builder) = (Cluster::start().unwrap(), Builder::start().unwrap());
        let network = Proxy::start(builder.address()).unwrap();
        let scene = Self { cluster, builder, network };
        scene.attach();
        scene
    }

    /// With a database in which the index `a_worn` of the table `a` needs a rebuild; and a session there.
    pub fn worn(database: &str) -> (Self, Session) {
        let scene = Self::new();
        let mut session = scene.database(database);
        worn(&mut session, "a", "a_worn", "WITH (external = true)");
        wait_for_advice(&scene, database, "a_worn", "rebuild");
        (scene, session)
    }

    /// Replaces a lost builder.
    pub fn replace_builder(&mut self) {
        self.builder = Builder::start().unwrap();
        self.network = Proxy::start(self.builder.address()).unwrap();
        self.attach();
    }

    fn attach(&self) {
        self.configure(&format!(
            "hnsw.external_index_host = 'localhost'\nhnsw.external_index_port = {}\nhnsw.external_index_sslrootcert = '{}'",
            self.network.port(),
            self.builder.certificate().display()
        ));
    }

    /// Changes the server's settings, for existing sessions too.
    pub fn configure(&self, settings: &str) {
        self.cluster.configure(settings).unwrap();
        self.cluster.reload().unwrap();
    }

    pub fn database(&self, name: &str) -> Session {
        let mut session = self.cluster.database(name).unwrap();
        session.execute("CREATE EXTENSION lantern_index").unwrap();
        session
    }

    pub fn session(&self, database: &str) -> Session {
        self.cluster.session(database).unwrap()
    }

    pub fn command(&self, database: &str, arguments: &[&str]) -> Command {
        command(self.cluster.dir(), &format!("user=postgres dbname={database}"), arguments)
    }

    /// Runs `maintain` to its end; returns exit code and stdout.
    pub fn maintain(&self, database: &str, arguments: &[&str]) -> (i32, String) {
        finished(self.command(database, arguments).output().unwrap())
    }

    /// Begins a run of `maintain` in the background.
    pub fn begin(&self, database: &str, arguments: &[&str]) -> Running {
        Running::of(&mut self.command(database, arguments), self.cluster.dir())
    }
}

/// The command `lantern-index maintain` for the cluster whose socket is in `dir`.
pub fn command(dir: &Path, dsn: &str, arguments: &[&str]) -> Command {
    // Where the tests run under nohup, SIGHUP is ignored, and `maintain` would leave it so.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(binary().unwrap())
        .arg("maintain")
        .arg(format!("host={} {dsn}", dir.display()))
        .args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and stdout.
pub fn finished(output: Output) -> (i32, String) {
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

/// A run in the background.
pub struct Running {
    child: Child,
    path: PathBuf,
}

impl Running {
    /// Starts the command, with its output in a file of `dir`.
    pub fn of(command: &mut Command, dir: &Path) -> Self {
        let path = dir.join("maintain.log");
        let log = File::create(&path).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { child, path }
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its output so far, stdout and stderr.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }

    pub fn wait_for_words(&self, words: &str) {
        let said = || Ok(self.said().contains(words).then_some(()));
        wait_for(words, PATIENCE, said).unwrap_or_else(|error| panic!("{error}: {}", self.said()));
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until SIGTERM no longer kills it.
    pub fn wait_for_handlers(&self) {
        let status = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        let caught = || {
            let status = fs::read_to_string(&status)?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
            let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or_default();
            Ok((mask & 1 << (Signal::TERM.as_raw() - 1) != 0).then_some(()))
        };
        wait_for("the handlers of signals", PATIENCE, caught).unwrap();
    }

    /// Waits for the end; returns exit code and output.
    pub fn end(mut self) -> (i32, String) {
        let status = wait_for("the end of the run", PATIENCE, || Ok(self.child.try_wait()?));
        let status = status.unwrap_or_else(|error| panic!("{error}: {}", self.said()));
        println!("{}", self.said());
        (status.code().unwrap(), self.said())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A table of 600 rows of which two thirds are dead, and an index of it.
pub fn worn(session: &mut Session, table: &str, index: &str, options: &str) {
    session
        .execute(&format!(
            "CREATE TABLE {table} (id int, v vector(8)) WITH (autovacuum_enabled = off); \
             INSERT INTO {table} SELECT i, ARRAY[i, i % 7, i % 11, i % 13, 1, 2, 3, 4]::vector FROM generate_series(1, 600) i; \
             CREATE INDEX {index} ON {table} USING hnsw (v vector_l2_ops) {options}"
        ))
        .unwrap();
    kill_rows(session, table, 400);
}

pub fn kill_rows(session: &mut Session, table: &str, count: u32) {
    session.execute(&format!("DELETE FROM {table} WHERE id <= {count}")).unwrap();
    session.flush_statistics().unwrap();
}

/// Waits until the view has the advice: statistics are updated with a delay.
pub fn wait_for_advice(scene: &Scene, database: &str, index: &str, advice: &str) {
    let mut session = scene.session(database);
    let sql = format!("SELECT advice FROM lantern_index.indexes WHERE index_name = '{index}'::regclass");
    wait_for("the statistics", PATIENCE, || Ok((session.value::<String>(&sql)? == advice).then_some(()))).unwrap();
}

/// The files of all hnsw indexes, by name.
pub fn files(session: &mut Session) -> Vec<(String, String)> {
    let sql = "SELECT c.relname, c.relfilenode FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
               WHERE a.amname = 'hnsw' AND c.relkind = 'i' ORDER BY 1";
    let rows = session.query(sql).unwrap();
    rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
}

/// Two pgbench clients that run a script repeatedly.
pub struct Writers(Child);

impl Writers {
    /// `rate`: scripts per second of both clients together; `None` for no limit.
    pub fn start(scene: &Scene, database: &str, rate: Option<u32>, script: &str) -> Self {
        let path = scene.cluster.dir().join("script.sql");
        fs::write(&path, script).unwrap();
        let mut pgbench = Command::new(scene.cluster.config().program("pgbench"));
        pgbench.args(["-n", "-c", "2", "-T", "600", "-U", "postgres", "-h"]).arg(scene.cluster.dir());
        if let Some(rate) = rate {
            pgbench.args(["-R", &rate.to_string()]);
        }
        pgbench.arg("-f").arg(path).arg(database).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(pgbench.spawn().unwrap())
    }

    /// Stops the clients, and asserts that no statement has failed.
    pub fn expect_no_error(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "pgbench writes still");
        // SIGTERM: shells start background commands with SIGINT ignored, and pgbench inherits that.
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        let output = self.0.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("ERROR") && !errors.contains("aborted"), "{errors}");
    }
}

/// A program that is killed at the end of the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
