//! The packages on clean systems: installed, used, upgraded while an index is built, removed and purged.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Packages;
use crate::arguments::CleanSystem;
use crate::step::{self, output};

mod root;

use root::{Release, System, as_root};

/// How long a build may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);

/// Installs, uses, upgrades and removes the packages, on systems of these releases; without any, on this machine's and on Debian 13.
pub fn run(new: &Packages, older: &Packages, on: &[CleanSystem]) -> Result<()> {
    for release in Release::all(on)? {
        let archive = root::archive(&release)?;
        let system = step::timed(&format!("unpacking {}", release.name()), || System::unpack(&archive))?;
        let [new, older] = [new, older].map(|packages| OnSystem::of(packages, &release));
        step::timed(&format!("installing, using and removing packages on {}", release.name()), || {
            let (new, older) = (new.put(&system, "new")?, older.put(&system, "older")?);
            use_packages(&system, &older, &new)
        })?;
    }
    Ok(())
}

/// The packages for a system: their paths on this machine, after [`OnSystem::put`] those in the system.
struct OnSystem {
    daemon: PathBuf,
    /// For the system's own PostgreSQL.
    library: Option<(u32, PathBuf)>,
    has_pgvector: bool,
}

impl OnSystem {
    fn of(packages: &Packages, release: &Release) -> Self {
        let library = packages.libraries.iter().find(|(major, _)| Some(*major) == release.major).cloned();
        Self { daemon: packages.daemon.clone(), library, has_pgvector: release.has_pgvector() }
    }

    fn put(self, system: &System, folder: &str) -> Result<Self> {
        let put = |package: &Path| {
            let place = Path::new("tmp").join(folder).join(package.file_name().context("no name")?);
            system.shell(&format!("mkdir -p /tmp/{folder}"))?;
            output(as_root("cp")?.arg(package).arg(system.path(&place)))?;
            Ok::<_, anyhow::Error>(Path::new("/").join(place))
        };
        let library = self.library.map(|(major, path)| Ok::<_, anyhow::Error>((major, put(&path)?))).transpose()?;
        Ok(Self { daemon: put(&self.daemon)?, library, ..self })
    }

    fn install(&self) -> String {
        let library = self.library.as_ref().map(|(_, path)| path.display().to_string());
        format!("dpkg --install {} {}", self.daemon.display(), library.unwrap_or_default())
    }

    fn names(&self) -> String {
        let library = self.library.as_ref().map(|(major, _)| format!("postgresql-{major}-lantern-index"));
        format!("lantern-index {}", library.unwrap_or_default())
    }
}

fn use_packages(system: &System, older: &OnSystem, new: &OnSystem) -> Result<()> {
    system.shell(&older.install())?;
    // What an administrator wrote survives an upgrade and a removal.
    system.shell("echo '# by hand' >> /etc/lantern-index/config.toml")?;
    match &older.library {
        Some((major, _)) if older.has_pgvector => upgrade_during_build(system, *major, &new.install())?,
        _ => drop(system.shell(&new.install())?),
    }
    let versions = system.shell(&format!("dpkg-query --show --showformat='${{Version}}\\n' {}", new.names()))?;
    let is_new = versions.lines().all(|version| version == env!("CARGO_PKG_VERSION"));
    ensure!(is_new, "not upgraded: {versions}");
    system.shell("grep -q 'by hand' /etc/lantern-index/config.toml")?;

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
    if let Some((major, _)) = &new.library {
        create_extension(system, *major)?;
    }

    let names = new.names();
    system.shell(&format!("dpkg --remove {names}"))?;
    ensure!(!system.exists("usr/bin/lantern-index"), "the program is still there");
    ensure!(system.exists("etc/lantern-index/config.toml"), "the configuration was removed too early");
    system.shell(&format!("dpkg --purge {names}"))?;
    let left = system.shell(
        "find / -xdev -iname '*lantern?index*' -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/log/*' \
         -not -path '/var/lib/postgresql/*'",
    )?;
    ensure!(left.trim().is_empty(), "left behind:\n{left}");
    Ok(())
}

/// Checks that the daemon runs under its own account and stops on request.
fn serve(system: &System) -> Result<()> {
    let mut daemon = Daemon::start(system)?;
    let address = daemon.address("Status Server")?;
    let status = system.shell(&format!("lantern-index status --json http://{address}/"))?;
    ensure!(status.contains("\"builds\""), "no status: {status}");
    daemon.stop()
}

/// Checks that the library loads, and its extension can be created.
fn create_extension(system: &System, major: u32) -> Result<()> {
    let server = Server::start(system, major, "")?;
    let version = server.sql("CREATE EXTENSION lantern_index; SELECT lantern_index.version()")?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "not the version: {version}");
    server.stop()
}

