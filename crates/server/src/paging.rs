use bytes::Bytes;
use hnsw::{BuildError, BuildSpec, Control, Finished, Pool};
use pages::{IndexMeta, Layout, LayoutError, PAGE_SIZE, PageWriter};
use protocol::{StreamChecksum, encode_pages};
use rayon::prelude::*;

use crate::job::Event;
use crate::session_error::SessionError;

/// Pages per frame: half a MiB, so that several frames in flight need little memory.
const PAGES_PER_FRAME: u32 = 64;

/// Totals of the pages sent.
pub(crate) struct Sent {
    pub(crate) blocks: u32,
    pub(crate) checksum: u32,
}

/// Makes the pages of a finished graph in order and passes them to `send` in batches; `send` blocks while the client does not read.
pub(crate) fn send(
    finished: &Finished,
    spec: &BuildSpec,
    pool: &Pool,
    control: &Control,
    send: impl Fn(Event) -> Result<(), SessionError>,
) -> Result<Sent, SessionError> {
    let Finished { graph, values, order, report } = finished;
    let meta =
        IndexMeta { value_type: spec.value_type, dims: spec.dims, m: spec.m, ef_construction: spec.ef_construction };
    let layout = Layout::new(graph, &**values, order, &meta).map_err(layout_error)?;
    let writer = PageWriter::new(graph, &**values, &layout);
    let blocks = writer.blocks();
    send(Event::Layout(protocol::Layout { blocks, elements: report.elements, rows: report.rows }))?;

    let mut checksum = StreamChecksum::new();
    let mut first = 0;
    while first < blocks {
        control.check()?;
        let count = PAGES_PER_FRAME.min(blocks - first);
        let body = pool.run(|| fill(&writer, first, count));
        let (head, body, crc) = encode_pages(first, body);
        checksum.add(crc);
        send(Event::Pages { count, head, body })?;
        first += count;
    }
    Ok(Sent { blocks, checksum: checksum.value() })
}

fn fill(writer: &PageWriter<'_>, first: u32, count: u32) -> Bytes {
    let mut bytes = vec![0; count as usize * PAGE_SIZE];
    let (pages, _) = bytes.as_chunks_mut();
    (first..first + count).into_par_iter().zip(pages).for_each(|(block, page)| writer.write_page(block, page));
    Bytes::from(bytes)
}

fn layout_error(error: LayoutError) -> SessionError {
    match error {
        LayoutError::TooManyBlocks => BuildError::TooManyElements(u64::from(u32::MAX)).into(),
        error => SessionError::Defect(error.to_string()),
    }
}
