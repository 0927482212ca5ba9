//! Points and lines as SVG: one file without others, readable on light and on dark ground.

mod axis;
mod svg;

pub use axis::{From, Scale};

/// A line through points, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Horizontal, vertical, and what stands next to the point.
    pub points: Vec<(f64, f64, String)>,
    /// What it looks like.
    pub style: Style,
    /// Points that are ringed, with what stands next to them.
    pub marks: Vec<(f64, f64, String)>,
}

/// What a series looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Number of the color; that of the series without.
    pub color: Option<usize>,
    /// Shape of the points.
    pub shape: Shape,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// Whether the line is broad and pale, so that another one shows on it.
    pub wide: bool,
}

/// Shapes of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
    #[default]
    Circle,
    /// A square on its side.
    Square,
    /// A triangle on its base.
    Triangle,
    /// A square on its corner.
    Diamond,
}

/// A diagram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What the horizontal axis has.
    pub x: String,
    /// What the vertical axis has.
    pub y: String,
    /// How the horizontal axis is divided.
    pub x_scale: Scale,
    /// How the vertical axis is divided.
    pub y_scale: Scale,
    /// Where the vertical axis begins.
    pub y_from: From,
    /// A horizontal line, and what stands above it.
    pub level: Option<(f64, String)>,
    /// The lines.
    pub series: Vec<Series>,
}

impl Plot {
    /// Recall@10 against something on a logarithmic axis.
    #[must_use]
    pub fn of_recall(title: String, x: &str, series: Vec<Series>) -> Self {
        let (x, y) = (x.to_owned(), "recall@10".to_owned());
        Self { title, x, y, x_scale: Scale::Logarithmic, y_from: From::Least, series, ..Self::default() }
    }

    /// The diagram alone.
    #[must_use]
    pub fn render(&self) -> String {
        svg::page(&self.title, std::slice::from_ref(self))
    }
}

/// Diagrams of the same series side by side, with the legend of the first.
#[must_use]
pub fn side_by_side(title: &str, plots: &[Plot]) -> String {
    svg::page(title, plots)
}
