//! Compares the output of pgvector's tests, except for lines that differ if an index is built externally.

use std::fmt;

/// pgvector's messages about its own builds, as patterns of its TAP tests.
const OF_ITS_OWN_BUILD: [&str; 2] =
    [r"using \d+ parallel workers", "hnsw graph no longer fits into maintenance_work_mem"];

/// The first difference between two outputs of psql, apart from messages about builds; `None` if there is none.
pub fn difference(expected: &str, printed: &str) -> Option<String> {
    let (expected, printed) = (without_builds(expected), without_builds(printed));
    if expected == printed {
        return None;
    }
    let first = expected.iter().zip(&printed).take_while(|(expected, printed)| expected == printed).count();
    let line = |lines: &[&str]| lines.get(first).map_or("(the end)".to_owned(), |line| (*line).to_owned());
    Some(format!("  first difference, line {first}\n  expected: {}\n  printed:  {}", line(&expected), line(&printed)))
}

/// The output without messages about builds.
fn without_builds(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut details = false;
    for line in text.lines() {
        let of_build = line.starts_with("INFO:  ")
            || (line.starts_with("NOTICE:  ") && OF_ITS_OWN_BUILD.iter().any(|pattern| line.contains(pattern)));
        details = of_build || (details && (line.starts_with("DETAIL:  ") || line.starts_with("HINT:  ")));
        if !details {
            lines.push(line.trim_end());
        }
    }
    lines
}

/// What a TAP program's tests gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    passed: usize,
    /// Failed for want of a message about a build in the database.
    of_own_build: usize,
    /// Failed for another reason.
    pub findings: Vec<String>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed", self.passed)?;
        if self.of_own_build > 0 {
            write!(f, ", {} that expect messages about a build in the database", self.of_own_build)?;
        }
        write!(f, ", {} findings", self.findings.len())
    }
}

/// Counts the passed tests in a program's TAP output, and collects the failed ones. `succeeded`: its exit status was 0.
pub fn judge(text: &str, succeeded: bool) -> Judged {
    let mut judged =
        Judged { passed: text.lines().filter(|line| line.starts_with("ok ")).count(), ..Judged::default() };
    let lines: Vec<&str> = text.lines().collect();
    let failed: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].starts_with("not ok ")).collect();
    for (number, &start) in failed.iter().enumerate() {
        let rest = &lines[start + 1..failed.get(number + 1).copied().unwrap_or(lines.len())];
        // What follows, up to the next test: the reason, which begins with "#".
        let end = rest.iter().position(|line| line.starts_with("ok ")).unwrap_or(rest.len());
        let reason = &rest[..end];
        let of_own_build = reason.iter().any(|line| {
            let wanted = |pattern| line.contains(&format!("(?^:{pattern}"));
            line.contains("doesn't match") && OF_ITS_OWN_BUILD.into_iter().any(wanted)
        });
        if of_own_build {
            judged.of_own_build += 1;
        } else {
            judged.findings.push(format!("  {}\n  {}", lines[start], reason.join("\n  ")));
        }
    }
    let complete = lines.iter().any(|line| line.starts_with("1.."));
    if !complete || (!succeeded && failed.is_empty()) {
        let end = lines[lines.len().saturating_sub(12)..].join("\n  ");
        judged.findings.push(format!("  it did not come to its end:\n  {end}"));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_builds_are_no_difference() {
        let expected = "CREATE INDEX x;\nNOTICE:  hnsw graph no longer fits into maintenance_work_mem after 3 tuples\n\
                        DETAIL:  Building will take significantly more time.\nSELECT 1;\n";
        let printed = "CREATE INDEX x;\nINFO:  indexed 3 elements\nSELECT 1;\n";
        assert_eq!(difference(expected, printed), None);
        assert!(difference(expected, &printed.replace("SELECT 1", "SELECT 2")).unwrap().contains("SELECT 2"));
        assert!(difference(expected, "CREATE INDEX x;\n").unwrap().contains("(the end)"));
        assert!(difference("NOTICE:  other\n", "").is_some());
    }

    #[test]
    fn tests_that_expect_messages_about_builds_are_no_findings() {
        let text = "ok 1\nnot ok 2\n#   Failed test\n#   at test/t/012.pl line 97.\n#     doesn't match '(?^:using \\d+ parallel workers)'\n\
                    not ok 5\n#     doesn't match '(?^:hnsw graph no longer fits into maintenance_work_mem after 0 tuples)'\n\
                    not ok 3 - <->\n#     '0.9'\n#         >=\n#     '0.99'\nok 4\n1..4\n";
        let judged = judge(text, false);
        assert_eq!((judged.passed, judged.of_own_build, judged.findings.len()), (2, 2, 1));
        assert!(judged.findings[0].contains("0.99") && !judged.findings[0].contains("ok 4"), "{judged:?}");
        assert_eq!(judge("ok 1\n1..1\n", true).findings.len(), 0);
        assert_eq!(judge("ok 1\n", false).findings.len(), 1);
        assert_eq!(judge("ok 1\n1..2\n", false).findings.len(), 1);
    }
}
