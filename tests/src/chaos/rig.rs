//! The daemons of a mode, behind a network that can fail; they live as long as nothing ends them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::{Builder, BuilderOptions, Proxy, Scratch, Session, binary, children, is_running, open_files, wait_for};

use crate::plan::{Fault, Mode, Party};

/// Builders at a time.
pub const MOST_BUILDERS: usize = 3;
/// How long a client may leave unread what it was sent: more than a slow network takes, less than a statement waits for its turn.
const IDLE: &str = "12s";
/// By how much a daemon's memory may vary.
const SLACK: u64 = 32 << 20;
/// How soon everything of a build must be gone.
const SOON: Duration = Duration::from_secs(15);
/// The same where a client that was sent to a builder, and did not come, is waited for: it may have been cancelled on its way.
const WAITED_FOR: Duration = Duration::from_secs(70);

/// What a process has.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    files: usize,
    resident: u64,
}

/// A builder; or a router with its builders.
pub struct Rig {
    mode: Mode,
    tls: bool,
    folder: Scratch,
    /// What clients are pointed at, and the builders of a list.
    daemons: Vec<Daemon>,
    pub proxy: Proxy,
    token: String,
    /// One that was replaced and is still good.
    old_token: Option<String>,
    renewals: u32,
}

/// A daemon, how to start it again, and what it had at first.
struct Daemon {
    what: &'static str,
    options: BuilderOptions,
    process: Builder,
    first: Usage,
}

impl Daemon {
    fn start(what: &'static str, options: BuilderOptions) -> Result<Self> {
        let process = Builder::start_with(&options)?;
        let options = BuilderOptions { ports: [process.address().port(), process.status_address().port()], ..options };
        Ok(Self { what, options, process, first: Usage::default() })
    }

    fn usage(&self) -> Usage {
        let pid = self.process.pid().unwrap_or(0);
        Usage { files: open_files(pid), resident: self.process.resident_bytes() }
    }

    fn pid(&self) -> u32 {
        self.process.pid().unwrap_or(0)
    }

    /// Builds that run or wait.
    fn builds(&self) -> Result<f64> {
        Ok(self.process.metric("lantern_index_build_active")? + self.process.metric("lantern_index_queue_depth")?)
    }
}

