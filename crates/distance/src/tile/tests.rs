use super::code_kernel::code_kernels_at;
use super::{BLOCK, BitPanel, COLS, CodePanel, Panel, ROWS, Tile, TileInput, encode, tile_kernel_at};
use crate::tests::numbers;
use crate::{Elements, Level, Metric};

/// Allowed error per dimension of sums of f32 in another order, for values around 1.
const EPSILON: f64 = 1e-5;

#[test]
fn every_level_equals_the_reference_on_every_length() {
    equals_the_reference::<false>(-2.0);
    equals_the_reference::<true>(1.0);
}

fn equals_the_reference<const DIFFERENCES: bool>(scale: f32) {
    let mut next = numbers(9);
    for dims in (1..70).chain([127, 128, 384, 1001]) {
        let vectors: Vec<Vec<f32>> = (0..ROWS + COLS).map(|_| (0..dims).map(|_| next()).collect()).collect();
        let bytes: Vec<Vec<u8>> = vectors.iter().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let mut panel = Panel::default();
        panel.fill(Elements::F32, dims, bytes.iter().map(Vec::as_slice), None, &[]);
        let row_terms: [f32; ROWS] = std::array::from_fn(|_| next());
        let col_terms: [f32; COLS] = std::array::from_fn(|_| next());
        let (row_limits, col_limits) = ([0.5; ROWS], std::array::from_fn(|_| next()));
        let input = TileInput {
            scale,
            row_terms: &row_terms,
            col_terms: &col_terms,
            row_limits: &row_limits,
            col_limits: &col_limits,
        };
        for level in Level::available() {
            let mut tile = Tile::default();
            tile_kernel_at::<DIFFERENCES>(level)(panel.block(0), [panel.block(1), panel.block(2)], &input, &mut tile);
            for row in 0..ROWS {
                for col in 0..COLS {
                    let pairs = vectors[row].iter().zip(&vectors[BLOCK + col]);
                    let pairs = pairs.map(|(&a, &b)| (f64::from(a), f64::from(b)));
                    let sum: f64 = match DIFFERENCES {
                        true => pairs.map(|(a, b)| (a - b).abs()).sum(),
                        false => pairs.map(|(a, b)| a * b).sum(),
                    };
                    let expected = f64::from(scale) * sum + f64::from(row_terms[row]) + f64::from(col_terms[col]);
                    let limit = f64::from(row_limits[row].max(col_limits[col]));
                    let hit = tile.hits[row] >> col & 1 == 1;
                    let slack = EPSILON * dims as f64;
                    if (expected - limit).abs() > slack {
                        assert_eq!(hit, expected < limit, "{level:?} {dims} dims ({row}, {col})");
                    }
                    if tile.hits[row] != 0 {
                        let found = f64::from(tile.distances[row][col]);
                        assert!((found - expected).abs() <= slack, "{level:?} {dims} dims: {found}, {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn tiles_of_bits_have_the_distances_of_the_kernel() {
    let (mut next, mut panel) = (numbers(7), BitPanel::default());
    for bytes in (1..20).chain([24, 48, 96, 125, 8000]) {
        // Few bits in some strings, most in others, and none in one.
        let mut byte = |string: usize| {
            let bits = (0..8).map(|_| next().abs() < string as f32 / 40.0);
            bits.fold(0u8, |byte, bit| byte << 1 | u8::from(bit))
        };
        let strings: Vec<Vec<u8>> = (0..ROWS + COLS - 3).map(|at| (0..bytes).map(|_| byte(at)).collect()).collect();
        panel.fill(strings.iter().map(Vec::as_slice));
        assert_eq!(panel.blocks(), 4);
        let mut terms = [0, 1, 2].map(|block| panel.counts(block)).concat();
        terms[strings.len()..].fill(f32::INFINITY);
        let (row_terms, col_terms) = (terms.first_chunk().unwrap(), terms.last_chunk().unwrap());
        for (metric, limit) in [(Metric::Hamming, 3.0 * bytes as f32), (Metric::Jaccard, 0.7)] {
            let col_limits = std::array::from_fn(|col| if col == 2 { f32::INFINITY } else { limit / 2.0 });
            let input =
                TileInput { scale: 0.0, row_terms, col_terms, row_limits: &[limit; ROWS], col_limits: &col_limits };
            for level in Level::available() {
                let kernel = crate::kernel_at(Elements::Bits, metric, level).unwrap();
                let mut tile = Tile::default();
                let tile_kernel = super::bits::bit_kernel_at(metric, level).unwrap();
                tile_kernel(panel.block(0), [panel.block(1), panel.block(2)], &input, &mut tile);
                for (row, col) in (0..ROWS).flat_map(|row| (0..COLS).map(move |col| (row, col))) {
                    let other = strings.get(ROWS + col);
                    let expected = other.map_or(f32::INFINITY, |other| kernel(&strings[row], other));
                    let found = tile.distances[row][col];
                    assert_eq!(found, expected, "{metric:?} {level:?} {bytes} bytes ({row}, {col})");
                    let hit = tile.hits[row] >> col & 1 == 1;
                    assert_eq!(hit, expected < limit || expected < col_limits[col], "{metric:?} {level:?}");
                }
            }
        }
    }
}

/// An empty panel for each level of this processor.
fn code_panels() -> Vec<(Level, CodePanel)> {
    Level::available().into_iter().map(|level| (level, CodePanel::at(level))).collect()
}

#[test]
fn products_of_codes_are_exact_at_every_level_and_length() {
    let mut next = numbers(5);
    // The panels are reused, as in builds.
    let mut panels = code_panels();
    for dims in (1..70).chain([127, 128, 384, 1001, 65, 3]) {
        let extreme = |x: f32| if x.abs() > 0.9 { 127.0 * x.signum() } else { (127.0 * x).round() };
        let codes: Vec<Vec<i8>> =
            (0..ROWS + COLS).map(|_| (0..dims).map(|_| extreme(next()) as i8).collect()).collect();
        let bytes: Vec<Vec<u8>> = codes.iter().map(|codes| codes.iter().map(|&code| code as u8).collect()).collect();
        let input = TileInput {
            scale: 1.0,
            row_terms: &[0.0; ROWS],
            col_terms: &[0.0; COLS],
            row_limits: &std::array::from_fn(|row| 10.0 * row as f32),
            col_limits: &[-20.5; COLS],
        };
        for (level, panel) in &mut panels {
            let level = *level;
            let notes = bytes.iter().map(|codes| super::CodeNote::new(codes, 1.0));
            panel.fill_encoded(dims, bytes.iter().map(Vec::as_slice).zip(notes));
            let mut tile = Tile::default();
            (code_kernels_at(level).tile)(panel.block(0), [panel.block(1), panel.block(2)], &input, &mut tile);
            for row in 0..ROWS {
                for col in 0..COLS {
                    let pairs = codes[row].iter().zip(&codes[BLOCK + col]);
                    let product = pairs.map(|(&a, &b)| i32::from(a) * i32::from(b)).sum::<i32>() as f32;
                    let hit = product < 10.0 * row as f32 || product < -20.5;
                    assert_eq!(tile.hits[row] >> col & 1 == 1, hit, "{level:?} {dims} dims ({row}, {col})");
                    assert_eq!(tile.distances[row][col], product, "{level:?} {dims} dims ({row}, {col})");
                    assert_eq!((code_kernels_at(level).product)(&bytes[row], &bytes[BLOCK + col]), product as i32);
                }
            }
        }
    }
}

#[test]
fn all_pairs_have_the_distances_of_tiles() {
    let mut next = numbers(8);
    let mut panels = code_panels();
    for (dims, count) in (1..100).chain([70, 33, 1]).map(|count| (count * 7 % 90 + 1, count)) {
        let vectors: Vec<Vec<f32>> = (0..count).map(|_| (0..dims).map(|_| next()).collect()).collect();
        let bytes: Vec<Vec<u8>> = vectors.iter().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        for (level, panel) in &mut panels {
            panel.fill(Elements::F32, dims, bytes.iter().map(Vec::as_slice), None, &[]);
            let terms: Vec<f32> = (0..panel.blocks()).flat_map(|block| panel.squared_norms(block)).collect();
            let kernels = code_kernels_at(*level);
            let mut distances = vec![f32::NAN; count.next_multiple_of(BLOCK) * terms.len()];
            (kernels.all_pairs)(panel, -2.0, &terms, &mut distances);
            for row_block in 0..count.div_ceil(ROWS) {
                for pair in 0..count.div_ceil(COLS) {
                    let (first_row, first_col) = (row_block * ROWS, pair * COLS);
                    let input = TileInput {
                        scale: -2.0,
                        row_terms: terms[first_row..].first_chunk().unwrap(),
                        col_terms: terms[first_col..].first_chunk().unwrap(),
                        row_limits: &[0.0; ROWS],
                        col_limits: &[0.0; COLS],
                    };
                    let mut tile = Tile::default();
                    let cols = [panel.block(2 * pair), panel.block(2 * pair + 1)];
                    (kernels.tile)(panel.block(row_block), cols, &input, &mut tile);
                    for row in first_row..count.min(first_row + ROWS) {
                        for col in row.max(first_col)..count.min(first_col + COLS) {
                            let found = distances[row * terms.len() + col];
                            let expected = tile.distances[row - first_row][col - first_col];
                            assert_eq!(found, expected, "{level:?} {dims} dims ({row}, {col}) of {count}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn codes_err_by_at_most_half_their_factor() {
    let mut next = numbers(6);
    for dims in [1, 2, 3, 4, 5, 63, 384] {
        for size in [1e-30f32, 1e-3, 1.0, 1e30] {
            let vector: Vec<f32> = (0..dims).map(|_| size * next()).collect();
            let mut codes = vec![0; dims];
            let factor = encode(&vector, &mut codes);
            for (x, &code) in vector.iter().zip(&codes) {
                let code = code.cast_signed();
                let error = (f64::from(*x) - f64::from(code) * f64::from(factor)).abs();
                assert!(error <= 0.5001 * f64::from(factor), "{x} {code} {factor}");
            }
        }
    }
    for hopeless in [[0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0], [1.0, f32::NEG_INFINITY], [1e-45, 0.0]] {
        let mut codes = [1; 2];
        assert_eq!((encode(&hopeless, &mut codes), codes), (0.0, [0; 2]), "{hopeless:?}");
    }
}

#[test]
fn tiles_of_codes_are_near_those_of_f32() {
    let mut next = numbers(7);
    let dims = 100;
    let vectors: Vec<Vec<f32>> = (0..ROWS + COLS).map(|_| (0..dims).map(|_| next()).collect()).collect();
    let bytes: Vec<Vec<u8>> = vectors.iter().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let center: Vec<f32> = (0..dims).map(|_| 0.3 * next()).collect();
    let extra: Vec<f32> = (0..ROWS + COLS).map(|_| next()).collect();
    let mut panel = Panel::default();
    let all = || bytes.iter().map(Vec::as_slice);
    panel.fill(Elements::F32, dims, all(), Some(&center), &extra);
    for level in Level::available() {
        let mut rough = CodePanel::at(level);
        rough.fill(Elements::F32, dims, all(), Some(&center), &extra);
        assert_eq!((rough.rows(), rough.blocks()), (panel.rows(), panel.blocks()));
        let of = |block: usize| (panel.squared_norms(block), rough.squared_norms(block));
        for block in 0..panel.blocks() {
            let (exact, rough) = of(block);
            assert!(exact.iter().zip(&rough).all(|(a, b)| (a - b).abs() <= 0.02 * a), "{exact:?} {rough:?}");
        }
        let (row_terms, [left, right]) = (of(0).1, [of(1).1, of(2).1]);
        let col_terms = std::array::from_fn(|col| if col < BLOCK { left[col] } else { right[col - BLOCK] });
        let input = TileInput {
            scale: -2.0,
            row_terms: &row_terms,
            col_terms: &col_terms,
            row_limits: &[f32::INFINITY; ROWS],
            col_limits: &[0.0; COLS],
        };
        let mut tile = Tile::default();
        (code_kernels_at(level).tile)(rough.block(0), [rough.block(1), rough.block(2)], &input, &mut tile);
        for row in 0..ROWS {
            for col in 0..COLS {
                let other = BLOCK + col;
                let squares = vectors[row].iter().zip(&vectors[other]).map(|(a, b)| (a - b) * (a - b));
                let expected = squares.sum::<f32>() + (extra[row] - extra[other]).powi(2);
                let found = tile.distances[row][col];
                assert!((found - expected).abs() <= 0.02 * expected, "{level:?}: {found}, {expected}");
            }
        }
    }
}
