use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Cluster, Session, binary};

/// The output of `lantern-index inspect` for an index, which must have no errors.
pub fn inspect(cluster: &Cluster, session: &mut Session, index: &str) -> Result<String> {
    let file = cluster.relation_file(session, index)?;
    let output = Command::new(binary()?).arg("inspect").arg(&file).output().context("cannot run lantern-index")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "lantern-index inspect {}: {}\n{text}{}",
        file.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}
