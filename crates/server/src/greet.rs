use std::io;

use protocol::v1::MAX_TICKET_BYTES;
use protocol::{Greeting, LANTERN_V1_MAGIC, LANTERN_V1_RELAYED, MAGIC};
use service::Transport;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A client's answer to the greeting.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The protocol of the `protocol` crate.
    V2,
    /// Lantern's protocol, with a ticket if a router relays the client.
    LanternV1(Option<String>),
    /// No known protocol.
    Unknown([u8; 4]),
}

/// Sends the greeting and reads the choice of protocol. `None`: the client closed the connection.
pub(crate) async fn greet(stream: &mut Box<dyn Transport>) -> io::Result<Option<Choice>> {
    let Some(magic) = service::greet(stream, Greeting::builder()).await? else { return Ok(None) };
    Ok(Some(match magic {
        MAGIC => Choice::V2,
        LANTERN_V1_MAGIC => Choice::LanternV1(None),
        LANTERN_V1_RELAYED => Choice::LanternV1(Some(ticket(stream).await?)),
        other => Choice::Unknown(other),
    }))
}

/// The ticket that a router sends ahead of a relayed client's bytes.
async fn ticket(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let length = usize::from(stream.read_u16_le().await?);
    if length > MAX_TICKET_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a ticket of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
