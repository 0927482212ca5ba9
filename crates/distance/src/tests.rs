use std::io::{Write, stderr};

use half::f16;

use crate::dense::f16_decoder;
use crate::{Elements, Level, LevelError, Metric, kernel, kernel_at};

/// Allowed error per dimension of sums of f32 in another order, for values around 1.
const EPSILON: f64 = 1e-5;

/// Repeatable numbers between -1 and 1.
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || 2.0 * random.f32() - 1.0
}

fn reference(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.iter().zip(b).map(|(&x, &y)| (f64::from(x), f64::from(y)));
    match metric {
        Metric::L2 => pairs.map(|(x, y)| (x - y) * (x - y)).sum(),
        Metric::InnerProduct | Metric::Cosine => -pairs.map(|(x, y)| x * y).sum::<f64>(),
        Metric::L1 => pairs.map(|(x, y)| (x - y).abs()).sum(),
        Metric::Hamming | Metric::Jaccard => unreachable!("bits only"),
    }
}

fn encode(elements: Elements, values: &[f32]) -> Vec<u8> {
    match elements {
        Elements::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Elements::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        Elements::Sparse => {
            let set: Vec<_> = (0i32..).zip(values).filter(|(_, v)| **v != 0.0).collect();
            let mut bytes = (set.len() as u32).to_le_bytes().to_vec();
            bytes.extend(set.iter().flat_map(|(index, _)| index.to_le_bytes()));
            bytes.extend(set.iter().flat_map(|(_, value)| value.to_le_bytes()));
            bytes
        }
        Elements::Bits => unreachable!("dense and sparse only"),
    }
}

#[test]
fn every_level_equals_the_reference_on_every_length() {
    let missing: Vec<_> = Level::of_architecture().iter().filter(|level| !Level::available().contains(level)).collect();
    if !missing.is_empty() {
        // Written to stderr directly, since `cargo test` hides what a passing test prints.
        writeln!(stderr(), "skipped: kernels of {missing:?}, which this processor does not have").unwrap();
    }
    let mut next = numbers(1);
    for elements in [Elements::F32, Elements::F16, Elements::Sparse] {
        for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine, Metric::L1] {
            for dims in 0..300 {
                let mut draw = || -> Vec<f32> {
                    let round = |v: f32| if elements == Elements::F16 { f16::from_f32(v).to_f32() } else { v };
                    let thin = |v: f32| if elements == Elements::Sparse && v < 0.3 { 0.0 } else { v };
                    (0..dims).map(|_| thin(round(next()))).collect()
                };
                let (a, b) = (draw(), draw());
                let expected = reference(metric, &a, &b);
                let (a, b) = (encode(elements, &a), encode(elements, &b));
                for level in Level::available() {
                    let found = f64::from(kernel_at(elements, metric, level).unwrap()(&a, &b));
                    let slack = EPSILON * f64::from(dims).max(1.0);
                    assert!(
                        (found - expected).abs() <= slack,
                        "{elements:?} {metric:?} {level:?} {dims} dims: {found}, {expected} expected"
                    );
                }
            }
        }
    }
}

#[test]
fn bits_are_exact_on_every_length() {
    let mut next = numbers(2);
    for len in 0..200 {
        let mut draw = || -> Vec<u8> { (0..len).map(|_| (next() * 128.0) as i8 as u8).collect() };
        let (a, b) = (draw(), draw());
        let count = |f: fn(u8, u8) -> u8| -> u32 { a.iter().zip(&b).map(|(&a, &b)| f(a, b).count_ones()).sum() };
        let (differing, shared, either) = (count(|a, b| a ^ b), count(|a, b| a & b), count(|a, b| a | b));
        let jaccard = if shared == 0 { 1.0 } else { (1.0 - f64::from(shared) / f64::from(either)) as f32 };
        for level in Level::available() {
            assert_eq!(kernel_at(Elements::Bits, Metric::Hamming, level).unwrap()(&a, &b), differing as f32);
            assert_eq!(kernel_at(Elements::Bits, Metric::Jaccard, level).unwrap()(&a, &b), jaccard);
        }
    }
}

#[test]
fn overflow_is_infinitely_far_not_nan() {
    // Products of the first and the last dimension, which are in different lanes of every level: inf - inf.
    let of = |first: f32, last: f32| {
        let mut value = vec![0.0; 40];
        (value[0], value[39]) = (first, last);
        value
    };
    let (a, b) = (of(3e38, 3e38), of(3e38, -3e38));
    for elements in [Elements::F32, Elements::Sparse] {
        let (a, b) = (encode(elements, &a), encode(elements, &b));
        for metric in [Metric::InnerProduct, Metric::Cosine, Metric::L2, Metric::L1] {
            for level in Level::available() {
                let found = kernel_at(elements, metric, level).unwrap()(&a, &b);
                assert_eq!(found, f32::INFINITY, "{elements:?} {metric:?} {level:?}");
            }
        }
    }
}

#[test]
fn pairs_without_an_operator_class_have_no_kernel() {
    assert!(kernel(Elements::Bits, Metric::L2).is_none());
    assert!(kernel(Elements::F32, Metric::Jaccard).is_none());
}

#[test]
fn every_half_is_decoded_at_every_level() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let expected: Vec<f32> = halves.iter().map(|&half| f16::from_bits(half).to_f32()).collect();
    for level in Level::available() {
        for len in [0, 1, 7, 8, 9, 17, expected.len()] {
            let mut found = vec![1.5; len];
            f16_decoder(level)(&bytes, &mut found);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(found.iter().zip(&expected).all(same), "{level:?} {len}");
        }
    }
}

#[test]
fn levels_have_names_and_only_those_of_this_processor_can_be_chosen() {
    let unknown = Level::named("sse9").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no processor level is called \"sse9\"; there are portable, avx2, avx512, vnni, amx, neon, neondot"
    );
    let available = Level::available();
    let foreign = if cfg!(target_arch = "aarch64") { Level::Avx2 } else { Level::Neon };
    let missing = foreign.choose().unwrap_err();
    assert_eq!(Level::named(foreign.name()), Err(LevelError::Missing(foreign)));
    assert!(available.iter().all(|&level| Level::named(level.name()) == Ok(level)));
    let text = missing.to_string();
    assert!(text.starts_with(&format!("this processor does not have {foreign}; it has portable")), "{text}");
    assert!(available.iter().all(|level| text.contains(level.name())), "{text}");
    // Kernels are in use, by this test or another one.
    let current = Level::current();
    assert_eq!(Some(&current), available.last());
    assert_eq!(current.choose(), Ok(()));
    assert!(available.iter().all(|&level| level == current || level.choose() == Err(LevelError::Chosen(current))));
}
