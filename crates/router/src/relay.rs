use std::future::ready;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use protocol::{BuilderMessage, ErrorReport, SqlState, kind};
use service::Transport;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::boundary::Boundary;

/// Bytes that are passed on at a time.
const BUFFER: usize = 256 << 10;
/// How long a client may take to close after the end.
const LINGER: Duration = Duration::from_secs(5);

/// How the bytes of a build came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The builder said its last word, of this kind.
    Said(u8),
    /// The builder is gone without a last word.
    Lost,
    /// The client is gone.
    Left,
}

/// One side of a relay: its halves, and what was read of it but not passed on yet.
pub(crate) struct Side {
    pub(crate) read: ReadHalf<Box<dyn Transport>>,
    pub(crate) write: WriteHalf<Box<dyn Transport>>,
    pub(crate) pending: BytesMut,
}

/// Passes bytes on in both directions until one side ends. A builder that is lost is not reported to the client: that is for
/// [`report`].
pub(crate) async fn pass(client: &mut Side, builder: &mut Side, boundary: &mut Boundary) -> End {
    boundary.pass(&builder.pending);
    let Side { read: from_client, write: to_client, pending: client_pending } = client;
    let Side { read: from_builder, write: to_builder, pending: builder_pending } = builder;
    let back = async {
        let copied = copy(from_builder, to_client, builder_pending, |bytes| boundary.pass(bytes)).await;
        match (copied, boundary.last()) {
            (Err(Broken::Writing), _) => End::Left,
            (_, Some(last @ (kind::DONE | kind::ERROR | kind::REFUSE))) if boundary.is_between_frames() => {
                // As the builder does: the client reads the end behind the last word.
                let _ = to_client.shutdown().await;
                End::Said(last)
            }
            _ => End::Lost,
        }
    };
    let mut back = std::pin::pin!(back);
    let forth = async {
        let copied = copy(from_client, to_builder, client_pending, |_| {}).await;
        // It closed its side, or is gone: the builder takes it for a cancellation and ends.
        if !matches!(copied, Err(Broken::Writing)) {
            let _ = to_builder.shutdown().await;
        }
        copied
    };
    tokio::select! {
        // The builder's word counts even when the client has gone in the same moment.
        biased;
        end = &mut back => {
            if let End::Said(_) = end {
                let _ = timeout(LINGER, discard(from_client)).await;
            }
            end
        }
        copied = forth => match copied {
            // Perhaps it had the last word already, and only the builder's end is not here yet.
            Ok(()) | Err(Broken::Reading) => match timeout(LINGER, back).await {
                Ok(end @ End::Said(_)) => end,
                _ => End::Left,
            },
            // A builder that does not take rows may have said why.
            Err(Broken::Writing) => timeout(LINGER, back).await.unwrap_or(End::Lost),
        },
    }
}

/// Tells the client that its builder is lost, if it stands between two frames.
pub(crate) async fn report(client: &mut Side, boundary: &Boundary, name: &str, why: &str) {
    let report = ErrorReport {
        sqlstate: SqlState::CONNECTION_FAILURE,
        message: format!("router lost its connection to builder {name}"),
        detail: format!("Of the builder is known: {why}."),
        hint: "The build can be tried again.".to_owned(),
    };
    let mut bytes = BytesMut::new();
    // Within a frame the client could not tell the report from the rest of it.
    if boundary.is_between_frames() {
        BuilderMessage::Error(report).encode(&mut bytes);
    }
    let last = async {
        client.write.write_all(&bytes).await?;
        client.write.shutdown().await?;
        discard(&mut client.read).await;
        Ok::<_, io::Error>(())
    };
    // Whoever does not read it in time does not hear it.
    let _ = timeout(LINGER, last).await;
}

/// Reads and forgets, so that closing does not throw away what is on its way to the other side.
pub(crate) async fn discard(from: &mut (impl AsyncRead + Unpin)) {
    let mut rest = vec![0; BUFFER];
    while from.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

/// Which side of a copy broke.
pub(crate) enum Broken {
    Reading,
    Writing,
}

/// Passes bytes on until there are no more, `buffer` first. `see` is shown what comes after that.
pub(crate) async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    buffer: &mut BytesMut,
    mut see: impl FnMut(&[u8]),
) -> Result<(), Broken> {
    let mut read = Ok(1);
    loop {
        if !buffer.is_empty() {
            to.write_all(buffer).await.map_err(|_| Broken::Writing)?;
            to.flush().await.map_err(|_| Broken::Writing)?;
            buffer.clear();
        }
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => return Err(Broken::Reading),
        }
        buffer.reserve(BUFFER);
        read = from.read_buf(buffer).await;
        // What is there as well goes along: TLS gives one record at a time, and each write costs.
        while matches!(read, Ok(1..)) && buffer.len() < BUFFER {
            read = tokio::select! {
                biased;
                read = from.read_buf(buffer) => read,
                () = ready(()) => break,
            };
        }
        see(buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use protocol::{BuilderMessage, Done, ErrorReport, SqlState, kind};
    use service::Transport;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Boundary, Duration, End, Side, pass, timeout};
    use crate::stages::Stages;

    /// A side of the router, and who is at its other end.
    async fn side() -> (Side, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near: Box<dyn Transport> = Box::new(listener.accept().await.unwrap().0);
        let (read, write) = split(near);
        (Side { read, write, pending: BytesMut::new() }, far)
    }

    #[tokio::test]
    async fn a_last_word_counts_although_the_client_breaks_off_when_it_has_it() {
        let done = BuilderMessage::Done(Done {
            rows: 1,
            elements: 1,
            relinked: 0,
            unreachable: 0,
            self_recall_ppm: 0,
            build_ms: 1,
            blocks: 2,
            checksum: 0,
        });
        let cancelled = BuilderMessage::Error(ErrorReport {
            sqlstate: SqlState::QUERY_CANCELED,
            message: "cancelled by the client".to_owned(),
            detail: String::new(),
            hint: String::new(),
        });
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
                // It closes when it hears that the client is gone.
                builder.read_to_end(&mut Vec::new()).await.unwrap();
                drop(builder);
            };
            let both = async { tokio::join!(pass(&mut to_client, &mut to_builder, &mut boundary), peers).0 };
            assert_eq!(timeout(Duration::from_secs(30), both).await.unwrap(), End::Said(expected));
            assert_eq!(boundary.is_cancelled(), expected == kind::ERROR);
        }
    }
}
