/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, for values above 0.
    Logarithmic,
    /// -log(1 - x), for values below 1: .9 to .99 is as long as .99 to .999.
    Nines,
}

/// Where an axis begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// At 0, or at a lower value if there is one.
    Zero,
    /// At the least value.
    #[default]
    Least,
}

/// Possible ticks of an axis of nines.
const NINES_TICKS: [f64; 15] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999];

/// An axis between two values, both as [`Scale::place`] transforms them.
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis that fits the values, with a margin of at least `least` at both ends.
    pub(crate) fn new(scale: Scale, from: From, values: impl Iterator<Item = f64>, least: f64) -> Self {
        let (mut low, high) = padded(values.map(|value| scale.place(value)), least);
        if from == From::Zero {
            low = low.min(0.0);
        }
        Self { scale, low, high }
    }

    /// The position of a value: 0 at the start of the axis, 1 at its end.
    pub(crate) fn position(&self, value: f64) -> f64 {
        (self.scale.place(value) - self.low) / (self.high - self.low)
    }

    /// Round values with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let (low, high) = (self.low, self.high);
        match self.scale {
            Scale::Logarithmic => decades(low, high).into_iter().map(|value| (value, short(value))).collect(),
            Scale::Linear => steps(low, high).into_iter().map(|value| (value, short(value))).collect(),
            Scale::Nines => {
                let inside = |value: &f64| (low..=high).contains(&Scale::Nines.place(*value));
                NINES_TICKS.into_iter().filter(inside).map(|value| (value, short(value))).collect()
            }
        }
    }
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Self::Linear => value,
            Self::Nines => -(1.0 - value).max(1e-6).log10(),
        }
    }
}

/// The range of some numbers, with a margin of at least `least` at both ends.
fn padded(numbers: impl Iterator<Item = f64>, least: f64) -> (f64, f64) {
    let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = (0.08 * (high - low)).max(least);
    (low - margin, high + margin)
}

/// Powers of ten, times 1, 2 and 5, within a range of logarithms.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let powers = low.floor() as i32..=high.ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    all.filter(|value| (low..=high).contains(&value.log10())).collect()
}

/// Round numbers within a range.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= rough).unwrap_or(rough);
    (0..)
        .map(|number| (low / step).ceil() * step + f64::from(number) * step)
        .take_while(|&value| value <= high)
        .collect()
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(decades(-0.4, 1.01), [0.5, 1.0, 2.0, 5.0, 10.0]);
        let found = steps(0.931, 0.999);
        assert!(found.len() >= 3 && found.iter().all(|value| (0.931..=0.999).contains(value)), "{found:?}");
        assert_eq!([0.95, 10.0, 0.125, 0.0].map(short), ["0.95", "10", "0.125", "0"]);
    }

    #[test]
    fn each_further_nine_is_equally_long() {
        let axis = Axis::new(Scale::Nines, From::Least, [0.9, 0.999].into_iter(), 0.01);
        let [nine, ninety_nine, all_but_one] = [0.9, 0.99, 0.999].map(|value| axis.position(value));
        assert!((ninety_nine - nine - (all_but_one - ninety_nine)).abs() < 1e-9);
        assert!(axis.position(1.0).is_finite());
        let ticks: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["0.9", "0.95", "0.98", "0.99", "0.995", "0.998", "0.999"]);
    }
}
