use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use harness::{PgConfig, binary};

use super::venv;

/// What builds an index, or only its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// `external = true`
    External,
    /// pgvector itself, with a parallel worker on each further core and enough memory
    Database,
    /// `external = true` with `--engine usearch`
    Usearch,
    /// The engine of `external` without a database
    Graph,
    /// The library hnswlib
    Hnswlib,
    /// The library faiss, `IndexHNSWFlat`
    Faiss,
}

impl Peer {
    pub const ALL: [Self; 6] = [Self::External, Self::Database, Self::Usearch, Self::Graph, Self::Hnswlib, Self::Faiss];

    pub fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Database => "database",
            Self::Usearch => "usearch",
            Self::Graph => "graph",
            Self::Hnswlib => "hnswlib",
            Self::Faiss => "faiss",
        }
    }

    /// Whether it builds an index that PostgreSQL can search.
    pub fn is_indexed(self) -> bool {
        matches!(self, Self::External | Self::Database | Self::Usearch)
    }
}

/// The programs that are compared.
pub struct Tools {
    pub config: PgConfig,
    /// `lantern-index`
    pub program: PathBuf,
    /// `graph`
    pub graph: PathBuf,
    /// `visits`
    pub visits: PathBuf,
    /// Python with the libraries, if they could be installed.
    pub python: Option<PathBuf>,
}

impl Tools {
    /// Finds what `cargo xtask bench` has built and installed; `libraries`: with hnswlib and faiss.
    pub fn find(libraries: bool) -> Result<Self> {
        let config = PgConfig::require()?;
        let program = binary()?;
        let [graph, visits] = ["graph", "visits"].map(|name| program.with_file_name(name));
        for path in [&graph, &visits] {
            ensure!(path.is_file(), "{} is not built; `cargo xtask bench` does it", path.display());
        }
        let python = libraries.then(|| venv::PEERS.python()).and_then(|python| {
            python.inspect_err(|error| println!("hnswlib and faiss do not take part: {error:#}")).ok()
        });
        Ok(Self { config, program, graph, visits, python })
    }
}
