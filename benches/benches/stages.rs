//! The stages of a build, measured separately: frames, graph, pages, verification of pages.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use graph::{HeapTid, ValueType};
use harness::{Vectors, synthetic};
use hnsw::{BuildSpec, Control, EngineKind, Finished, Metric, Pool, RowBatch};
use pages::{IncomingSpec, IncomingVerifier, IndexMeta, Layout, PAGE_SIZE, PageWriter};
use protocol::{ClientMessage, Frame, TuplesWriter, encode_pages};

const ROWS: usize = 3000;
const DIMS: usize = 384;

fn values(base: &Vectors) -> Vec<Vec<u8>> {
    (0..base.rows()).map(|row| base.row(row).iter().flat_map(|x| x.to_le_bytes()).collect()).collect()
}

fn tid(row: usize) -> HeapTid {
    HeapTid::new(row as u32 / 4, row as u16 % 4 + 1)
}

fn build(kind: EngineKind, values: &[Vec<u8>], pool: &Arc<Pool>) -> Finished {
    let spec = BuildSpec::new(ValueType::Vector, Metric::Cosine, DIMS as u32, 16, 64);
    let spec = BuildSpec { expected_rows: values.len() as u64, seed: 1, ..spec };
    let mut engine = hnsw::start(kind, spec, pool.clone(), Control::default()).expect("good parameters");
    for (at, batch) in values.chunks(300).enumerate() {
        let tids: Vec<HeapTid> = (0..batch.len()).map(|row| tid(300 * at + row)).collect();
        engine.add(RowBatch { tids: &tids, values: &batch.concat(), lengths: &[] }).expect("good rows");
    }
    engine.finish().expect("a graph")
}

/// Encodes rows into frames, and decodes them.
fn frames(criterion: &mut Criterion, values: &[Vec<u8>]) {
    let encode = || {
        let mut out = bytes::BytesMut::new();
        let mut writer = TuplesWriter::new(false);
        for (row, value) in values.iter().enumerate() {
            writer.push(tid(row).0, value);
            if writer.is_full() || row + 1 == values.len() {
                let emit = |part: &[u8]| {
                    out.extend_from_slice(part);
                    Ok::<(), Infallible>(())
                };
                writer.take(emit).expect("nothing fails");
            }
        }
        out
    };
    let mut group = criterion.benchmark_group("frames");
    group.throughput(Throughput::Bytes((values.len() * values[0].len()) as u64));
    group.bench_function("rows into frames", |bencher| bencher.iter(encode));
    let encoded = encode();
    group.bench_function("frames into rows", |bencher| {
        bencher.iter(|| {
            let (mut buffer, mut rows) = (encoded.clone(), 0);
            while let Some(frame) = Frame::decode(&mut buffer).expect("good frames") {
                let Some(ClientMessage::Tuples(batch)) = ClientMessage::from_frame(&frame).expect("good rows") else {
                    continue;
                };
                rows += batch.rows().count();
            }
            assert_eq!(rows, values.len());
        });
    });
    group.finish();
}

/// Builds the graph by each engine.
fn graphs(criterion: &mut Criterion, values: &[Vec<u8>], pool: &Arc<Pool>) {
    let mut group = criterion.benchmark_group("graph");
    group.throughput(Throughput::Elements(values.len() as u64)).sample_size(10);
    for (kind, name) in [(EngineKind::Bulk, "bulk"), (EngineKind::Usearch, "usearch")] {
        group.bench_function(name, |bencher| bencher.iter(|| build(kind, values, pool)));
    }
    group.finish();
}

/// Makes the pages of a graph, and verifies them.
fn index_pages(criterion: &mut Criterion, values: &[Vec<u8>], pool: &Arc<Pool>) {
    let Finished { graph, values, order, report } = build(EngineKind::Bulk, values, pool);
    let meta = IndexMeta { value_type: ValueType::Vector, dims: DIMS as u32, m: 16, ef_construction: 64 };
    let layout = Layout::new(&graph, &*values, &order, &meta).expect("it fits");
    let writer = PageWriter::new(&graph, &*values, &layout);
    let write = || {
        let mut all = vec![[0u8; PAGE_SIZE]; writer.blocks() as usize];
        (0..).zip(&mut all).for_each(|(block, page)| writer.write_page(block, page));
        all
    };
    let mut group = criterion.benchmark_group("pages");
    group.throughput(Throughput::Bytes(u64::from(writer.blocks()) * PAGE_SIZE as u64));
    group.bench_function("graph into pages", |bencher| bencher.iter(write));
    let all = write();
    group.bench_function("pages into frames", |bencher| {
        let body = bytes::Bytes::from(all[..64.min(all.len())].concat());
        bencher.iter(|| all.chunks(64).map(|_| encode_pages(black_box(0), body.clone()).2).fold(0, u32::wrapping_add));
    });
    let spec = IncomingSpec { meta, rows: report.rows, elements: report.elements, blocks: writer.blocks() };
    group.bench_function("checking them", |bencher| {
        bencher.iter(|| {
            let mut verifier = IncomingVerifier::new(spec, [7; 4]).expect("it may be so large");
            (0..).zip(&all).for_each(|(block, page)| verifier.page(block, page).expect("a good page"));
        });
    });
    group.finish();
}

fn stages(criterion: &mut Criterion) {
    let values = values(&synthetic(ROWS, 1, DIMS, 1).0);
    let pool = Arc::new(Pool::new(0).expect("threads"));
    frames(criterion, &values);
    graphs(criterion, &values, &pool);
    index_pages(criterion, &values, &pool);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(15).warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500)).without_plots();
    targets = stages
}
criterion_main!(benches);
