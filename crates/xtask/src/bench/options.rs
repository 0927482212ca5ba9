use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use harness::{Column, Metric};

use super::flags;
use super::peer::Peer;

pub const USAGE: &str = "\
usage: cargo xtask bench [OPTION]...

  --set LIST              sets: minilm-384, glove-100, fashion-mnist (Debian's package dataset-fashion-mnist),
                          wordnet-384 (116,659 definitions, embedded the first time),
                          synthetic-DIMS, or the path of an .npy or .fvecs file [minilm-384]
  --queries-from PATH     queries for a set from a path; without: X_query for X_base, or its last rows
  --rows N                so many of the set's rows; a synthetic set has 100000 if not told
  --queries N             so many queries [1000]
  --metric M              l2, ip or cosine [what suits the set; l2 for a path]
  --type T                vector or halfvec [vector]
  --m LIST, --ef-construction LIST
                          every combination of these [16; 64]
  --peers LIST            external, database, usearch (external, by another engine), graph (external's engine without
                          a database), hnswlib, faiss [all]
  --rounds N              each builds so often, taking turns [3]
  --cold N                queries that find an empty cache, for the pages read; 0 is none [8]
  --parts LIST            builds, floor, scaling [builds]
  --name NAME             of the report in benches/results [bench]";

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Builds,
    Floor,
    Scaling,
}

/// What is to be measured.
#[derive(Debug, PartialEq)]
pub struct BenchOptions {
    pub sets: Vec<String>,
    pub queries_from: Option<String>,
    pub rows: Option<usize>,
    pub queries: usize,
    pub metric: Option<Metric>,
    pub column: Column,
    pub m: Vec<u32>,
    pub ef_construction: Vec<u32>,
    pub peers: Vec<Peer>,
    pub rounds: usize,
    pub cold: usize,
    pub parts: Vec<Part>,
    pub name: String,
}

/// Parameters of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub m: u32,
    pub ef_construction: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m = {}, ef_construction = {}", self.m, self.ef_construction)
    }
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            sets: vec!["minilm-384".to_owned()],
            queries_from: None,
            rows: None,
            queries: 1000,
            metric: None,
            column: Column::Vector,
            m: vec![16],
            ef_construction: vec![64],
            peers: Peer::ALL.to_vec(),
            rounds: 3,
            cold: 8,
            parts: vec![Part::Builds],
            name: "bench".to_owned(),
        }
    }
}

impl BenchOptions {
    /// Every combination of parameters.
    pub fn cases(&self) -> Vec<Case> {
        let of = |&m: &u32| self.ef_construction.iter().map(move |&ef_construction| Case { m, ef_construction });
        self.m.iter().flat_map(of).collect()
    }
}

/// Reads the words behind `bench`; none is for help.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Option<BenchOptions>> {
    let mut options = BenchOptions::default();
    let read = flags::read(words, |flag, value| {
        match flag {
            "--set" => options.sets = list(&value()?, |word| Some(word.to_owned()))?,
            "--queries-from" => options.queries_from = Some(value()?),
            "--rows" => options.rows = Some(number(&value()?)?),
            "--queries" => options.queries = number(&value()?)?,
            "--metric" => options.metric = Some(one_of(&value()?, metric)?),
            "--type" => options.column = one_of(&value()?, column)?,
            "--m" => options.m = list(&value()?, parsed)?,
            "--ef-construction" => options.ef_construction = list(&value()?, parsed)?,
            "--peers" => options.peers = list(&value()?, Peer::of)?,
            "--rounds" => options.rounds = number(&value()?)?,
            "--cold" => options.cold = number(&value()?)?,
            "--parts" => options.parts = list(&value()?, part)?,
            "--name" => options.name = value()?,
            other => bail!("unknown option {other}\n\n{USAGE}"),
        }
        Ok(())
    })?;
    if !read {
        return Ok(None);
    }
    ensure!(options.rounds > 0 && options.queries > 0, "--rounds and --queries are at least 1");
    Ok(Some(options))
}

fn parsed<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

fn number(word: &str) -> Result<usize> {
    one_of(word, parsed)
}

fn one_of<T>(word: &str, of: impl Fn(&str) -> Option<T>) -> Result<T> {
    of(word).with_context(|| format!("cannot make sense of {word:?}\n\n{USAGE}"))
}

fn list<T>(words: &str, of: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    words.split(',').map(|word| one_of(word, &of)).collect()
}

fn metric(word: &str) -> Option<Metric> {
    [("l2", Metric::L2), ("ip", Metric::InnerProduct), ("cosine", Metric::Cosine)]
        .into_iter()
        .find_map(|(name, metric)| (name == word).then_some(metric))
}

fn column(word: &str) -> Option<Column> {
    [Column::Vector, Column::Halfvec].into_iter().find(|column| column.name() == word)
}

fn part(word: &str) -> Option<Part> {
    [("builds", Part::Builds), ("floor", Part::Floor), ("scaling", Part::Scaling)]
        .into_iter()
        .find_map(|(name, part)| (name == word).then_some(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<BenchOptions>> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options() {
        assert_eq!(words("").unwrap(), Some(BenchOptions::default()));
        assert_eq!(words("--rows 5 --help").unwrap(), None);
        let options =
            words("--set=a.npy,glove-100 --m 8,16 --ef-construction 64,200 --peers external,faiss --metric ip");
        let options = options.unwrap().unwrap();
        assert_eq!(options.sets, ["a.npy", "glove-100"]);
        assert_eq!(options.peers, [Peer::External, Peer::Faiss]);
        assert_eq!(options.metric, Some(Metric::InnerProduct));
        assert_eq!(options.cases().len(), 4);
        assert_eq!(options.cases()[1], Case { m: 8, ef_construction: 200 });
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--rows many", "--rows", "--peers nobody", "--metric far", "--rounds 0", "--fast", "minilm-384"] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
