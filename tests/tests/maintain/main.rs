//! `lantern-index maintain`: worn indexes are rebuilt, others are untouched, and no writer fails.

mod connections;
mod faults;
mod rebuilds;
mod replicas;
mod scene;
mod steps;
