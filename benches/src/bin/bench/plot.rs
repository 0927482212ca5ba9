//! Points and lines as SVG.

use std::fmt::Write;

/// A line through points, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    /// Horizontal (above 0), vertical, and what stands next to the point.
    pub points: Vec<(f64, f64, String)>,
}

/// A diagram.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub title: String,
    pub x: String,
    pub y: String,
    pub x_scale: Scale,
    pub y_from: From,
    pub series: Vec<Series>,
}

impl Plot {
    /// Recall@10 against something on a logarithmic axis.
    pub fn of_recall(title: String, x: &str, series: Vec<Series>) -> Self {
        let (x, y) = (x.to_owned(), "recall@10".to_owned());
        Self { title, x, y, x_scale: Scale::Logarithmic, y_from: From::Least, series }
    }
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// For values above 0.
    Logarithmic,
    Linear,
}

/// Where an axis begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Zero,
    Least,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 55.0;
const COLORS: [&str; 8] = ["#0b6e4f", "#c1121f", "#1d4e89", "#e09f3e", "#7b2d8b", "#6c757d", "#00a6a6", "#8d5524"];

impl Plot {
    pub fn render(&self) -> String {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let at = |value: f64| match self.x_scale {
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Linear => value,
        };
        let (x_low, x_high) = padded(all().map(|point| at(point.0)), 0.05);
        let (mut y_low, y_high) = padded(all().map(|point| point.1), 0.002);
        if self.y_from == From::Zero {
            y_low = y_low.min(0.0);
        }
        let x = |value: f64| LEFT + (at(value) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, color: &str, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{}</text>",
                escape(text)
            );
        };
        text(LEFT, 22.0, "start", "black", &self.title);
        text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0, "middle", "black", &self.x);
        text(8.0, TOP - 4.0, "start", "black", &self.y);
        let mut grid = String::new();
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
        let mut rule = |from: (f64, f64), to: (f64, f64)| {
            let _ = writeln!(
                grid,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
                from.0, from.1, to.0, to.1
            );
        };
        let marks = match self.x_scale {
            Scale::Logarithmic => decades(x_low, x_high),
            Scale::Linear => steps(x_low, x_high),
        };
        for value in marks {
            rule((x(value), top), (x(value), bottom));
            text(x(value), bottom + 16.0, "middle", "black", &short(value));
        }
        let digits = if y_high - y_low > 5.0 { 0 } else { 3 };
        for value in steps(y_low, y_high) {
            rule((left, y(value)), (right, y(value)));
            text(left - 6.0, y(value) + 4.0, "end", "black", &format!("{value:.digits$}"));
        }
        for (number, series) in self.series.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            text(right + 14.0, top + 8.0 + 18.0 * number as f64, "start", color, &series.name);
            for (value, height, label) in series.points.iter().filter(|point| !point.2.is_empty()) {
                text(x(*value) + 6.0, y(*height) - 5.0, "start", color, label);
            }
        }
        svg.push_str(&grid);
        for (number, series) in self.series.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            let points = series.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)));
            let line = points.collect::<Vec<_>>().join(" ");
            let _ =
                writeln!(svg, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>");
            for point in &series.points {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{color}\"/>",
                    x(point.0),
                    y(point.1)
                );
            }
        }
        svg + "</svg>\n"
    }
}

/// The range of some numbers with a margin, at least `least` wide.
fn padded(numbers: impl Iterator<Item = f64>, least: f64) -> (f64, f64) {
    let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = (0.08 * (high - low)).max(least);
    (low - margin, high + margin)
}

/// 1, 2 and 5 times powers of ten within a range of logarithms.
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
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}").trim_end_matches('0').to_owned() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(decades(-0.4, 1.01), [0.5, 1.0, 2.0, 5.0, 10.0]);
        let found = steps(0.931, 0.999);
        assert!(found.len() >= 3 && found.iter().all(|value| (0.931..=0.999).contains(value)), "{found:?}");
    }

    #[test]
    fn every_point_is_drawn_inside() {
        let point = |x, y| (x, y, "ef < 64".to_owned());
        let series = Series { name: "a & b".to_owned(), points: vec![point(0.5, 0.9), point(50.0, 0.99)] };
        let one = Series { name: "c".to_owned(), points: vec![point(5.0, 0.95)] };
        let [title, x, y] = ["t", "s", "recall"].map(str::to_owned);
        let (x_scale, y_from) = (Scale::Logarithmic, From::Least);
        let plot = Plot { title, x, y, x_scale, y_from, series: vec![series, one] };
        let linear = Plot { x_scale: Scale::Linear, y_from: From::Zero, ..plot.clone() }.render();
        assert!(linear.contains(">0.000<") && !linear.contains("NaN"), "{linear}");
        let svg = plot.render();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a &amp; b") && svg.contains("ef &lt; 64") && !svg.contains("NaN"), "{svg}");
        assert!(!Plot { series: Vec::new(), ..plot }.render().contains("NaN"));
    }
}
