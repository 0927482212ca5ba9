use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::tail;
use crate::scratch::Scratch;
use crate::{Session, binary, http, resident_bytes, step, wait_for};

/// How to start a builder or a router.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// The subcommand: `serve`, or `router`, which clients use like a builder.
    pub command: &'static str,
    /// The program; `None` for the one that [`binary`] finds.
    pub program: Option<PathBuf>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The ports for builds and for status requests; 0 means any free one.
    pub ports: [u16; 2],
    /// Variables for its environment.
    pub environment: Vec<(String, String)>,
    /// Further arguments of the command.
    pub arguments: Vec<String>,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        Self {
            command: "serve",
            program: None,
            tls: true,
            ports: [0; 2],
            environment: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

impl BuilderOptions {
    /// Options of a builder with these arguments.
    pub fn serve(arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(), ..Self::default() }
    }

    /// Options of a router with these arguments.
    pub fn router(arguments: &[&str]) -> Self {
        Self { command: "router", ..Self::serve(arguments) }
    }

    /// The same options for another program.
    pub fn by(self, program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()), ..self }
    }
}

/// A builder daemon on free ports of the loopback address; killed when dropped.
pub struct Builder {
    process: Option<Child>,
    address: SocketAddr,
    status: SocketAddr,
    tls: bool,
    scratch: Scratch,
}

impl Builder {
    /// Starts a builder with a new self-signed certificate.
    pub fn start() -> Result<Self> {
        Self::start_with(&BuilderOptions::default())
    }

