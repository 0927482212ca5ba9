//! Parallel workers read the table: the index is the same, whatever their number and whatever fails.

mod failures;
mod room;
mod same;
mod scene;
mod shortage;
mod worker_count;
