//! Tables and plots of the comparison of builds.

use super::EF_SEARCH;
use super::figures::Figures;
use super::markdown::Table;
use super::options::Case;
use super::peer::Peer;
use plot::{From, Plot, Scale, Series};

type Medians = [(Peer, Figures)];

pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.digits$}"))
}

/// A table of the builds' costs.
pub fn building(medians: &Medians) -> Table {
    let database = medians.iter().find(|(peer, _)| *peer == Peer::Database).map(|(_, figures)| figures.seconds);
    let mut table = Table::new([
        "building",
        "seconds",
        "times faster",
        "scan",
        "graph",
        "pages",
        "CPU database",
        "CPU builder",
        "memory MB",
        "index MB",
    ]);
    for (peer, figures) in medians {
        let mega = |bytes: Option<f64>| number(bytes.map(|bytes| bytes / 1e6), 0);
        let phase = |at: usize| number(figures.phases.map(|phases| phases[at]), 2);
        let faster = database.filter(|_| *peer != Peer::Database).map(|database| database / figures.seconds);
        table.row([
            peer.name().to_owned(),
            format!("{:.2}", figures.seconds),
            number(faster, 2),
            phase(0),
            phase(1),
            phase(2),
            number(figures.cpu.map(|cpu| cpu.0), 2),
            number(figures.cpu.map(|cpu| cpu.1), 2),
            mega(figures.memory),
            mega(figures.size),
        ]);
    }
    table
}

/// A table of recall at each ef_search, and of tuples and pages visited.
pub fn searching(medians: &Medians) -> Table {
    let mut head = vec!["searching".to_owned()];
    for what in ["recall", "visited", "pages", "read cold"] {
        head.extend(EF_SEARCH.map(|ef| format!("{what} {ef}")));
    }
    let mut table = Table::new(head);
    for (peer, figures) in medians {
        let mut row = vec![peer.name().to_owned()];
        row.extend(figures.searches.map(|search| number(search.recall, 4)));
        row.extend(figures.searches.map(|search| number(search.visited, 0)));
        row.extend(figures.searches.map(|search| number(search.pages, 0)));
        row.extend(figures.searches.map(|search| number(search.cold, 0)));
        table.row(row);
    }
    table
}

/// A table of what searches of each other peer's index visit, relative to the database's index, at equal recall.
pub fn equal_recall(medians: &Medians) -> Option<Table> {
    let database = medians.iter().find(|(peer, _)| *peer == Peer::Database).map(|(_, figures)| figures)?;
    let mut head = vec!["at the database's recall".to_owned()];
    for what in ["visited", "pages"] {
        head.extend(EF_SEARCH.map(|ef| format!("{what} {ef}")));
    }
    let mut table = Table::new(head);
    for (peer, figures) in medians.iter().filter(|(peer, figures)| *peer != Peer::Database && !figures.curve.is_empty())
    {
        let ratio = |ef: u32, get: fn(&super::programs::Visits) -> f64| {
            let theirs = database.curve.iter().find(|visits| visits.ef == ef)?;
            let points = figures.curve.iter().map(|visits| (visits.recall, get(visits)));
            Some(interpolate(points, theirs.recall)? / get(theirs))
        };
        let mut row = vec![format!("{}, times", peer.name())];
        row.extend(EF_SEARCH.map(|ef| number(ratio(ef, |visits| visits.distances), 2)));
        row.extend(EF_SEARCH.map(|ef| number(ratio(ef, |visits| visits.pages), 2)));
        table.row(row);
    }
    Some(table)
}

/// Interpolates linearly at `x` between points of ascending `x`; `None` outside of them.
fn interpolate(points: impl Iterator<Item = (f64, f64)>, x: f64) -> Option<f64> {
    let points: Vec<_> = points.collect();
    let pair = points.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&x))?;
    let width = pair[1].0 - pair[0].0;
    let share = if width > 0.0 { (x - pair[0].0) / width } else { 0.0 };
    Some(pair[0].1 + share * (pair[1].1 - pair[0].1))
}

/// The seconds of each round.
pub fn raw(medians: &Medians, rounds: &[Vec<Figures>]) -> String {
    let line = |((peer, _), rounds): (&(Peer, Figures), &Vec<Figures>)| {
        let lines = rounds.iter().map(Figures::line).collect::<Vec<_>>().join("; ");
        format!("{}: {lines}", peer.name())
    };
    medians.iter().zip(rounds).map(line).collect::<Vec<_>>().join("\n")
}

/// A plot of recall at the smallest ef_search over build time: a line for each peer and m, through its values of ef_construction.
pub fn recall_plot(title: &str, all: &[(Case, Vec<(Peer, Figures)>)]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for (case, medians) in all {
        for (peer, figures) in medians {
            let name = format!("{}, m = {}", peer.name(), case.m);
            let Some(recall) = figures.searches[0].recall else { continue };
            let point = (figures.seconds, recall, case.ef_construction.to_string());
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name, points: vec![point], ..Series::default() }),
            }
        }
    }
    Plot {
        title: format!("{title} (numbers: ef_construction)"),
        x: "build, seconds".to_owned(),
        y: format!("recall@10, ef {}", EF_SEARCH[0]),
        x_scale: Scale::Logarithmic,
        y_from: From::Least,
        series,
        ..Plot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Search;
    use super::super::programs::Visits;
    use super::*;

    fn figures(seconds: f64, recall: f64) -> Figures {
        let visits = |ef, recall, distances| Visits { ef, recall, distances, pages: distances / 4.0 };
        Figures {
            seconds,
            searches: [Search { recall: Some(recall), ..Search::default() }; 3],
            curve: vec![visits(20, recall - 0.1, 400.0), visits(40, recall, 800.0)],
            ..Figures::default()
        }
    }

    #[test]
    fn ratios_are_to_the_database() {
        let medians = [(Peer::External, figures(2.0, 0.95)), (Peer::Database, figures(20.0, 0.9))];
        let table = building(&medians).render();
        assert!(table.lines().nth(2).unwrap().contains(" 10.00 "), "{table}");
        assert!(!table.contains("scan"), "{table}");
        assert_eq!(searching(&medians).render().lines().count(), 4);
        let equal = equal_recall(&medians).unwrap().render();
        assert!(equal.contains(" 0.75 |     0.75 |"), "{equal}");
        assert!(equal_recall(&medians[..1]).is_none());
    }

    #[test]
    fn there_is_no_extrapolation() {
        let points = [(0.9, 10.0), (1.0, 30.0)];
        assert_eq!(interpolate(points.into_iter(), 0.95).map(f64::round), Some(20.0));
        assert_eq!(interpolate(points.into_iter(), 0.8), None);
    }
}
