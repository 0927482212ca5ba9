use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use protocol::BuilderMessage;
use rustix::process::{Pid, Signal, kill_process};

use super::{Client, Rows, connect, hello, metric};

/// The program, without environment variables that are meant for this machine's own builder. `LANTERN_INDEX_EMULATOR` is a command that
/// runs programs of another architecture.
pub fn command() -> Command {
    let emulator = env::var("LANTERN_INDEX_EMULATOR").unwrap_or_default();
    let mut words = emulator.split_whitespace().chain([env!("CARGO_BIN_EXE_lantern-index")]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANTERN_INDEX_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).env("LANTERN_INDEX_CONFIG", "/dev/null");
    command
}

/// Runs the program in `dir`.
pub fn run(arguments: &[&str], dir: &Path) -> Output {
    command().args(arguments).current_dir(dir).output().unwrap()
}

/// What the program has printed.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A builder on free ports with its log in a file; killed when dropped.
pub struct Daemon {
    pub child: Child,
    pub status: String,
    pub address: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts a builder in `dir`, which also has its log; it uses one thread per build unless the arguments say otherwise.
    pub fn start(arguments: &[&str], dir: &Path) -> Self {
        Self::with(arguments, dir, |_| {})
    }

    pub fn with(arguments: &[&str], dir: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let log = dir.join("log");
        let mut command = command();
        command.args(["serve", "--port", "0", "--status-port", "0"]);
        if !arguments.contains(&"--threads") {
            command.args(["--threads", "1"]);
        }
        command.args(arguments).current_dir(dir).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        change(&mut command);
        let child = command.spawn().unwrap();
        // From here on a panic kills it.
        let mut daemon = Self { child, status: String::new(), address: String::new(), log };
        let mut lines = BufReader::new(daemon.child.stdout.take().unwrap()).lines();
        let mut after = |words: &str| {
            let Some(line) = lines.next() else { panic!("ended with the log\n{}", daemon.log()) };
            let line = line.unwrap();
            line.strip_prefix(words).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let status = after("[*] [Lantern External Index] External Indexing Status Server started on ");
        let address = after("[*] [Lantern External Index] External Indexing Server started on ");
        (daemon.status, daemon.address) = (status, address);
        daemon
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// A client that has been greeted and has chosen protocol version 2.
    pub fn connect(&self) -> Client<TcpStream> {
        Client::opened(connect(&self.address))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has a line with all these words.
    pub fn wait_for_line(&self, words: &[&str]) {
        let has = |log: &str| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        self.eventually(&format!("a line with {words:?}"), || has(&self.log()));
    }

    /// Waits for up to 30 seconds.
    pub fn eventually(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < until, "never: {what}; the log is\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A metric, named as in the exposition.
    pub fn metric(&self, name: &str) -> u64 {
        metric(&self.status, name)
    }

    /// Waits until no build is running.
    pub fn settle(&self) {
        self.eventually("the builds end", || self.metric("lantern_index_build_active") == 0);
    }

    /// A value of `/proc/PID/status`, in bytes.
    pub fn memory(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client<TcpStream> {
    /// Receives the messages up to Done, without keeping pages; returns the number of rows.
    pub fn done(&mut self) -> u64 {
        loop {
            match self.next() {
                Some(BuilderMessage::Done(done)) => return done.rows,
                Some(BuilderMessage::Error(error)) => panic!("{error:?}"),
                Some(_) => {}
                None => panic!("the builder closed early"),
            }
        }
    }

    /// Runs a whole small build.
    pub fn small_build(&mut self) {
        self.admitted(hello(8));
        self.rows(&Rows::new(300, 8), 50);
        self.end_of_rows(300);
        assert_eq!(self.done(), 300);
    }
}
