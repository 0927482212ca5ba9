use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::bench::flags;

pub const USAGE: &str = "\
usage: cargo xtask bench offload|load|insert|search|memory|distributed|documents [OPTION]...
       several names have commas between them

  --rows N                rows of the table
  --dims LIST             dimensions; each of them is a set of its own where the document has several
  --clients LIST          sessions at a time
  --ef-search LIST        values of hnsw.ef_search
  --seconds N             how long each figure is measured
  --rounds N              each is measured so often, taking turns
  --queries N             queries, for the recall
  --m N, --ef-construction N
                          of the indexes
  --transactions N        inserts per figure (insert only)
  --max-rate RATE         hnsw.external_index_max_rate of the slow build (offload only)
  --builder HOST:PORT     a builder elsewhere (offload only); without: one on this machine, on a core of its own if there are two
  --minutes N             how long each benchmark may take; what is left then is left out [10]
  --name NAME             of the report in benches/results, in which sections of the same day are replaced [documents]

What is not told has the benchmark's own default, made for two cores; documents is all six.";

/// How much is to be measured; None is the benchmark's own default.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub rows: Option<usize>,
    pub dims: Option<Vec<usize>>,
    pub clients: Option<Vec<usize>>,
    pub ef_search: Option<Vec<u32>>,
    pub seconds: Option<u64>,
    pub rounds: Option<usize>,
    pub queries: Option<usize>,
    pub m: Option<u32>,
    pub ef_construction: Option<u32>,
    pub transactions: Option<usize>,
    pub max_rate: Option<String>,
    pub builder: Option<(String, u16)>,
    pub limit: Duration,
    pub name: String,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            rows: None,
            dims: None,
            clients: None,
            ef_search: None,
            seconds: None,
            rounds: None,
            queries: None,
            m: None,
            ef_construction: None,
            transactions: None,
            max_rate: None,
            builder: None,
            limit: Duration::from_secs(600),
            name: "documents".to_owned(),
        }
    }
}

/// Reads the words behind the benchmark's name; none is for help.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Option<Sizes>> {
    let mut sizes = Sizes::default();
    let read = flags::read(words, |flag, value| {
        match flag {
            "--rows" => sizes.rows = Some(positive(&value()?)?),
            "--dims" => sizes.dims = Some(list(&value()?)?),
            "--clients" => sizes.clients = Some(list(&value()?)?),
            "--ef-search" => sizes.ef_search = Some(list(&value()?)?),
            "--seconds" => sizes.seconds = Some(positive(&value()?)?),
            "--rounds" => sizes.rounds = Some(positive(&value()?)?),
            "--queries" => sizes.queries = Some(positive(&value()?)?),
            "--m" => sizes.m = Some(positive(&value()?)?),
            "--ef-construction" => sizes.ef_construction = Some(positive(&value()?)?),
            "--transactions" => sizes.transactions = Some(positive(&value()?)?),
            "--max-rate" => sizes.max_rate = Some(value()?),
            "--builder" => sizes.builder = Some(address(&value()?)?),
            "--minutes" => sizes.limit = Duration::from_secs(60 * positive::<u64>(&value()?)?),
            "--name" => sizes.name = value()?,
            other => bail!("unknown option {other}\n\n{USAGE}"),
        }
        Ok(())
    })?;
    if !read {
        return Ok(None);
    }
    Ok(Some(sizes))
}

fn positive<T: FromStr + PartialOrd + From<u8>>(word: &str) -> Result<T> {
    let number: T = word.parse().ok().with_context(|| format!("cannot make sense of {word:?}\n\n{USAGE}"))?;
    ensure!(number >= T::from(1), "{word:?} is too small");
    Ok(number)
}

fn list<T: FromStr + PartialOrd + From<u8>>(words: &str) -> Result<Vec<T>> {
    words.split(',').map(positive).collect()
}

fn address(word: &str) -> Result<(String, u16)> {
    let (host, port) = word.rsplit_once(':').with_context(|| format!("{word:?} is not HOST:PORT"))?;
    Ok((host.to_owned(), positive(port)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<Sizes>> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options() {
        assert_eq!(words("").unwrap(), Some(Sizes::default()));
        assert_eq!(words("--rows 5 --help").unwrap(), None);
        let sizes = words("--rows=500000 --dims 128,1536 --clients 1,2 --builder b.example:8998 --minutes 60");
        let sizes = sizes.unwrap().unwrap();
        assert_eq!((sizes.rows, sizes.dims), (Some(500_000), Some(vec![128, 1536])));
        assert_eq!(sizes.builder, Some(("b.example".to_owned(), 8998)));
        assert_eq!(sizes.limit.as_secs(), 3600);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--rows 0", "--rows", "--dims 12,", "--clients -1", "--builder here", "--fast", "offload"] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
