//! Is it time to REINDEX? Of an index that was checked ([`Findings`]), and of one of which a few pages were read ([`Seen`]).

use super::check::{Counts, Structure};

/// A list that is not full is found anew by every VACUUM, and an element that was deleted is room that stays unused until a row is
/// inserted: a few of them do no harm. What cannot be reached is not found.
const TOO_MANY_NOT_FULL: f64 = 0.10;
const TOO_MANY_DELETED: f64 = 0.50;
const TOO_MANY_UNREACHABLE: f64 = 0.01;
/// At `ef_search` 40 a good index finds more than this, but for data that is hard for every graph.
const TOO_LITTLE_FOUND: f64 = 0.80;

/// VACUUM searches anew for each element beside a dead one: from about here on a rebuild takes less time than the VACUUM that is due, which
/// has little to do afterwards. Autovacuum comes at this share by default.
const TOO_MANY_DEAD: f64 = 0.20;
/// A smaller index, by elements in the pages that were read, is rebuilt within a moment or not worth it.
const TOO_FEW_TO_JUDGE: u64 = 20;

/// Releases before this one have defects that leave bad indexes: 0.8.2, 0.8.3 and 0.8.4 mend one each, of parallel builds, of VACUUM
/// and of the repair after it.
const FIRST_GOOD: [u32; 3] = [0, 8, 4];

/// What the check found.
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
    /// `ok`; `reindex: ` and the first reason of the gravest kind; or what to try first if only the recall is low, which may as well
    /// come from data that is hard for every graph.
    ///
    /// `pgvector` tells its version.
    pub(super) fn advice(&self, pgvector: impl FnOnce() -> Option<String>) -> String {
        if let Some(reason) = self.reason() {
            let old = pgvector().filter(|version| self.valid && is_older(version, FIRST_GOOD));
            let update = old.map(|version| {
                let [major, minor, patch] = FIRST_GOOD;
                format!("; update pgvector to {major}.{minor}.{patch} or later first: {version} can damage indexes")
            });
            return format!("reindex: {reason}{}", update.unwrap_or_default());
        }
        match self.recall {
            Some(recall) if recall < TOO_LITTLE_FOUND => {
                let ef_search = self.ef_search;
                format!("raise hnsw.ef_search, and reindex if that does not help: recall is {recall:.2} at {ef_search}")
            }
            _ => "ok".into(),
        }
    }

    fn reason(&self) -> Option<String> {
        let Self { structure, errors, counts: Counts { elements, deleted, unreachable }, .. } = *self;
        let above = |part: u64, all: u64, share: f64| part as f64 > share * all as f64;
        // In a small index no list can be full.
        let can_be_full = structure.m.is_some_and(|m| elements > 2 * u64::from(m));
        if !self.valid {
            return Some("the index is not valid, its build did not end".into());
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

/// What is known of an index without reading it all.
pub(super) struct Seen<'a> {
    pub(super) valid: bool,
    pub(super) scans: i64,
    /// Dead rows of the table, as the statistics count them.
    pub(super) dead_share: Option<f64>,
    /// The advice of the last check, if the index is still the same.
    pub(super) checked: Option<&'a str>,
    /// In the pages that were read.
    pub(super) live: u64,
    pub(super) deleted: u64,
    pub(super) unreadable: u64,
}

/// One word, and why.
pub(super) struct Judged {
    pub(super) advice: &'static str,
    pub(super) reason: Option<String>,
}

impl Seen<'_> {
    /// The gravest first.
    pub(super) fn judge(&self, pgvector: Option<&str>) -> Judged {
        let Self { valid, scans, dead_share, checked, live, deleted, unreadable } = *self;
        let because = |advice, reason: String| Judged { advice, reason: Some(reason) };
        if !valid {
            return because(
                "invalid",
                "its build did not end: no search uses it, but every insert maintains it".into(),
            );
        }
        if let Some(reason) = checked.and_then(|advice| advice.strip_prefix("reindex: ")) {
            return because("rebuild", format!("the last check found: {reason}"));
        }
        if unreadable > 0 {
            return because("check", "pages have errors".into());
        }
        let all = live + deleted;
        let percent = |share: f64| (100.0 * share).round();
        if all >= TOO_FEW_TO_JUDGE && deleted as f64 > TOO_MANY_DELETED * all as f64 {
            let share = percent(deleted as f64 / all as f64);
            return because("rebuild", format!("about {share} percent of its elements are deleted"));
        }
        if let Some(dead) = dead_share.filter(|&dead| dead > TOO_MANY_DEAD && live >= TOO_FEW_TO_JUDGE) {
            let share = percent(dead);
            return because("rebuild", format!("{share} percent of the rows are dead: rebuild, then VACUUM"));
        }
        if let Some(version) =
            pgvector.filter(|version| deleted > 0 && checked.is_none() && is_older(version, FIRST_GOOD))
        {
            let [major, minor, patch] = FIRST_GOOD;
            return because(
                "check",
                format!(
                    "vacuumed, and pgvector {version} can damage indexes: update to {major}.{minor}.{patch} or later"
                ),
            );
        }
        if scans == 0 {
            return because("unused", "not scanned since statistics were reset (each server counts for itself)".into());
        }
        Judged { advice: "ok", reason: None }
    }
}

/// Versions that are no numbers are not older.
fn is_older(version: &str, than: [u32; 3]) -> bool {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() < than.as_slice())
}
