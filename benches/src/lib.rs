//! What programs that measure graphs share: vectors encoded as the builder receives them, true neighbors, figures.

mod figures;
mod graph_set;
pub mod hard;
mod index;
mod makespan;
mod vectors;

pub use figures::{Found, Memory};
pub use graph_set::{EFS, GraphSet, Searches, nearest_distances};
pub use index::Index;
pub use makespan::Makespan;
pub use vectors::{metric, read_values};
