//! What PostgreSQL promises of an index holds for one that was built externally: on standbys, after crashes, with checksums, with
//! little logging, and beyond the size of one file.

mod checksums;
mod crash;
mod large;
mod minimal;
mod scene;
mod standby;
