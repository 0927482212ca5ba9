use std::io;
use std::time::Duration;

use protocol::{CLIENT_SILENCE_TIMEOUT, DEFAULT_PORT, DEFAULT_STATUS_PORT};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::transport::{Transport, buffered, set_options};
use crate::{Access, Activity, Closed};

/// The settings of both daemons for their ports and the connections of clients.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Where to listen for clients: a name or an address.
    pub host: String,
    /// The port for clients; 0 takes any free one.
    pub port: u16,
    /// Where to listen for status requests.
    pub status_host: String,
    /// The port for status requests; 0 takes any free one.
    pub status_port: u16,
    /// Whether status shows clients' labels of builds, which are names of relations.
    pub status_labels: bool,
    /// How clients authenticate.
    pub access: Access,
    /// How long a client has from the connection to its first frame.
    pub handshake_timeout: Duration,
    /// How long a client may send nothing while it waits or its rows are due, or leave sent data unread.
    pub idle_timeout: Duration,
    /// How long after a request to shut down builds are still accepted, while `/readyz` already fails: load balancers need time to send
    /// clients elsewhere.
    pub shutdown_delay: Duration,
    /// The most concurrent connections. Beyond it, the oldest pending connection is closed.
    pub max_connections: u32,
    /// Connections to accept per second; further ones wait in the listen backlog.
    pub max_handshakes: u32,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
            status_host: "127.0.0.1".to_owned(),
            status_port: DEFAULT_STATUS_PORT,
            status_labels: false,
            access: Access::default(),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: CLIENT_SILENCE_TIMEOUT,
            shutdown_delay: Duration::ZERO,
            max_connections: 256,
            max_handshakes: 200,
        }
    }
}

impl Listening {
    /// Prepares a client's connection, with a TLS handshake if it is on. `None` if that failed; `activity` has the reason then.
    pub async fn open(&self, stream: TcpStream, activity: &Activity) -> Option<Box<dyn Transport>> {
        // The connection works without them.
        if let Err(error) = set_options(&stream, self.idle_timeout) {
            tracing::debug!(%error, "cannot set socket options");
        }
        let Some(tls) = &self.access.tls else { return Some(Box::new(stream)) };
        match timeout(self.handshake_timeout, TlsAcceptor::from(tls.config()).accept(buffered(stream))).await {
            Ok(Ok(stream)) => return Some(Box::new(stream)),
            // As port scanners and health checks do.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!("client left before the end of the TLS handshake");
            }
            Ok(Err(error)) => activity.closed(cause(&error), format_args!("no TLS handshake: {error}")),
            Err(_) => {
                let seconds = self.handshake_timeout.as_secs_f64();
                activity.closed(Closed::Timeout, format_args!("no TLS handshake within {seconds} s"));
            }
        }
        None
    }
}

/// Why a handshake failed.
fn cause(error: &io::Error) -> Closed {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => Closed::Certificate,
        _ => Closed::Tls,
    }
}
