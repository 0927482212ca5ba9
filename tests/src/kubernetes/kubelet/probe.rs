//! Is a container ready?

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Running;

/// The result of the container's readiness probe.
pub(super) async fn is_ready(running: &Running) -> bool {
    let container = running.pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let Some(probe) = container.and_then(|container| container.readiness_probe.as_ref()?.http_get.as_ref()) else {
        return true;
    };
    let port = match &probe.port {
        k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port) => u16::try_from(*port).unwrap_or(0),
        k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(_) => protocol::DEFAULT_STATUS_PORT,
    };
    let answer = async {
        let mut stream = TcpStream::connect((running.address.as_str(), port)).await?;
        let path = probe.path.as_deref().unwrap_or("/");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    matches!(timeout(Duration::from_secs(1), answer).await, Ok(Ok(text)) if text.starts_with("HTTP/1.1 200"))
}
