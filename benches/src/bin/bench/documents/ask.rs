//! Searches as applications send them: single statements with the vector as a literal.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{Session, Vectors};

/// Vectors as SQL literals: `'[1,0.5]'`.
pub fn literals(vectors: &Vectors) -> Vec<String> {
    let literal = |row: usize| {
        let mut text = "'[".to_owned();
        for (at, value) in vectors.row(row).iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{value}");
        }
        text + "]'"
    };
    (0..vectors.rows()).map(literal).collect()
}

/// Recall of the statements, one per query, whose first column contains the ids of the rows found.
pub fn recall(session: &mut Session, statements: &[String], exact: &[Vec<u32>]) -> Result<f64> {
    ensure!(statements.len() == exact.len(), "{} statements for {} queries", statements.len(), exact.len());
    let mut hits = 0;
    for (statement, exact) in statements.iter().zip(exact) {
        for row in session.query(statement)? {
            let id: u32 = row.first().and_then(|id| id.as_deref()?.parse().ok()).context("a row has no id")?;
            hits += usize::from(exact.contains(&id));
        }
    }
    Ok(hits as f64 / exact.iter().map(Vec::len).sum::<usize>().max(1) as f64)
}

/// Cycles through the statements for this time; returns how many ran per second.
pub fn per_second(session: &mut Session, statements: &[String], time: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut asked = 0u32;
    for statement in statements.iter().cycle() {
        session.execute(statement)?;
        asked += 1;
        if start.elapsed() >= time {
            break;
        }
    }
    Ok(f64::from(asked) / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_no_exponents() {
        let vectors = Vectors::new(2, vec![1.0, -0.25, 3e-9, 2.0]);
        assert_eq!(literals(&vectors), ["'[1,-0.25]'", "'[0.000000003,2]'"]);
    }
}
