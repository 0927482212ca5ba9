use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

/// `GET path` on a status port: head and body.
pub fn get(status: impl ToSocketAddrs, path: &str) -> String {
    let mut stream = TcpStream::connect(status).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric, by its name in the exposition.
pub fn metric(status: impl ToSocketAddrs, name: &str) -> u64 {
    let text = get(status, "/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}
