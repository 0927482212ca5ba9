//! Draws points and lines as one self-contained SVG file, readable on light and dark backgrounds.

mod axis;
mod svg;

pub use axis::{From, Scale};

/// A line through points, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// The points: x, y and label.
    pub points: Vec<(f64, f64, String)>,
    /// Color, shape and line.
    pub style: Style,
    /// Ringed points, with their labels.
    pub marks: Vec<(f64, f64, String)>,
}

/// What a series looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Index of the color; by default, the index of the series.
    pub color: Option<usize>,
    /// Shape of the points.
    pub shape: Shape,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// Whether the line is broad and pale, so that another line remains visible on it.
    pub wide: bool,
}

/// Shapes of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
    #[default]
    Circle,
    /// A square standing on a side.
    Square,
    /// A triangle on its base.
    Triangle,
    /// A square standing on a corner.
    Diamond,
}

/// A diagram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: String,
    /// Label of the vertical axis.
    pub y: String,
    /// Scale of the horizontal axis.
    pub x_scale: Scale,
    /// Scale of the vertical axis.
    pub y_scale: Scale,
    /// Where the vertical axis begins.
    pub y_from: From,
    /// A horizontal line, with its label.
    pub level: Option<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

impl Plot {
    /// Recall@10 against `x` on a logarithmic axis.
    #[must_use]
    pub fn of_recall(title: String, x: &str, series: Vec<Series>) -> Self {
        let (x, y) = (x.to_owned(), "recall@10".to_owned());
        Self { title, x, y, x_scale: Scale::Logarithmic, y_from: From::Least, series, ..Self::default() }
    }

    /// This diagram as an SVG file.
    #[must_use]
    pub fn render(&self) -> String {
        svg::page(&self.title, std::slice::from_ref(self))
    }
}

/// Diagrams of the same series side by side as an SVG file, with the legend of the first.
#[must_use]
pub fn side_by_side(title: &str, plots: &[Plot]) -> String {
    svg::page(title, plots)
}
