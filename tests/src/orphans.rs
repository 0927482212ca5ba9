use anyhow::Result;

use crate::Cluster;

impl Cluster {
    /// The relation files of a database that belong to no relation, such as `16422` or `16422_init`. A crash leaves the files that an
    /// interrupted statement has made: PostgreSQL does not clean them up at recovery.
    pub fn orphaned_files(&self, database: &str) -> Result<Vec<String>> {
        // 0 is the database's own tablespace.
        let sql = format!(
            "SELECT name FROM unnest('{{{}}}'::text[]) name \
             WHERE pg_filenode_relation(0, substring(name from '^[0-9]+')::oid) IS NULL",
            self.relation_files(database)?.join(",")
        );
        let rows = self.session(database)?.query(&sql)?;
        Ok(rows.into_iter().flatten().flatten().collect())
    }
}
