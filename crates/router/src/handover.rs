use std::io;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{
    BUILDER_SILENCE_TIMEOUT, BuilderMessage, ClientMessage, Frame, GREETING_BYTES, Greeting, MAGIC, Redirect,
    ServerType, Ticket, capability, kind,
};
use service::{FrameReader, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until, timeout};

use crate::admission::{NoBuilder, check_frame, send};
use crate::opening::Client;
use crate::pool::Lease;
use crate::stream::{connect, in_time};
use crate::tls::BuilderTls;

/// A connection to a builder that has received the client's Hello.
pub(crate) struct BuilderConnection {
    pub(crate) reader: FrameReader<ReadHalf<Box<dyn Transport>>>,
    pub(crate) write: WriteHalf<Box<dyn Transport>>,
}

/// Whether the client supports a redirect.
pub(crate) fn supports_redirect(client: &Client) -> bool {
    client.hello.capabilities & capability::REDIRECT != 0
}

/// The redirect to the builder; `here` is the address at which the client reached the router.
pub(crate) fn redirect(lease: &Lease, server_name: &str, here: &str) -> BuilderMessage {
    BuilderMessage::Redirect(Redirect {
        port: lease.facts().place.port,
        host: lease.facts().place.host.clone().unwrap_or_else(|| here.to_owned()),
        server_name: server_name.to_owned(),
        ticket: lease.ticket.clone(),
    })
}

/// Connects to the builder and reads its greeting.
///
/// # Errors
/// The builder cannot be reached, or another program listens there.
pub(crate) async fn greeted(lease: &Lease, tls: Option<&BuilderTls>) -> io::Result<Box<dyn Transport>> {
    let mut stream = connect(&lease.facts().place, tls).await?;
    let mut greeting = [0; GREETING_BYTES];
    // With a time limit: the kernel accepts connections for a suspended process, too.
    in_time(stream.read_exact(&mut greeting)).await?;
    let greeting = Greeting::from_bytes(greeting);
    if greeting.server_type != ServerType::Builder as u32 {
        return Err(io::Error::other(format!("it is of type {}, not a builder", greeting.server_type)));
    }
    Ok(stream)
}

/// Connects to the builder and sends it the client's Hello.
///
/// # Errors
/// The builder cannot be reached, or another program listens there.
pub(crate) async fn ask(lease: &Lease, hello: &[u8], tls: Option<&BuilderTls>) -> io::Result<BuilderConnection> {
    let mut stream = greeted(lease, tls).await?;
    let mut bytes = BytesMut::from(&MAGIC[..]);
    if !lease.ticket.is_empty() {
        ClientMessage::Ticket(Ticket { ticket: lease.ticket.clone() }).encode(&mut bytes);
    }
    bytes.extend_from_slice(hello);
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    let (read, write) = split(stream);
    Ok(BuilderConnection { reader: FrameReader::new(read), write })
}

/// A builder that has not decided yet sends a frame each second. After this time without one it counts as lost, before the client gives up.
const SILENCE: Duration = Duration::from_secs(BUILDER_SILENCE_TIMEOUT.as_secs() / 2);

/// The builder's decision about a build.
pub(crate) enum Admission {
    /// The frame with the decision: Accept, Refuse or Error.
    Decided(Frame),
    /// The connection to the builder was lost before any row was sent.
    BuilderLost(String),
}

/// Relays the builder's frames, and the client's heartbeats, until the builder accepts or refuses the build; the frame with the decision is
/// returned, not relayed.
///
/// # Errors
/// The client has disconnected or cancelled.
pub(crate) async fn admit(
    client: &mut Client,
    builder: &mut BuilderConnection,
    patience: Duration,
) -> Result<Admission, NoBuilder> {
    let (mut client_heard, mut builder_heard) = (Instant::now(), Instant::now());
    let mut heartbeat = BytesMut::new();
    ClientMessage::Heartbeat.encode(&mut heartbeat);
    loop {
        tokio::select! {
            // If the router itself was suspended, what has arrived meanwhile comes before time limits.
            biased;
            frame = builder.reader.next() => match frame {
                Ok(Some(frame)) if matches!(frame.kind, kind::ACCEPT | kind::REFUSE | kind::ERROR) => {
                    return Ok(Admission::Decided(frame));
                }
                Ok(Some(frame)) => match BuilderMessage::from_frame(&frame).inspect(|_| builder_heard = Instant::now()) {
                    Ok(Some(message)) => send(client, &message, patience).await?,
                    Ok(None) => {}
                    Err(error) => return Ok(Admission::BuilderLost(error.to_string())),
                },
                Ok(None) => return Ok(Admission::BuilderLost("it closed the connection".to_owned())),
                Err(error) => return Ok(Admission::BuilderLost(error.to_string())),
            },
            frame = client.reader.next() => {
                check_frame(frame)?;
                client_heard = Instant::now();
                // The builder expects heartbeats, too, while the build waits in its queue.
                let beat = async {
                    builder.write.write_all(&heartbeat).await?;
                    builder.write.flush().await
                };
                match timeout(patience, beat).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Ok(Admission::BuilderLost(error.to_string())),
                    Err(_) => return Ok(Admission::BuilderLost("it reads nothing".to_owned())),
                }
            }
            () = sleep_until(client_heard + patience) => return Err(NoBuilder::Silent(patience)),
            () = sleep_until(builder_heard + SILENCE) => {
                return Ok(Admission::BuilderLost(format!("it has been silent for {} s", SILENCE.as_secs())));
            }
        }
    }
}
