//! The packages on a clean Debian: installed, used, upgraded, removed and purged.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::package::run as output;
use crate::{apt, step};

/// What the packages need: the test itself uses no network.
const INCLUDED: &str = "adduser,init-system-helpers,libstdc++6";

/// Installs, uses and removes both packages.
pub fn run(daemon: &Path, library: &Path, major: u32) -> Result<()> {
    let archive = archive(major)?;
    let system = step::timed("unpacking a clean Debian", || System::unpack(&archive))?;
    step::timed("installing, using and removing the packages on it", || {
        for package in [daemon, library] {
            output(as_root("cp")?.arg(package).arg(system.root.join("tmp")))?;
        }
        let names = [daemon, library].map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
        use_packages(&system, &names, major)
    })
}

fn use_packages(system: &System, packages: &[String; 2], major: u32) -> Result<()> {
    let library = format!("postgresql-{major}-lantern-index");
    let install = format!("dpkg --install /tmp/{} /tmp/{}", packages[0], packages[1]);
    system.shell(&install)?;
    system.shell("lantern-index config check && getent passwd lantern-index && lantern-index cpu")?;
    let shown = system.shell("lantern-index config check; zcat /usr/share/man/man1/lantern-index-serve.1.gz")?;
    ensure!(
        shown.contains("/etc/lantern-index/config.toml: no mistakes"),
        "the configuration file is not read:\n{shown}"
    );
    ensure!(shown.contains("LANTERN\\_INDEX") || shown.contains("LANTERN_INDEX"), "no manual:\n{shown}");
    let enabled = system.exists("etc/systemd/system/multi-user.target.wants/lantern-index.service");
    ensure!(enabled, "the unit is not enabled");
    serve(system)?;
    create_extension(system, major)?;

    // What an administrator wrote survives an upgrade and a removal.
    system.shell("echo '# by hand' >> /etc/lantern-index/config.toml")?;
    system.shell(&install)?;
    system.shell("grep -q 'by hand' /etc/lantern-index/config.toml")?;
    system.shell(&format!("dpkg --remove lantern-index {library}"))?;
    ensure!(!system.exists("usr/bin/lantern-index"), "the program is still there");
    ensure!(system.exists("etc/lantern-index/config.toml"), "the configuration was removed too early");
    system.shell(&format!("dpkg --purge lantern-index {library}"))?;
    let left = system.shell(
        "find / -xdev -iname '*lantern?index*' -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/log/*' \
         -not -path '/var/lib/postgresql/*'",
    )?;
    ensure!(left.trim().is_empty(), "left behind:\n{left}");
    Ok(())
}

/// Checks that the daemon runs under its own account and stops on request.
fn serve(system: &System) -> Result<()> {
    let mut command = as_root("chroot")?;
    command.args(["--userspec=lantern-index:lantern-index"]).arg(&system.root);
    command.args(["/usr/bin/lantern-index", "serve", "--port=0", "--status-port=0"]);
    let mut daemon = Daemon(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot run chroot")?);
    let mut lines = BufReader::new(daemon.0.stdout.take().context("no output")?).lines();
    let line = lines.next().context("the daemon said nothing")??;
    let address = line.rsplit(' ').next().unwrap_or_default();
    let status = system.shell(&format!("lantern-index status --json http://{address}/"))?;
    ensure!(status.contains("\"builds\""), "no status: {status}");
    output(as_root("kill")?.arg(daemon.0.id().to_string()))?;
    let ended = daemon.0.wait().context("the daemon is gone")?;
    ensure!(ended.success(), "the daemon ended with {ended}");
    Ok(())
}

/// Checks that the library loads, and its extension can be created.
fn create_extension(system: &System, major: u32) -> Result<()> {
    let psql = "psql --no-psqlrc --tuples-only --no-align --set=ON_ERROR_STOP=1";
    let version = system.shell(&format!(
        "pg_createcluster {major} check --start-conf=manual -- --auth=trust > /dev/null\n\
         cd /var/lib/postgresql/{major}/check\n\
         run() {{ su postgres -s /bin/sh -c \"$1\"; }}\n\
         ctl='/usr/lib/postgresql/{major}/bin/pg_ctl --wait --silent --pgdata=.'\n\
         echo \"shared_preload_libraries = 'lantern_index'\" >> /etc/postgresql/{major}/check/postgresql.conf\n\
         sed -i 's/^#*dynamic_shared_memory_type.*/dynamic_shared_memory_type = mmap/' /etc/postgresql/{major}/check/postgresql.conf\n\
         run \"$ctl --log=/tmp/postgres.log -o '-c config_file=/etc/postgresql/{major}/check/postgresql.conf \
         -c listen_addresses= -c unix_socket_directories=/tmp' start\" || {{ cat /tmp/postgres.log; exit 1; }}\n\
         run \"{psql} --host=/tmp --port=$(pg_lsclusters -h | awk '$2 == \"check\" {{ print $3 }}') \
         --command='CREATE EXTENSION lantern_index' --command='SELECT lantern_index.version()'\"\n\
         run \"$ctl stop\"\n\
         pg_dropcluster {major} check",
    ))?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "not the version: {version}");
    Ok(())
}

/// A root file system with little in it, which is removed when dropped.
struct System {
    root: PathBuf,
}

impl System {
    fn unpack(archive: &Path) -> Result<Self> {
        let root = step::work_dir()?.join(format!("root-{}", process::id()));
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let system = Self { root };
        output(
            as_root("tar")?.args(["--extract", "--numeric-owner", "--file"]).arg(archive).arg("-C").arg(&system.root),
        )?;
        Ok(system)
    }

    /// Runs a script in it, as its root; what it prints.
    fn shell(&self, script: &str) -> Result<String> {
        let mut command = as_root("chroot")?;
        command.arg(&self.root).args(["/bin/sh", "-e", "-c", script]);
        command.env("LC_ALL", "C.UTF-8").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        output(command.stdin(Stdio::null()))
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = as_root("rm").and_then(|mut rm| output(rm.args(["-rf", "--one-file-system"]).arg(&self.root)));
    }
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A clean system of the same release as this one: made once, by the distribution's own tool.
fn archive(major: u32) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("/etc/os-release does not name a release of Debian")?;
    let archive = step::work_dir()?.join(format!("root-{name}-{major}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    if !apt::has_program("mmdebstrap") {
        apt::install(&["mmdebstrap".to_owned()])?;
    }
    let half = archive.with_extension("tar.part");
    let mut command = as_root("mmdebstrap")?;
    command
        .args(["--variant=minbase", "--format=tar", &format!("--include={INCLUDED},postgresql-{major}"), name])
        .arg(&half);
    step::command("making a clean Debian", "It needs a Debian mirror.", &mut command)?;
    fs::rename(&half, &archive).context("cannot keep the clean Debian")?;
    Ok(archive)
}

fn as_root(program: &str) -> Result<Command> {
    apt::as_root(program, "installing packages on a clean Debian")
}
