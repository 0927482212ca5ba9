use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use anyhow::{Context, Result};

/// A shell that waits until its stdin closes, that is until this process ends for whatever reason; then it stops the process named in `pid`
/// and deletes the directory. It ignores Ctrl-C, since it must outlive this process.
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

/// A temporary directory, for at most one server process; both are removed on drop, or when this process ends.
pub struct Scratch {
    path: PathBuf,
    watchdog: Child,
}

impl Scratch {
    /// Makes a directory with permissions `mode`, for instance `/tmp/lantern-index-cluster-4711-0`.
    pub fn new(what: &str, mode: u32) -> Result<Self> {
        let parent = env::temp_dir();
        // Another account may have to reach it, which root's private TMPDIR would prevent.
        let private = rustix::process::geteuid().is_root() && !others_may_search(&parent);
        let parent = if private { PathBuf::from("/tmp") } else { parent };
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

    /// Sets the process to stop if this one is killed.
    pub fn guard(&self, pid: u32) -> Result<()> {
        fs::write(self.path.join("pid"), pid.to_string()).context("cannot write the pid file")
    }

    /// Records that the process has ended and has been waited for.
    pub fn unguard(&self) {
        let _ = fs::remove_file(self.path.join("pid"));
    }

    /// Keeps the process and the directory from now on.
    pub fn keep(&mut self) {
        if let Some(mut stdin) = self.watchdog.stdin.take() {
            let _ = stdin.write_all(b"keep\n");
        }
        let _ = self.watchdog.wait();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // `wait` closes the pipe first, which ends the shell.
        let _ = self.watchdog.wait();
    }
}

/// Whether any account may reach what a directory has.
fn others_may_search(dir: &Path) -> bool {
    let allowed = |dir: &Path| dir.metadata().is_ok_and(|dir| dir.is_dir() && dir.permissions().mode() & 0o001 != 0);
    dir.canonicalize().is_ok_and(|dir| dir.ancestors().all(allowed))
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
        let mut child = Command::new("env").args(["--default-signal=QUIT", "sleep", "600"]).spawn().unwrap();
        scratch.guard(child.id()).unwrap();
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        drop(scratch);
        assert!(!waiter.join().unwrap().success());
        assert!(!path.exists());
    }

    #[test]
    fn a_private_folder_hides_what_is_in_it() {
        let private = Scratch::new("scratch-test", 0o700).unwrap();
        let inner = private.path().join("open");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!others_may_search(private.path()) && !others_may_search(&inner));
        assert!(others_may_search(Path::new("/usr")) && !others_may_search(Path::new("/none")));
    }

    #[test]
    fn temporary_directories_are_where_tmpdir_says() {
        let open = Scratch::new("scratch-test", 0o755).unwrap();
        let inside = |tmpdir: &Path| {
            let mut inside = Command::new(env::current_exe().unwrap());
            inside.args(["scratch::tests::a_directory", "--exact", "--ignored", "--nocapture"]).env("TMPDIR", tmpdir);
            String::from_utf8(inside.output().unwrap().stdout).unwrap()
        };
        let own = format!("made {}/", open.path().display());
        assert!(inside(open.path()).contains(&own));
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o700)).unwrap();
        // Only root does without it, since it starts servers under another account.
        assert_eq!(inside(open.path()).contains(&own), !rustix::process::geteuid().is_root());
    }

    #[test]
    #[ignore = "temporary_directories_are_where_tmpdir_says runs it"]
    fn a_directory() {
        println!("made {}", Scratch::new("inner", 0o700).unwrap().path().display());
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
