//! The words of advice that `lantern-index maintain` acts on. It cannot use this crate: a test of its `plan` compares them with its own.

/// The index needs nothing.
pub(super) const OK: &str = "ok";
pub(super) const REBUILD: &str = "rebuild";
pub(super) const INVALID: &str = "invalid";
pub(super) const CHECK: &str = "check";
/// The index could not be read.
pub(super) const UNKNOWN: &str = "unknown";

/// The beginning of a check's advice to rebuild.
pub(super) const REINDEX: &str = "reindex: ";
/// The beginning of the view's reason if it comes from a remembered check.
pub(super) const BY_CHECK: &str = "the last check found: ";
