//! Relays the bytes of a build between client and builder.

use std::future::ready;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use protocol::{BuilderMessage, ErrorReport, SqlState, kind};
use service::Transport;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::boundary::Boundary;

/// Bytes relayed per read.
const BUFFER: usize = 256 << 10;
/// The time limit for a last message: for a builder to send it, and for a client to read it and close.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(5);

/// How a relayed build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The builder sent its last frame, of this kind.
    Said(u8),
    /// The builder disconnected without a last frame.
    Lost,
    /// The client disconnected.
    Left,
    /// The client left data unread for too long.
    Unread,
}

/// A connection of the relay: both halves, and bytes that have been read but not relayed yet.
pub(crate) struct Side {
    pub(crate) read: ReadHalf<Box<dyn Transport>>,
    pub(crate) write: WriteHalf<Box<dyn Transport>>,
    pub(crate) pending: BytesMut,
}

/// Relays bytes in both directions until one side ends, or leaves data unread for `patience`. `see` is called after each write to the
/// client, with the boundary and the number of bytes; `forth` with the number of bytes written to the builder. If the builder is lost, the
/// caller informs the client by [`report`]. After [`End::Said`] the client may have bytes left to read: see [`linger`].
pub(crate) async fn pass(
    client: &mut Side,
    builder: &mut Side,
    boundary: &mut Boundary,
    patience: Duration,
    mut see: impl FnMut(&mut Boundary, usize),
    mut forth: impl FnMut(usize),
) -> End {
    let Side { read: from_client, write: to_client, pending: client_pending } = client;
    let Side { read: from_builder, write: to_builder, pending: builder_pending } = builder;
    let back = async {
        let seen = |bytes: &[u8]| {
            boundary.pass(bytes);
            see(boundary, bytes.len());
        };
        let copied = copy(from_builder, to_client, builder_pending, patience, seen).await;
        match (copied, boundary.last()) {
            (Err(Broken::Writing), _) => End::Left,
            (Err(Broken::Unread), _) => End::Unread,
            (_, Some(last @ (kind::DONE | kind::ERROR | kind::REFUSE))) if boundary.is_between_frames() => {
                // Shut down like the builder: the client expects the end of the stream after the last frame.
                let _ = timeout(LAST_WORD, to_client.shutdown()).await;
                End::Said(last)
            }
            _ => End::Lost,
        }
    };
    let mut back = std::pin::pin!(back);
    let forth = async {
        let copied = copy(from_client, to_builder, client_pending, patience, |bytes| forth(bytes.len())).await;
        // The client has closed its side or disconnected. At the end of its stream the builder cancels the build.
        if !matches!(copied, Err(Broken::Writing)) {
            let _ = to_builder.shutdown().await;
        }
        copied
    };
    tokio::select! {
        // The builder's last frame takes precedence if both sides end at the same time.
        biased;
        end = &mut back => end,
        copied = forth => match copied {
            // The client may have received the last frame and closed before the builder's end of stream arrives.
            Ok(()) | Err(Broken::Reading) => match timeout(LAST_WORD, back).await {
                Ok(end @ End::Said(_)) => end,
                _ => End::Left,
            },
            // A builder that stops reading rows may have sent its reason.
            Err(Broken::Writing | Broken::Unread) => timeout(LAST_WORD, back).await.unwrap_or(End::Lost),
        },
    }
}

/// Waits until the client has closed, within `patience`: closing a socket with unread bytes resets the connection, and
/// the client may lose what it has not read.
pub(crate) async fn linger(client: &mut Side, patience: Duration) {
    let _ = timeout(patience, discard(&mut client.read)).await;
}

/// Sends the client the reason why its build ends, if the stream to it is between two frames.
pub(crate) async fn report(client: &mut Side, boundary: &Boundary, report: ErrorReport) {
    let mut bytes = BytesMut::new();
    // In the middle of a frame the client would read the report as a part of that frame.
    if boundary.is_between_frames() {
        BuilderMessage::Error(report).encode(&mut bytes);
    }
    send_last(&mut client.read, &mut client.write, &bytes, LAST_WORD).await;
}

/// Sends last bytes, ends the stream, and gives the client `limit` to read them and close. Failures are ignored: the session ends in any case.
pub(crate) async fn send_last(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    bytes: &[u8],
    limit: Duration,
) {
    let last = async {
        write.write_all(bytes).await?;
        write.shutdown().await?;
        discard(&mut read).await;
        io::Result::Ok(())
    };
    let _ = timeout(limit, last).await;
}

/// The report that the builder is lost.
pub(crate) fn lost(name: &str, why: &str) -> ErrorReport {
    ErrorReport::new(SqlState::CONNECTION_FAILURE, format!("router lost its connection to builder {name}"))
        .detail(format!("What is known of the builder: {why}."))
        .hint("The build can be tried again.")
}

