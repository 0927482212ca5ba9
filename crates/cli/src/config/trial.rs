//! What would a daemon refuse when it starts? Checks files, directories and listen addresses without starting it.

use std::path::Path;

use anyhow::anyhow;
use service::{Access, TicketKeys, TlsFile, Tokens};

use crate::args::{Command, Serve};
use crate::daemon::{self, Daemon};
use crate::failure::Failure;
use crate::router::Router;
use crate::{router_config, serve};

/// A setting that a daemon would refuse.
pub struct Finding {
    /// The setting at fault, if it is a single one.
    pub setting: Option<&'static str>,
    /// The reason.
    pub failure: Failure,
}

/// All reasons why a daemon would refuse these arguments, which are well-formed.
pub fn findings(command: &Command) -> Vec<Finding> {
    let mut trial = Trial::default();
    let daemon = match command {
        Command::Serve(serve) => {
            trial.serve(serve);
            serve::config(serve).err()
        }
        Command::Router(router) => {
            trial.router(router);
            router_config::config(router).err()
        }
        _ => None,
    };
    // The daemon's own checks stop at the first error, most likely one that was found above.
    if trial.findings.is_empty() {
        trial.findings = daemon.into_iter().map(|failure| Finding { setting: None, failure }).collect();
    }
    trial.findings
}

#[derive(Default)]
struct Trial {
    findings: Vec<Finding>,
}

impl Trial {
    fn serve(&mut self, arguments: &Serve) {
        self.daemon(&arguments.daemon, arguments.ticket_key.is_some());
        self.file("ticket-key", arguments.ticket_key.as_deref(), TicketKeys::open);
        if let Some(Err(failure)) = arguments.spool_dir.as_deref().map(serve::check_spool_dir) {
            self.add("spool-dir", failure);
        }
    }

    fn router(&mut self, arguments: &Router) {
        self.daemon(&arguments.daemon, false);
        self.file("ticket-key", arguments.ticket_key.as_deref(), TicketKeys::open);
        #[cfg(feature = "kubernetes")]
        self.file("builder-template", arguments.pods.builder_template.as_deref(), ::router::check_template);
        if let (Some(ca), Some(name)) = (&arguments.builder_ca, &arguments.builder_name) {
            self.file("builder-ca", Some(ca), |path| ::router::BuilderTls::authority(path, name));
        }
    }

    /// Checks the settings that builder and router share.
    fn daemon(&mut self, daemon: &Daemon, shows_tickets: bool) {
        self.tls(daemon, daemon.client_ca.as_deref());
        self.file("token-file", daemon.token_file.as_deref(), Tokens::open);
        // Treat unreadable certificates and token files as present: otherwise a second finding would say that
        // encryption or authentication is missing.
        let asked = shows_tickets || daemon.token_file.is_some() || daemon.client_ca.is_some();
        let access = Access {
            allow_plaintext_beyond_loopback: daemon.allow_plaintext_beyond_loopback || daemon.cert.is_some(),
            allow_anonymous: daemon.allow_anonymous,
            ..Access::default()
        };
        let check = access.check_exposure(&daemon.host, daemon.port, asked);
        let checked = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(check).map_err(daemon::explain),
            Err(error) => Err(Failure::Other(anyhow!(error))),
        };
        if let Err(failure) = checked {
            self.add("host", failure);
        }
    }

    fn tls(&mut self, daemon: &Daemon, client_ca: Option<&Path>) {
        let (Some(cert), Some(key)) = (&daemon.cert, &daemon.key) else { return };
        for (file, error) in service::check_tls(cert, key, client_ca) {
            let setting = match file {
                TlsFile::Cert => "cert",
                TlsFile::Key => "key",
                TlsFile::ClientCa => "client-ca",
            };
            self.add(setting, Failure::usage(error));
        }
    }

    fn file<T, E: Into<anyhow::Error>>(
        &mut self,
        setting: &'static str,
        path: Option<&Path>,
        read: impl FnOnce(&Path) -> Result<T, E>,
    ) {
        if let Some(Err(error)) = path.map(read) {
            self.add(setting, Failure::usage(error));
        }
    }

    fn add(&mut self, setting: &'static str, failure: Failure) {
        self.findings.push(Finding { setting: Some(setting), failure });
    }
}
