use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use half::f16;
use harness::{Column, Metric, Vectors, apt, data_set, exact_neighbors, step, synthetic};

use super::options::SetOptions;
use super::{NEIGHBORS, results, wordnet};

const SYNTHETIC_ROWS: usize = 100_000;
/// The seed of synthetic sets. A larger set begins with the rows of a smaller one.
pub const SEED: u64 = 42;
const FASHION_MNIST: &str = "/usr/share/datasets/fashion-mnist";

/// Base vectors and queries.
pub struct Set {
    name: String,
    pub base: Vectors,
    pub queries: Vectors,
    pub metric: Metric,
    pub column: Column,
    /// The true nearest rows of each query.
    pub exact: Vec<Vec<u32>>,
    /// Files with base vectors, queries and true neighbors, for other programs.
    pub base_file: PathBuf,
    pub query_file: PathBuf,
    pub exact_file: PathBuf,
}

impl Set {
    /// Reads or generates a set, and finds the true neighbors.
    pub fn find(name: &str, options: &SetOptions) -> Result<Self> {
        let (base, queries, metric) = vectors(name, options)?;
        let metric = options.metric.unwrap_or(metric);
        let (base, queries) = match options.column {
            Column::Vector => (base, queries),
            Column::Halfvec => (rounded(base), rounded(queries)),
        };
        ensure!(base.rows() >= 100, "{name}: {} rows are too few", base.rows());
        let what = format!("finding the true neighbors of {} queries among {} rows", queries.rows(), base.rows());
        let exact = step::timed(&what, || Ok(exact_neighbors(&base, &queries, metric, NEIGHBORS)))?;
        let dir = step::work_dir()?.join("bench");
        std::fs::create_dir_all(&dir)?;
        let [base_file, query_file, exact_file] = ["base.npy", "query.npy", "exact.u32"].map(|name| dir.join(name));
        base.write(&base_file)?;
        queries.write(&query_file)?;
        let numbers: Vec<u8> = exact.iter().flatten().flat_map(|row| row.to_le_bytes()).collect();
        std::fs::write(&exact_file, numbers)?;
        let column = options.column;
        Ok(Self { name: results::plain(name), base, queries, metric, column, exact, base_file, query_file, exact_file })
    }

    /// Such as `minilm-384: 7000 x 384, vector_cosine_ops`.
    pub fn title(&self) -> String {
        format!("{}: {} x {}, {}", self.name, self.base.rows(), self.base.dims(), self.opclass())
    }

    /// The part of a file's name that distinguishes this set from others.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.name, self.opclass())
    }

    /// Whether the column has full precision, which the libraries require.
    pub fn is_vector(&self) -> bool {
        self.column == Column::Vector
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> usize {
        4 * self.base.rows() * self.base.dims()
    }

    /// The maintenance_work_mem in MB for the build in the database: values, links in pgvector's representation, and a reserve.
    pub fn graph_megabytes(&self, m: u32) -> usize {
        let each = 4 * self.base.dims() + 40 * m as usize + 400;
        (self.base.rows() * each + self.base.rows() * each / 6) / 1_000_000 + 64
    }

    pub fn opclass(&self) -> String {
        self.metric.operator_class(self.column.value_type())
    }

    /// What is indexed: the column, and its operator class.
    pub fn key(&self) -> String {
        format!("v {}", self.opclass())
    }
}

fn vectors(name: &str, options: &SetOptions) -> Result<(Vectors, Vectors, Metric)> {
    let rows = options.rows.unwrap_or(usize::MAX);
    let (base, queries, metric) = match name {
        "minilm-384" | "glove-100" => {
            let (base, queries) = data_set(name)?;
            (base, queries, Metric::Cosine)
        }
        "fashion-mnist" => {
            let [base, queries] = [images("train-images-idx3-ubyte.gz")?, images("t10k-images-idx3-ubyte.gz")?];
            (base, queries, Metric::L2)
        }
        "wordnet-384" | "wordnet-1152" | "wordnet-1536" => {
            let (base, queries) = wordnet::embeddings(name)?;
            (base, queries, Metric::Cosine)
        }
        _ => match name.strip_prefix("synthetic-") {
            Some(dims) => {
                let dims: usize = dims.parse().context("synthetic-DIMS wants a number")?;
                ensure!((2..=2000).contains(&dims), "pgvector indexes vectors of up to 2000 dimensions");
                let rows = options.rows.unwrap_or(SYNTHETIC_ROWS);
                let make = || Ok(synthetic(rows, options.queries, dims, SEED));
                let (base, queries) = step::timed(&format!("making {rows} vectors of {dims} dimensions"), make)?;
                (base, queries, Metric::Cosine)
            }
            None => {
                let (base, queries) = from_path(Path::new(name), options)?;
                (base, queries, Metric::L2)
            }
        },
    };
    ensure!(base.dims() == queries.dims(), "{name}: base and queries differ in dimensions");
    Ok((base.truncated(rows), queries.truncated(options.queries), metric))
}

/// Reads a file, with queries from another file or from its own last rows.
fn from_path(path: &Path, options: &SetOptions) -> Result<(Vectors, Vectors)> {
    let base = Vectors::read(path)?;
    let text = path.display().to_string();
    let sibling = text.contains("_base").then(|| PathBuf::from(text.replace("_base", "_query")));
    match options.queries_from.as_ref().map(PathBuf::from).or(sibling.filter(|path| path.is_file())) {
        Some(queries) => Ok((base, Vectors::read(&queries)?)),
        None => {
            let count = options.queries.min(base.rows() / 2);
            Ok(base.split_last(count))
        }
    }
}

/// Reads the images of an IDX file: magic number, three sizes, bytes.
fn images(name: &str) -> Result<Vectors> {
    let path = Path::new(FASHION_MNIST).join(name);
    if !path.is_file() {
        apt::install(&["dataset-fashion-mnist".to_owned()])?;
    }
    let output = Command::new("gzip").arg("-dc").arg(&path).output().context("cannot run gzip")?;
    ensure!(output.status.success(), "cannot read {}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    let (head, pixels) = output.stdout.split_first_chunk::<16>().context("the file of pictures is cut off")?;
    let size = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let dims = size(8) * size(12);
    ensure!(size(0) == 0x803 && pixels.len() == size(4) * dims, "{} is not as expected", path.display());
    Ok(Vectors::new(dims, pixels.iter().map(|&pixel| pixel.into()).collect()))
}

/// Rounds vectors as a halfvec column does.
fn rounded(vectors: Vectors) -> Vectors {
    vectors.changed(|_, row| row.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()))
}
