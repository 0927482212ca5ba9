use std::fmt::Write;

use crate::axis::Axis;
use crate::{Plot, Series, Shape, Style};

const LEFT: f64 = 62.0;
const TOP: f64 = 56.0;
const HEIGHT: f64 = 365.0;
const BOTTOM: f64 = 48.0;
/// Width in pixels of a single diagram, and of each of several.
const WIDTHS: (f64, f64) = (520.0, 440.0);
/// Line height of the legend and width of a letter, in pixels.
const ENTRY: (f64, f64) = (18.0, 6.6);
/// Colors that stand out from white and from black.
const COLORS: [&str; 8] = ["#2b7fc4", "#d9822b", "#2e9e5b", "#d1495b", "#8f63c9", "#7d8791", "#0fa3a3", "#a8713f"];
const STYLE: &str = ".paper{fill:#fff}.ink{fill:#222}.rule{stroke:#ddd}.level{stroke:#222}\
                     @media(prefers-color-scheme:dark){.paper{fill:#16181d}.ink{fill:#e4e4e4}.rule{stroke:#353942}.level{stroke:#e4e4e4}}";

/// Diagrams from left to right, then the legend.
pub(crate) fn page(title: &str, plots: &[Plot]) -> String {
    let inner = if plots.len() > 1 { WIDTHS.1 } else { WIDTHS.0 };
    let legend: &[Series] = plots.first().map_or(&[], |plot| &plot.series);
    let longest = legend.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    let before = plots.len() as f64 * (LEFT + inner);
    let width = before + 60.0 + ENTRY.1 * longest as f64;
    let height = TOP + BOTTOM + HEIGHT.max(ENTRY.0 * legend.len() as f64);
    let mut svg = Svg(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
    ));
    svg.text((LEFT, 22.0), "start", None, title);
    for (number, plot) in plots.iter().enumerate() {
        svg.plot(plot, number as f64 * (LEFT + inner) + LEFT, inner);
    }
    for (number, series) in legend.iter().enumerate() {
        let (x, y) = (before + 14.0, TOP + 8.0 + ENTRY.0 * number as f64);
        let color = color(series, number);
        svg.line(&[(x, y), (x + 22.0, y)], color, series.style);
        svg.shape(series.style.shape, (x + 11.0, y), 3.5, color);
        svg.text((x + 28.0, y + 4.0), "start", None, &series.name);
    }
    svg.0 + "</svg>\n"
}

fn color(series: &Series, number: usize) -> &'static str {
    COLORS[series.style.color.unwrap_or(number) % COLORS.len()]
}

/// The elements drawn so far.
struct Svg(String);

impl Svg {
    fn plot(&mut self, plot: &Plot, left: f64, inner: f64) {
        let drawn = || plot.series.iter().flat_map(|series| series.points.iter().chain(&series.marks));
        let across = Axis::new(plot.x_scale, crate::From::Least, drawn().map(|point| point.0), 0.05);
        let level = plot.level.iter().map(|level| level.0);
        let up = Axis::new(plot.y_scale, plot.y_from, drawn().map(|point| point.1).chain(level), 0.002);
        let (right, bottom) = (left + inner - 16.0, TOP + HEIGHT);
        let x = |value: f64| left + across.position(value) * (right - left);
        let y = |value: f64| bottom - up.position(value) * (bottom - TOP);
        for (value, text) in across.ticks() {
            self.rule("rule", (x(value), TOP), (x(value), bottom));
            self.text((x(value), bottom + 16.0), "middle", None, &text);
        }
        for (value, text) in up.ticks() {
            self.rule("rule", (left, y(value)), (right, y(value)));
            self.text((left - 6.0, y(value) + 4.0), "end", None, &text);
        }
        self.text((f64::midpoint(left, right), bottom + 34.0), "middle", None, &plot.x);
        self.text((left - 50.0, TOP - 10.0), "start", None, &plot.y);
        if let Some((value, text)) = &plot.level {
            self.rule("level", (left, y(*value)), (right, y(*value)));
            self.text((right, y(*value) - 5.0), "end", None, text);
        }
        for (number, series) in plot.series.iter().enumerate() {
            let color = color(series, number);
            let places: Vec<_> = series.points.iter().map(|point| (x(point.0), y(point.1))).collect();
            self.line(&places, color, series.style);
            for (&place, (.., text)) in places.iter().zip(&series.points) {
                self.shape(series.style.shape, place, if series.points.len() > 12 { 2.2 } else { 3.5 }, color);
                self.text((place.0 + 6.0, place.1 - 5.0), "start", Some(color), text);
            }
        }
        for (number, (value, height, text)) in plot.series.iter().flat_map(|series| &series.marks).enumerate() {
            let (x, y) = (x(*value), y(*height));
            let _ = writeln!(
                self.0,
                "<circle class=\"level\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\" fill=\"none\" stroke-width=\"1.5\"/>"
            );
            // Rings may overlap: labels alternate between both sides.
            let (place, anchor) =
                if number % 2 == 0 { ((x + 9.0, y + 15.0), "start") } else { ((x - 9.0, y - 8.0), "end") };
            self.text(place, anchor, None, text);
        }
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, color: Option<&str>, text: &str) {
        if text.is_empty() {
            return;
        }
        let fill = color.map_or("class=\"ink\"".to_owned(), |color| format!("fill=\"{color}\""));
        let text = escape(text);
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {fill}>{text}</text>");
    }

