//! Is it time to REINDEX? Judges an index after a full check ([`Findings`]), or from a few of its pages ([`Facts`]).

use super::check::{Counts, Structure};
use super::words::{BY_CHECK, CHECK, INVALID, OK, REBUILD, REINDEX};

/// A few lists with free slots do no harm, as each VACUUM fills them, nor do a few deleted elements, whose space inserts reuse. But
/// searches never find an unreachable element.
const TOO_MANY_NOT_FULL: f64 = 0.10;
const TOO_MANY_DELETED: f64 = 0.50;
const TOO_MANY_UNREACHABLE: f64 = 0.01;
/// At `ef_search` 40 a good index has a higher recall, except on data that is hard for any graph.
const TOO_LOW_RECALL: f64 = 0.80;

/// VACUUM searches new neighbors for each element that links to a dead one: above about this share, a rebuild is faster than that VACUUM,
/// and leaves it little to do. It is also autovacuum's default threshold.
const TOO_MANY_DEAD: f64 = 0.20;
/// With fewer elements in the pages that were read, an index is too small to judge.
const TOO_FEW_TO_JUDGE: u64 = 20;

/// The reason of a check for an index that CREATE or REINDEX CONCURRENTLY has not made valid, or not yet.
const NOT_VALID: &str = "the index is not valid, its build did not end";

/// Releases before this one can damage indexes: 0.8.2, 0.8.3 and 0.8.4 each fix a defect, of parallel builds, of VACUUM and of the
/// repair after it.
const FIRST_GOOD: [u32; 3] = [0, 8, 4];

/// The results of a full check.
pub(super) struct Findings<'a> {
    pub(super) structure: &'a Structure,
    pub(super) counts: Counts,
    pub(super) valid: bool,
    pub(super) errors: u64,
    pub(super) first_error: Option<&'a str>,
    pub(super) recall: Option<f64>,
    pub(super) ef_search: &'a str,
}

impl Findings<'_> {
    /// [`OK`]; [`REINDEX`] and the gravest reason; or what to try first if only the recall is low, which hard data may cause too.
    /// `pgvector` returns its version.
    pub(super) fn advice(&self, pgvector: impl FnOnce() -> Option<String>) -> String {
        if let Some(reason) = self.reason() {
            let old = pgvector().filter(|version| self.valid && is_older(version, FIRST_GOOD));
            let update = old.map(|version| {
                let [major, minor, patch] = FIRST_GOOD;
                format!("; update pgvector to {major}.{minor}.{patch} or later first: {version} can damage indexes")
            });
            return format!("{REINDEX}{reason}{}", update.unwrap_or_default());
        }
        match self.recall {
            Some(recall) if recall < TOO_LOW_RECALL => {
                let ef_search = self.ef_search;
                format!("raise hnsw.ef_search, and reindex if that does not help: recall is {recall:.2} at {ef_search}")
            }
            _ => OK.into(),
        }
    }

    fn reason(&self) -> Option<String> {
        let Self { structure, errors, counts: Counts { elements, deleted, unreachable }, .. } = *self;
        let above = |part: u64, all: u64, share: f64| part as f64 > share * all as f64;
        // In an index of few elements, lists cannot be full.
        let can_be_full = structure.m.is_some_and(|m| elements > 2 * u64::from(m));
        if !self.valid {
            return Some(NOT_VALID.into());
        }
        if errors > 0 {
            let first = self.first_error.unwrap_or_default();
            return Some(format!("{errors} errors in its pages, the first: {first}"));
        }
        if above(unreachable, elements, TOO_MANY_UNREACHABLE) {
            return Some(format!("{unreachable} of {elements} elements cannot be found"));
        }
        let all = elements.saturating_add(deleted);
        if above(deleted, all, TOO_MANY_DELETED) {
            return Some(format!("{deleted} of {all} elements are deleted"));
        }
        if can_be_full && above(structure.not_full, elements, TOO_MANY_NOT_FULL) {
            let not_full = structure.not_full;
            return Some(format!("{not_full} of {elements} lists at layer 0 are not full, and slow VACUUM down"));
        }
        None
    }
}

