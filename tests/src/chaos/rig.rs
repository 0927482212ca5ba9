//! The daemons of a mode, behind a network that can fail; they are reused in later rounds.

mod leftovers;
mod replica;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use harness::{BuilderOptions, Proxy, Scratch, Session, children, is_running, wait_for};

use crate::daemon::Daemon;
use crate::disk::on_a_small_disk;
use crate::fault::{Fault, Mode, Party};
use crate::pods::{Kubernetes, Pods};

/// The most concurrent builders.
pub const MOST_BUILDERS: usize = 3;
/// How long a client may leave data unread: longer than the slow network takes, shorter than a statement waits in the queue.
const IDLE: &str = "12s";
/// The router's identity in Kubernetes.
const IDENTITY: &str = "router-a";

/// A builder, or a router with its builders.
pub struct Rig {
    mode: Mode,
    tls: bool,
    folder: Scratch,
    /// The daemon that clients connect to, and the builders of a static list.
    daemons: Vec<Daemon>,
    /// With builders in pods: their namespace.
    pods: Option<Pods>,
    /// A second router for the pods, and the arguments of both routers.
    replica: Option<Daemon>,
    of_router: Vec<String>,
    pub proxy: Proxy,
    token: String,
    /// A replaced token that is still valid.
    old_token: Option<String>,
    /// Processes that have been asked to end.
    ending: Vec<u32>,
    renewals: u32,
}

impl Rig {
    /// Starts the daemons, with special limits for some faults.
    pub fn start(mode: Mode, tls: bool, fault: Fault, kubernetes: Option<&Rc<Kubernetes>>) -> Result<Self> {
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
            ..BuilderOptions::serve(arguments)
        };
        let (tokens, spool) = (path("tokens"), path("spool"));
        let limit = match fault {
            Fault::FullDisk => SPOOLED,
            Fault::LittleMemory => LITTLE,
            _ => "512MB",
        };
        let mut of_builder =
            vec!["--idle-timeout", IDLE, "--drain-timeout", "5s", "--memory-limit", limit, "--threads", "2"];
        if fault != Fault::LittleMemory {
            of_builder.extend(["--spool-dir", &spool]);
        }
        if !mode.has_pods() {
            // Builders in pods accept every client that the router sends.
            of_builder.extend(["--token-file", &tokens]);
        }
        let most = MOST_BUILDERS.to_string();
        let mut of_router = vec!["--idle-ttl", "1s", "--grace", "5s", "--token-file", &tokens, "--idle-timeout", IDLE];
        if mode.starts_builders() {
            let mode = if mode.is_redirect() { "redirect" } else { "relay" };
            of_router.extend(["--mode", mode, "--max-builders", &most]);
        }
        let (mut daemons, mut pods) = (Vec::new(), None);
        let mut words = Vec::new();
        match mode {
            Mode::Direct => daemons.push(Daemon::start("builder", serve(tls, &of_builder))?),
            Mode::Relay | Mode::Redirect => {
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
            Mode::Pods | Mode::PodsRedirect => {
                let kubernetes = kubernetes.context("a rig of pods, and no Kubernetes")?;
                let mut made = Pods::make(kubernetes, &of_builder, &environment)?;
                if tls {
                    made.encrypt()?;
                }
                pods = Some(made);
            }
        }
        of_router.extend(words.iter().map(String::as_str));
        if mode.has_router() {
            let options = match &pods {
                Some(pods) => in_pods(pods, IDENTITY, &of_router, tls, &environment)?,
                None => BuilderOptions { command: "router", ..serve(tls, &of_router) },
            };
            daemons.insert(0, Daemon::start("router", options)?);
        }
        let proxy = Proxy::start(daemons[0].process.address())?;
        let of_router = of_router.into_iter().map(str::to_owned).collect();
        let (old_token, renewals) = (None, 0);
        let rig = Self {
            mode,
            tls,
            folder,
            daemons,
            pods,
            replica: None,
            of_router,
            proxy,
            token,
            old_token,
            ending: Vec::new(),
            renewals,
        };
        rig.trust(&[])?;
        Ok(rig)
    }

    /// Makes a session build here, through the proxy; if there are two routers and the build's number `at` is odd, by the second one.
    pub fn attach(&self, session: &mut Session, at: usize) -> Result<()> {
        match &self.replica {
            Some(replica) if at % 2 == 1 => replica.process.attach(session)?,
            _ => self.daemons[0].process.attach_through(session, self.proxy.port())?,
        }
        self.show(session, &self.token)?;
        if self.tls {
            let trusted = self.trusted().display().to_string();
            session.execute(&format!(
                "SET hnsw.external_index_sslmode = 'verify-full'; SET hnsw.external_index_sslrootcert = '{trusted}'"
            ))?;
        }
        Ok(())
    }

