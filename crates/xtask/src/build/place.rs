//! Compilation for distribution: the same sources give the same bytes in any folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use harness::PgConfig;

use super::{cargo, extension_arguments};
use crate::step;

/// A folder of the sources, and one for what is compiled from them. Programs and libraries contain neither path.
pub struct Place {
    sources: PathBuf,
    target: PathBuf,
}

impl Place {
    /// The repository.
    pub fn own() -> Result<Self> {
        Ok(Self { sources: harness::root().to_owned(), target: step::work_dir()?.join("dist") })
    }

    /// A copy of the repository's files in another folder, compiled anew.
    pub fn copy() -> Result<Self> {
        let folder = step::work_dir()?.join("dist-elsewhere");
        let place = Self { sources: folder.join("a/copy/of/the/sources"), target: folder.join("compiled") };
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&place.sources).with_context(|| format!("cannot make {}", folder.display()))?;
        let script = "git ls-files -z | tar --create --null --files-from=- | tar --extract --directory \"$1\"";
        let mut copy = Command::new("sh");
        copy.args(["-c", script, "sh"]).arg(&place.sources).current_dir(harness::root());
        step::command("copying the sources", "It needs git and tar.", &mut copy)?;
        Ok(place)
    }

    /// Compiles the program `lantern-index`, with the commit in its `--version`; returns its path.
    pub fn program(&self, commit: Option<&str>) -> Result<PathBuf> {
        let mut build = self.cargo(None)?;
        build.args(["build", "--locked", "--release", "-p", "lantern-index"]);
        if let Some(commit) = commit {
            build.env("LANTERN_INDEX_COMMIT", commit);
        }
        step::command("compiling lantern-index", "It needs a C++ compiler (Debian: g++).", &mut build)?;
        Ok(self.target.join("release/lantern-index"))
    }

    /// Compiles the library for a PostgreSQL; returns its path.
    pub fn extension(&self, config: &PgConfig) -> Result<PathBuf> {
        let mut build = self.cargo(Some(config))?;
        build.args(["build", "--locked", "--release"]).args(extension_arguments(config.major));
        let what = format!("compiling the library for PostgreSQL {}", config.major);
        step::command(&what, &format!("It needs {}.", super::needs(config.major)), &mut build)?;
        Ok(self.target.join("release/liblantern_index.so"))
    }

    fn cargo(&self, config: Option<&PgConfig>) -> Result<Command> {
        let sysroot = step::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let version = rustc_hash()?;
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("cargo's home is not known")?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
        // If several prefixes match a path, the last one counts.
        let names = [
            (self.sources.as_path(), "/lantern-index".to_owned()),
            (&self.target, "/target".to_owned()),
            (&home, "/cargo".to_owned()),
            (&library, format!("/rustc/{version}")),
        ];
        let mut cargo = cargo(config);
        cargo.current_dir(&self.sources).env("CARGO_TARGET_DIR", &self.target);
        // The names of some symbols end in a hash that differs each time, and the linker's build-id depends on all that it writes.
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        let flags = |option: &str| names.each_ref().map(|(from, to)| format!("{option}={}={to}", from.display()));
        cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags("--remap-path-prefix").join("\x1f"));
        // Assertions of C++ name their files. Paths may have spaces.
        let [a, b, c, _] = flags("-ffile-prefix-map").map(|flag| format!("'{}'", flag.replace('\'', r"'\''")));
        let c = [a, b, c].join(" ");
        cargo.env("CC_SHELL_ESCAPED_FLAGS", "1").env("CFLAGS", &c).env("CXXFLAGS", &c);
        Ok(cargo)
    }
}

/// The commit of the compiler.
fn rustc_hash() -> Result<String> {
    let text = step::output(Command::new("rustc").arg("-vV"))?;
    let hash = text.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    Ok(hash.context("rustc does not tell its commit")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_may_have_spaces() {
        let place = Place { sources: "/a b/it's".into(), target: "/c  d".into() };
        let cargo = place.cargo(None).unwrap();
        let value =
            |name: &str| cargo.get_envs().find(|(found, _)| *found == name).and_then(|(_, value)| value).unwrap();
        // With this variable, the compilers' build scripts split flags as a shell does.
        assert_eq!(value("CC_SHELL_ESCAPED_FLAGS"), "1");
        for name in ["CFLAGS", "CXXFLAGS"] {
            let script = format!("printf '%s\\n' {}", value(name).to_str().unwrap());
            let flags = step::output(Command::new("sh").args(["-c", &script])).unwrap();
            let flags: Vec<&str> = flags.lines().collect();
            let expected = ["-ffile-prefix-map=/a b/it's=/lantern-index", "-ffile-prefix-map=/c  d=/target"];
            assert_eq!(flags[..2], expected);
            assert_eq!(flags.len(), 3, "{flags:?}");
        }
    }
}
