use std::fmt;

use anyhow::{Result, anyhow, bail};
use hyper::Uri;
use service::DEFAULT_STATUS_PORT as PORT;

/// Where a daemon answers status requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// The path of `/status`.
    pub path: String,
}

impl Target {
    /// Parses `host`, `host:port`, `[address]:port` or a URL.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            anyhow!(
                "\"{text}\" is not an address; it looks like builder.example, 10.0.0.3:{PORT} or http://[::1]:{PORT}/"
            )
        };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = full.parse().map_err(|_| wrong())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => bail!("\"{text}\": a daemon answers status requests over plain HTTP; say http://"),
            _ => return Err(wrong()),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') || uri.query().is_some() {
            return Err(wrong());
        }
        let port = match authority.strip_prefix(host) {
            Some("") => PORT,
            _ => uri.port_u16().ok_or_else(wrong)?,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix("/status").unwrap_or(base);
        Ok(Self { host, port, path: format!("{base}/status") })
    }
}

/// The address, for messages and the Host header.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn targets_are_hosts_addresses_or_urls() {
        for (text, host, port, path) in [
            ("builder.example", "builder.example", 8999, "/status"),
            ("10.0.0.3:81", "10.0.0.3", 81, "/status"),
            ("[::1]:81", "::1", 81, "/status"),
            ("http://localhost", "localhost", 8999, "/status"),
            ("http://localhost:81/status", "localhost", 81, "/status"),
            ("http://proxy:80/builders/a/", "proxy", 80, "/builders/a/status"),
        ] {
            let target = Target { host: host.to_owned(), port, path: path.to_owned() };
            assert_eq!(Target::parse(text).unwrap(), target, "{text}");
        }
        assert_eq!(Target::parse("[::1]").unwrap().to_string(), "[::1]:8999");
        for bad in
            ["", "https://builder", "ftp://builder", "a b", "host:99999", "http://me:secret@host", "http://", "h?x=1"]
        {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