/// Whether `unshare` can give a process a file system of its own, and how.
pub fn small_disk() -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    WAYS.into_iter().find(|way| {
        let mut unshare = Command::new("unshare");
        let output = unshare.args(*way).args(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

impl Rig {
    /// Starts the daemons; with the limits that belong to some faults.
    pub fn start(mode: Mode, tls: bool, fault: Fault) -> Result<Self> {
        let folder = Scratch::new("chaos", 0o755)?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in ["tmp", "spool"] {
            fs::create_dir(path(name))?;
        }
        let token = "chaos-0-0123456789abcdef".to_owned();
        fs::write(path("tokens"), format!("{token}\n"))?;
        fs::set_permissions(path("tokens"), fs::Permissions::from_mode(0o600))?;
        let program = (fault == Fault::FullDisk).then(|| on_a_small_disk(&folder)).transpose()?;
        let environment = vec![("TMPDIR".to_owned(), path("tmp"))];
        let serve = |tls: bool, arguments: &[&str]| BuilderOptions {
            tls,
            program: program.clone(),
            environment: environment.clone(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            ..BuilderOptions::default()
        };
        let (tokens, spool) = (path("tokens"), path("spool"));
        let limit = match fault {
            Fault::FullDisk => SPOOLED,
            Fault::LittleMemory => LITTLE,
            _ => "512MB",
        };
        let mut of_builder = vec![
            "--token-file",
            &tokens,
            "--idle-timeout",
            IDLE,
            "--drain-timeout",
            "5s",
            "--memory-limit",
            limit,
            "--threads",
            "2",
        ];
        if fault != Fault::LittleMemory {
            of_builder.extend(["--spool-dir", &spool]);
        }
        let most = MOST_BUILDERS.to_string();
        let mut of_router = vec!["--idle-ttl", "1s", "--grace", "5s"];
        if router_asks_for_tokens()? {
            of_router.extend(["--token-file", &tokens, "--idle-timeout", IDLE]);
        }
        let mut daemons = Vec::new();
        let mut words = Vec::new();
        match mode {
            Mode::Direct => daemons.push(Daemon::start("builder", serve(tls, &of_builder))?),
            Mode::Relay | Mode::Redirect => {
                let mode = if mode == Mode::Relay { "relay" } else { "redirect" };
                of_router.extend(["--mode", mode, "--max-builders", &most]);
                words.extend(of_builder.iter().map(|argument| format!("--builder-arg={argument}")));
            }
            Mode::Static => {
                for _ in 0..2 {
                    daemons.push(Daemon::start("builder", serve(false, &of_builder))?);
                }
                of_router.extend(["--builders", "static"]);
                for Daemon { process, .. } in &daemons {
                    words.push("--builder".to_owned());
                    words.push(format!("127.0.0.1:{}/{}", process.address().port(), process.status_address().port()));
                }
            }
        }
        if mode.has_router() {
            of_router.extend(words.iter().map(String::as_str));
            let options = BuilderOptions { command: "router", ..serve(tls, &of_router) };
            daemons.insert(0, Daemon::start("router", options)?);
        }
        let proxy = Proxy::start(daemons[0].process.address())?;
        let rig = Self { mode, tls, folder, daemons, proxy, token, old_token: None, renewals: 0 };
        rig.trust(&[])?;
        Ok(rig)
    }

    /// Makes a session build here, through the network.
    pub fn attach(&self, session: &mut Session) -> Result<()> {
        self.daemons[0].process.attach_through(session, self.proxy.port())?;
        self.show(session, &self.token)?;
        if self.tls {
            let trusted = self.trusted().display().to_string();
            session.execute(&format!(
                "SET hnsw.external_index_sslmode = 'verify-full'; SET hnsw.external_index_sslrootcert = '{trusted}'"
            ))?;
        }
        Ok(())
    }

    /// Makes a session show another token.
    pub fn show(&self, session: &mut Session, token: &str) -> Result<()> {
        Ok(session.execute(&format!("SET hnsw.external_index_token = '{token}'"))?)
    }

    /// How builds reach a builder.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What clients are to show.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Where clients come to.
    pub fn address(&self) -> std::net::SocketAddr {
        self.daemons[0].process.address()
    }

    /// The processes of a party of this rig, builders of a router among them.
    pub fn pids(&self, party: Party) -> Vec<u32> {
        let daemons = self.daemons.iter().map(Daemon::pid);
        match (party, self.mode) {
            (Party::Router, Mode::Direct) | (Party::Backend | Party::Postmaster, _) => Vec::new(),
            (Party::Router, _) => daemons.take(1).collect(),
            (Party::Builder, Mode::Direct) => daemons.collect(),
            (Party::Builder, Mode::Static) => daemons.skip(1).collect(),
            (Party::Builder, Mode::Relay | Mode::Redirect) => children(self.daemons[0].pid()),
        }
    }

    /// Resident bytes of each daemon, at first and now.
    pub fn usage(&self) -> Vec<(&'static str, u64, u64)> {
        let of = |daemon: &Daemon| (daemon.what, daemon.first.resident, daemon.usage().resident);
        self.daemons.iter().map(of).collect()
    }

    /// From now on nothing may be left beyond what is there now.
    pub fn settle(&mut self) -> Vec<String> {
        let left = self.leftovers(&[], true);
        for daemon in &mut self.daemons {
            daemon.first = daemon.usage();
        }
        left
    }

    /// Starts daemons again that have ended; which.
    pub fn mend(&mut self) -> Result<Vec<&'static str>> {
        let mut ended = Vec::new();
        for daemon in &mut self.daemons {
            if is_running(daemon.pid()) {
                continue;
            }
            let first = daemon.first;
            daemon.process.kill();
            *daemon = Daemon::start(daemon.what, daemon.options.clone())?;
            daemon.first = first;
            ended.push(daemon.what);
        }
        if !ended.is_empty() {
            self.trust(&[])?;
        }
        Ok(ended)
    }

    /// Puts a new certificate in place. Clients trust the old one as well until [`Self::forget`].
    pub fn renew_certificate(&self) -> Result<()> {
        self.daemons[0].process.renew_certificate(|new| self.trust(&[new.to_owned()]))
    }

    /// Adds a token, which clients are to show from now on. The old one is good until [`Self::forget`].
    pub fn renew_token(&mut self) -> Result<()> {
        self.renewals += 1;
        let new = format!("chaos-{}-0123456789abcdef", self.renewals);
        let old = std::mem::replace(&mut self.token, new);
        fs::write(self.tokens(), format!("{old}\n{}\n", self.token))?;
        self.old_token = Some(old);
        Ok(())
    }

    /// Old tokens and certificates are good no more; the old token.
    pub fn forget(&mut self) -> Result<Option<String>> {
        fs::write(self.tokens(), format!("{}\n", self.token))?;
        self.trust(&[])?;
        Ok(self.old_token.take())
    }

    /// Everything that is left of builds and clients, after some time for it to go. `builders` are processes that were seen.
    pub fn leftovers(&self, builders: &[u32], is_first: bool) -> Vec<String> {
        let mut left = Vec::new();
        let patience = if self.mode == Mode::Redirect { WAITED_FOR } else { SOON };
        let mut expect = |what: &str, count: &mut dyn FnMut() -> Result<u64>| {
            let mut last = 0;
            let gone = wait_for(what, patience, || {
                last = count()?;
                Ok((last == 0).then_some(()))
            });
            if let Err(error) = gone {
                left.push(format!("{what}: {last} left ({error})"));
            }
        };
        for daemon in &self.daemons {
            expect(&format!("builds of the {}", daemon.what), &mut || Ok(daemon.builds()? as u64));
        }
        if self.mode.has_processes() {
            expect("builder processes of the router", &mut || Ok(self.pids(Party::Builder).len() as u64));
            let running = || builders.iter().filter(|&&pid| is_running(pid)).count();
            expect("builder processes", &mut || Ok(running() as u64));
        }
        for folder in ["tmp", "spool"] {
            let path = self.folder.path().join(folder);
            expect(&format!("files in the {folder} directory"), &mut || Ok(fs::read_dir(&path)?.count() as u64));
        }
        if !is_first {
            for daemon in &self.daemons {
                let more = || daemon.usage().files.saturating_sub(daemon.first.files) as u64;
                expect(&format!("descriptors of the {}", daemon.what), &mut || Ok(more()));
            }
        }
        let grown =
            self.daemons.iter().filter(|daemon| !is_first && daemon.usage().resident > daemon.first.resident + SLACK);
        left.extend(grown.map(|daemon| {
            let (first, now) = (daemon.first.resident >> 20, daemon.usage().resident >> 20);
            format!("memory of the {}: {now} MiB, at first {first}", daemon.what)
        }));
        left
    }

    /// The last that the daemons have logged of trouble.
    pub fn logs(&self) -> String {
        let tail = |daemon: &Daemon| {
            let log = daemon.process.log();
            let is_trouble = |line: &&str| ["WARN", "ERROR", "panicked"].iter().any(|word| line.contains(word));
            let lines: Vec<&str> = log.lines().filter(is_trouble).collect();
            format!("  log of the {}: {}\n", daemon.what, lines[lines.len().saturating_sub(3)..].join("\n    "))
        };
        self.daemons.iter().map(tail).collect()
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn trusted(&self) -> PathBuf {
        self.folder.path().join("trusted.pem")
    }

    /// Makes clients trust the present certificate, and others.
    fn trust(&self, others: &[String]) -> Result<()> {
        if !self.tls {
            return Ok(());
        }
        let present = fs::read_to_string(self.daemons[0].process.certificate())?;
        let new = self.trusted().with_extension("new");
        fs::write(&new, [&[present][..], others].concat().concat())?;
        Ok(fs::rename(new, self.trusted())?)
    }
}

/// Whether routers look at tokens, and not only their builders.
fn router_asks_for_tokens() -> Result<bool> {
    let help = Command::new(binary()?).args(["router", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--token-file"))
}

/// Memory with which a wide table's values must be spooled.
const SPOOLED: &str = "31MB";
/// Memory with which a wide table cannot be built.
const LITTLE: &str = "8MB";

/// A program that is the daemon, with a spool directory too small for any build.
fn on_a_small_disk(folder: &Scratch) -> Result<PathBuf> {
    let way = small_disk().context("this system gives us no small disk")?;
    let (script, spool) = (folder.path().join("daemon"), folder.path().join("spool"));
    let text = format!(
        "#!/bin/sh\nexec unshare {} sh -c 'mount -t tmpfs -o size=1m tmpfs {} && exec \"$0\" \"$@\"' {} \"$@\"\n",
        way.join(" "),
        spool.display(),
        binary()?.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
