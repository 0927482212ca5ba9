//! Which system is this, and by which commands does one install there what set-up needs?

use std::collections::HashMap;
use std::env::consts::{ARCH, OS};
use std::fs;

use anyhow::{Result, bail};
use harness::{MINIMUM_PGVECTOR, PgConfig};

/// The PostgreSQL release of the commands.
const RELEASE: u32 = *PgConfig::SUPPORTED.end();

/// The system, as `/etc/os-release` describes it.
#[derive(Debug)]
pub struct System {
    /// For instance `linux` or `macos`.
    kernel: String,
    fields: HashMap<String, String>,
}

impl System {
    /// This machine's.
    pub fn own() -> Self {
        Self::of(OS, &fs::read_to_string("/etc/os-release").unwrap_or_default())
    }

    fn of(kernel: &str, os_release: &str) -> Self {
        let fields = os_release.lines().filter_map(|line| line.split_once('='));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.trim_matches(['"', '\'']).to_owned()));
        Self { kernel: kernel.to_owned(), fields: fields.collect() }
    }

    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether its archives are Debian's own, which have further releases of PostgreSQL and of pgvector.
    pub fn is_debian(&self) -> bool {
        self.field("ID") == "debian"
    }

    /// The release of Debian or one of its relatives, such as `bookworm`.
    pub fn codename(&self) -> Option<&str> {
        self.fields.get("VERSION_CODENAME").map(String::as_str)
    }

    fn is(&self, family: &[&str]) -> bool {
        let likes = self.field("ID_LIKE").split_whitespace();
        [self.field("ID")].into_iter().chain(likes).any(|id| family.contains(&id))
    }

    fn name(&self) -> &str {
        ["PRETTY_NAME", "NAME"].map(|name| self.field(name)).into_iter().find(|name| !name.is_empty()).unwrap_or("this")
    }

    /// Whether PostgreSQL and the tests can run here.
    ///
    /// # Errors
    /// They cannot; the error says what can.
    pub fn check(&self) -> Result<()> {
        if self.kernel == "linux" {
            return Ok(());
        }
        let docker = match self.kernel.as_str() {
            "macos" => "brew install --cask docker    # or another Docker\n    ",
            _ => "",
        };
        bail!(
            "set-up, demo and tests need Linux, and this is {}\nWith Docker, PostgreSQL, a builder and a demo run here too:\n    \
             {docker}docker compose --file deploy/compose.yaml up --build",
            self.kernel
        )
    }

    /// The commands that install PostgreSQL, its headers, a recent pgvector, libclang and compilers.
    pub fn commands(&self) -> String {
        let is_fedora = self.field("ID") == "fedora";
        // Amazon's system is like Fedora, or was like RHEL, but PGDG has nothing for it.
        let is_red_hats = is_fedora || (self.is(&["rhel", "centos"]) && self.field("ID") != "amzn");
        let lines: Vec<String> = if is_red_hats {
            let version = self.field("VERSION_ID").split('.').next().unwrap_or_default();
            let folder = if is_fedora { "F" } else { "EL" };
            let repository = format!(
                "sudo dnf install -y https://download.postgresql.org/pub/repos/yum/reporpms/{folder}-{version}-{ARCH}/\
                 pgdg-{}-repo-latest.noarch.rpm",
                if is_fedora { "fedora" } else { "redhat" }
            );
            // The headers' package needs Perl modules of these. Only RHEL's own archives lack the package epel-release.
            let more = match self.field("ID") {
                "fedora" => None,
                "rhel" => Some(format!(
                    "sudo dnf install -y https://dl.fedoraproject.org/pub/epel/epel-release-latest-{version}.noarch.rpm\n    \
                     sudo subscription-manager repos --enable codeready-builder-for-rhel-{version}-{ARCH}-rpms"
                )),
                _ => Some("sudo dnf install -y epel-release && sudo crb enable".to_owned()),
            };
            let module = (!is_fedora && version == "8").then(|| "sudo dnf -qy module disable postgresql".to_owned());
            let packages = format!(
                "sudo dnf install -y postgresql{RELEASE}-server postgresql{RELEASE}-devel pgvector_{RELEASE} clang-devel gcc gcc-c++ make"
            );
            [Some(repository), more, module, Some(packages)].into_iter().flatten().collect()
        } else if self.is(&["debian", "ubuntu"]) {
            vec![
                "sudo apt-get update && sudo apt-get install -y ca-certificates postgresql-common".to_owned(),
                "sudo /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y".to_owned(),
                format!(
                    "sudo apt-get install -y postgresql-{RELEASE} postgresql-server-dev-{RELEASE} postgresql-{RELEASE}-pgvector \
                     libclang-dev g++ make"
                ),
            ]
        } else {
            let (oldest, (major, minor)) = (PgConfig::SUPPORTED.start(), MINIMUM_PGVECTOR);
            return format!(
                "Install a PostgreSQL from {oldest} to {RELEASE} with its server's headers, pgvector {major}.{minor} or newer for it, \
                 libclang, and a C and a C++ compiler; PG_CONFIG names a pg_config that is not found."
            );
        };
        format!("On {}:\n    {}\nThen try again.", self.name(), lines.join("\n    "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_relatives_take_postgresqls_own_archive() {
        let ubuntu = System::of("linux", "PRETTY_NAME=\"Ubuntu 24.04.3 LTS\"\nID=ubuntu\nID_LIKE=debian\n");
        assert!(ubuntu.check().is_ok() && !ubuntu.is_debian());
        let commands = ubuntu.commands();
        assert!(commands.starts_with("On Ubuntu 24.04.3 LTS:\n"), "{commands}");
        for part in ["apt.postgresql.org.sh -y", "postgresql-server-dev-18 postgresql-18-pgvector libclang-dev"] {
            assert!(commands.contains(part), "{commands}");
        }
        assert!(System::of("linux", "ID=debian\nVERSION_CODENAME=bookworm\n").is_debian());
        assert!(System::of("linux", "ID=linuxmint\nID_LIKE='ubuntu debian'\n").commands().contains("apt-get"));
    }

    #[test]
    fn red_hats_relatives_have_their_releases() {
        let rocky = System::of(
            "linux",
            "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.6\"",
        );
        let commands = rocky.commands();
        for part in
            [&format!("/EL-9-{ARCH}/pgdg-redhat-repo-"), "crb enable", "postgresql18-devel pgvector_18 clang-devel"]
        {
            assert!(commands.contains(part), "{commands}");
        }
        assert!(!commands.contains("module disable"), "{commands}");
        let eight = System::of("linux", "ID=almalinux\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"8.10\"").commands();
        assert!(eight.contains("/EL-8-") && eight.contains("module disable postgresql"), "{eight}");
        let rhel = System::of("linux", "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.6\"").commands();
        for part in ["/EL-9-", "/epel-release-latest-9.noarch.rpm", "codeready-builder-for-rhel-9-"] {
            assert!(rhel.contains(part), "{rhel}");
        }
        assert!(!rhel.contains("install -y epel-release"), "{rhel}");
        let fedora = System::of("linux", "ID=fedora\nVERSION_ID=43\n").commands();
        assert!(fedora.contains(&format!("/F-43-{ARCH}/pgdg-fedora-repo-")) && !fedora.contains("crb"), "{fedora}");
    }

    #[test]
    fn other_systems_are_told_what_works_there() {
        let error = System::of("macos", "").check().unwrap_err().to_string();
        for part in ["this is macos", "brew", "docker compose"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!System::of("freebsd", "").check().unwrap_err().to_string().contains("brew"));
        for id in [
            "ID=arch",
            "ID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"",
            "ID=amzn\nID_LIKE=\"centos rhel fedora\"",
        ] {
            let commands = System::of("linux", id).commands();
            assert!(commands.contains("PG_CONFIG") && !commands.contains("dnf"), "{commands}");
        }
    }

    /// Otherwise this program would not compile there and could not say what works. Folders in `tests/src` are for Linux alone, or portable.
    #[test]
    fn the_harness_compiles_on_other_systems() {
        let files = fs::read_dir(harness::root().join("tests/src")).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.is_file()) {
            for item in fs::read_to_string(&file).unwrap().split("\n\n") {
                let of_linux =
                    ["fadvise", "fstatfs", "memfd_create", "os::linux"].iter().find(|name| item.contains(*name));
                let guarded = item.contains("cfg(target_os = \"linux\")");
                assert!(of_linux.is_none() || guarded, "{}: {of_linux:?} without cfg:\n{item}", file.display());
            }
        }
    }
}
