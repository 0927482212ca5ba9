use advise::{Advice, Choice, Expected, Question, Tried};
use pgvector::ValueType;
use plot::{Plot, Scale, Series, Shape, Style, side_by_side};

/// Curves are drawn up to this multiple of the share of misses that the target allows: nobody would search with less recall.
const MOST_MISSES: f64 = 4.0;
/// Curves are drawn down to this fraction of the share of misses that the target allows.
const LEAST_MISSES: f64 = 0.2;

/// Two plots of everything that was tried: recall over index size, and over elements visited. Choices are numbered, best first.
pub(super) fn svg(question: &Question, advice: &Advice) -> String {
    let mut sorted: Vec<&Tried> = advice.tried.iter().collect();
    sorted.sort_by_key(|tried| (color(tried.value_type), tried.m, tried.ef_construction));
    let series = |x: &dyn Fn(&Tried, &Expected) -> f64| -> Vec<Series> {
        sorted.iter().map(|tried| one(question, advice, tried, x)).collect()
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
            plot("index, MB", Scale::Linear, series(&size)),
            plot("elements visited by a search", Scale::Logarithmic, series(&visited)),
        ],
    )
}

/// The curve of a candidate, with circles at the choices.
fn one(question: &Question, advice: &Advice, tried: &Tried, x: &dyn Fn(&Tried, &Expected) -> f64) -> Series {
    let misses = |point: &Expected| (1.0 - point.recall) / (1.0 - question.target);
    let drawn = tried.points.iter().filter(|point| (LEAST_MISSES..=MOST_MISSES).contains(&misses(point)));
    let points = drawn.map(|point| (x(tried, point), point.recall, String::new())).collect();
    let key = (tried.value_type, tried.m, tried.ef_construction);
    let chosen = advice.choices.iter().enumerate();
    let chosen = chosen.filter(|(_, choice)| (choice.value_type, choice.m, choice.ef_construction) == key);
    let (mut marks, mut ranks) = (Vec::new(), String::new());
    for (rank, &Choice { ef_search, recall, visited, .. }) in chosen {
        let rank = rank + 1;
        marks.push((x(tried, &Expected { ef_search, recall, visited }), recall, rank.to_string()));
        ranks += &format!(": choice {rank}, ef_search {ef_search}");
    }
    let shape = match tried.m {
        0..=8 => Shape::Circle,
        9..=16 => Shape::Square,
        17..=24 => Shape::Triangle,
        _ => Shape::Diamond,
    };
    let (dashed, name) = (tried.ef_construction > 64, tried.value_type.name());
    let more = if dashed { format!(", ef_construction {}", tried.ef_construction) } else { String::new() };
    // Curves of halfvec and vector nearly coincide over elements visited: draw vector wider, so that both can be seen.
    let wide = tried.value_type == ValueType::Vector;
    Series {
        name: format!("{name}, m {}{more}{ranks}", tried.m),
        points,
        style: Style { color: Some(color(tried.value_type)), shape, dashed, wide },
        marks,
    }
}

fn color(value_type: ValueType) -> usize {
    match value_type {
        ValueType::Vector => 0,
        ValueType::HalfVec => 1,
        ValueType::Bit => 2,
        ValueType::SparseVec => 3,
    }
}
