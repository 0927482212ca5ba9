use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// Sends a GET request; returns the status code and the body.
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let limit = Duration::from_secs(30);
    let mut stream =
        TcpStream::connect_timeout(&address, limit).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP status")?;
    Ok((code, body.to_owned()))
}
