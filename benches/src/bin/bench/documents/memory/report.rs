use super::super::super::markdown::Table;
use super::super::section::Section;
use super::super::twins::Twin;
use super::builds::Builds;
use super::searches::{Searched, Searches, Source};
use plot::{From, Plot, Scale, Series};

use harness::cores;
const SOURCE: &str = "After AWS Database Blog, \"Improve the performance of generative AI workloads on Amazon Aurora with \
Optimized Reads and pgvector\" (2023): BIGANN, 1 billion rows x 128, pgvector 0.5.0, m = 16, ef_construction = 64, ef_search = 400 \
with recall 0.9578; table and index 614 or 781 GB, shared buffers 250 to 350 GB. What is not there is read from a local SSD (R6gd) or over \
the network (R6g).";

const DIFFERS: &str = "What differs: a ten-thousandth of their rows, synthetic vectors, and the cores named above, which clients \
share with the database. Shared buffers hold the same share of the index as in the document (250 of 781 GB), but the page cache holds \
the rest. So searches are measured twice, the second time with the files dropped from the page cache again and again, so that pages \
are read from this machine's disk, whose speed is unknown; pages read per query hold for any disk. \
The document measures no builds, the first table does. Its limit is the memory that a build needs without its vectors: a builder with \
a spool keeps them in a file, whose pages are not counted as the builder's memory. In the database, the limit is maintenance_work_mem; \
once the graph exceeds it, rows are inserted into the index one by one, in shared buffers of 2 GB that are not counted.";

pub fn section(builds: &Builds, searches: &Searches) -> Section {
    let mut section = Section::new("indexes larger than memory", SOURCE);
    section.theirs("queries per second by threads", theirs());
    section.ours(&format!("builds of {}, {} cores", builds.title, cores()), of_builds(builds));
    for build in &builds.builds {
        if let Some(said) = &build.said {
            section.text(&format!("{}: NOTICE: {said}.", build.name));
        }
    }
    let [inside, outside, buffers] = searches.sizes.map(|bytes| bytes / 1e6);
    let title = format!(
        "searches of {}; the index has {inside:.0} MB made by the database and {outside:.0} MB made outside, shared buffers {buffers:.0} MB",
        searches.title
    );
    section.ours(&title, of_searches(&searches.searched));
    for source in Source::ALL {
        section.plot(source.name(), plot(searches, source));
    }
    if searches.is_cut {
        section.text("There was no time for the rest of the searches.");
    }
    section.text(DIFFERS);
    section
}

fn theirs() -> Table {
    let mut table = Table::new(["threads", "R6gd-12xl", "R6g-12xl", "R6gd-16xl", "R6g-16xl"]);
    for row in [
        "4 7.03 0.76 7.24 0.84",
        "8 13.87 1.51 15.42 1.88",
        "16 25.34 3.16 28.43 4.22",
        "32 43.60 6.12 49.67 8.62",
        "48 55.89 9.09 60.50 11.82",
        "64 65.70 10.81 73.62 16.16",
        "80 74.26 11.87 81.77 19.42",
        "96 80.83 11.24 90.19 21.82",
    ] {
        table.row(row.split(' ').map(str::to_owned));
    }
    table
}

fn of_builds(builds: &Builds) -> Table {
    let mega = |bytes: f64| format!("{:.0}", bytes / 1e6);
    let mut table = Table::new(["build", "limit MB", "memory MB", "spooled MB", "seconds", "recall@10, ef 100"]);
    for build in &builds.builds {
        table.row([
            build.name.to_owned(),
            build.limit.map_or(String::new(), mega),
            mega(build.memory),
            if build.spooled > 0.0 { mega(build.spooled) } else { String::new() },
            format!("{:.2}", build.seconds),
            format!("{:.4}", build.recall),
        ]);
    }
    table
}

/// A table with a row for both twins.
fn of_searches(searched: &[Searched]) -> Table {
    let mut head =
        vec!["pages that are not in shared buffers come from".to_owned(), "ef_search".to_owned(), "clients".to_owned()];
    for what in ["recall", "queries/s", "pages read", "pages in all"] {
        head.extend([Twin::Database, Twin::External].map(|twin| format!("{what}, {}", twin.name())));
    }
    let mut table = Table::new(head);
    for inside in searched.iter().filter(|one| one.twin == Twin::Database) {
        let same = |one: &&Searched| {
            (one.source, one.ef_search, one.clients) == (inside.source, inside.ef_search, inside.clients)
        };
        let outside = searched.iter().filter(same).find(|one| one.twin == Twin::External);
        let both = |get: fn(&Searched) -> String| [get(inside), outside.map_or(String::new(), get)];
        let mut row = vec![inside.source.name().to_owned(), inside.ef_search.to_string(), inside.clients.to_string()];
        row.extend(both(|one| format!("{:.4}", one.recall)));
        row.extend(both(|one| format!("{:.0}", one.per_second)));
        row.extend(both(|one| format!("{:.1}", one.read)));
        row.extend(both(|one| format!("{:.1}", one.touched)));
        table.row(row);
    }
    table
}

fn plot(searches: &Searches, source: Source) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for one in searches.searched.iter().filter(|one| one.source == source) {
        let name = format!("{}, ef {}", one.twin.name(), one.ef_search);
        let point = (one.clients as f64, one.per_second, format!("{:.0} pages", one.read));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point], ..Series::default() }),
        }
    }
    Plot {
        title: format!("Index larger than shared buffers, pages from the {}", source.name()),
        x: "clients".to_owned(),
        y: "queries per second; pages read per query at the points".to_owned(),
        x_scale: Scale::Linear,
        y_from: From::Zero,
        series,
        ..Plot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_twins_share_a_row() {
        let one = |twin, clients, read| Searched {
            twin,
            source: Source::Cache,
            ef_search: 40,
            clients,
            recall: 0.95,
            per_second: 1000.0,
            read,
            touched: 2.0 * read,
        };
        let searched = [one(Twin::Database, 1, 100.0), one(Twin::External, 1, 60.0), one(Twin::Database, 2, 90.0)];
        let text = of_searches(&searched).render();
        assert_eq!(text.lines().count(), 4);
        assert!(
            text.lines().nth(2).is_some_and(|line| line.contains(" 100.0 |") && line.contains(" 60.0 |")),
            "{text}"
        );
        let searches = Searches { title: String::new(), sizes: [0.0; 3], searched: searched.into(), is_cut: false };
        assert_eq!(plot(&searches, Source::Cache).series.len(), 2);
        assert!(plot(&searches, Source::Disk).series.is_empty());
    }
}
