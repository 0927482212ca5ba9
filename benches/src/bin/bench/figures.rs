use super::EF_SEARCH;
use super::contest::median;
use super::programs::Visits;

/// Results of searches at one ef_search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Search {
    pub recall: Option<f64>,
    /// Index tuples visited per query, which are distances computed.
    pub visited: Option<f64>,
    /// Distinct pages of the index per query, from its file.
    pub pages: Option<f64>,
    /// Pages of the index that PostgreSQL read per query with an empty cache.
    pub cold: Option<f64>,
}

/// Cost and quality of one build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub seconds: f64,
    /// CPU seconds of the database, and of the builder.
    pub cpu: Option<(f64, f64)>,
    /// Seconds per phase: reading the table, waiting for the graph, writing pages.
    pub phases: Option<[f64; 3]>,
    /// Peak memory of the build in bytes.
    pub memory: Option<f64>,
    /// The size of the index in bytes.
    pub size: Option<f64>,
    /// Results at each of [`EF_SEARCH`].
    pub searches: [Search; EF_SEARCH.len()],
    /// Searches of the index file, at more values of ef_search.
    pub curve: Vec<Visits>,
}

impl Figures {
    /// The median of each figure over the rounds.
    pub fn median(rounds: &[Self]) -> Self {
        let of = |get: &dyn Fn(&Self) -> Option<f64>| median(rounds.iter().filter_map(get));
        let pair = |get: &dyn Fn(&Self) -> Option<(f64, f64)>| {
            Some((
                median(rounds.iter().filter_map(|f| Some(get(f)?.0)))?,
                median(rounds.iter().filter_map(|f| Some(get(f)?.1)))?,
            ))
        };
        let phase = |at: usize| of(&|f| Some(f.phases?[at]));
        let search = |at: usize| Search {
            recall: of(&|f| f.searches[at].recall),
            visited: of(&|f| f.searches[at].visited),
            pages: of(&|f| f.searches[at].pages),
            cold: of(&|f| f.searches[at].cold),
        };
        Self {
            seconds: of(&|f| Some(f.seconds)).unwrap_or_default(),
            cpu: pair(&|f| f.cpu),
            phases: (|| Some([phase(0)?, phase(1)?, phase(2)?]))(),
            memory: of(&|f| f.memory),
            size: of(&|f| f.size),
            searches: std::array::from_fn(search),
            curve: curve(rounds),
        }
    }

    /// The main figures in a line, for the terminal.
    pub fn line(&self) -> String {
        let recall = self.searches.iter().map(|search| search.recall.map_or("-".to_owned(), |r| format!("{r:.4}")));
        format!("{:.2} s, recall {}", self.seconds, recall.collect::<Vec<_>>().join(" "))
    }
}

/// The median curve: at each ef_search, the median of each figure.
fn curve(rounds: &[Figures]) -> Vec<Visits> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let middle = |at: usize, get: fn(&Visits) -> f64| {
        median(rounds.iter().filter_map(|figures| figures.curve.get(at)).map(get)).unwrap_or_default()
    };
    let of = |(at, visits): (usize, &Visits)| Visits {
        ef: visits.ef,
        recall: middle(at, |visits| visits.recall),
        distances: middle(at, |visits| visits.distances),
        pages: middle(at, |visits| visits.pages),
    };
    first.curve.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_of_each_figure_where_it_is_known() {
        let with = |seconds: f64, recall: Option<f64>| {
            let mut figures = Figures { seconds, cpu: Some((seconds, 1.0)), ..Figures::default() };
            figures.searches[0].recall = recall;
            figures
        };
        let median = Figures::median(&[with(3.0, None), with(1.0, Some(0.9)), with(2.0, None)]);
        assert_eq!((median.seconds, median.cpu), (2.0, Some((2.0, 1.0))));
        assert_eq!((median.searches[0].recall, median.searches[1].recall), (Some(0.9), None));
        assert_eq!(median.phases, None);
    }
}
