//! Searches as applications send them: single statements with the vector as a literal.

use std::fmt::Write;
use std::thread;
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

/// The number of statements that were run, and the time they took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub count: usize,
    pub seconds: f64,
}

impl Asked {
    pub fn per_second(self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// Runs searches in all sessions concurrently; each cycles through the statements from another start.
pub fn rate(sessions: &mut [Session], statements: &[String], time: Duration) -> Result<Asked> {
    let count = sessions.len();
    let start = Instant::now();
    let asked: Vec<Result<usize>> = thread::scope(|scope| {
        let each = |(number, session)| {
            let from = number * statements.len() / count;
            scope.spawn(move || go_round(session, statements, from, start + time))
        };
        let threads: Vec<_> = sessions.iter_mut().enumerate().map(each).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    Ok(Asked { count: asked.into_iter().sum::<Result<usize>>()?, seconds })
}

/// Cycles through the statements until `until`; returns the number of statements run.
fn go_round(session: &mut Session, statements: &[String], from: usize, until: Instant) -> Result<usize> {
    let mut asked = 0;
    for statement in statements.iter().cycle().skip(from) {
        session.execute(statement)?;
        asked += 1;
        if Instant::now() >= until {
            break;
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_as_text() {
        let vectors = Vectors::new(2, vec![1.0, -0.25, 3e-9, 2.0]);
        assert_eq!(literals(&vectors), ["'[1,-0.25]'", "'[0.000000003,2]'"]);
    }
}
