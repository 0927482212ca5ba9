use std::io;
use std::time::Duration;

use service::{Transport, buffered, set_options};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::spawner::Place;
use crate::tls::BuilderTls;

/// The time limit for connecting to a builder, and for its greeting.
const CONNECT: Duration = Duration::from_secs(10);

/// How long data sent to a builder may stay unacknowledged or unread.
const PATIENCE: Duration = Duration::from_secs(600);

/// Connects to a builder.
pub(crate) async fn connect(place: &Place, tls: Option<&BuilderTls>) -> io::Result<Box<dyn Transport>> {
    let connect = async {
        let stream = TcpStream::connect((place.host(), place.port)).await?;
        set_options(&stream, PATIENCE)?;
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Transport>) };
        let stream = TlsConnector::from(tls.config()).connect(tls.name.clone(), buffered(stream)).await?;
        Ok(Box::new(stream) as Box<dyn Transport>)
    };
    in_time(connect).await
}

/// Fails with `TimedOut` if a builder takes longer than [`CONNECT`].
pub(crate) async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
