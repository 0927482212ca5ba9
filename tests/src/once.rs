use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Makes the file `program` by `build` if it does not exist, once for all tests and processes: others wait. `build` gets the path to write
/// to, in the directory of `program`, whose other files are deleted.
pub fn build_once(program: &Path, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if program.is_file() {
        return Ok(());
    }
    let folder = program.parent().context("a program without a folder")?;
    fs::create_dir_all(folder)?;
    let locked = folder.with_extension("lock");
    let lock = fs::File::create(&locked).with_context(|| format!("cannot make {}", locked.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", locked.display()))?;
    if program.is_file() {
        return Ok(());
    }
    for old in fs::read_dir(folder)?.flatten().filter(|old| old.path().is_file()) {
        fs::remove_file(old.path())?;
    }
    let made = program.with_extension("new");
    build(&made)?;
    ensure!(made.is_file(), "{} was not made", made.display());
    fs::rename(&made, program).with_context(|| format!("cannot rename {}", made.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use anyhow::bail;

    use super::build_once;
    use crate::Scratch;

    #[test]
    fn concurrent_callers_build_once_and_delete_earlier_releases() {
        let dir = Scratch::new("once", 0o700).unwrap();
        let program = dir.path().join("tool/tool-2");
        fs::create_dir_all(dir.path().join("tool")).unwrap();
        fs::write(dir.path().join("tool/tool-1"), "an earlier release").unwrap();
        let builds = AtomicUsize::new(0);
        let build = |made: &Path| {
            builds.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
            Ok(fs::write(made, "built")?)
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| build_once(&program, build).unwrap());
            }
        });
        assert_eq!(builds.load(Ordering::Relaxed), 1);
        assert_eq!(fs::read_to_string(&program).unwrap(), "built");
        let files = fs::read_dir(dir.path().join("tool")).unwrap().count();
        assert_eq!(files, 1, "earlier releases are deleted");
    }

    #[test]
    fn a_failed_build_is_tried_again_by_the_next_caller() {
        let dir = Scratch::new("once", 0o700).unwrap();
        let program = dir.path().join("tool/tool-1");
        assert!(build_once(&program, |_| bail!("no compiler")).is_err());
        assert!(build_once(&program, |_| Ok(())).is_err(), "nothing was made");
        build_once(&program, |made| Ok(fs::write(made, "built")?)).unwrap();
        assert!(program.is_file());
    }
}
