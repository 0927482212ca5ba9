//! Hard data in a quick form: no graph may have clearly lower recall than one built by insertion, as in pgvector.
//!
//! `cargo xtask bench hard` compares all families with the database's own build.

use benches::EFS;
use benches::hard::HardSet;
use harness::hard::{FAMILIES, drawn};
use hnsw::{EngineKind, Remedy};

const ROWS: usize = 3000;
const QUERIES: usize = 200;
/// The difference in recall that occurs by chance with so few queries.
const CHANCE: f64 = 0.025;

/// One family of each kind.
const QUICK: [&str; 14] = [
    "boilerplate-cosine",
    "groups-l2",
    "half-groups-cosine",
    "tight-and-far-cosine",
    "many-clusters-l2",
    "shifted-ip",
    "positive-lognormal-ip",
    "products-3-ip",
    "text-to-image-ip",
    "sorted-1-l2",
    "m-2-l2",
    "normal-l1",
    "splade-like-cosine",
    "repeated-hamming",
];

#[test]
fn no_graph_finds_clearly_less_than_insertion() {
    let families: Vec<_> = FAMILIES.iter().filter(|family| QUICK.contains(&family.name)).collect();
    assert_eq!(families.len(), QUICK.len());
    let mut worse = Vec::new();
    for family in families {
        let set = HardSet::make(family, 1, ROWS, QUERIES).unwrap();
        let [ours, insertion] = [EngineKind::Bulk, EngineKind::Insertion].map(|kind| {
            let finished = set.graph.build(kind, 2).unwrap();
            assert_eq!(finished.report.unreachable, 0, "{}", family.name);
            set.graph.search(&finished)
        });
        for ((ef, ours), insertion) in
            EFS.iter().zip(ours.recall).zip(insertion.recall).filter(|((ef, _), _)| **ef >= 40)
        {
            if ours[1] < insertion[1] - CHANCE {
                worse.push(format!("{} at ef {ef}: {} of {}", family.name, ours[1], insertion[1]));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
}

/// Each group is larger than a neighbor list, and all rows of other groups are equally far: only the guard's remedies link the groups.
#[test]
fn groups_that_lie_equally_far_are_linked() {
    let family = FAMILIES.iter().find(|family| family.name == "subspaces-l2").unwrap();
    let set = HardSet::make(family, 1, 20_000, QUERIES).unwrap();
    let finished = set.graph.build(EngineKind::Bulk, 2).unwrap();
    assert_eq!(finished.report.remedy, Remedy::LinksAcross, "{:?}", finished.report);
    let searches = set.graph.search(&finished);
    let (_, recall) = EFS.iter().zip(searches.recall).find(|(ef, _)| **ef == 20).unwrap();
    // A graph by insertion has .81.
    assert!(recall[1] > 0.95, "{recall:?}");
}

/// Bits of which few are set: all elements of low in-degree have the same neighbors. Small groups of sparse rows: links to missed elements
/// help more than links across.
#[test]
fn links_that_help_elsewhere_do_no_harm() {
    for number in [79, 207] {
        let set = HardSet::make(drawn(number), 1, 20_000, 2 * QUERIES).unwrap();
        let [ours, insertion] =
            [EngineKind::Bulk, EngineKind::Insertion].map(|kind| set.graph.search(&set.graph.build(kind, 2).unwrap()));
        for ((ef, ours), insertion) in EFS.iter().zip(ours.recall).zip(insertion.recall) {
            assert!(ours[1] >= insertion[1] - CHANCE, "{number} at ef {ef}: {} of {}", ours[1], insertion[1]);
        }
    }
}

/// The guard's queries are rows and values between rows.
#[test]
fn the_guard_measures_high_recall_in_near_identical_groups() {
    for name in ["boilerplate-cosine", "boilerplate-l2", "many-clusters-l2"] {
        let family = FAMILIES.iter().find(|family| family.name == name).unwrap();
        let set = HardSet::make(family, 2, ROWS, QUERIES).unwrap();
        let report = set.graph.build(EngineKind::Bulk, 2).unwrap().report;
        assert!(report.recall >= 0.9, "{name}: {report:?}");
    }
}
