use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state to the service manager (systemd's `sd_notify`): `READY=1`, `STOPPING=1`. Does nothing without `NOTIFY_SOCKET`.
pub fn notify_manager(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!(%error, "cannot tell the service manager {state}");
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::send;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 100];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn messages_go_to_sockets_with_and_without_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let named = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap().as_bytes(), "READY=1").unwrap();
        assert_eq!(received(&named), "READY=1");
        let name = format!("lantern-index-{}", std::process::id());
        let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap();
        assert_eq!(received(&unnamed), "STOPPING=1");
        assert!(send(b"/nonexistent/socket", "READY=1").is_err());
    }
}
