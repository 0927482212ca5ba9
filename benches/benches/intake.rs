//! How fast does a builder take rows? One thread decodes frames from a socket into batches; another adds the batches to an engine, helped
//! by the pool's threads.
//!
//! Prints megabytes of values per second, and CPU seconds per gigabyte of every thread that took part. `cargo bench -p
//! lantern-index-benches --bench intake -- 128 768` measures these dimensions only.

use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::BytesMut;
use graph::{HeapTid, ValueType};
use hnsw::{BuildSpec, Control, Engine, EngineKind, Metric, Pool, RowBatch};
use protocol::{ClientMessage, Frame, Tuples, TuplesWriter};
use service::FrameReader;
use tokio::sync::mpsc;

/// Bytes of values that each measurement takes.
const BYTES: usize = 512 << 20;
const ROUNDS: usize = 5;
/// Batches between the thread of the connection and that of the build, as in the server.
const QUEUE: usize = 4;

fn main() {
    hnsw::memory::map_large_blocks();
    let asked: Vec<usize> = env::args().filter_map(|word| word.parse().ok()).collect();
    let all = if asked.is_empty() { vec![128, 384, 768, 1536] } else { asked };
    println!("dims, MB/s (median), CPU seconds per GB by thread, of {ROUNDS} rounds");
    for dims in all {
        let frames = frames(dims, BYTES / (4 * dims));
        for (name, run) in [("engine", engine as fn(&Frames)), ("socket", socket), ("socket and engine", both)] {
            let mut speeds = Vec::new();
            let mut used = BTreeMap::<String, f64>::new();
            for _ in 0..ROUNDS {
                let (start, before) = (Instant::now(), cpu_seconds());
                run(&frames);
                speeds.push(frames.bytes as f64 / 1e6 / start.elapsed().as_secs_f64());
                *used.entry("all".into()).or_default() += (cpu_seconds() - before) / ROUNDS as f64;
                for (thread, seconds) in THREADS.lock().expect("no panic").drain(..) {
                    *used.entry(thread).or_default() += seconds / ROUNDS as f64;
                }
            }
            speeds.sort_by(f64::total_cmp);
            let per_gb = |seconds: f64| seconds * 1e9 / frames.bytes as f64;
            let used: Vec<String> =
                used.iter().map(|(thread, &seconds)| format!("{thread} {:.3}", per_gb(seconds))).collect();
            println!("{dims:5} {name:18} {:6.0} MB/s   {}", speeds[ROUNDS / 2], used.join(", "));
        }
    }
}

/// CPU seconds of threads that have ended.
static THREADS: std::sync::Mutex<Vec<(String, f64)>> = std::sync::Mutex::new(Vec::new());

/// Runs `work` on a thread whose CPU seconds are noted.
fn noted<'scope>(scope: &'scope thread::Scope<'scope, '_>, name: &str, work: impl FnOnce() + Send + 'scope) {
    let name = name.to_owned();
    scope.spawn(move || {
        work();
        let seconds = harness::thread_cpu_seconds("/proc/thread-self").expect("the system counts CPU time");
        THREADS.lock().expect("no panic").push((name, seconds));
    });
}

/// CPU seconds of this process, threads that have ended included.
fn cpu_seconds() -> f64 {
    harness::cpu_seconds(std::process::id())
}

/// Rows as a database sends them.
struct Frames {
    dims: usize,
    encoded: Vec<u8>,
    /// The same, decoded.
    batches: Vec<Tuples>,
    /// Bytes of all values.
    bytes: usize,
}

fn frames(dims: usize, rows: usize) -> Frames {
    let mut random = harness::Random::new(7);
    let mut encoded = Vec::new();
    let mut writer = TuplesWriter::new(false);
    let mut value = vec![0u8; 4 * dims];
    for row in 0..rows {
        for number in value.chunks_exact_mut(4) {
            number.copy_from_slice(&random.unit().to_le_bytes());
        }
        let tid = HeapTid::new(row as u32 / 50, row as u16 % 50 + 1);
        writer.push(tid.0, &value);
        if writer.is_full() || row + 1 == rows {
            let Ok(_) = writer.take(|part| {
                encoded.extend_from_slice(part);
                Ok::<_, std::convert::Infallible>(())
            });
        }
    }
    let (mut buffer, mut batches) = (BytesMut::from(&encoded[..]), Vec::new());
    while let Some(frame) = Frame::decode(&mut buffer).expect("good frames") {
        batches.extend(tuples(&frame));
    }
    Frames { dims, encoded, batches, bytes: 4 * dims * rows }
}

fn tuples(frame: &Frame) -> Option<Tuples> {
    match ClientMessage::from_frame(frame).expect("good messages") {
        Some(ClientMessage::Tuples(batch)) => Some(batch),
        _ => None,
    }
}

fn start(dims: usize, pool: &Arc<Pool>) -> Box<dyn Engine> {
    let spec = BuildSpec::new(ValueType::Vector, Metric::L2, dims as u32, 16, 64);
    let spec = BuildSpec { expected_rows: 1_000_000, seed: 1, ..spec };
    hnsw::start(EngineKind::Bulk, spec, pool.clone(), Control::default()).expect("good parameters")
}

fn add(engine: &mut dyn Engine, batches: &[Tuples]) {
    let tids: Vec<Vec<_>> = batches.iter().map(|batch| batch.tids().map(HeapTid).collect()).collect();
    let batches = batches.iter().zip(&tids);
    let rows: Vec<_> = batches.map(|(batch, tids)| RowBatch { tids, values: &batch.values, lengths: &[] }).collect();
    engine.add_all(&rows).expect("good rows");
}

/// Adds batches that are already decoded to an engine.
fn engine(frames: &Frames) {
    thread::scope(|scope| {
        noted(scope, "build", || {
            let pool = Arc::new(Pool::new(0).expect("threads"));
            let mut engine = start(frames.dims, &pool);
            frames.batches.chunks(QUEUE).for_each(|batches| add(&mut *engine, batches));
        });
    });
}

fn socket(frames: &Frames) {
    over_socket(frames, false);
}

fn both(frames: &Frames) {
    over_socket(frames, true);
}

/// Decodes frames from a socket, and adds the rows to an engine if `store`.
fn over_socket(frames: &Frames, store: bool) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (connection, _) = listener.accept().expect("a connection");
    let (rows, mut input) = mpsc::channel::<Tuples>(QUEUE);
    thread::scope(|scope| {
        noted(scope, "client", move || client.write_all(&frames.encoded).expect("all is read"));
        noted(scope, "connection", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                connection.set_nonblocking(true).expect("a socket");
                let stream = tokio::net::TcpStream::from_std(connection).expect("a socket");
                let mut reader = FrameReader::new(stream);
                while let Some(frame) = reader.next().await.expect("good frames") {
                    let batch = tuples(&frame).expect("rows");
                    rows.send(batch).await.expect("the build waits");
                }
            });
        });
        noted(scope, "build", move || {
            let pool = Arc::new(Pool::new(0).expect("threads"));
            let (mut engine, mut batches) = (start(frames.dims, &pool), Vec::new());
            while input.blocking_recv_many(&mut batches, QUEUE) > 0 {
                if store {
                    add(&mut *engine, &batches);
                }
                batches.clear();
            }
        });
    });
}
