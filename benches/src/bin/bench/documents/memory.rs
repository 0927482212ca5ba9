//! After "Improve the performance of generative AI workloads on Amazon Aurora with Optimized Reads and pgvector": searches of an index
//! larger than memory; in addition, builds whose vectors exceed the memory.

use anyhow::Result;

use super::super::options::Case;
use super::ground::Ground;
use super::section::Section;

mod builds;
mod report;
mod searches;

/// The value in the document.
const M: u32 = 16;
const EF_CONSTRUCTION: u32 = 64;

pub fn measure(ground: &Ground) -> Result<Section> {
    let builds = builds::measure(ground)?;
    let searches = searches::measure(ground)?;
    Ok(report::section(&builds, &searches))
}

/// The options of all indexes.
fn case(ground: &Ground) -> Case {
    let sizes = &ground.sizes;
    Case { m: sizes.m.unwrap_or(M), ef_construction: sizes.ef_construction.unwrap_or(EF_CONSTRUCTION) }
}
