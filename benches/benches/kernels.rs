//! Time per distance, for single distances and for tiles, by type, metric and dimensions.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use distance::{
    BLOCK, COLS, CodePanel, Elements, Metric, Panel, ROWS, Tile, TileInput, code_kernels, kernel, tile_kernel,
};
use half::f16;
use harness::synthetic;

const DIMS: [usize; 5] = [96, 128, 384, 768, 1536];

fn encoded(elements: Elements, row: &[f32]) -> Vec<u8> {
    match elements {
        Elements::F32 => row.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Elements::F16 => row.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        Elements::Bits => {
            let bit = |bits: &[f32]| bits.iter().fold(0, |byte, &x| byte << 1 | u8::from(x > 0.0));
            row.chunks(8).map(bit).collect()
        }
        Elements::Sparse => {
            let set: Vec<_> = (0u32..).zip(row).filter(|(at, _)| at % 8 == row[0].to_bits() % 8).collect();
            let mut bytes = (set.len() as u32).to_le_bytes().to_vec();
            bytes.extend(set.iter().flat_map(|(at, _)| at.to_le_bytes()));
            bytes.extend(set.iter().flat_map(|(_, x)| x.to_le_bytes()));
            bytes
        }
    }
}

/// One value against several values in the cache: time per distance.
fn one_by_one(criterion: &mut Criterion) {
    const OTHERS: usize = 32;
    let kinds = [
        (Elements::F32, Metric::L2, "f32 l2"),
        (Elements::F32, Metric::InnerProduct, "f32 inner product"),
        (Elements::F32, Metric::L1, "f32 l1"),
        (Elements::F16, Metric::L2, "f16 l2"),
        (Elements::F16, Metric::InnerProduct, "f16 inner product"),
        (Elements::Bits, Metric::Hamming, "bits hamming"),
        (Elements::Bits, Metric::Jaccard, "bits jaccard"),
        (Elements::Sparse, Metric::InnerProduct, "sparse inner product, 1 of 8"),
    ];
    for (elements, metric, name) in kinds {
        let kernel = kernel(elements, metric).expect("pgvector has it");
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(OTHERS as u64));
        for dims in DIMS {
            let (base, query) = synthetic(OTHERS, 1, dims, 1);
            let others: Vec<Vec<u8>> = (0..OTHERS).map(|row| encoded(elements, base.row(row))).collect();
            let query = encoded(elements, query.row(0));
            group.bench_function(BenchmarkId::from_parameter(dims), |bencher| {
                bencher.iter(|| others.iter().map(|other| kernel(black_box(&query), other)).sum::<f32>());
            });
        }
        group.finish();
    }
}

/// All tiles of a group of vectors: time per pair.
fn tiles(criterion: &mut Criterion) {
    const GROUP: usize = 512;
    let limits = ([f32::NEG_INFINITY; ROWS], [f32::NEG_INFINITY; COLS]);
    let input = TileInput {
        scale: -1.0,
        row_terms: &[0.0; ROWS],
        col_terms: &[0.0; COLS],
        row_limits: &limits.0,
        col_limits: &limits.1,
    };
    let mut group = criterion.benchmark_group("tiles");
    group.throughput(Throughput::Elements((GROUP * GROUP) as u64));
    for dims in DIMS {
        let (base, _) = synthetic(GROUP, 1, dims, 1);
        let rows: Vec<Vec<u8>> = (0..GROUP).map(|row| encoded(Elements::F32, base.row(row))).collect();
        let rows = || rows.iter().map(Vec::as_slice);
        let (mut panel, mut codes, mut tile) = (Panel::default(), CodePanel::default(), Tile::default());
        panel.fill(Elements::F32, dims, rows(), None, &[]);
        codes.fill(Elements::F32, dims, rows(), None, &[]);
        let kernel = tile_kernel();
        let pairs = || (0..GROUP / BLOCK).flat_map(|row| (0..GROUP / BLOCK).step_by(2).map(move |col| (row, col)));
        group.bench_function(BenchmarkId::new("f32", dims), |bencher| {
            bencher.iter(|| {
                for (row, col) in pairs() {
                    kernel(panel.block(row), [panel.block(col), panel.block(col + 1)], black_box(&input), &mut tile);
                }
            });
        });
        if let Some(kernel) = code_kernels().map(|kernels| kernels.tile) {
            group.bench_function(BenchmarkId::new("int8 codes", dims), |bencher| {
                bencher.iter(|| {
                    for (row, col) in pairs() {
                        kernel(
                            codes.block(row),
                            [codes.block(col), codes.block(col + 1)],
                            black_box(&input),
                            &mut tile,
                        );
                    }
                });
            });
        }
        if let Some(kernels) = code_kernels() {
            // All pairs of 63 vectors, the number of candidates of an element: by `all_pairs`, and by tiles on and above the diagonal.
            let few = rows().take(63).collect::<Vec<_>>();
            codes.fill(Elements::F32, dims, few.iter().copied(), None, &[]);
            let (terms, mut distances) = ([0.0; 64], vec![0.0; 64 * 64]);
            group.bench_function(BenchmarkId::new("63 with each other", dims), |bencher| {
                bencher.iter(|| (kernels.all_pairs)(black_box(&codes), -1.0, &terms, &mut distances));
            });
            group.bench_function(BenchmarkId::new("63 with each other, tiles", dims), |bencher| {
                bencher.iter(|| {
                    for (row, col) in [(0, 0), (0, 2), (1, 0), (1, 2), (2, 2), (3, 2)] {
                        let cols = [codes.block(col), codes.block(col + 1)];
                        (kernels.tile)(codes.block(row), cols, black_box(&input), &mut tile);
                    }
                });
            });
        }
        group.bench_function(BenchmarkId::new("packing f32", dims), |bencher| {
            bencher.iter(|| panel.fill(Elements::F32, dims, rows(), None, &[]));
        });
        group.bench_function(BenchmarkId::new("packing codes", dims), |bencher| {
            bencher.iter(|| codes.fill(Elements::F32, dims, rows(), None, &[]));
        });
    }
    group.finish();
}

criterion_group! {
    name = kernels;
    config = Criterion::default().sample_size(15).warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400)).without_plots();
    targets = one_by_one, tiles
}
criterion_main!(kernels);
