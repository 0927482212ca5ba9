use std::io;

use protocol::{Greeting, LANTERN_V1_MAGIC, MAGIC};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a client answers to the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The protocol of the `protocol` crate.
    V2,
    /// Lantern's.
    LanternV1,
    /// No protocol we know.
    Unknown([u8; 4]),
}

/// Greets and reads the choice. `None`: the client left without one, as port scanners and health checks do.
pub(crate) async fn greet<S>(stream: &mut S) -> io::Result<Option<Choice>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // One write: Lantern's clients do not loop on short reads.
    stream.write_all(&Greeting::builder().to_bytes()).await?;
    stream.flush().await?;
    let mut magic = [0; 4];
    match stream.read_exact(&mut magic).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(match magic {
        MAGIC => Choice::V2,
        LANTERN_V1_MAGIC => Choice::LanternV1,
        other => Choice::Unknown(other),
    }))
}
