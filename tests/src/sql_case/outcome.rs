use anyhow::{Result, ensure};

use crate::Rows;

/// How much lower the recall of an external index may be than that of one built in the database, which draws other levels each time.
const RECALL_MARGIN: f64 = 0.02;

/// The result of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Its rows.
    Rows(Rows),
    /// The text of its error.
    Error(String),
    /// The result of a search.
    Search {
        /// Query, id and distance by exact search, sorted.
        exact: Rows,
        /// The fraction of those rows that index scans found.
        recall: f64,
    },
}

impl Outcome {
    /// Fails unless this outcome, of the external run, is as good as that of the other run.
    pub(super) fn compare(&self, database: &Self) -> Result<()> {
        if let (Self::Search { exact, recall }, Self::Search { exact: exact_in_database, recall: recall_in_database }) =
            (self, database)
        {
            ensure!(
                exact == exact_in_database,
                "exact search finds different rows: {}",
                first_difference(exact, exact_in_database)
            );
            ensure!(
                *recall >= recall_in_database - RECALL_MARGIN,
                "recall {recall:.4}, built in the database {recall_in_database:.4}"
            );
            return Ok(());
        }
        ensure!(self == database, "external: {self:?}\nin the database: {database:?}");
        Ok(())
    }

    pub(super) fn recall(&self) -> Option<f64> {
        match self {
            Self::Search { recall, .. } => Some(*recall),
            _ => None,
        }
    }
}

fn first_difference(ours: &Rows, stock: &Rows) -> String {
    let at = ours.iter().zip(stock).position(|(ours, stock)| ours != stock).unwrap_or(ours.len().min(stock.len()));
    format!(
        "{} and {} rows; row {at} is {:?}, in the database {:?}",
        ours.len(),
        stock.len(),
        ours.get(at),
        stock.get(at)
    )
}
