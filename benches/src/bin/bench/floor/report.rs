//! The tables of the report.

use super::super::markdown::Table;
use super::threads::Party;
use super::work::{Span, Spans, Work};

/// Positions of a build's parts in its spans.
const SCAN: usize = 0;
const GRAPH: usize = 1;
const PAGES: usize = 2;

/// Medians of all statements on a table.
pub struct Measured {
    pub value_bytes: f64,
    pub index_bytes: f64,
    pub medians: Vec<(Work, Spans)>,
}

impl Span {
    /// CPU seconds of the busiest thread, a lower bound of the time with any number of cores.
    fn least(&self) -> f64 {
        self.used.busiest.into_iter().fold(0.0, f64::max)
    }
}

impl Measured {
    fn of(&self, work: Work) -> &[Span] {
        self.medians.iter().find(|(of, _)| *of == work).map_or(&[], |(_, spans)| spans)
    }

    fn part(&self, work: Work, part: usize) -> Option<&Span> {
        self.of(work).get(part)
    }

    /// The builds by replay and by a real builder.
    fn builds(&self) -> impl Iterator<Item = (Work, String)> + '_ {
        self.medians.iter().filter_map(|&(work, _)| match work {
            Work::Replay(workers) => Some((work, format!("replayed, {workers} workers"))),
            Work::Build(workers) => Some((work, format!("by a builder, {workers} workers"))),
            _ => None,
        })
    }

    /// A table of all parts: reading, graph, writing.
    pub fn parts(&self) -> Table {
        let mut table = Table::new([
            "",
            "seconds",
            "MB/s",
            "backend",
            "its connection's thread",
            "worker",
            "builder",
            "all of the builder",
        ]);
        let mut row = |what: &str, span: Option<&Span>, bytes: Option<f64>| {
            let Some(span) = span else { return };
            let number = |seconds: f64| if seconds < 0.0005 { String::new() } else { format!("{seconds:.3}") };
            let rate = bytes.map_or_else(String::new, |bytes| format!("{:.0}", bytes / span.seconds / 1e6));
            let cells = [what.to_owned(), format!("{:.3}", span.seconds), rate];
            let used = Party::ALL.map(|party| number(span.used.busiest[party as usize]));
            table.row(cells.into_iter().chain(used).chain([number(span.used.builder)]));
        };
        let (values, pages) = (Some(self.value_bytes), Some(self.index_bytes));
        row("COPY out", self.part(Work::Copy, 0), values);
        for (work, spans) in &self.medians {
            if let Work::Read(workers) = work {
                row(&format!("sequential scan, {workers} workers"), spans.first(), values);
            }
        }
        for (work, name) in self.builds() {
            row(&format!("scan, {name}"), self.part(work, SCAN), values);
        }
        row("as many raw pages inserted", self.part(Work::Insert, 0), pages);
        row("the index to another tablespace", self.part(Work::Move, 0), pages);
        for (work, name) in self.builds() {
            row(&format!("pages, {name}"), self.part(work, PAGES), pages);
        }
        for (work, name) in self.builds() {
            if matches!(work, Work::Build(_)) {
                row(&format!("graph, {name}"), self.part(work, GRAPH), None);
            }
            row(&format!("whole build, {name}"), self.of(work).last(), None);
        }
        table
    }

    /// A table of ratios: scan and pages of replayed builds, relative to the corresponding plain statements.
    pub fn ratios(&self, workers: &[u32]) -> Table {
        let mut table = Table::new(["builder replayed", "seconds", "CPU of the busiest thread"]);
        let mut row = |what: String, of: Option<&Span>, by: Option<&Span>| {
            let (Some(of), Some(by)) = (of, by) else { return };
            let times = |of: f64, by: f64| format!("{:.2}", of / by);
            table.row([what, times(of.seconds, by.seconds), times(of.least(), by.least())]);
        };
        let Some((&first, others)) = workers.split_first() else { return table };
        let scan = |workers| self.part(Work::Replay(workers), SCAN);
        for &more in others {
            row(format!("scan, {first} workers / {more}"), scan(first), scan(more));
        }
        row(format!("scan, {first} workers / COPY out"), scan(first), self.part(Work::Copy, 0));
        let pages = self.part(Work::Replay(first), PAGES);
        row("pages / raw pages inserted".into(), pages, self.part(Work::Insert, 0));
        row("pages / to another tablespace".into(), pages, self.part(Work::Move, 0));
        table
    }

    /// The time of builds with builders of many cores: for scan and pages the CPU seconds of the busiest thread, for the graph the
    /// builder's CPU seconds divided by its speed-up.
    pub fn critical_path(&self, builders: &[(u32, f64)]) -> Table {
        let mut table =
            Table::new(["cores of the builder", "scan", "graph", "pages", "in all", "times COPY out and raw pages"]);
        let Some((most, real)) = self.medians.iter().find_map(|(work, spans)| match work {
            Work::Build(workers) => Some((*workers, spans)),
            _ => None,
        }) else {
            return table;
        };
        let database = |part| self.part(Work::Replay(most), part).map_or(0.0, Span::least);
        let floor: f64 =
            [Work::Copy, Work::Insert].into_iter().filter_map(|work| self.part(work, 0)).map(Span::least).sum();
        for &(cores, times) in builders {
            // One thread of the builder receives rows, all threads make pages.
            let scan = database(SCAN).max(real[SCAN].used.busiest[Party::Builder as usize]);
            let graph = real[GRAPH].used.builder / times;
            let pages = database(PAGES).max(real[PAGES].used.builder / times);
            let all = scan + graph + pages;
            let cells = [scan, graph, pages, all].map(|seconds| format!("{seconds:.2}"));
            table.row([cores.to_string()].into_iter().chain(cells).chain([format!("{:.2}", all / floor)]));
        }
        table
    }
}

