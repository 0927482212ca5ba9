//! Builds whose values do not fit into memory.

use std::path::Path;
use std::process::Command;

use pages::{Estimate, ValueType};
use protocol::Hello;

use crate::support::{Builder, Rows, hello, run_in_namespace};

const DIMS: u32 = 1024;
const ROWS: u64 = 4000;

fn shape() -> Estimate {
    let value_len = 4 * DIMS as usize;
    Estimate { value_type: ValueType::Vector, dims: DIMS, value_len, m: 16, rows: ROWS, elements: ROWS }
}

fn sized(rows: u64) -> Hello {
    Hello { estimated_rows: rows, ..hello(DIMS) }
}

/// A builder with memory for the build, but for only a third of its values.
fn builder(dir: &Path) -> Builder {
    Builder::with(|config| {
        config.memory_limit = shape().spooled_memory_bytes(2) + shape().values_bytes() / 3;
        config.spool_dir = Some(dir.to_owned());
    })
}

fn rows() -> Rows {
    Rows::new(ROWS as usize, DIMS)
}

#[test]
fn values_go_to_an_unlinked_file() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(dir.path());
    let mut client = builder.connect();
    let accept = client.hello(sized(ROWS));
    assert_eq!(accept.memory_reserved, shape().spooled_memory_bytes(2));
    assert!(accept.remark.starts_with("values are kept in a file"), "{}", accept.remark);
    assert_eq!(client.index_of(&rows(), 250).done.unreachable, 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_build_that_outgrows_memory_continues_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(dir.path());
    let mut client = builder.connect();
    client.hello(sized(10));
    client.index_of(&rows(), 250);
}

#[test]
fn a_missing_spool_directory_ends_the_build() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(&dir.path().join("not-there"));
    let mut client = builder.connect();
    client.hello(sized(ROWS));
    client.rows(&Rows::new(1000, DIMS), 250);
    let error = client.error();
    assert!(
        error.message.starts_with("cannot use the spool directory") && error.message.contains("not-there"),
        "{error:?}"
    );
}

/// Runs in a namespace where it may mount a small file system; see below.
#[test]
#[ignore = "a part of the next one"]
fn a_full_disk_inside() {
    let dir = tempfile::tempdir().unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(dir.path()).status().unwrap();
    assert!(mount.success());
    let builder = builder(dir.path());
    let mut client = builder.connect();
    client.hello(sized(ROWS));
    client.rows(&Rows::new(1000, DIMS), 250);
    let error = client.error();
    assert_eq!(error.sqlstate.as_str(), "53100");
    assert!(error.message.starts_with("no space left in the spool directory"), "{error:?}");
    assert!(error.hint.contains("--spool-dir"), "{error:?}");
    builder.settle();
    // Other builds are not disturbed.
    let mut small = builder.connect();
    small.hello(hello(4));
    small.index_of(&Rows::new(100, 4), 100);
}

#[test]
fn a_full_disk_ends_no_other_build() {
    run_in_namespace("--mount", &["true"], "spool::a_full_disk_inside");
}
