//! PostgreSQL's guarantees for indexes hold for externally built ones: on standbys, after crashes, with checksums, with
//! minimal WAL, and beyond the size of one file.

mod checksums;
mod crash;
mod crash_loop;
mod large;
mod minimal;
mod scene;
mod standby;
