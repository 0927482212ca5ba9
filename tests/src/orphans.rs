use std::fs;

use anyhow::Result;

use crate::Cluster;

/// A relation file that belongs to no relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedFile {
    /// Such as `16422` or `16422_init`.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Cluster {
    /// The relation files of a database that belong to no relation. A crash leaves the files that an interrupted statement has made:
    /// PostgreSQL does not clean them up at recovery.
    pub fn orphaned_files(&self, database: &str) -> Result<Vec<OrphanedFile>> {
        let names = self.relation_files(database)?;
        let mut session = self.session(database)?;
        let oid: u32 = session.value("SELECT oid FROM pg_database WHERE datname = current_database()")?;
        let mut orphans = Vec::new();
        for name in names {
            let number: String = name.chars().take_while(char::is_ascii_digit).collect();
            // 0 is the database's own tablespace.
            let sql = format!("SELECT (pg_filenode_relation(0, {number}) IS NULL)::text");
            if session.value::<bool>(&sql)? {
                let bytes = fs::metadata(self.data().join(format!("base/{oid}")).join(&name))?.len();
                orphans.push(OrphanedFile { name, bytes });
            }
        }
        Ok(orphans)
    }
}
