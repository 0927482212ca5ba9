//! Builds whose values are in a file.

use std::sync::Arc;

use hnsw::{BuildSpec, Control, EngineKind, Finished, Metric, Pool, RowBatch, Storage, start_in};

use graph::{HeapTid, ValueType};

const DIMS: u32 = 16;

fn build(storage: &Storage, spool_at: usize) -> Finished {
    let spec = BuildSpec { seed: 1, ..BuildSpec::new(ValueType::Vector, Metric::L2, DIMS, 8, 64) };
    let pool = Arc::new(Pool::new(2).unwrap());
    let mut engine = start_in(storage.clone(), EngineKind::Bulk, spec, pool, Control::default()).unwrap();
    for batch in 0..20 {
        if batch == spool_at {
            storage.spool();
        }
        let tids: Vec<_> = (0..200).map(|row| HeapTid::new(batch as u32, row + 1)).collect();
        let number = |at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(batch as u32 * 40_503) % 10_007) as f32;
        let values: Vec<u8> = (0..200 * DIMS).flat_map(|at| number(at).to_le_bytes()).collect();
        engine.add(RowBatch { tids: &tids, values: &values, lengths: &[] }).unwrap();
    }
    engine.finish().unwrap()
}

#[test]
fn the_same_index_wherever_the_values_are() {
    let dir = tempfile::tempdir().unwrap();
    let memory = build(&Storage::default(), 99);
    for spool_at in [0, 9, 99] {
        let spooled = build(&Storage::with_spool(dir.path().to_owned()), spool_at);
        assert!(memory.graph.elements().eq(spooled.graph.elements()));
        for element in memory.graph.elements() {
            assert_eq!(memory.values.value(element), spooled.values.value(element));
            assert_eq!(memory.graph.neighbors(element, 0), spooled.graph.neighbors(element, 0));
        }
        assert_eq!(memory.order, spooled.order);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
