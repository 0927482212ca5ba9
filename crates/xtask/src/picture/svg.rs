//! A terminal session as an SVG whose lines appear and disappear as they did.

use std::fmt::Write;

/// Seconds to which longer silences are shortened: compilers have nothing to show.
const SILENCE: f64 = 2.0;
/// The width of a character and the height of a line, in pixels.
const CELL: (f64, f64) = (7.8, 18.0);
const MARGIN: f64 = 14.0;

/// A line on the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub row: usize,
    /// The second when it appears.
    pub from: f64,
    /// The second when it goes.
    pub until: Option<f64>,
    pub text: String,
}

impl Text {
    pub fn new(row: usize, from: f64, text: &str) -> Self {
        Self { row, from, until: None, text: text.to_owned() }
    }
}

/// How many rows are in use.
pub fn rows(texts: &[Text]) -> usize {
    texts.iter().map(|text| text.row + 1).max().unwrap_or(0)
}

/// The picture. Viewers that do not animate show the last state.
pub fn render(texts: &[Text]) -> String {
    let columns = texts.iter().map(|text| text.text.chars().count()).max().unwrap_or(0);
    let width = 2.0 * MARGIN + CELL.0 * columns as f64;
    let height = 2.0 * MARGIN + CELL.1 * rows(texts) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {width:.0} {height:.0}\" font-size=\"13\" \
         font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\">\n<style>text{{white-space:pre;fill:#d8dee9}}\
         .typed{{fill:#9ece6a}}</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1a1b26\"/>\n"
    );
    let moments = moments(texts);
    let shown = |at: f64| moments.iter().find(|(real, _)| *real >= at).map_or(0.0, |(_, shown)| *shown);
    for text in texts.iter().filter(|text| !text.text.trim().is_empty()) {
        let typed = text.text.starts_with("$ ") || text.text.contains("=# ");
        let class = if typed { " class=\"typed\"" } else { "" };
        let y = MARGIN + CELL.1 * (text.row as f64 + 0.75);
        let length = CELL.0 * text.text.chars().count() as f64;
        let _ = write!(svg, "<text x=\"{MARGIN}\" y=\"{y:.1}\" textLength=\"{length:.1}\"{class}");
        let from = shown(text.from);
        let _ = match text.until {
            Some(until) => write!(
                svg,
                " visibility=\"hidden\"><set attributeName=\"visibility\" to=\"visible\" begin=\"{from:.2}s\" end=\"{:.2}s\"/>",
                shown(until)
            ),
            None if from > 0.0 => {
                write!(svg, "><set attributeName=\"visibility\" to=\"hidden\" begin=\"0s\" end=\"{from:.2}s\"/>")
            }
            None => write!(svg, ">"),
        };
        let _ = writeln!(svg, "{}</text>", escaped(&text.text));
    }
    svg + "</svg>\n"
}

/// Every second at which something changes, and when the picture shows it.
fn moments(texts: &[Text]) -> Vec<(f64, f64)> {
    let mut real: Vec<f64> = texts.iter().flat_map(|text| [Some(text.from), text.until]).flatten().collect();
    real.sort_by(f64::total_cmp);
    let mut moments = Vec::with_capacity(real.len());
    let (mut before, mut shown) = (0.0, 0.0);
    for at in real {
        shown += (at - before).min(SILENCE);
        before = at;
        moments.push((at, shown));
    }
    moments
}

fn escaped(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    printable.collect::<String>().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_xml_and_has_every_line() {
        let first = Text { until: Some(60.0), ..Text::new(1, 0.5, "building <\u{1b}[1m> & waiting ...") };
        let texts = [
            Text::new(0, 0.0, "$ cargo xtask demo"),
            first,
            Text::new(1, 60.0, "built: 59.5 s"),
            Text::new(2, 60.0, ""),
        ];
        let svg = render(&texts);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let shown: Vec<_> = document.descendants().filter(|node| node.has_tag_name("text")).collect();
        let words: Vec<String> =
            shown.iter().map(|node| node.children().filter_map(|child| child.text()).collect()).collect();
        assert_eq!(words, ["$ cargo xtask demo", "building <[1m> & waiting ...", "built: 59.5 s"]);
        // A minute's silence takes two seconds.
        let of = |node: usize, name: &str| {
            shown[node].first_element_child().and_then(|set| set.attribute(name).map(str::to_owned))
        };
        assert_eq!([of(1, "begin"), of(1, "end"), of(2, "end")].map(Option::unwrap), ["0.50s", "2.50s", "2.50s"]);
        assert_eq!(of(0, "begin"), None);
    }
}