    /// Starts a builder or router.
    pub fn start_with(options: &BuilderOptions) -> Result<Self> {
        let program = match &options.program {
            Some(program) => program.clone(),
            None => binary()?,
        };
        // PostgreSQL's account must be able to read the certificate in it.
        let scratch = Scratch::new("builder", 0o755)?;
        let log = fs::File::create(scratch.path().join("log"))?;
        let mut serve = Command::new(&program);
        let [port, status_port] = options.ports.map(|port| port.to_string());
        serve
            .args([options.command, "--host", "127.0.0.1", "--port", &port, "--status-port", &status_port])
            .args(&options.arguments);
        // Ignore the configuration of a builder installed on this machine.
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANTERN_INDEX_")) {
            serve.env_remove(name);
        }
        serve.env("LANTERN_INDEX_CONFIG", "/dev/null").envs(options.environment.iter().cloned());
        if options.tls {
            let (cert, key) = (scratch.path().join("cert.pem"), scratch.path().join("key.pem"));
            certificate_by(&program, &cert, &key)?;
            serve.arg("--cert").arg(cert).arg("--key").arg(key);
        }
        serve.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = serve.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        scratch.guard(child.id())?;
        let log = scratch.path().join("log");
        let addresses = wait_for("the builder's start lines", Duration::from_secs(60), || {
            if let Some(status) = child.try_wait()? {
                bail!("the builder ended at once: {status}\n{}", tail(&log, 20));
            }
            let text = fs::read_to_string(&log)?;
            let address = announced(&text, "Indexing Server started on ");
            let address = address.or_else(|| announced(&text, "Router Server started on "));
            Ok(announced(&text, "Status Server started on ").zip(address))
        });
        // On error the guard of the scratch directory ends the process.
        let (status, address) = addresses.with_context(|| format!("the builder said\n{}", tail(&log, 20)))?;
        Ok(Self { process: Some(child), address, status, tls: options.tls, scratch })
    }

    /// Lines of `postgresql.conf` that load the library and let all sessions use this builder.
    pub fn settings(&self) -> String {
        let security = if self.tls {
            let certificate = self.certificate();
            format!("sslmode = 'verify-full'\nhnsw.external_index_sslrootcert = '{}'", certificate.display())
        } else {
            "secure = off".to_owned()
        };
        let port = self.address.port();
        format!(
            "shared_preload_libraries = 'lantern_index'\nhnsw.external_index_port = {port}\n\
             hnsw.external_index_{security}\n"
        )
    }

    /// The address for builds.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for status requests.
    pub fn status_address(&self) -> SocketAddr {
        self.status
    }

    /// Its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.scratch.path().join("cert.pem")
    }

    /// Makes a session use this builder.
    pub fn attach(&self, session: &mut Session) -> Result<()> {
        self.attach_through(session, self.address.port())
    }

    /// Makes a session use this builder through a proxy on `port`.
    pub fn attach_through(&self, session: &mut Session, port: u16) -> Result<()> {
        let secure = if self.tls { "on" } else { "off" };
        session.execute(&format!(
            "SET hnsw.external_index_host = '127.0.0.1'; SET hnsw.external_index_port = {port}; \
             SET hnsw.external_index_secure = {secure}"
        ))?;
        Ok(())
    }

    /// `GET path` on the status port: code and body.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        http::get(self.status, path)
    }

    /// The sum of a metric over its labels; 0 if it is missing.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let (code, text) = self.get("/metrics")?;
        ensure!(code == 200, "/metrics answers {code}");
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])) && !line.starts_with('#')
        });
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Waits until the builder has counted `ended` builds, which happens shortly after the client has its index.
    pub fn expect_builds(&self, ended: u32) -> Result<()> {
        let counted = || Ok((self.metric("lantern_index_builds_total")? == f64::from(ended)).then_some(()));
        wait_for(&format!("the end of {ended} builds"), Duration::from_secs(30), counted)
    }

    /// Waits until `count` of a router's builders are in a state, such as `idle` or `building`.
    pub fn expect_builders(&self, state: &str, count: usize) -> Result<()> {
        let field = format!("\"state\":\"{state}\"");
        let are = || Ok((self.get("/status")?.1.matches(&field).count() == count).then_some(()));
        wait_for(&format!("{count} {state} builders"), Duration::from_secs(60), are)
    }

    /// Waits until no build runs. A build ends shortly after the client has its index.
    pub fn expect_idle(&self, within: Duration) -> Result<()> {
        let idle = || Ok((self.metric("lantern_index_build_active")? == 0.0).then_some(()));
        wait_for("the builder to be idle", within, idle)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.pid().map_or(0, resident_bytes)
    }

    /// Replaces certificate and key by new ones. `trust` gets the new certificate before the daemon can use it.
    pub fn renew_certificate(&self, trust: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| self.scratch.path().join(name));
        let [new_cert, new_key] = [&cert, &key].map(|path| path.with_extension("new"));
        make_certificate(&new_cert, &new_key)?;
        trust(&fs::read_to_string(&new_cert)?)?;
        fs::rename(new_cert, cert)?;
        Ok(fs::rename(new_key, key)?)
    }

    /// The process id, while the process runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The content of its log.
    pub fn log(&self) -> String {
        let log = fs::read(self.scratch.path().join("log")).expect("the daemon's log");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.scratch.unguard();
    }

    /// Sends SIGTERM and returns the exit code.
    ///
    /// # Errors
    /// The process does not end within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Result<Option<i32>> {
        let child = self.process.as_mut().context("the builder is not running")?;
        if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = wait_for("the builder's shutdown", limit, || Ok(child.try_wait()?))?;
        self.process = None;
        self.scratch.unguard();
        Ok(status.code())
    }

    /// Leaves the process running, and returns a command that stops it.
    pub fn keep(mut self) -> String {
        self.scratch.keep();
        let pid = self.process.take().map_or(0, |child| child.id());
        format!("kill {pid}; rm -rf {}", self.scratch.path().display())
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the builder's log ends with\n{}", tail(&self.scratch.path().join("log"), 40));
        }
        self.kill();
    }
}

/// Makes a self-signed certificate for this machine, and its key.
pub fn make_certificate(cert: &Path, key: &Path) -> Result<()> {
    certificate_by(&binary()?, cert, key)
}

fn certificate_by(program: &Path, cert: &Path, key: &Path) -> Result<()> {
    let mut gen_cert = Command::new(program);
    step::output(gen_cert.arg("gen-cert").arg("--cert").arg(cert).arg("--key").arg(key)).map(drop)
}

/// The address that follows `words` in the log.
fn announced(log: &str, words: &str) -> Option<SocketAddr> {
    let line = log.split_inclusive('\n').find(|line| line.ends_with('\n') && line.contains(words))?;
    let rest = line.split(words).nth(1)?;
    let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c))).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_start_lines() {
        let log = "[*] [Lantern External Index] External Indexing Status Server started on 127.0.0.1:4011\n\
                   [*] [Lantern External Index] External Indexing Server started on 127.0.0.1:4012\n";
        assert_eq!(announced(log, "Status Server started on "), "127.0.0.1:4011".parse().ok());
        assert_eq!(announced(log, "Indexing Server started on "), "127.0.0.1:4012".parse().ok());
        assert_eq!(announced("Indexing Server started on 127.0.0.1:40", "Indexing Server started on "), None);
    }
}
