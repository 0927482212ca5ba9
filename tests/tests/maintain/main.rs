//! `lantern-index maintain`: worn indexes are rebuilt, no other index is touched, and no writer fails.

mod connections;
mod faults;
mod good;
mod replicas;
mod scene;
mod steps;
