use anyhow::Result;

use crate::Cluster;

impl Cluster {
    /// The relation files of a database that belong to no relation, such as `16422` or `16422_init`. A crash leaves the files that an
    /// interrupted statement has made: PostgreSQL does not clean them up at recovery.
    pub fn orphaned_files(&self, database: &str) -> Result<Vec<String>> {
        let mut session = self.session(database)?;
        let mut orphans = Vec::new();
        for name in self.relation_files(database)? {
            let number: String = name.chars().take_while(char::is_ascii_digit).collect();
            // 0 is the database's own tablespace.
            if session.value::<bool>(&format!("SELECT (pg_filenode_relation(0, {number}) IS NULL)::text"))? {
                orphans.push(name);
            }
        }
        Ok(orphans)
    }
}
