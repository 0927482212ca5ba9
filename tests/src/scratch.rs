use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use anyhow::{Context, Result};

/// A shell that waits until its stdin closes, however this process ends, then stops the process named in `pid` and
/// deletes the directory. It ignores Ctrl-C: it must outlive us.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
word=
read -r word
[ "$word" = keep ] && exit 0
cd /
pid=$(cat "$1/pid" 2>/dev/null) && [ -n "$pid" ] && {
    kill -QUIT "$pid"
    tries=0
    while kill -0 "$pid" && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -KILL "$pid"
} 2>/dev/null
rm -rf "$1"
"#;

/// A directory with at most one server process in it; both are removed when this is dropped or our process ends.
pub struct Scratch {
    path: PathBuf,
    watchdog: Child,
}

impl Scratch {
    /// Makes a directory with permissions `mode`, for instance `/tmp/lantern-index-cluster-4711-0`.
    pub fn new(what: &str, mode: u32) -> Result<Self> {
        // Another account may have to reach it, which a private TMPDIR of root's would prevent.
        let parent = if rustix::process::geteuid().is_root() { PathBuf::from("/tmp") } else { env::temp_dir() };
        let path = make(&parent, what, mode)
            .with_context(|| format!("cannot make a temporary directory in {}", parent.display()))?;
        let watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start /bin/sh")?;
        Ok(Self { path, watchdog })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the process to stop if we are killed.
    pub fn guard(&self, pid: u32) -> Result<()> {
        fs::write(self.path.join("pid"), pid.to_string()).context("cannot write the pid file")
    }

    /// Notes that the process has ended and was waited for.
    pub fn unguard(&self) {
        let _ = fs::remove_file(self.path.join("pid"));
    }

    /// Leaves the process and the directory alone from now on.
    pub fn keep(&mut self) {
        if let Some(mut stdin) = self.watchdog.stdin.take() {
            let _ = stdin.write_all(b"keep\n");
        }
        let _ = self.watchdog.wait();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Wait closes the pipe first.
        let _ = self.watchdog.wait();
    }
}

fn make(parent: &Path, what: &str, mode: u32) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("lantern-index-{what}-{}-{number}", process::id()));
        match fs::DirBuilder::new().mode(mode).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_stops_the_process_and_deletes_the_directory() {
        let scratch = Scratch::new("scratch-test", 0o700).unwrap();
        let path = scratch.path().to_owned();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        scratch.guard(child.id()).unwrap();
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        drop(scratch);
        assert!(!waiter.join().unwrap().success());
        assert!(!path.exists());
    }

    #[test]
    fn keep_leaves_the_directory() {
        let mut scratch = Scratch::new("scratch-test", 0o700).unwrap();
        scratch.keep();
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
