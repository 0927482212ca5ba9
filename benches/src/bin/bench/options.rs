use std::fmt;

use clap::Args;
use harness::{Column, Metric};

use super::flags;
use super::peer::Peer;

/// What to measure.
#[derive(Args, Debug)]
pub struct BenchOptions {
    /// Sets: minilm-384, glove-100, fashion-mnist (Debian's package dataset-fashion-mnist), wordnet-384, -1152 and -1536 (116,659
    /// definitions, embedded at first use), synthetic-DIMS, or the path of an .npy or .fvecs file
    #[arg(long = "set", value_name = "LIST", value_delimiter = ',', default_value = "minilm-384")]
    pub sets: Vec<String>,
    #[command(flatten)]
    pub set: SetOptions,
    /// Values of m; every combination with those of --ef-construction is built
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16")]
    pub m: Vec<u32>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64")]
    pub ef_construction: Vec<u32>,
    /// What builds the index
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_values_t = Peer::ALL)]
    pub peers: Vec<Peer>,
    /// Rounds; in each round every peer builds once
    #[arg(long, value_name = "N", value_parser = flags::positive::<usize>, default_value = "3")]
    pub rounds: usize,
    /// Queries with an empty cache, to count pages read; 0 for none
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub cold: usize,
    /// Name of the report in benches/results
    #[arg(long, default_value = "bench")]
    pub name: String,
}

/// The part of a set to use.
#[derive(Args, Clone, Debug)]
pub struct SetOptions {
    /// File with queries for a set from a path [default: X_query for X_base, or the set's last rows]
    #[arg(long, value_name = "PATH")]
    pub queries_from: Option<String>,
    /// Rows [default: all of the set; 100000 for a synthetic one]
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    /// Number of queries
    #[arg(long, value_name = "N", value_parser = flags::positive::<usize>, default_value = "1000")]
    pub queries: usize,
    /// l2, ip or cosine [default: the metric that suits the set; l2 for a path]
    #[arg(long, value_name = "M", value_parser = benches::metric)]
    pub metric: Option<Metric>,
    /// Column type: vector or halfvec
    #[arg(long = "type", value_name = "T", value_parser = flags::column, default_value = "vector")]
    pub column: Column,
}

/// Options of an index.
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

impl BenchOptions {
    /// Every combination of options.
    pub fn cases(&self) -> Vec<Case> {
        let of = |&m: &u32| self.ef_construction.iter().map(move |&ef_construction| Case { m, ef_construction });
        self.m.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: BenchOptions,
    }

    fn parse(line: &str) -> Result<BenchOptions, clap::Error> {
        Arguments::try_parse_from(["bench"].into_iter().chain(line.split_whitespace())).map(|all| all.options)
    }

    #[test]
    fn lists_are_parsed_and_combined() {
        let defaults = parse("").unwrap();
        assert_eq!((defaults.sets, defaults.peers), (vec!["minilm-384".to_owned()], Peer::ALL.to_vec()));
        assert_eq!((defaults.rounds, defaults.set.queries), (3, 1000));
        let options =
            parse("--set=a.npy,glove-100 --m 8,16 --ef-construction 64,200 --peers external,faiss --metric ip");
        let options = options.unwrap();
        assert_eq!(options.sets, ["a.npy", "glove-100"]);
        assert_eq!(options.peers, [Peer::External, Peer::Faiss]);
        assert_eq!(options.set.metric, Some(Metric::InnerProduct));
        assert_eq!(options.cases().len(), 4);
        assert_eq!(options.cases()[1], Case { m: 8, ef_construction: 200 });
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--rows many", "--rows", "--peers nobody", "--metric far", "--rounds 0", "--fast", "minilm-384"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
