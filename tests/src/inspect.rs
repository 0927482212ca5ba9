use std::process::Command;

use anyhow::Result;

use crate::{Cluster, Session, binary, step};

/// The output of `lantern-index inspect` for an index, which must have no errors.
pub fn inspect(cluster: &Cluster, session: &mut Session, index: &str) -> Result<String> {
    let file = cluster.relation_file(session, index)?;
    step::output(Command::new(binary()?).arg("inspect").arg(&file))
}
