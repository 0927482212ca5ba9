//! Certificates and tokens are renewed repeatedly while builds run: no build fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use harness::{Builder, BuilderOptions, Cluster, Column, Scratch, Session, copy_rows, data_set, inspect, wait_for};
use rustix::process::{Pid, Signal, kill_process};

const BUILDS: u32 = 50;
const RENEWALS: u32 = 10;
const CLIENTS: u32 = 3;
/// The time limit for a build or a renewal on slow machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon's operator, who holds the valid tokens and the certificates that clients trust.
struct Operator {
    folder: Scratch,
    tokens: Mutex<Vec<String>>,
    /// The token that clients present; the daemon has loaded it.
    shown: Mutex<String>,
    /// Shared by the statements that run. A statement reads the trusted certificates some time before the server's certificate arrives, so
    /// it fails if a new certificate is trusted and used in between.
    statements: RwLock<()>,
}

impl Operator {
    fn new() -> Self {
        let operator = Self {
            folder: Scratch::new("renewals", 0o755).unwrap(),
            tokens: Mutex::default(),
            shown: Mutex::default(),
            statements: RwLock::default(),
        };
        operator.renew_token(0);
        operator.show_last();
        operator
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes clients present the last token from now on.
    fn show_last(&self) {
        *self.shown.lock().unwrap() = self.tokens.lock().unwrap().last().unwrap().clone();
    }

    /// Adds a token. The two tokens before it remain valid, since a build may just be connecting with one of them.
    fn renew_token(&self, number: u32) {
        let mut tokens = self.tokens.lock().unwrap();
        if tokens.len() == 3 {
            tokens.remove(0);
        }
        let token = format!("token-{number}-0123456789abcdef");
        replace(&self.path("tokens"), &format!("{}\n{token}\n", tokens.join("\n")));
        tokens.push(token);
    }

    /// Adds a certificate to those that clients trust, between statements: all that use the older ones have ended.
    fn trust(&self, certificate: &str) -> Result<()> {
        let _no_statement = self.statements.write().unwrap();
        let trusted = fs::read_to_string(self.path("trusted.pem")).unwrap_or_default();
        replace(&self.path("trusted.pem"), &(trusted + certificate));
        Ok(())
    }

    /// Makes a session a client of the daemon.
    fn attach(&self, session: &mut Session, daemon: &Builder) {
        daemon.attach(session).unwrap();
        let sql = format!(
            "SET hnsw.external_index_token = '{}'; SET hnsw.external_index_sslmode = 'verify-full';
             SET hnsw.external_index_sslrootcert = '{}'",
            self.shown.lock().unwrap(),
            self.path("trusted.pem").display()
        );
        session.execute(&sql).unwrap();
    }
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    let mode = if path.ends_with("tokens") { 0o600 } else { 0o644 };
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(new, path).unwrap();
}

/// Renews token and certificate and waits until the daemon has loaded both: alternately after SIGHUP, and
/// when it notices changed files by itself.
fn renew(operator: &Operator, daemon: &Builder, number: u32) {
    let read = || ["tokens read again", "certificates read again"].map(|line| daemon.log().matches(line).count());
    let before = read();
    operator.renew_token(number);
    daemon.renew_certificate(|certificate| operator.trust(certificate)).unwrap();
    if number.is_multiple_of(2) {
        let pid = Pid::from_raw(daemon.pid().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }
    wait_for("the files to be read", PATIENCE, || {
        let now = read();
        Ok((now[0] > before[0] && now[1] > before[1]).then_some(()))
    })
    .unwrap();
    operator.show_last();
}

/// Several clients build concurrently while the operator renews token and certificate.
fn no_build_is_lost(cluster: &Cluster, command: &'static str, arguments: &[&str]) {
    let operator = Operator::new();
    let tokens = operator.path("tokens").display().to_string();
    let options = BuilderOptions::serve(&[&["--token-file", &tokens], arguments].concat());
    let daemon = Builder::start_with(&BuilderOptions { command, ..options }).unwrap();
    operator.trust(&fs::read_to_string(daemon.certificate()).unwrap()).unwrap();
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (operator, daemon, begun, ended) = (&operator, &daemon, &begun, &ended);
            scope.spawn(move || {
                let mut session = cluster.session("renewals").unwrap();
                while begun.fetch_add(1, Ordering::Relaxed) < BUILDS {
                    let running = operator.statements.read().unwrap();
                    operator.attach(&mut session, daemon);
                    let (table, index) = (format!("items_{client}"), format!("items_{client}_idx"));
                    session
                        .execute(&format!(
                            "CREATE INDEX {index} ON {table} USING hnsw (v vector_l2_ops) WITH (external = true)"
                        ))
                        .unwrap();
                    drop(running);
                    inspect(cluster, &mut session, &index).unwrap();
                    session.execute(&format!("DROP INDEX {index}")).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=RENEWALS {
            let due = number * BUILDS / (RENEWALS + 1);
            wait_for("the builds before the next renewal", PATIENCE, || {
                Ok((ended.load(Ordering::Relaxed) >= due).then_some(()))
            })
            .unwrap();
            renew(&operator, &daemon, number);
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), BUILDS);

    // From now on only the last certificate and the last token are valid.
    fs::copy(daemon.certificate(), operator.path("trusted.pem")).unwrap();
    let mut session = cluster.session("renewals").unwrap();
    operator.attach(&mut session, &daemon);
    let create = "CREATE INDEX items_0_idx ON items_0 USING hnsw (v vector_l2_ops) WITH (external = true)";
    // Builders behind a router watch the files themselves, and may not have loaded the last certificate yet.
    wait_for("builders with the last certificate", PATIENCE, || {
        match session.execute(&format!("{create}; DROP INDEX items_0_idx")) {
            Err(error) if error.server().detail.contains("was not signed by a certificate") => Ok(None),
            done => {
                done.unwrap();
                Ok(Some(()))
            }
        }
    })
    .unwrap();
    session.execute("SET hnsw.external_index_token = 'token-0-0123456789abcdef'").unwrap();
    assert_eq!(session.execute(create).unwrap_err().server().sqlstate, "28000", "the first token");
}

#[test]
fn renewals_cost_no_build() {
    let cluster = Cluster::start().unwrap();
    let mut session = cluster.database("renewals").unwrap();
    let rows = data_set("glove-100").unwrap().0.truncated(1000);
    for client in 0..CLIENTS {
        copy_rows(&mut session, &format!("items_{client}"), Column::Vector, &rows).unwrap();
    }
    no_build_is_lost(&cluster, "serve", &[]);
    no_build_is_lost(&cluster, "router", &["--mode", "relay", "--max-builders", "2"]);
    no_build_is_lost(&cluster, "router", &["--mode", "redirect", "--max-builders", "2"]);
}
