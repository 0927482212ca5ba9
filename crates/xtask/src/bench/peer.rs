use std::path::PathBuf;

use anyhow::Result;
use harness::PgConfig;

use super::options::{BenchOptions, Part};
use super::venv;
use crate::{build, install, setup};

/// Who builds an index, or only its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `external = true`
    External,
    /// pgvector itself, with a worker on each further core and all memory that it wants.
    Database,
    /// `external = true`, by `--engine usearch`.
    Usearch,
    /// The engine of `external`, without a database.
    Graph,
    /// The library hnswlib.
    Hnswlib,
    /// The library faiss, `IndexHNSWFlat`.
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

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// Whether it makes an index that PostgreSQL can search.
    pub fn is_indexed(self) -> bool {
        matches!(self, Self::External | Self::Database | Self::Usearch)
    }
}

/// The programs that take part.
pub struct Tools {
    pub config: PgConfig,
    /// `lantern-index`
    pub program: PathBuf,
    /// `graph`
    pub graph: PathBuf,
    /// `visits`
    pub visits: PathBuf,
    /// Python with the libraries, if they can be had.
    pub python: Option<PathBuf>,
}

impl Tools {
    /// Builds and installs them.
    pub fn prepare(options: &BenchOptions) -> Result<Self> {
        let config = setup::run(None)?;
        let program = build::program()?;
        let [graph, visits, _] = build::benches()?;
        install::install(&config, build::Profile::Release)?;
        let libraries = options.parts.contains(&Part::Builds)
            && options.peers.iter().any(|peer| matches!(peer, Peer::Hnswlib | Peer::Faiss));
        let python = libraries.then(|| venv::PEERS.python()).and_then(|python| {
            python.inspect_err(|error| println!("hnswlib and faiss do not take part: {error:#}")).ok()
        });
        Ok(Self { config, program, graph, visits, python })
    }
}