/// Seconds of the parts and, in parentheses, CPU seconds of the busiest threads.
pub fn line(spans: &[Span]) -> String {
    let part = |span: &Span| {
        let used = span.used.busiest.map(|seconds| format!("{seconds:.3}"));
        format!("{:.3} ({}; {:.3})", span.seconds, used.join(" "), span.used.builder)
    };
    spans.iter().map(part).collect::<Vec<_>>().join(", ")
}

pub fn raw(works: &[Work], rounds: &[Vec<Spans>]) -> String {
    let all = works.iter().zip(rounds);
    let lines = all.flat_map(|(work, rounds)| rounds.iter().map(move |spans| format!("{work:?}: {}", line(spans))));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::threads::Used;
    use super::*;

    fn span(seconds: f64, busiest: [f64; 4], builder: f64) -> Span {
        Span { seconds, used: Used { busiest, builder } }
    }

    #[test]
    fn the_busiest_threads_make_the_critical_path() {
        let replay = vec![
            span(1.0, [0.2, 0.3, 0.25, 0.1], 0.1),
            Span::default(),
            span(1.0, [0.5, 0.4, 0.0, 0.1], 0.1),
            Span::default(),
        ];
        let real = vec![
            span(1.0, [0.2, 0.3, 0.25, 0.4], 0.6),
            span(4.0, [0.0; 4], 8.0),
            span(1.0, [0.5, 0.4, 0.0, 0.6], 2.0),
            Span::default(),
        ];
        let floor = |seconds| vec![span(seconds, [seconds, 0.0, 0.0, 0.0], 0.0)];
        let medians = vec![
            (Work::Copy, floor(0.5)),
            (Work::Insert, floor(0.5)),
            (Work::Replay(2), replay),
            (Work::Build(2), real),
        ];
        let measured = Measured { value_bytes: 1e6, index_bytes: 2e6, medians };
        let text = measured.critical_path(&[(16, 8.0)]).render();
        let cells: Vec<&str> = text.lines().last().unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[1..7], ["16", "0.40", "1.00", "0.50", "1.90", "1.90"]);
    }
}