/// Checks that a build goes on while `install` upgrades the packages, and gives a sound index.
fn upgrade_during_build(system: &System, major: u32, install: &str) -> Result<()> {
    let mut daemon = Daemon::start(system)?;
    let address = daemon.address("Indexing Server")?;
    let port = address.rsplit(':').next().unwrap_or_default();
    let settings = format!("hnsw.external_index_port = {port}\nhnsw.external_index_secure = off\n");
    let server = Server::start(system, major, &settings)?;
    server.sql(
        "CREATE EXTENSION vector; CREATE EXTENSION lantern_index; CREATE TABLE t (v vector(128)); \
         INSERT INTO t SELECT ARRAY(SELECT random() + 0 * row FROM generate_series(1, 128))::real[] \
         FROM generate_series(1, 40000) row",
    )?;
    let create = "CREATE INDEX t_idx ON t USING hnsw (v vector_l2_ops) WITH (external = true)";
    let build =
        server.psql(create).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot run chroot")?;
    let begun = Instant::now();
    let building = "SELECT phase FROM pg_stat_progress_create_index WHERE phase LIKE '%building graph'";
    while server.sql(building)?.trim().is_empty() {
        ensure!(begun.elapsed() < PATIENCE, "no build was seen");
        sleep(Duration::from_millis(20));
    }
    system.shell(install)?;
    let built = build.wait_with_output().context("psql is gone")?;
    ensure!(built.status.success(), "the build during the upgrade: {}", String::from_utf8_lossy(&built.stderr));
    let advice = server.sql("SELECT elements, advice FROM lantern_index.check('t_idx', 100)")?;
    ensure!(advice.trim() == "40000|ok", "the index: {advice}");
    daemon.stop()?;
    server.stop()
}

/// PostgreSQL on a system.
struct Server<'a> {
    system: &'a System,
    major: u32,
    /// The port in the name of its socket.
    port: String,
}

impl<'a> Server<'a> {
    /// Starts a new cluster that preloads the library.
    fn start(system: &'a System, major: u32, settings: &str) -> Result<Self> {
        let port = system.shell(&format!(
            "pg_createcluster {major} check --start-conf=manual -- --auth=trust > /dev/null\n\
             cat >> /etc/postgresql/{major}/check/postgresql.conf <<'end'\n\
             shared_preload_libraries = 'lantern_index'\ndynamic_shared_memory_type = mmap\n{settings}end\n\
             pg_lsclusters -h | awk '$2 == \"check\" {{ print $3 }}'"
        ))?;
        let server = Self { system, major, port: port.trim().to_owned() };
        let options = format!(
            "-c config_file=/etc/postgresql/{major}/check/postgresql.conf -c listen_addresses= -c unix_socket_directories=/tmp"
        );
        system
            .shell(&server.pg_ctl(&format!("--log=/tmp/postgres.log -o '\\''{options}'\\'' start")))
            .with_context(|| system.shell("cat /tmp/postgres.log").unwrap_or_default())?;
        Ok(server)
    }

    fn pg_ctl(&self, words: &str) -> String {
        let major = self.major;
        format!(
            "cd /var/lib/postgresql/{major}/check && su postgres -s /bin/sh -c \
             '/usr/lib/postgresql/{major}/bin/pg_ctl --wait --silent --pgdata=. {words}'"
        )
    }

    fn psql(&self, sql: &str) -> Command {
        let psql = "exec psql --no-psqlrc --tuples-only --no-align --quiet --set=ON_ERROR_STOP=1 --username=postgres --host=/tmp";
        self.system.command(&format!("{psql} --port={} --command=\"$SQL\"", self.port), &[("SQL", sql)])
    }

    fn sql(&self, sql: &str) -> Result<String> {
        output(&mut self.psql(sql))
    }

    /// Stops and deletes it.
    fn stop(self) -> Result<()> {
        self.system.shell(&self.pg_ctl("stop"))?;
        self.system.shell(&format!("pg_dropcluster {} check", self.major)).map(drop)
    }
}

/// The daemon on a system, under its own account.
struct Daemon {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Daemon {
    fn start(system: &System) -> Result<Self> {
        let mut command = as_root("chroot")?;
        command.args(["--userspec=lantern-index:lantern-index"]).arg(system.path(Path::new("")));
        command.args(["/usr/bin/lantern-index", "serve", "--port=0", "--status-port=0", "--stop-at-eof"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot run chroot")?;
        let lines = BufReader::new(process.stdout.take().context("no output")?).lines();
        Ok(Self { process, lines })
    }

    /// The address in its line about a server.
    fn address(&mut self, server: &str) -> Result<String> {
        let line = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(server));
        let line = line.with_context(|| format!("the daemon did not say where its {server} is"))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().trim_start_matches("http://").trim_end_matches('/').to_owned())
    }

    fn stop(mut self) -> Result<()> {
        output(as_root("kill")?.arg(self.process.id().to_string()))?;
        let ended = self.process.wait().context("the daemon is gone")?;
        ensure!(ended.success(), "the daemon ended with {ended}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // `kill` fails if the process is sudo, which runs as root. `wait` closes the daemon's stdin, at which the daemon ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