/// Who uses an index.
#[derive(Clone, Copy)]
pub(super) enum Usage {
    /// Searches and inserts.
    All,
    /// Inserts alone: CREATE or REINDEX CONCURRENTLY did not end, or DROP INDEX CONCURRENTLY has begun.
    Inserts,
    /// Nobody: CREATE or REINDEX CONCURRENTLY ended early.
    None,
    /// Nobody: DROP INDEX CONCURRENTLY, or a REINDEX CONCURRENTLY that has another index already, did not end.
    Dropped,
}

/// What a few pages and the statistics show of an index.
pub(super) struct Facts<'a> {
    pub(super) usage: Usage,
    pub(super) scans: i64,
    /// The share of the index's rows that are dead, by PostgreSQL's statistics.
    pub(super) dead_share: Option<f64>,
    /// The advice of the last check, if the index has not been rebuilt since.
    pub(super) checked: Option<&'a str>,
    /// Whether all its pages were read.
    pub(super) is_whole: bool,
    /// Elements with rows in the pages that were read.
    pub(super) live: u64,
    pub(super) deleted: u64,
    pub(super) unreadable: u64,
    /// What PostgreSQL says of a page that it cannot read.
    pub(super) problem: Option<&'a str>,
}

/// The advice in one word, and its reason.
pub(super) struct Judged {
    pub(super) advice: &'static str,
    pub(super) reason: Option<String>,
}

impl Facts<'_> {
    /// The first, gravest, problem that applies.
    pub(super) fn judge(&self, pgvector: Option<&str>) -> Judged {
        let Self { usage, scans, dead_share, checked, is_whole, live, deleted, unreadable, problem } = *self;
        let because = |advice, reason: String| Judged { advice, reason: Some(reason) };
        let unfinished = match usage {
            Usage::All => None,
            Usage::Inserts => Some("its build did not end: no search uses it, but every insert maintains it"),
            Usage::None => Some("its build did not end: neither searches nor inserts use it"),
            Usage::Dropped => {
                Some("its DROP INDEX or REINDEX CONCURRENTLY did not end: neither searches nor inserts use it")
            }
        };
        if let Some(reason) = unfinished {
            return because(INVALID, reason.into());
        }
        // A check during the build found the index not valid. The finding is outdated, but oid and file are still those of the check.
        let found = checked.and_then(|advice| advice.strip_prefix(REINDEX)).filter(|&reason| reason != NOT_VALID);
        if let Some(reason) = found {
            return because(REBUILD, format!("{BY_CHECK}{reason}"));
        }
        if let Some(problem) = problem {
            return because(CHECK, format!("pages cannot be read: {problem}"));
        }
        if unreadable > 0 {
            return because(CHECK, "pages have errors".into());
        }
        let all = live + deleted;
        let percent = |share: f64| (100.0 * share).round();
        if all >= TOO_FEW_TO_JUDGE && deleted as f64 > TOO_MANY_DELETED * all as f64 {
            let share = percent(deleted as f64 / all as f64);
            return because(REBUILD, format!("about {share} percent of its elements are deleted"));
        }
        // Few elements were read of a large index too, if each value fills a page.
        let is_small = is_whole && live < TOO_FEW_TO_JUDGE;
        if let Some(dead) = dead_share.filter(|&dead| dead > TOO_MANY_DEAD && !is_small) {
            let share = percent(dead);
            return because(REBUILD, format!("{share} percent of its rows are dead: rebuild, then VACUUM"));
        }
        if let Some(version) =
            pgvector.filter(|version| deleted > 0 && checked.is_none() && is_older(version, FIRST_GOOD))
        {
            let [major, minor, patch] = FIRST_GOOD;
            return because(
                CHECK,
                format!(
                    "vacuumed, and pgvector {version} can damage indexes: update to {major}.{minor}.{patch} or later"
                ),
            );
        }
        if scans == 0 {
            return because("unused", "not scanned since statistics were reset (each server counts for itself)".into());
        }
        Judged { advice: OK, reason: None }
    }
}

/// `false` for versions that are not numbers.
fn is_older(version: &str, than: [u32; 3]) -> bool {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() < than.as_slice())
}
