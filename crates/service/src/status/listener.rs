use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Timeout, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// The most open connections, so that unauthenticated clients cannot take the file descriptors that builds need.
const MOST: usize = 64;

/// How long a connection may last, busy or idle. Clients with persistent connections open a new one.
const LIFE: Duration = Duration::from_secs(30);

/// The pause after a failure to accept, usually for lack of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(500);

/// Accepts a limited number of connections, for a limited time each. Beyond the limit the oldest is closed, so that clients
/// that only open connections cannot lock out probes and scrapers.
pub(super) struct Connections {
    listener: TcpListener,
    /// Open connections and some closed ones, the oldest first.
    open: VecDeque<CancellationToken>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, open: VecDeque::new() }
    }

    /// Makes room for one more connection, and returns the token that closes it.
    fn enter(&mut self) -> CancellationToken {
        self.open.retain(|close| !close.is_cancelled());
        if self.open.len() >= MOST
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.cancel();
        }
        let close = CancellationToken::new();
        self.open.push_back(close.clone());
        close
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let close = self.enter();
                    let end = Box::pin(timeout(LIFE, close.clone().cancelled_owned()));
                    return (Connection { stream, end, _close: close.drop_guard() }, peer);
                }
                Err(_) => sleep(BACK_OFF).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when its time is over or it is closed to make room.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Timeout<WaitForCancellationFutureOwned>>>,
    /// Marks the connection as closed when it is dropped.
    _close: DropGuard,
}

impl Connection {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(_) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
