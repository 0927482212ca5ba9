use std::io::{Write, stdout};
use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Context;
use hnsw::Level;

use crate::failure::Failure;

/// Prints the kernels chosen on this machine, and the alternatives.
pub fn run() -> Result<(), Failure> {
    let available: Vec<&str> = Level::available().into_iter().map(Level::name).collect();
    let cores = available_parallelism().map_or(1, NonZero::get);
    let mut out = stdout().lock();
    let text = format!(
        "architecture  {}\nkernels       {}\navailable     {}\nthreads       {cores}\n",
        std::env::consts::ARCH,
        Level::current(),
        available.join(", "),
    );
    out.write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(())
}
