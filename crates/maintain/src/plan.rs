//! What each index needs, and in which order.

use serde::Serialize;

use crate::survey::Index;

/// Above this share of dead rows, VACUUM follows the rebuild. A VACUUM before the rebuild would spend its time repairing the old index.
const VACUUM_AFTER: f64 = 0.20;

/// The view's advice for an index that it could not read: another session has locked it, or rights or pages are missing.
const UNKNOWN: &str = "unknown";

/// The advice of the view, and of a check, for an index that needs nothing.
pub(crate) const GOOD: &str = "ok";

/// What an index needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing.
    Keep,
    /// Another session builds it.
    Wait,
    /// `lantern_index.check()`, which may lead to a rebuild.
    Check,
    /// `REINDEX INDEX CONCURRENTLY`.
    Rebuild,
    /// `REINDEX INDEX CONCURRENTLY`, then `VACUUM` of the table.
    RebuildAndVacuum,
    /// `DROP INDEX CONCURRENTLY`, of an index left by a failed `REINDEX CONCURRENTLY` or by an earlier `DROP`.
    Drop,
    /// A person must decide: somebody may need the index, or it cannot be read.
    Look,
}

impl Action {
    /// The word for tables of results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "-",
            Self::Wait => "wait",
            Self::Check => "check",
            Self::Rebuild => "rebuild",
            Self::RebuildAndVacuum => "rebuild, vacuum",
            Self::Drop => "drop",
            Self::Look => "look",
        }
    }
}

/// An index and what it needs.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The index.
    #[serde(flatten)]
    pub index: Index,
    /// The action that the index needs.
    pub action: Action,
}

impl Step {
    /// Derives the action from the view's advice.
    pub(crate) fn of(mut index: Index) -> Self {
        let action = action(&index);
        if action == Action::Drop {
            let left_by = if is_leftover(&index.name) { "a REINDEX" } else { "a DROP INDEX" };
            index.reason = format!("left by {left_by} CONCURRENTLY that failed: no search uses it");
        }
        Self { index, action }
    }

    /// Whether the index needs nothing; an index that cannot be read at the moment may need something.
    pub(crate) fn is_fine(&self) -> bool {
        self.action == Action::Keep || self.action == Action::Look && self.index.advice != UNKNOWN
    }
}

/// All indexes, the most urgent first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// One per index.
    pub steps: Vec<Step>,
    /// Messages for a person to read first.
    pub notes: Vec<String>,
}

impl Plan {
    /// Orders indexes by urgency: leftovers, which may slow every insert and are quickly dropped, then invalid indexes, then by dead shares and
    /// size.
    #[must_use]
    pub fn of(indexes: Vec<Index>) -> Self {
        let mut steps: Vec<Step> = indexes.into_iter().map(Step::of).collect();
        let need = |step: &Step| {
            let order = match step.action {
                Action::Drop => 0,
                Action::Rebuild | Action::RebuildAndVacuum if !step.index.valid => 1,
                Action::Rebuild | Action::RebuildAndVacuum => 2,
                Action::Check => 3,
                Action::Look | Action::Wait => 4,
                Action::Keep => 5,
            };
            let dead = step.index.dead_share.max(step.index.deleted_share);
            (order, -(dead * step.index.size as f64) as i64)
        };
        steps.sort_by_key(need);
        Self { steps, notes: Vec::new() }
    }

    /// The steps with something to do.
    pub fn due(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| {
            matches!(step.action, Action::Check | Action::Rebuild | Action::RebuildAndVacuum | Action::Drop)
        })
    }
}

fn action(index: &Index) -> Action {
    match index.advice.as_str() {
        "building" => Action::Wait,
        "invalid" if index.dropped || is_leftover(&index.name) => Action::Drop,
        "invalid" | "rebuild" => rebuild(index),
        "check" => Action::Check,
        GOOD => Action::Keep,
        _ => Action::Look,
    }
}

/// A rebuild, followed by VACUUM if many rows are dead: with these rows in the table, the next run would rebuild the index again.
pub(crate) fn rebuild(index: &Index) -> Action {
    if index.dead_share > VACUUM_AFTER { Action::RebuildAndVacuum } else { Action::Rebuild }
}

/// Whether the name is one that REINDEX CONCURRENTLY gives to its new index (`_ccnew`) or to the old one (`_ccold`).
pub(crate) fn is_leftover(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.ends_with("_ccnew") || stem.ends_with("_ccold")
}

/// The extension's words of advice.
#[cfg(test)]
#[path = "../../extension/src/functions/words.rs"]
mod words;

#[cfg(test)]
mod tests {
    use super::{Action, Plan, UNKNOWN, action, is_leftover, words};
    use crate::survey::Index;
    use crate::worker::{BY_CHECK, REINDEX};

    fn index(name: &str, advice: &str, dead_share: f64, size: i64) -> Index {
        Index {
            database: "d".into(),
            index: name.into(),
            table: "t".into(),
            name: name.into(),
            size,
            dead_share,
            valid: advice != "invalid",
            dropped: name == "dropped",
            advice: advice.into(),
            ..Index::default()
        }
    }

    #[test]
    fn the_most_urgent_index_comes_first() {
        let plan = Plan::of(vec![
            index("fine", "ok", 0.0, 900),
            index("small", "rebuild", 0.3, 10),
            index("unused", "unused", 0.0, 10),
            index("large", "rebuild", 0.3, 1000),
            index("odd", "check", 0.0, 1000),
            index("failed", "invalid", 0.0, 0),
            index("failed_too", "invalid", 0.3, 0),
            index("t_idx_ccnew", "invalid", 0.0, 0),
            index("dropped", "invalid", 0.3, 0),
            index("new", "building", 0.0, 0),
        ]);
        let found: Vec<_> = plan.steps.iter().map(|step| (step.index.name.as_str(), step.action)).collect();
        assert_eq!(
            found,
            [
                ("t_idx_ccnew", Action::Drop),
                ("dropped", Action::Drop),
                ("failed", Action::Rebuild),
                ("failed_too", Action::RebuildAndVacuum),
                ("large", Action::RebuildAndVacuum),
                ("small", Action::RebuildAndVacuum),
                ("odd", Action::Check),
                ("unused", Action::Look),
                ("new", Action::Wait),
                ("fine", Action::Keep),
            ]
        );
        assert_eq!(plan.due().count(), 7);
    }

    #[test]
    fn words_are_those_of_the_extension() {
        const SQL: &str = include_str!("../../extension/sql/lantern_index--0.1.0.sql");
        for (advice, needed) in [
            (words::OK, Action::Keep),
            (words::REBUILD, Action::Rebuild),
            (words::INVALID, Action::Rebuild),
            (words::CHECK, Action::Check),
            ("building", Action::Wait),
        ] {
            assert_eq!(action(&index("i", advice, 0.0, 0)), needed, "{advice}");
        }
        assert_eq!([UNKNOWN, REINDEX, BY_CHECK], [words::UNKNOWN, words::REINDEX, words::BY_CHECK]);
        assert!(SQL.contains(&format!("THEN 'building' ELSE coalesce(s.advice, '{UNKNOWN}') END AS advice")));
    }

    #[test]
    fn names_of_reindex_concurrently_are_leftovers() {
        assert!(["a_ccnew", "a_ccnew1", "a_ccold", "a_ccold12"].iter().all(|name| is_leftover(name)));
        assert!(["a", "ccnewer", "a_ccnew_idx", "a1"].iter().all(|name| !is_leftover(name)));
    }
}
