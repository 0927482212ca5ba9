use std::num::NonZero;
use std::thread::available_parallelism;

use hnsw::Level;

use crate::failure::Failure;
use crate::print;

/// Prints the kernels chosen on this machine, and the alternatives.
pub fn run() -> Result<(), Failure> {
    let available: Vec<&str> = Level::available().into_iter().map(Level::name).collect();
    let cores = available_parallelism().map_or(1, NonZero::get);
    let text = format!(
        "architecture  {}\nkernels       {}\navailable     {}\nthreads       {cores}\n",
        std::env::consts::ARCH,
        Level::current(),
        available.join(", "),
    );
    print(text)
}
