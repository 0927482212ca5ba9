use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use protocol::v1::{GIVE_ME_A_SERVER, INIT_BYTES, Init};
use protocol::{
    BuilderMessage, ClientMessage, Greeting, Hello, LANTERN_V1_MAGIC, MAGIC, MAX_PINGS, PROTOCOL_VERSION, Pong,
    ProtocolError,
};
use service::{Access, CodecError, FrameReader, FrameWriter, Transport, greet};
use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use crate::config::{Config, Mode};

/// The router's name and version.
pub(crate) const VERSION: &str = concat!("lantern-index router ", env!("CARGO_PKG_VERSION"));

/// A client's request.
pub(crate) enum Opening {
    /// A build.
    Build(Box<Client>),
    /// The address of a builder, in Lantern's format.
    LanternAddress(Box<dyn Transport>),
    /// A build for a Lantern client that did not ask for an address, so that it can only be relayed.
    LanternBuild(Box<dyn Transport>, Init),
    /// No request: the client disconnected, as health checks and port scans do.
    Nothing,
}

/// A client that has sent its Hello.
pub(crate) struct Client {
    pub(crate) hello: Hello,
    /// The Hello as received, with fields that this version may not know.
    pub(crate) frame: BytesMut,
    /// The ticket of an earlier redirect that failed; may be empty.
    pub(crate) ticket: String,
    /// The name in the client's certificate.
    pub(crate) certificate: Option<String>,
    pub(crate) reader: FrameReader<ReadHalf<Box<dyn Transport>>>,
    pub(crate) writer: FrameWriter<WriteHalf<Box<dyn Transport>>>,
}

/// Greets a client and reads its request.
///
/// # Errors
/// The client is too slow, violates the protocol or has disconnected.
pub(crate) async fn open(
    mut stream: Box<dyn Transport>,
    peer: SocketAddr,
    config: &Config,
) -> Result<Opening, CodecError> {
    let (mode, limit) = (config.mode, config.listening.handshake_timeout);
    let opening = async {
        // In relay mode the router greets as a builder: Lantern's clients know no other greeting.
        let greeting = if mode == Mode::Relay { Greeting::builder() } else { Greeting::router() };
        let Some(choice) = greet(&mut stream, greeting).await? else { return Ok(Opening::Nothing) };
        match choice {
            MAGIC => hello(stream, peer, &config.listening.access).await,
            GIVE_ME_A_SERVER if mode == Mode::Redirect => Ok(Opening::LanternAddress(stream)),
            LANTERN_V1_MAGIC => {
                let mut bytes = [0; INIT_BYTES];
                stream.read_exact(&mut bytes).await?;
                Ok(Opening::LanternBuild(stream, Init::from_bytes(&bytes)))
            }
            other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("no known protocol: {other:02x?}")).into()),
        }
    };
    timeout(limit, opening).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no Hello in time"))?
}

async fn hello(stream: Box<dyn Transport>, peer: SocketAddr, access: &Access) -> Result<Opening, CodecError> {
    let certificate = stream.peer_name();
    let (read, write) = split(stream);
    // Only control frames are read here: rows arrive after a builder has accepted the build, and are relayed unparsed.
    let (mut reader, mut writer) = (FrameReader::of_stranger(read), FrameWriter::new(write));
    let (mut pings, mut ticket) = (0, String::new());
    loop {
        let Some(frame) = reader.next().await? else { return Ok(Opening::Nothing) };
        match ClientMessage::from_frame(&frame)? {
            Some(ClientMessage::Hello(hello)) => {
                let mut bytes = BytesMut::new();
                frame.encode(&mut bytes);
                let frame = bytes;
                return Ok(Opening::Build(Box::new(Client { hello, frame, ticket, certificate, reader, writer })));
            }
            Some(ClientMessage::Ping(_)) if pings == MAX_PINGS => return Err(ProtocolError::Pings.into()),
            Some(ClientMessage::Ping(ping)) => match access.answer_ping("router", peer, ping.token.as_deref()) {
                Ok(()) => {
                    writer.send(&BuilderMessage::Pong(pong())).await?;
                    pings += 1;
                }
                Err(refuse) => {
                    writer.send(&BuilderMessage::Refuse(*refuse)).await?;
                    writer.shutdown().await?;
                    reader.discard().await?;
                    return Ok(Opening::Nothing);
                }
            },
            // It only shows which redirect failed: the lease of the next builder has a new ticket.
            Some(ClientMessage::Ticket(shown)) => ticket = shown.ticket,
            None => {}
            Some(other) => {
                let error = ProtocolError::Unexpected { message: other.name(), state: "opening the session" };
                return Err(error.into());
            }
        }
    }
}

fn pong() -> Pong {
    Pong { protocol: PROTOCOL_VERSION, threads: 0, memory_free: 0, builder_version: VERSION.to_owned() }
}