    /// Makes a session present another token.
    pub fn show(&self, session: &mut Session, token: &str) -> Result<()> {
        Ok(session.execute(&format!("SET hnsw.external_index_token = '{token}'"))?)
    }

    /// How builds get to a builder.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The token that clients present.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The address that clients connect to.
    pub fn address(&self) -> std::net::SocketAddr {
        self.daemons[0].process.address()
    }

    /// The processes of a party of this rig; a router's builders are among them.
    pub fn pids(&self, party: Party) -> Vec<u32> {
        let daemons = self.daemons.iter().map(Daemon::pid);
        match (party, self.mode) {
            (Party::Replica, _) => self.replica.iter().map(Daemon::pid).collect(),
            (Party::Router, Mode::Direct) | (Party::Backend | Party::Postmaster, _) => Vec::new(),
            (Party::Router, _) => daemons.take(1).collect(),
            (Party::Builder, Mode::Direct) => daemons.collect(),
            (Party::Builder, Mode::Static) => daemons.skip(1).collect(),
            (Party::Builder, Mode::Relay | Mode::Redirect) => children(self.daemons[0].pid()),
            (Party::Builder, Mode::Pods | Mode::PodsRedirect) => self.pods.iter().flat_map(Pods::pids).collect(),
        }
    }

    /// The namespace with the builders' pods; an error if builders are no pods.
    pub fn pods(&self) -> Result<&Pods> {
        self.pods.as_ref().context("no builder of this rig is a pod")
    }

    /// Records that a process was asked to end; it may still finish its builds.
    pub fn expect_end(&mut self, pid: Option<u32>) {
        self.ending.extend(pid);
    }

    /// Restarts daemons that have ended and returns their names.
    pub fn mend(&mut self) -> Result<Vec<&'static str>> {
        for pid in std::mem::take(&mut self.ending) {
            wait_for("a daemon that was told to end", leftovers::SOON, || Ok((!is_running(pid)).then_some(())))?;
        }
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

    /// Renews the certificate. Clients also trust the old one until [`Self::forget`].
    pub fn renew_certificate(&self) -> Result<()> {
        self.daemons[0].process.renew_certificate(|new| self.trust(&[new.to_owned()]))
    }

    /// Adds a token, which clients present from now on. The old one remains valid until [`Self::forget`].
    pub fn renew_token(&mut self) -> Result<()> {
        self.renewals += 1;
        let new = format!("chaos-{}-0123456789abcdef", self.renewals);
        let old = std::mem::replace(&mut self.token, new);
        fs::write(self.tokens(), format!("{old}\n{}\n", self.token))?;
        self.old_token = Some(old);
        Ok(())
    }

    /// Revokes old tokens and certificates, and returns the old token.
    pub fn forget(&mut self) -> Result<Option<String>> {
        fs::write(self.tokens(), format!("{}\n", self.token))?;
        self.trust(&[])?;
        Ok(self.old_token.take())
    }

    /// The last warnings and errors in the daemons' logs.
    pub fn logs(&self) -> String {
        let tail = |daemon: &Daemon| format!("  log of the {}: {}\n", daemon.what, daemon.trouble());
        let daemons = self.daemons.iter().chain(&self.replica).map(tail);
        let pods = self.pods.iter().map(|pods| format!("  pods:\n{}\n", pods.describe()));
        daemons.chain(pods).collect()
    }

    fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn trusted(&self) -> PathBuf {
        self.folder.path().join("trusted.pem")
    }

    /// Makes clients trust the present certificates and `others`.
    fn trust(&self, others: &[String]) -> Result<()> {
        if !self.tls {
            return Ok(());
        }
        let routers = self.daemons.iter().take(1).chain(&self.replica).map(|daemon| daemon.process.certificate());
        let of_pods = self.pods.iter().filter_map(Pods::certificate);
        let present = routers.chain(of_pods).map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
        let new = self.trusted().with_extension("new");
        fs::write(&new, [&present[..], others].concat().concat())?;
        Ok(fs::rename(new, self.trusted())?)
    }
}

/// Options of a router whose builders are pods.
fn in_pods(
    pods: &Pods,
    identity: &str,
    arguments: &[&str],
    tls: bool,
    variables: &[(String, String)],
) -> Result<BuilderOptions> {
    let mut options = pods.router(identity, arguments)?;
    options.environment.extend_from_slice(variables);
    Ok(BuilderOptions { tls, ..options })
}

/// A memory limit between what a wide table needs with a spool, about 37 MB, and without, about 41 MB.
const SPOOLED: &str = "40MB";
/// A memory limit below what a wide table needs.
const LITTLE: &str = "8MB";