    fn rule(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ =
            writeln!(self.0, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
    }

    fn line(&mut self, places: &[(f64, f64)], color: &str, style: Style) {
        let points = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let dashes = if style.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
        let stroke = if style.wide { "6\" stroke-opacity=\"0.35" } else { "1.5" };
        let _ = writeln!(
            self.0,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{stroke}\"{dashes}/>"
        );
    }

    fn shape(&mut self, shape: Shape, (x, y): (f64, f64), r: f64, color: &str) {
        let corners = |corners: &[(f64, f64)]| {
            let points = corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + r * dx, y + r * dy));
            format!("<polygon points=\"{}\" fill=\"{color}\"/>", points.collect::<Vec<_>>().join(" "))
        };
        let drawn = match shape {
            Shape::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" fill=\"{color}\"/>"),
            Shape::Square => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Shape::Triangle => corners(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Shape::Diamond => corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        };
        let _ = writeln!(self.0, "{drawn}");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::{From, Plot, Scale, Series, Shape, Style, side_by_side};

    fn plot() -> Plot {
        let point = |x, y| (x, y, "ef < 64".to_owned());
        let series = Series {
            name: "a & b".to_owned(),
            points: vec![point(0.5, 0.9), point(50.0, 0.99)],
            marks: vec![(5.0, 0.95, "best".to_owned())],
            ..Series::default()
        };
        let style = Style { color: Some(0), shape: Shape::Diamond, dashed: true, wide: true };
        let one = Series { name: "c".to_owned(), points: vec![point(5.0, 0.95)], style, ..Series::default() };
        let [title, x, y] = ["t", "s", "recall"].map(str::to_owned);
        let (x_scale, level) = (Scale::Logarithmic, Some((0.97, "target".to_owned())));
        Plot { title, x, y, x_scale, level, series: vec![series, one], ..Plot::default() }
    }

    #[test]
    fn every_point_is_drawn() {
        let plot = plot();
        let linear = Plot { x_scale: Scale::Linear, y_from: From::Zero, ..plot.clone() }.render();
        assert!(linear.contains(">0<") && !linear.contains("NaN"), "{linear}");
        let svg = plot.render();
        // First series: two points, the ring and the point of the legend. Second: one point and that of the legend.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polygon").count()), (4, 2));
        assert_eq!((svg.matches("<polyline").count(), svg.matches("stroke-dasharray").count()), (4, 2));
        assert!(svg.contains("a &amp; b") && svg.contains("ef &lt; 64") && svg.contains(">target<"), "{svg}");
        assert!(!svg.contains("NaN") && !Plot { series: Vec::new(), ..plot }.render().contains("NaN"));
    }

    #[test]
    fn diagrams_stand_side_by_side_with_one_legend() {
        let svg = side_by_side("both", &[plot(), plot()]);
        assert_eq!((svg.matches(">a &amp; b<").count(), svg.matches(">both<").count()), (1, 1));
        assert_eq!(svg.matches(">target<").count(), 2);
    }
}
