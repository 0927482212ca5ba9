//! Have the disks enough space for a whole run? A full disk would fail tests at random, an hour later.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use harness::step;

/// Bytes of what a fresh clone compiles.
const COMPILED: u64 = 6 << 30;
/// Bytes that incremental compilation keeps besides.
const INCREMENTAL: u64 = 4 << 30;
/// Bytes of what a later run compiles.
const COMPILED_AGAIN: u64 = 2 << 30;
/// Bytes of the clusters that exist at the same time.
const CLUSTERS: u64 = 4 << 30;

/// Checks the target directory and the directory of temporary files.
pub fn check() -> Result<()> {
    let target = step::target_dir()?;
    let incremental = if env::var_os("CARGO_INCREMENTAL").is_some_and(|value| value == "0") { 0 } else { INCREMENTAL };
    let compiled = if target.join("debug").is_dir() { COMPILED_AGAIN } else { COMPILED + incremental };
    enough(&[(&target, compiled), (&env::temp_dir(), CLUSTERS)])
}

/// Checks that each directory's disk has the bytes available that its directories need together.
fn enough(needs: &[(&Path, u64)]) -> Result<()> {
    let device = |path: &Path| fs::metadata(path).map(|of| of.dev()).with_context(|| path.display().to_string());
    for (path, _) in needs {
        let own = device(path)?;
        let mut needed = 0;
        for (other, bytes) in needs {
            needed += if device(other)? == own { *bytes } else { 0 };
        }
        let space = rustix::fs::statvfs(*path).with_context(|| path.display().to_string())?;
        let available = space.f_bavail * space.f_frsize;
        ensure!(
            available >= needed,
            "the tests need {:.1} GiB of disk at {}, which has {:.1} GiB available; CARGO_TARGET_DIR and TMPDIR choose other disks",
            gib(needed),
            path.display(),
            gib(available)
        );
    }
    Ok(())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 30) as f64
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::enough;

    #[test]
    fn directories_on_one_disk_need_the_sum() {
        let dir = env::temp_dir();
        enough(&[(&dir, 1), (&dir, 1)]).unwrap();
        let error = enough(&[(&dir, 1 << 59), (&dir, 1 << 59)]).unwrap_err().to_string();
        assert!(error.starts_with("the tests need 1073741824.0 GiB of disk at "), "{error}");
    }
}
