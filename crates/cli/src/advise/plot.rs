use advise::{Advice, Expected, Question, Tried};
use pgvector::ValueType;
use plot::{Plot, Scale, Series, Shape, Style, side_by_side};

/// Curves show at most so many times the misses that the target allows: beyond, nobody would search.
const MOST_MISSES: f64 = 10.0;
/// Their best recall is drawn up to so small a part of these misses.
const LEAST_MISSES: f64 = 0.2;

/// What was tried, by index size and by elements visited; the choices are numbered, best first.
pub(super) fn svg(question: &Question, advice: &Advice) -> String {
    let series = |x: &dyn Fn(&Tried, &Expected) -> f64, named: bool| -> Vec<Series> {
        advice.tried.iter().map(|tried| one(question, advice, tried, x, named)).collect()
    };
    let plot = |x: &str, x_scale, series| Plot {
        x: x.to_owned(),
        y: format!("recall@{}", question.k),
        x_scale,
        y_scale: Scale::Nines,
        level: Some((question.target, format!("target {}", question.target))),
        series,
        ..Plot::default()
    };
    let size = |tried: &Tried, _: &Expected| tried.index_bytes as f64 / f64::from(1 << 20);
    let visited = |_: &Tried, point: &Expected| point.visited;
    let title = format!(
        "{} rows of {}({}) by {}, from graphs of up to {} rows; points upward with ef_search, choices by rank",
        question.rows,
        question.value_type.name(),
        question.dims,
        question.metric.name(),
        advice.rows,
    );
    side_by_side(
        &title,
        &[
            plot("index, MB", Scale::Linear, series(&size, false)),
            plot("elements visited by a search", Scale::Logarithmic, series(&visited, true)),
        ],
    )
}

/// The curve of a candidate; choices are ringed, with their `ef_search` where there is `room`.
fn one(
    question: &Question,
    advice: &Advice,
    tried: &Tried,
    x: &dyn Fn(&Tried, &Expected) -> f64,
    room: bool,
) -> Series {
    let misses = |point: &Expected| (1.0 - point.recall) / (1.0 - question.target);
    let drawn = tried.points.iter().filter(|point| (LEAST_MISSES..=MOST_MISSES).contains(&misses(point)));
    let points = drawn.map(|point| (x(tried, point), point.recall, String::new())).collect();
    let marks = advice.choices.iter().enumerate().filter_map(|(rank, choice)| {
        let key = (choice.value_type, choice.m, choice.ef_construction);
        let point = Expected { ef_search: choice.ef_search, recall: choice.recall, visited: choice.visited };
        let text = if room { format!("{}: ef_search {}", rank + 1, choice.ef_search) } else { (rank + 1).to_string() };
        (key == (tried.value_type, tried.m, tried.ef_construction)).then(|| (x(tried, &point), point.recall, text))
    });
    let color = match tried.value_type {
        ValueType::Vector => 0,
        ValueType::HalfVec => 1,
        ValueType::Bit => 2,
        ValueType::SparseVec => 3,
    };
    let shape = match tried.m {
        ..=8 => Shape::Circle,
        ..=16 => Shape::Square,
        ..=24 => Shape::Triangle,
        _ => Shape::Diamond,
    };
    let (wider, name) = (tried.ef_construction > 64, tried.value_type.name());
    let more = if wider { format!(", ef_construction {}", tried.ef_construction) } else { String::new() };
    Series {
        name: format!("{name}, m {}{more}", tried.m),
        points,
        style: Style { color: Some(color), shape, dashed: wider },
        marks: marks.collect(),
    }
}
