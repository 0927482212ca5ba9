//! Builds whose values do not fit into memory.

use std::path::Path;
use std::process::Command;

use pages::{Estimate, ValueType};
use protocol::{BuilderMessage, ClientMessage, Hello};

use crate::support::{Builder, Client, Rows, Stream, hello};

const DIMS: u32 = 1024;
const ROWS: u64 = 4000;

fn shape() -> Estimate {
    let value_len = 4 * DIMS as usize;
    Estimate { value_type: ValueType::Vector, value_len, m: 16, rows: ROWS, elements: ROWS }
}

fn sized(rows: u64) -> Hello {
    Hello { estimated_rows: rows, ..hello(DIMS) }
}

/// A builder with memory for the build, but for only a third of its values.
fn builder(dir: &Path) -> Builder {
    Builder::with(|config| {
        config.memory_limit = shape().spooled_memory_bytes(2) + shape().values_bytes(2) / 3;
        config.spool_dir = Some(dir.to_owned());
    })
}

fn send<S: Stream>(client: &mut Client<S>) {
    client.rows(&Rows::new(ROWS as usize, DIMS), 250);
    client.end_of_rows(ROWS);
}

#[test]
fn values_go_to_a_file_without_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(dir.path());
    let mut client = builder.connect();
    client.send(&ClientMessage::Hello(sized(ROWS)));
    match client.next() {
        Some(BuilderMessage::Accept(accept)) => {
            assert_eq!(accept.memory_reserved, shape().spooled_memory_bytes(2));
            assert!(accept.remark.starts_with("values are kept in a file"), "{}", accept.remark);
        }
        other => panic!("{other:?}"),
    }
    send(&mut client);
    let pages = client.pages();
    assert_eq!((pages.done.rows, pages.done.unreachable), (ROWS, 0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn who_has_outgrown_the_memory_goes_on_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder(dir.path());
    let mut client = builder.connect();
    client.hello(sized(10));
    send(&mut client);
    assert_eq!(client.pages().done.rows, ROWS);
}

#[test]
fn a_directory_that_is_gone_ends_the_build() {
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
    small.rows(&Rows::new(100, 4), 100);
    small.end_of_rows(100);
    assert_eq!(small.pages().done.rows, 100);
}

#[test]
fn a_full_disk_ends_the_build_alone() {
    let namespace = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", program]);
        command
    };
    // Skip the test if the system does not allow namespaces.
    if !namespace("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: no namespaces to be had");
        return;
    }
    let mut inside = namespace(std::env::current_exe().unwrap().to_str().unwrap());
    let output = inside.args(["--ignored", "--exact", "spool::a_full_disk_inside"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
