//! `lantern-index maintain`: what was bad is good, nothing else is touched, and writers notice nothing.

mod connections;
mod faults;
mod good;
mod replicas;
mod scene;
mod steps;
