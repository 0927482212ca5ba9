//! The errors in docs/errors.md; a failure with any other error is a finding.

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::Notice;

/// The head of the table in docs/errors.md.
const HEAD: &str = "| what | message |";

/// The table of errors.
pub struct Documented(Vec<Entry>);

struct Entry {
    /// Messages, with `…` for varying parts.
    messages: Vec<String>,
    /// SQLSTATEs; empty if any may occur.
    sqlstates: Vec<String>,
}

impl Documented {
    /// Reads docs/errors.md.
    pub fn read() -> Result<Self> {
        let path = harness::root().join("docs/errors.md");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let entries: Vec<Entry> = parse(&text);
        ensure!(entries.len() > 3, "{} has no table of errors that begins with {HEAD:?}", path.display());
        Ok(Self(entries))
    }

    /// Whether the table has an entry for this error.
    pub fn has(&self, error: &Notice) -> bool {
        self.0.iter().any(|entry| {
            let is_said = entry.messages.iter().any(|pattern| matches(pattern, &error.message));
            is_said && (entry.sqlstates.is_empty() || entry.sqlstates.contains(&error.sqlstate))
        })
    }
}

fn parse(text: &str) -> Vec<Entry> {
    let rows = text.lines().skip_while(|line| *line != HEAD).skip(2).take_while(|line| line.starts_with('|'));
    let entries = rows.filter_map(|row| row.trim_matches('|').split_once('|')).map(|(_, texts)| Entry {
        // Every second piece is between backticks.
        messages: texts.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        sqlstates: texts.split('(').skip(1).filter_map(sqlstate).collect(),
    });
    entries.filter(|entry| !entry.messages.is_empty()).collect()
}

/// The SQLSTATE, if the parentheses contain nothing else.
fn sqlstate(behind: &str) -> Option<String> {
    let (inside, _) = behind.split_once(')')?;
    let is_code = inside.len() == 5 && inside.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    is_code.then(|| inside.to_owned())
}

/// Whether the parts of a pattern between `…` occur in the message, in order.
fn matches(pattern: &str, message: &str) -> bool {
    let mut rest = message;
    pattern.split('…').all(|piece| match rest.find(piece.trim()) {
        Some(at) => {
            rest = &rest[at + piece.trim().len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_documented_by_message_and_sqlstate() {
        let text = "| what | message |\n|---|---|\n\
                    | nobody | `could not connect to … of … ` (08001) |\n\
                    | own | PostgreSQL's message |\n\
                    | any | `build failed: …` with its SQLSTATE |\n\n";
        let table = Documented(parse(text));
        let error = |message: &str, sqlstate: &str| Notice {
            message: message.to_owned(),
            sqlstate: sqlstate.to_owned(),
            ..Notice::default()
        };
        assert_eq!(table.0.len(), 2);
        assert!(table.has(&error("could not connect to a of b", "08001")));
        assert!(!table.has(&error("could not connect to a of b", "08006")));
        assert!(!table.has(&error("could not connect to a", "08001")));
        assert!(table.has(&error("build failed: no memory", "53200")));
    }
}
