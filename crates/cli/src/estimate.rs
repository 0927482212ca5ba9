use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::anyhow;
use pgvector::HEAP_TIDS_PER_ELEMENT;
use serde_json::json;

use crate::args::Estimate;
use crate::count;
use crate::failure::Failure;
use crate::print;

/// The most blocks of a relation, which are numbered from 0.
const MAX_BLOCKS: u64 = pages::NO_BLOCK as u64;

/// Prints the size and the needs of a build.
pub fn run(arguments: &Estimate) -> Result<(), Failure> {
    let value_type = arguments.value_type;
    let estimate = estimate(arguments).map_err(Failure::Usage)?;
    let cores = || available_parallelism().map_or(1, NonZero::get).try_into().unwrap_or(u32::MAX);
    let threads = arguments.threads.unwrap_or_else(cores);
    let memory = estimate.builder_memory_bytes(threads);
    let text = if arguments.json {
        let object = json!({
            "rows": estimate.rows,
            "elements": estimate.elements,
            "threads": threads,
            "blocks": estimate.blocks(),
            "index_bytes": estimate.index_bytes(),
            "builder_memory_bytes": memory,
            "backend_memory_bytes": estimate.backend_memory_bytes(),
            "wire_bytes": estimate.wire_bytes(),
        });
        format!("{object}\n")
    } else {
        let whose = if arguments.threads.is_none() { ", one per core of this machine" } else { "" };
        format!(
            "{} of {}({}), m = {}\nindex              {:>10}  {} blocks\nmemory of builder  {:>10}  with {}{whose}\n\
             memory of backend  {:>10}\n\
             on the wire        {:>10}  both ways\n",
            count::of(estimate.rows, "row"),
            value_type.name(),
            arguments.dims,
            arguments.m,
            count::bytes(estimate.index_bytes()),
            estimate.blocks(),
            count::bytes(memory),
            count::of(threads.into(), "thread"),
            count::bytes(estimate.backend_memory_bytes()),
            count::bytes(estimate.wire_bytes()),
        )
    };
    print(text)
}

fn estimate(arguments: &Estimate) -> anyhow::Result<pages::Estimate> {
    let Estimate { value_type, dims, rows, .. } = *arguments;
    let most = value_type.max_dims();
    if dims > most {
        return Err(anyhow!("pgvector indexes a {} of at most {most} dimensions", value_type.name()));
    }
    let elements = arguments.distinct.unwrap_or(rows);
    if elements > rows || (elements == 0 && rows > 0) {
        return Err(anyhow!("--distinct must be from 1 to --rows"));
    }
    let nonzero = usize::from(arguments.nonzero).min(dims as usize);
    let value_len = value_type.value_len(dims).unwrap_or(4 + 8 * nonzero);
    let elements = elements.max(rows.div_ceil(HEAP_TIDS_PER_ELEMENT as u64));
    let estimate = pages::Estimate { value_type, dims, value_len, m: arguments.m, rows, elements };
    if estimate.blocks() > MAX_BLOCKS {
        return Err(anyhow!("the index would have more blocks than PostgreSQL allows: {MAX_BLOCKS} of 8 KiB"));
    }
    Ok(estimate)
}
