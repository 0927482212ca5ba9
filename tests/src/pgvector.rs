use std::fs;

use anyhow::Result;

use crate::{PgConfig, Session};

/// The oldest pgvector that set-up accepts.
pub const MINIMUM_PGVECTOR: (u32, u32) = (0, 8);

/// The version of pgvector installed for a PostgreSQL, such as `0.8.0`; `None` if there is none.
pub fn pgvector_version(config: &PgConfig) -> Option<String> {
    let library = config.pkglibdir.join("vector.so");
    let control = fs::read_to_string(config.sharedir.join("extension/vector.control")).ok()?;
    default_version(&control).filter(|_| library.is_file()).map(str::to_owned)
}

/// The version in an extension's control file.
pub fn default_version(control: &str) -> Option<&str> {
    let version = control.lines().find_map(|line| line.strip_prefix("default_version"))?;
    Some(version.trim_matches(|c: char| c == '\'' || c == '=' || c.is_whitespace()))
}

/// Whether the database's pgvector may leave a damaged index after VACUUM, or after an insert beside it: it is older than 0.8.4.
pub fn may_damage_indexes(session: &mut Session) -> Result<bool> {
    let version: String = session.value("SELECT extversion FROM pg_extension WHERE extname = 'vector'")?;
    let numbers = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    Ok(numbers < vec![0, 8, 4])
}
