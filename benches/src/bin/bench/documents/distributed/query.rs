use anyhow::{Result, ensure};
use harness::{Metric, Session};

use super::super::super::NEIGHBORS;

/// Forms of a nearest-neighbor query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On one node with all rows.
    OneNode,
    /// A query of the partitioned table, as in the document. The head pushes down ORDER BY but no
    /// LIMIT, and queries one node after the other.
    Partitioned,
    /// A query of each partition with its own LIMIT, which the head pushes down. Without a merge of sorted results,
    /// the head queries both nodes concurrently.
    Each,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::OneNode, Self::Partitioned, Self::Each];

    pub fn name(self) -> &'static str {
        match self {
            Self::OneNode => "1 node",
            Self::Partitioned => "2 nodes",
            Self::Each => "2 nodes, at once",
        }
    }

    pub fn statement(self, metric: Metric, query: &str) -> String {
        let operator = metric.operator();
        let nearest = |table: &str| {
            format!("SELECT id, v {operator} {query} AS distance FROM {table} ORDER BY distance LIMIT {NEIGHBORS}")
        };
        match self {
            Self::OneNode | Self::Partitioned => nearest("items"),
            // OFFSET 0 keeps the planner from pushing the outer ORDER BY into the parts.
            Self::Each => format!(
                "SELECT id, distance FROM (({}) UNION ALL ({}) OFFSET 0) near ORDER BY distance LIMIT {NEIGHBORS}",
                nearest("items_1"),
                nearest("items_2")
            ),
        }
    }

    /// Checks that the plan is the one that the form is meant to have.
    pub fn check_plan(self, session: &mut Session, statement: &str) -> Result<()> {
        let plan = session.plan(statement)?;
        let count = |words: &[&str]| plan.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        let is_right = match self {
            Self::OneNode => count(&["Index Scan using"]) == 1,
            Self::Partitioned => count(&["Merge Append"]) == 1 && count(&["Remote SQL", "ORDER BY"]) == 2,
            Self::Each => count(&["Async Foreign Scan"]) == 2 && count(&["Remote SQL", "ORDER BY", "LIMIT"]) == 2,
        };
        ensure!(is_right, "{}: unexpected plan\n{plan}", self.name());
        Ok(())
    }
}
