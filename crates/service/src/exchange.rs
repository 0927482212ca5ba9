//! One HTTP request to a daemon, over its status port or its operator's socket.

use std::io;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends a request without a body over a connection, and returns the answer, whose body has at most `most` bytes.
///
/// # Errors
/// The connection broke, or the answer is not HTTP or too long.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: Method,
    path: &str,
    most: usize,
) -> io::Result<Response<Bytes>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::builder().method(method).uri(path).header(HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(io::Error::other)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    // The connection makes progress only while it is polled.
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => {
            // The answer may have arrived before the end.
            let answer = exchange.await;
            answer.map_err(|error| ended.err().map_or(error, io::Error::other))
        }
    }
}
