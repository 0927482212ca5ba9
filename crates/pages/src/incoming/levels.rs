use pgvector::max_level;

/// An honest build exceeds the bound of a layer with a probability below exp(-this): about 1e-12.
const IMPROBABLE: f64 = 27.7;

/// Bounds how many elements a builder may put on each layer above 0: as many as randomly drawn levels give in all but
/// improbable cases.
///
/// An element has at least level L with probability `m^-L`, independently of the others. So the number of elements on a layer
/// is binomial, and its Chernoff bound, `P(X >= k) <= exp(k - mean - k * ln(k / mean))`, holds for few elements as for many.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    /// By layer above 0: how many more elements may come.
    left: Vec<u64>,
}

impl Levels {
    pub(super) fn new(m: u16, elements: u64) -> Self {
        let p = 1.0 / f64::from(m.max(2));
        let on = |layer: u8| most(elements as f64 * p.powi(layer.into()), elements);
        Self { left: (1..=max_level(m)).map(on).collect() }
    }

    /// Counts an element; `false` if there are too many of its level.
    pub(super) fn take(&mut self, level: u8) -> bool {
        let layers = self.left.iter_mut().take(level.into());
        layers.fold(true, |fits, left| {
            let fits = fits && *left > 0;
            *left = left.saturating_sub(1);
            fits
        })
    }

    /// The bound of each layer above 0, before any element has come.
    pub(super) fn most(&self) -> &[u64] {
        &self.left
    }
}

/// The largest number of elements on a layer, at most `elements`, that is not improbable where `mean` are expected.
fn most(mean: f64, elements: u64) -> u64 {
    let plausible = |count: u64| {
        let count = count as f64;
        count <= mean || count * (count / mean).ln() - count + mean <= IMPROBABLE
    };
    let (mut most, mut too_many) = ((mean as u64).min(elements), elements + 1);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        *(if plausible(middle) { &mut most } else { &mut too_many }) = middle;
    }
    most
}

#[cfg(test)]
mod tests {
    use pgvector::max_level;

    use super::Levels;

    /// Draws the levels of an honest build.
    fn draw(random: &mut fastrand::Rng, m: u16) -> u8 {
        // Greater than 0.
        let unit = 1.0 - random.f64();
        ((-unit.ln() / f64::from(m).ln()) as u64).min(max_level(m).into()) as u8
    }

    #[test]
    fn honest_builds_pass() {
        let mut random = fastrand::Rng::with_seed(42);
        for m in 2..=100 {
            for (elements, builds) in
                [(1, 100), (2, 100), (3, 100), (10, 50), (24, 50), (100, 20), (1000, 5), (20_000, 1)]
            {
                for build in 0..builds {
                    let mut levels = Levels::new(m, elements);
                    let fits = (0..elements).all(|_| levels.take(draw(&mut random, m)));
                    assert!(fits, "m = {m}, {elements} elements, build {build}");
                }
            }
        }
    }

    /// The exact probability that a build of `elements` has more than the bound on any layer.
    fn refusal(m: u16, elements: u64) -> f64 {
        let tail = |(layer, &most): (i32, &u64)| {
            let p = f64::from(m).powi(-layer);
            // Terms of the binomial distribution from `most + 1` on, by their logarithms.
            let ln_factorial = |n: u64| (1..=n).map(|i| (i as f64).ln()).sum::<f64>();
            let first = most + 1;
            if first > elements {
                return 0.0;
            }
            let ln_choose = ln_factorial(elements) - ln_factorial(first) - ln_factorial(elements - first);
            let mut term = (ln_choose + first as f64 * p.ln() + (elements - first) as f64 * (-p).ln_1p()).exp();
            let mut sum = 0.0;
            for count in first..=elements {
                sum += term;
                term *= (elements - count) as f64 / (count + 1) as f64 * p / (1.0 - p);
            }
            sum
        };
        (1..).zip(Levels::new(m, elements).most()).map(tail).sum()
    }

    #[test]
    fn refusing_an_honest_build_is_practically_impossible() {
        for m in [2, 3, 4, 8, 16, 40, 100] {
            for elements in [1, 2, 5, 10, 30, 100, 1000, 10_000] {
                let refusal = refusal(m, elements);
                assert!(refusal < 1e-9, "m = {m}, {elements} elements: {refusal}");
            }
        }
    }

    #[test]
    fn bounds_allow_hardly_more_bytes_than_expected() {
        for m in 2..=100 {
            for elements in [10_000, 1_000_000, 100_000_000] {
                let levels = Levels::new(m, elements);
                let expected = elements as f64 / f64::from(m - 1);
                let most: u64 = levels.most().iter().sum();
                // An upper layer of an element takes 6 * m bytes; the element and its layer 0 take at least 96 + 12 * m.
                let more = (most as f64 - expected) * 6.0 * f64::from(m) / (elements as f64 * f64::from(96 + 12 * m));
                assert!(most as f64 > expected && more < 0.02, "m = {m}, {elements} elements: {most}, {more}");
                assert!(levels.most().is_sorted_by(|a, b| a >= b));
            }
        }
    }

    #[test]
    fn high_levels_need_many_elements() {
        let mut few = Levels::new(16, 24);
        assert!(few.take(5) && !few.clone().take(63));
        assert!((0..100).any(|_| !few.take(1)));
    }
}
