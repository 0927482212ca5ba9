use super::super::super::markdown::Table;
use super::super::section::Section;
use super::{Form, Measured, Searched};
use plot::{Plot, Series};

use harness::cores;
const SOURCE: &str = "After J. Katz, \"Distributed queries for pgvector\" (2024): each set of 1 million rows on one r7gd.4xlarge with \
16 vCPUs, against two of them behind a smaller head; pgvector 0.6, m = 16, ef_construction = 256; one client.";

const FORMS: &str = "2 nodes is the document's query: of the partitioned table, `ORDER BY distance LIMIT 10`. The head sends the nodes the \
order but no limit, so that each returns the first 100 rows (`fetch_size`) with their vectors, and asks one node after the other \
(Merge Append). 2 nodes, at once, is a query of each partition with its own limit, `SELECT id, distance FROM ((SELECT … FROM items_1 ORDER BY \
distance LIMIT 10) UNION ALL (SELECT … FROM items_2 …) OFFSET 0) near ORDER BY distance LIMIT 10`: the limit is sent too, and both nodes search \
at the same time (Async Foreign Scan, PostgreSQL 15 or newer). All plans are checked. The foreign servers' option \
`options '-c hnsw.ef_search=N'` sets ef_search at the nodes.";

const DIFFERS: &str = "What differs: far fewer rows, so that recall is higher at the same ef_search; cosine for all sets; and all servers, \
builders and the client share one machine with the cores named above. So two nodes have no more processors than one; there is no \
network, which costs the document's two nodes most of their queries per second; and two builds at the same time take about as long \
as one after the other. Memory suffices for all indexes, in the document too.";

pub fn section(all: &[Measured]) -> Section {
    let mut section = Section::new("one node and two, behind a head with postgres_fdw", SOURCE);
    section.theirs("one node against two", theirs());
    section.ours(&format!("builds, seconds, {} cores", cores()), of_builds(all));
    for measured in all {
        section.ours(&measured.title, of_searches(&measured.searched));
        section.plot(&measured.title, plot(measured));
        if measured.is_cut {
            section.text("There was no time for the rest of these.");
        }
    }
    section.text(FORMS);
    section.text(DIFFERS);
    section
}

/// The document's recall and queries per second for both sets, a row for each ef_search.
fn theirs() -> Table {
    let mut head = vec!["ef_search".to_owned()];
    for set in ["sift-128", "dbpedia-1536", "gist-960"] {
        head.extend(["recall, 1", "recall, 2", "queries/s, 1", "queries/s, 2"].map(|what| format!("{set} {what}")));
    }
    let mut table = Table::new(head);
    for row in [
        "10 0.776 0.833 2111 338 0.852 0.885 1131 89 0.509 0.584 1107 134",
        "20 0.884 0.922 1536 272 0.927 0.945 853 55 0.652 0.733 782 89",
        "40 0.953 0.973 1031 206 0.968 0.977 550 31 0.783 0.852 509 54",
        "80 0.986 0.994 644 137 0.987 0.991 342 17 0.883 0.932 302 30",
        "120 0.994 0.998 474 109 0.992 0.995 251 13 0.925 0.962 218 24",
        "200 0.998 0.999 276 84 0.996 0.997 163 13 0.960 0.981 144 21",
        "400 1.000 1.000 157 59 0.998 0.999 93 11 0.987 0.995 81 17",
        "800 1.000 1.000 86 36 0.999 0.999 52 9 0.995 0.998 45 13",
    ] {
        table.row(row.split(' ').map(str::to_owned));
    }
    table
}

fn of_builds(all: &[Measured]) -> Table {
    let mut table = Table::new([
        "set; built by",
        "1 node, all rows",
        "2 nodes, one after the other",
        "2 nodes at once",
        "builders at a time",
    ]);
    for measured in all {
        let row = |name: &str, seconds: [f64; 3], builders: String| {
            let mut cells = vec![format!("{}; {name}", measured.title)];
            cells.extend(seconds.map(|seconds| format!("{seconds:.2}")));
            cells.push(builders);
            cells
        };
        table.row(row("databases", measured.builds.inside, String::new()));
        table.row(row("router", measured.builds.outside, measured.builds.builders.to_string()));
    }
    table
}

fn of_searches(searched: &[Searched]) -> Table {
    let mut head = vec!["ef_search".to_owned()];
    for what in ["recall", "queries/s"] {
        head.extend(Form::ALL.map(|form| format!("{what}, {}", form.name())));
    }
    let mut table = Table::new(head);
    for one in searched.iter().filter(|one| one.form == Form::OneNode) {
        let of = |form, get: fn(&Searched) -> String| {
            let same = searched.iter().find(|other| other.form == form && other.ef_search == one.ef_search);
            same.map_or(String::new(), get)
        };
        let mut row = vec![one.ef_search.to_string()];
        row.extend(Form::ALL.map(|form| of(form, |found| format!("{:.4}", found.recall))));
        row.extend(Form::ALL.map(|form| of(form, |found| format!("{:.0}", found.per_second))));
        table.row(row);
    }
    table
}

fn plot(measured: &Measured) -> Plot {
    let series = Form::ALL.map(|form| {
        let own = measured.searched.iter().filter(|one| one.form == form);
        let points = own.map(|one| (one.per_second, one.recall, one.ef_search.to_string()));
        Series { name: form.name().to_owned(), points: points.collect(), ..Series::default() }
    });
    Plot::of_recall(format!("{} (numbers: ef_search)", measured.title), "queries per second", series.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_an_ef_search_share_a_row() {
        let one = |form, ef_search, recall| Searched { form, ef_search, recall, per_second: 500.0 };
        let searched = [
            one(Form::OneNode, 10, 0.8),
            one(Form::Partitioned, 10, 0.85),
            one(Form::Each, 10, 0.86),
            one(Form::OneNode, 20, 0.9),
        ];
        let text = of_searches(&searched).render();
        let words: Vec<&str> = text.lines().nth(2).unwrap_or_default().split('|').map(str::trim).collect();
        assert_eq!(words[1..5], ["10", "0.8000", "0.8500", "0.8600"]);
        assert_eq!((text.lines().count(), theirs().render().lines().count()), (4, 10));
    }
}