/// Reads and discards: closing with unread bytes would reset the connection and lose bytes on their way to the other side.
async fn discard(from: &mut (impl AsyncRead + Unpin)) {
    let mut rest = vec![0; BUFFER];
    while from.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

/// Which side of a copy broke.
pub(crate) enum Broken {
    Reading,
    Writing,
    /// The receiver left data unread for too long.
    Unread,
}

/// Copies bytes until the stream ends, `buffer` first. `see` gets the bytes after each write. Fails if the receiver reads nothing for
/// `patience` while bytes are waiting.
pub(crate) async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    buffer: &mut BytesMut,
    patience: Duration,
    mut see: impl FnMut(&[u8]),
) -> Result<(), Broken> {
    let mut read = Ok(1);
    loop {
        if !buffer.is_empty() {
            while !buffer.is_empty() {
                match timeout(patience, to.write(buffer)).await.map_err(|_| Broken::Unread)? {
                    Ok(written @ 1..) => {
                        see(&buffer[..written]);
                        buffer.advance(written);
                    }
                    _ => return Err(Broken::Writing),
                }
            }
            timeout(patience, to.flush()).await.map_err(|_| Broken::Unread)?.map_err(|_| Broken::Writing)?;
            buffer.clear();
        }
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => return Err(Broken::Reading),
        }
        buffer.reserve(BUFFER);
        read = from.read_buf(buffer).await;
        // Collect all bytes that are available, since each write has a cost and TLS returns one record at a time.
        while matches!(read, Ok(1..)) && buffer.len() < BUFFER {
            read = tokio::select! {
                biased;
                read = from.read_buf(buffer) => read,
                () = ready(()) => break,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::{Bytes, BytesMut};
    use protocol::{BuilderMessage, Done, ErrorReport, MAX_PAGES_PER_FRAME, PAGE_SIZE, SqlState, encode_pages, kind};
    use service::Transport;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Boundary, Duration, End, Side, linger, pass, timeout};
    use crate::stages::Stages;

    /// A connection of the router, and its other end.
    async fn side() -> (Side, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near: Box<dyn Transport> = Box::new(listener.accept().await.unwrap().0);
        let (read, write) = split(near);
        (Side { read, write, pending: BytesMut::new() }, far)
    }

    #[tokio::test]
    async fn the_last_frame_decides_although_the_client_then_resets_the_connection() {
        let done = BuilderMessage::Done(Done { rows: 1, elements: 1, build_ms: 1, blocks: 2, ..Done::default() });
        let cancelled = BuilderMessage::Error(ErrorReport::new(SqlState::QUERY_CANCELED, "cancelled by the client"));
        for (word, expected) in [(done, kind::DONE), (cancelled, kind::ERROR)] {
            let ((mut to_client, mut client), (mut to_builder, mut builder)) = (side().await, side().await);
            let mut boundary = Boundary::new(Arc::new(Stages::new()));
            let mut bytes = BytesMut::new();
            word.encode(&mut bytes);
            let peers = async {
                builder.write_all(&bytes).await.unwrap();
                client.read_exact(&mut bytes.clone()).await.unwrap();
                client.reset_when_closed().unwrap();
                drop(client);
                // The router closes its connection to the builder when the client has disconnected.
                builder.read_to_end(&mut Vec::new()).await.unwrap();
                drop(builder);
            };
            let patience = Duration::from_secs(30);
            let passed = pass(&mut to_client, &mut to_builder, &mut boundary, patience, |_, _| {}, |_| {});
            let both = async { tokio::join!(passed, peers).0 };
            assert_eq!(timeout(Duration::from_secs(30), both).await.unwrap(), End::Said(expected));
            assert_eq!(boundary.is_cancelled(), expected == kind::ERROR);
        }
    }

    #[tokio::test]
    async fn a_slow_client_reads_to_the_end() {
        let ((mut to_client, mut client), (mut to_builder, mut builder)) = (side().await, side().await);
        let patience = Duration::from_secs(60);
        let relay = async {
            let mut boundary = Boundary::new(Arc::new(Stages::new()));
            pass(&mut to_client, &mut to_builder, &mut boundary, patience, |_, _| {}, |_| {}).await;
            drop(to_builder);
            to_client.write.shutdown().await.unwrap();
            linger(&mut to_client, patience).await;
            drop(to_client);
        };
        let length = 3 << 20;
        let building = async {
            builder.write_all(&vec![7; length]).await.unwrap();
            drop(builder);
        };
        let reading = async move {
            tokio::time::sleep(Duration::from_secs(6)).await;
            // Unread bytes, here a heartbeat, would reset the connection on close.
            client.write_all(b"heartbeat").await.unwrap();
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).await.map(|_| bytes.len())
        };
        let ((), (), read) = tokio::join!(relay, building, reading);
        assert_eq!(read.unwrap(), length);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let ((mut to_client, client), (mut to_builder, mut builder)) = (side().await, side().await);
        let mut boundary = Boundary::new(Arc::new(Stages::new()));
        let patience = Duration::from_millis(300);
        let passed = pass(&mut to_client, &mut to_builder, &mut boundary, patience, |_, _| {}, |_| {});
        let (head, body, _) = encode_pages(1, Bytes::from(vec![0; MAX_PAGES_PER_FRAME * PAGE_SIZE]));
        let frame = [head, body].concat();
        let endless = async { while builder.write_all(&frame).await.is_ok() {} };
        let end = tokio::select! {
            end = timeout(Duration::from_secs(60), passed) => end.unwrap(),
            () = endless => panic!("the relay closed the connection to the builder"),
        };
        assert_eq!(end, End::Unread);
        // The boundary covers bytes sent to the client, not those read from the builder: it is within a frame.
        assert!(!boundary.is_between_frames());
        drop(client);
    }
}
