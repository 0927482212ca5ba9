use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// The account PostgreSQL runs under, since it refuses to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account to use if this process runs as root: `postgres` where the package made it, else `nobody`. `None` otherwise: PostgreSQL
    /// then runs under our own account.
    pub fn for_postgres() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let account = find(&users, "postgres").or_else(|| find(&users, "nobody"));
        account
            .map(Some)
            .context("PostgreSQL cannot run as root, and there is no user `postgres` or `nobody` to run it as")
    }

    /// Makes a command run under this account. The standard library also drops root's supplementary groups.
    pub fn apply(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Makes this account the owner of a file or directory.
    pub fn own(self, path: &Path) -> Result<()> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .with_context(|| format!("cannot give {} to uid {}", path.display(), self.uid))
    }
}

fn find(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_users() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find(users, "postgres"), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(find(users, "nobody"), None);
    }
}
