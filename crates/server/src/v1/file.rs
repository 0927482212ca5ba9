use bytes::Bytes;
use hnsw::{BuildSpec, Control, Finished, Metric};
use node_file::{Content, NodeFile};
use pages::PAGE_SIZE;
use pgvector::ValueType;
use protocol::v1::result_head;

use crate::job::Event;
use crate::paging::Sent;
use crate::session_error::SessionError;

/// Approximate size in bytes of the pieces of the file.
const CHUNK_BYTES: u64 = 1 << 20;

/// Produces the node file of a finished graph in pieces; `send` blocks while the client does not read. The client makes the pages itself;
/// the status page counts each 8 KiB of the file as a page.
pub(crate) fn send(
    finished: &Finished,
    spec: &BuildSpec,
    control: &Control,
    send: impl Fn(Event) -> Result<(), SessionError>,
) -> Result<Sent, SessionError> {
    let Finished { graph, values, order, report } = finished;
    let file = NodeFile::new(graph, &**values, order.clone(), content(spec))?;
    let blocks = pages(file.bytes());
    send(Event::Layout(protocol::Layout { blocks, elements: report.elements, rows: report.rows }))?;

    let mut head = Bytes::from([&result_head(file.nodes().into(), file.bytes())[..], &file.head()].concat());
    let mut sent = file.head().len() as u64;
    let step = CHUNK_BYTES * u64::from(file.nodes()) / file.bytes();
    let step = u32::try_from(step).unwrap_or(u32::MAX).max(1);
    let mut first = 0;
    while first < file.nodes() {
        control.check()?;
        let end = first.saturating_add(step).min(file.nodes());
        let mut body = Vec::new();
        file.write(first..end, &mut body);
        let before = pages(sent);
        sent += body.len() as u64;
        let count = pages(sent) - before;
        send(Event::Pages { count, head: std::mem::take(&mut head), body: body.into() })?;
        first = end;
    }
    if sent != file.bytes() {
        return Err(SessionError::Defect(format!("file of {sent} bytes, {} announced", file.bytes())));
    }
    Ok(Sent { blocks, checksum: 0 })
}

fn content(spec: &BuildSpec) -> Content {
    let metric = match (spec.value_type, spec.metric) {
        (ValueType::Bit, _) => b'b',
        (_, Metric::L2) => b'e',
        _ => b'c',
    };
    Content { value_type: spec.value_type, dims: spec.dims, metric }
}

fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX)
}
