use std::fs;

use crate::PgConfig;

/// The oldest pgvector that set-up accepts.
pub const MINIMUM_PGVECTOR: (u32, u32) = (0, 8);

/// The version of pgvector installed for a PostgreSQL, such as `0.8.0`; `None` if there is none.
pub fn pgvector_version(config: &PgConfig) -> Option<String> {
    let library = config.pkglibdir.join("vector.so");
    let control = fs::read_to_string(config.sharedir.join("extension/vector.control")).ok()?;
    let version = control.lines().find_map(|line| line.strip_prefix("default_version"))?;
    library.is_file().then(|| version.trim_matches(|c: char| c == '\'' || c == '=' || c.is_whitespace()).to_owned())
}
