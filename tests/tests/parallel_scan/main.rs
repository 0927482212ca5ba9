//! The table is read by parallel workers: the index is the same, however many there are and whatever happens to them.

mod failures;
mod rights;
mod same;
mod scene;
mod shortage;
