use anyhow::{Context, Result, bail, ensure};

/// A statement of a case, and its expected outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// The line where it begins.
    pub(super) line: usize,
    /// The statement; empty if the step only loads vectors.
    pub(super) sql: String,
    /// Sample vectors to load first: the set and the number of rows.
    pub(super) load: Option<(String, usize)>,
    /// The number of rows of each external build that the statement makes, in order; builds without rows are left out.
    pub(super) builds: Vec<u64>,
    /// The expected SQLSTATE.
    pub(super) fails: Option<String>,
    /// The statement is a search, by these indexes.
    pub(super) search: Option<Vec<String>>,
    /// The query vectors of the search.
    pub(super) queries: Option<String>,
    /// The least recall of the search.
    pub(super) recall: Option<String>,
    /// The number of rows that indexes may lose.
    pub(super) lost: usize,
}

/// Splits a case into steps. A line that ends with `;` ends a statement, unless it is inside `$$`.
pub(super) fn parse(text: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut step = Step::default();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end())) {
        if let Some(directive) = line.strip_prefix("--!") {
            ensure!(step.sql.is_empty(), "line {number}: a directive inside a statement");
            step.direct(directive.trim()).with_context(|| format!("line {number}: {line}"))?;
            if step.load.is_some() {
                steps.push(Step { line: number, ..std::mem::take(&mut step) });
            }
            continue;
        }
        if step.sql.is_empty() {
            if line.is_empty() || line.starts_with("--") {
                continue;
            }
            step.line = number;
        }
        step.sql.push_str(line);
        if line.ends_with(';') && step.sql.matches("$$").count().is_multiple_of(2) {
            step.sql.pop();
            step.check().with_context(|| format!("line {number}"))?;
            steps.push(std::mem::take(&mut step));
        } else {
            step.sql.push('\n');
        }
    }
    ensure!(step == Step::default(), "the last statement does not end");
    Ok(steps)
}

impl Step {
    fn direct(&mut self, directive: &str) -> Result<()> {
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        let rest = rest.trim();
        ensure!(!rest.is_empty(), "something is missing behind {word:?}");
        match word {
            "load" => {
                ensure!(*self == Self::default(), "`load` stands alone");
                let (set, rows) = rest.split_once(' ').context("set and number of rows expected")?;
                self.load = Some((set.to_owned(), rows.trim().parse()?));
            }
            "builds" => self.builds = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>()?,
            "fails" => self.fails = Some(rest.to_owned()),
            "search" => self.search = Some(rest.split_whitespace().map(str::to_owned).collect()),
            "queries" => self.queries = Some(rest.to_owned()),
            "lost" => self.lost = rest.parse()?,
            "recall" => {
                rest.parse::<f64>()?;
                self.recall = Some(rest.to_owned());
            }
            _ => bail!("no such directive"),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.search.is_some() {
            ensure!(self.builds.is_empty() && self.fails.is_none(), "a search neither builds nor fails");
            ensure!(self.queries.is_some() && self.sql.contains(":q"), "a search without queries");
            ensure!(self.sql.contains("LIMIT"), "a search without LIMIT");
        } else {
            ensure!(self.queries.is_none() && self.recall.is_none() && self.lost == 0, "there is no search");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_split_into_statements_and_directives() {
        let text = "-- A title.\n\n--! load glove 100\nDO $$ BEGIN\n  NULL;\nEND $$;\n--! builds 100 50\n\
                    REINDEX TABLE t;\n--! search a b\n--! queries SELECT v FROM q\nSELECT id,\n :q LIMIT 1;\n";
        let steps = parse(text).unwrap();
        assert_eq!(steps.len(), 4);
        assert_eq!(steps[0].load, Some(("glove".into(), 100)));
        assert_eq!((steps[1].line, steps[1].sql.as_str()), (4, "DO $$ BEGIN\n  NULL;\nEND $$"));
        assert_eq!(steps[2].builds, [100, 50]);
        assert_eq!(steps[3].search.as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(steps[3].sql, "SELECT id,\n :q LIMIT 1");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["--! built 5\nSELECT 1;", "SELECT 1", "--! search a\nSELECT 1;", "--! queries q\nSELECT :q;", "--! load"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
