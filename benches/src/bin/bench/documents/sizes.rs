use clap::Args;

use crate::flags::positive;

/// Sizes of benchmarks. Where one is not given, the benchmark has its own default, which suits two cores.
#[derive(Args, Clone, Debug)]
pub struct Sizes {
    /// Rows of the table
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    pub rows: Option<usize>,
    /// Dimensions; each is a set of its own if the document has several
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive::<usize>)]
    pub dims: Option<Vec<usize>>,
    /// Numbers of concurrent sessions
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive::<usize>)]
    pub clients: Option<Vec<usize>>,
    /// Values of hnsw.ef_search
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive::<u32>)]
    pub ef_search: Option<Vec<u32>>,
    /// Seconds per figure
    #[arg(long, value_name = "N", value_parser = positive::<u64>)]
    pub seconds: Option<u64>,
    /// Rounds; in each round every contestant is measured once
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    pub rounds: Option<usize>,
    /// Queries for recall
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    pub queries: Option<usize>,
    /// Option m of the indexes
    #[arg(long, value_name = "N", value_parser = positive::<u32>)]
    pub m: Option<u32>,
    /// Option ef_construction of the indexes
    #[arg(long, value_name = "N", value_parser = positive::<u32>)]
    pub ef_construction: Option<u32>,
    /// Inserts per figure (insert only)
    #[arg(long, value_name = "N", value_parser = positive::<usize>)]
    pub transactions: Option<usize>,
    /// hnsw.external_index_max_rate of the slow build (offload only)
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<String>,
    /// Address of a builder elsewhere (offload only) [default: one on this machine, on its own core if there are two]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub builder: Option<(String, u16)>,
    /// Time limit of each benchmark in minutes; figures that do not fit are skipped
    #[arg(long, value_name = "N", value_parser = positive::<u64>, default_value = "10")]
    pub minutes: u64,
    /// Name of the report in benches/results; sections of the same day are replaced
    #[arg(long, default_value = "documents")]
    pub name: String,
}

fn address(word: &str) -> Result<(String, u16), String> {
    let (host, port) = word.rsplit_once(':').ok_or("not HOST:PORT")?;
    Ok((host.to_owned(), positive(port)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        sizes: Sizes,
    }

    fn parse(line: &str) -> Result<Sizes, clap::Error> {
        Arguments::try_parse_from(["documents"].into_iter().chain(line.split_whitespace())).map(|all| all.sizes)
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse("").unwrap().minutes, 10);
        let sizes = parse("--rows=500000 --dims 128,1536 --clients 1,2 --builder b.example:8998 --minutes 60").unwrap();
        assert_eq!((sizes.rows, sizes.dims), (Some(500_000), Some(vec![128, 1536])));
        assert_eq!(sizes.builder, Some(("b.example".to_owned(), 8998)));
        assert_eq!(sizes.minutes, 60);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--rows 0", "--rows", "--dims 12,", "--clients -1", "--builder here", "--fast", "offload"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
