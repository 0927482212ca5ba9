use std::io;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{BuilderMessage, ClientMessage, Frame, Greeting, Hello, MAGIC, PROTOCOL_VERSION, Pong, ProtocolError};
use service::{CodecError, FrameReader, FrameWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use crate::config::Mode;
use crate::stream::Stream;

/// What Lantern's clients say to a router: "give me a server".
const LANTERN_ASKS: [u8; 4] = 3u32.to_le_bytes();

/// The router's name and version.
pub(crate) const VERSION: &str = concat!("lantern-index router ", env!("CARGO_PKG_VERSION"));

/// What a client wants.
pub(crate) enum Opening {
    /// A build.
    Build(Box<Client>),
    /// The address of a server, in Lantern's format.
    LanternAddress(Box<dyn Stream>),
    /// Nothing: it looked whether somebody is there.
    Nothing,
}

/// A client that has said Hello.
pub(crate) struct Client {
    pub(crate) hello: Hello,
    /// The Hello as it came: it may say more than this version knows.
    pub(crate) frame: Frame,
    pub(crate) reader: FrameReader<ReadHalf<Box<dyn Stream>>>,
    pub(crate) writer: FrameWriter<WriteHalf<Box<dyn Stream>>>,
}

/// Greets a client and hears what it wants.
///
/// # Errors
/// A client that is too slow, breaks the rules or is gone.
pub(crate) async fn open(mut stream: Box<dyn Stream>, mode: Mode, limit: Duration) -> Result<Opening, CodecError> {
    let opening = async {
        // To clients a router that relays is a builder.
        let greeting = if mode == Mode::Relay { Greeting::builder() } else { Greeting::router() };
        stream.write_all(&greeting.to_bytes()).await?;
        stream.flush().await?;
        let mut choice = [0; 4];
        match stream.read_exact(&mut choice).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Opening::Nothing),
            result => result?,
        };
        match choice {
            MAGIC => hello(stream).await,
            LANTERN_ASKS if mode == Mode::Redirect => Ok(Opening::LanternAddress(stream)),
            other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("no known protocol: {other:02x?}")).into()),
        }
    };
    timeout(limit, opening).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no Hello in time"))?
}

async fn hello(stream: Box<dyn Stream>) -> Result<Opening, CodecError> {
    let (read, write) = split(stream);
    let (mut reader, mut writer) = (FrameReader::new(read), FrameWriter::new(write));
    loop {
        let Some(frame) = reader.next().await? else { return Ok(Opening::Nothing) };
        match ClientMessage::from_frame(&frame)? {
            Some(ClientMessage::Hello(hello)) => {
                return Ok(Opening::Build(Box::new(Client { hello, frame, reader, writer })));
            }
            Some(ClientMessage::Ping) => _ = writer.send(&BuilderMessage::Pong(pong())).await?,
            // Of another router, perhaps: builders get ours.
            Some(ClientMessage::Ticket(_)) | None => {}
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

/// The answer to a Lantern client that asks for a server.
pub(crate) fn lantern_address(secure: bool, host: &str, port: u16) -> BytesMut {
    let mut bytes = BytesMut::new();
    for number in [u32::from(secure), u32::try_from(host.len()).unwrap_or(0)] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(host.as_bytes());
    bytes.extend_from_slice(&u32::from(port).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::lantern_address;

    #[test]
    fn addresses_are_in_lanterns_format() {
        let expected = [&[1, 0, 0, 0, 8, 0, 0, 0][..], b"10.0.0.1", &[0x26, 0x23, 0, 0]].concat();
        assert_eq!(lantern_address(true, "10.0.0.1", 8998), expected);
    }
}
