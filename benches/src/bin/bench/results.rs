//! Reports in `benches/results`: command, machine, versions, results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use harness::{PgConfig, cores, pgvector_version, proc_bytes, root, step};

use super::markdown::Table;
use plot::Plot;

/// A report that is written piece by piece.
pub struct Results {
    dir: PathBuf,
    /// Date and name, with which the names of its files begin.
    stem: String,
    text: String,
}

impl Results {
    /// Begins a report with date, machine, versions and command.
    pub fn new(name: &str, config: &PgConfig) -> Result<Self> {
        let dir = root().join("benches/results");
        fs::create_dir_all(&dir)?;
        let date = date();
        let (machine, commit, command) = (machine(config), commit(), command());
        let text = format!("# {name}, {date}\n\n{machine}, commit {commit}.\n\n{command}\n");
        Ok(Self { dir, stem: format!("{date}-{}", plain(name)), text })
    }

    pub fn heading(&mut self, text: &str) {
        self.text += &format!("\n## {text}\n");
    }

    pub fn table(&mut self, title: &str, table: &Table) {
        self.text += &format!("\n{title}:\n\n{}\n", table.render());
    }

    /// Adds Markdown text.
    pub fn markdown(&mut self, text: &str) {
        self.text += &format!("\n{text}");
    }

    /// Adds raw data of the tables.
    pub fn raw(&mut self, title: &str, text: &str) {
        self.text += &format!("\n{title}, each round:\n\n```\n{text}\n```\n");
    }

    /// Adds a plot, in a file beside the report.
    pub fn plot(&mut self, name: &str, plot: &Plot) -> Result<()> {
        let file = format!("{}-{}.svg", self.stem, plain(name));
        let path = self.dir.join(&file);
        fs::write(&path, plot.render()).with_context(|| format!("cannot write {}", path.display()))?;
        self.text += &format!("\n![{}]({file})\n", plot.title);
        Ok(())
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.md", self.stem))
    }

    /// Writes the report as far as it is complete.
    pub fn write(&self) -> Result<()> {
        fs::write(self.path(), &self.text).with_context(|| format!("cannot write {}", self.path().display()))
    }

    /// Writes and prints the report.
    pub fn finish(&self) -> Result<()> {
        self.write()?;
        println!("\n{}\n\nwritten to {}", self.text, self.path().display());
        Ok(())
    }
}

/// Today's date.
pub fn date() -> String {
    said("date", &["+%F"])
}

/// A description of the machine: processor, cores, memory, versions.
pub fn machine(config: &PgConfig) -> String {
    format!(
        "{}, {} cores, {:.0} GiB, {}, PostgreSQL {}, pgvector {}",
        processor(),
        cores(),
        proc_bytes("/proc/meminfo", "MemTotal") as f64 / f64::from(1 << 30),
        said("rustc", &["--version"]).split('(').next().unwrap_or_default().trim(),
        config.version,
        pgvector_version(config).unwrap_or_default()
    )
}

/// The commit that is measured.
pub fn commit() -> String {
    let changed = !said("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    said("git", &["rev-parse", "--short", "HEAD"]) + if changed { " and changes" } else { "" }
}

/// The command line of this program.
pub fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("`{}`", [&["cargo".to_owned(), "xtask".to_owned(), "bench".to_owned()], &words[..]].concat().join(" "))
}

/// A name for files: the last part of a path without extension and without unusual characters.
pub fn plain(name: &str) -> String {
    let stem = Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    stem.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect()
}

fn said(program: &str, arguments: &[&str]) -> String {
    let said = step::output(Command::new(program).args(arguments).current_dir(root()));
    said.unwrap_or_default().trim().to_owned()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        assert_eq!(plain("/data/sift 1M_base.npy"), "sift-1M_base");
        assert_eq!(plain("minilm-384"), "minilm-384");
    }
}
