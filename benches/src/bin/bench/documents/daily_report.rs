use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use harness::{PgConfig, root};

use super::super::results;
use super::Benchmark;
use super::section::{Part, Section};

const INTRODUCTION: &str = "Repeats in small what articles about pgvector and external builds measured. fsync is off, so that the processor's work is compared, not a disk's. \
Compare figures within this report only: those of other machines are different.";

/// A report that keeps the sections of earlier runs on the same day.
pub struct DailyReport {
    /// The path without extension; files of plots have the benchmark's name appended.
    stem: PathBuf,
    head: String,
    /// In the order of [`Benchmark::ALL`].
    sections: Vec<(Benchmark, String)>,
}

impl DailyReport {
    /// Opens today's report of this name, or begins a new one.
    pub fn open(name: &str, config: &PgConfig) -> Result<Self> {
        let (dir, date) = (root().join("benches/results"), results::date());
        fs::create_dir_all(&dir)?;
        let stem = dir.join(format!("{date}-{}", results::plain(name)));
        let head = format!("# {name}, {date}\n\n{}.\n\n{INTRODUCTION}\n", results::machine(config));
        let text = fs::read_to_string(stem.with_extension("md")).unwrap_or_default();
        Ok(Self { stem, head, sections: sections(&text) })
    }

    pub fn path(&self) -> PathBuf {
        self.stem.with_extension("md")
    }

    /// Adds or replaces a section, writes the report, and returns the text of the section. `made` describes how it was made.
    pub fn put(&mut self, benchmark: Benchmark, section: &Section, made: &str) -> Result<String> {
        let mut text = format!("## {}: {}\n\n{made}.\n", benchmark.name(), section.title);
        for part in &section.parts {
            text += &match part {
                Part::Text(paragraph) => format!("\n{paragraph}\n"),
                Part::Table { title, table } => format!("\n{title}:\n\n{}\n", table.render()),
                Part::Plot { name, plot } => {
                    let stem = self.stem.file_name().context("no file name")?.to_string_lossy().into_owned();
                    let file = format!("{stem}-{}-{}.svg", benchmark.name(), results::plain(name));
                    let path = self.stem.with_file_name(&file);
                    fs::write(&path, plot.render()).with_context(|| format!("cannot write {}", path.display()))?;
                    format!("\n![{}]({file})\n", plot.title)
                }
            };
        }
        self.sections.retain(|(other, _)| *other != benchmark);
        self.sections.push((benchmark, text.clone()));
        self.sections.sort_by_key(|(benchmark, _)| Benchmark::ALL.iter().position(|other| other == benchmark));
        let all = self.sections.iter().map(|(_, text)| format!("\n{}\n", text.trim_end())).collect::<String>();
        let path = self.path();
        fs::write(&path, self.head.clone() + &all).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(text)
    }
}

/// Splits a report into its sections.
fn sections(text: &str) -> Vec<(Benchmark, String)> {
    let of = |part: &str| {
        let benchmark = Benchmark::ALL.into_iter().find(|each| part.starts_with(&format!("{}:", each.name())))?;
        Some((benchmark, format!("## {}\n", part.trim_end())))
    };
    text.split("\n## ").skip(1).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_again() {
        let text = "# documents\n\n## insert: a\n\n1\n\n## search: b\n\n![2](x.svg)\n";
        let found = sections(text);
        assert_eq!(found[0], (Benchmark::Insert, "## insert: a\n\n1\n".to_owned()));
        assert_eq!(found[1].1, "## search: b\n\n![2](x.svg)\n");
        assert!(sections("").is_empty());
    }
}
