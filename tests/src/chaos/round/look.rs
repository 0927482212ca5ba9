//! Checks of a round, once its statements have ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::{Form, Session, SqlError, wait_for};

use super::{Outcome, Rounds, sql};
use crate::checks;
use crate::databases::cluster_of;
use crate::fault::Fault;
use crate::plan::{Build, Plan};
use crate::rig::Rig;
use crate::{strike, tables};

/// The time limit for daemons to reload their files.
const SOON: Duration = Duration::from_secs(5);
/// More than the longest pause of a router after failed starts.
const PAUSE: Duration = Duration::from_secs(30);

impl Rounds {
    /// Checks which statements failed, and how.
    pub(super) fn judge(&self, plan: &Plan, results: &[Result<(), SqlError>], outcome: &mut Outcome) {
        for (at, result) in results.iter().enumerate() {
            match result {
                Ok(()) if matches!(plan.fault, Fault::FullDisk | Fault::LittleMemory) => {
                    outcome.findings.push("a build succeeded for which there was no room".to_owned());
                }
                Ok(()) => {}
                Err(error) => {
                    outcome.errors.push(checks::one_line(error));
                    outcome.findings.extend(checks::failure(plan, at, error, &self.documented));
                }
            }
        }
        // Each build has its own builder, so that at most one of them is hit.
        if plan.fault.is_of_one_builder() && plan.mode.has_router() && outcome.errors.len() > 1 {
            outcome.findings.push(format!("one builder was lost, and {} statements failed", outcome.errors.len()));
        }
    }

    /// Checks that indexes are correct, and that PostgreSQL keeps nothing of failed builds.
    pub(super) fn look_at_databases(
        &mut self,
        plan: &Plan,
        results: &[Result<(), SqlError>],
        outcome: &mut Outcome,
    ) -> Result<()> {
        let first = cluster_of(plan.builds[0].database);
        for (build, result) in plan.builds.iter().zip(results) {
            let mut session = self.databases.recovered(build.database)?;
            let table = tables::ALL[build.table];
            let right = checks::indexes(&mut session, plan, build, result).and_then(|is_there| match is_there {
                // With daemons that are made to fail, the index before a failed build was built in the database.
                true => checks::is_right(&mut session, &table, result.is_err() && plan.fault.has_own_rig()),
                false => Ok(()),
            });
            if let Err(error) = right {
                let error = format!("{error:#}").replace('\n', " ");
                outcome.findings.push(format!("{} after {:?}: {error}", table.name, build.form));
            }
            session.execute(&format!("DROP INDEX IF EXISTS {}", checks::index(build)))?;
            let is_hit = cluster_of(build.database) == first;
            // After a crash the files of the interrupted statement remain: PostgreSQL does not clean them up.
            let orphans = self.databases.new_orphans(build.database)?;
            if orphans > 0 && !(plan.fault.is_crash() && is_hit) {
                outcome.findings.push(format!("{orphans} files that belong to no relation"));
            }
            let files = self.databases.temporary_files(build.database)?;
            if files > 0 {
                outcome.findings.push(format!("{files} temporary files of PostgreSQL"));
            }
            let crashes = self.databases.new_crashes(build.database);
            if crashes > 0 && !(plan.fault.is_crash() && is_hit) {
                outcome.findings.push(format!("{crashes} processes of PostgreSQL were ended by a signal"));
            }
        }
        Ok(())
    }

    /// Checks that daemons run and keep nothing of ended builds. Returns how long restarts took.
    pub(super) fn look_at_daemons(
        &self,
        plan: &Plan,
        rig: &mut Rig,
        builders: &[u32],
        outcome: &mut Outcome,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let ended = rig.mend()?;
        let mended = begun.elapsed();
        if !ended.is_empty() && !plan.fault.ends_daemon() {
            outcome.findings.push(format!("{} ended", ended.join(" and ")));
        }
        let left = rig.leftovers(builders, false);
        outcome.is_rig_lost |= !left.is_empty();
        outcome.findings.extend(left);
        if matches!(plan.fault, Fault::RenewCertificate | Fault::RenewToken) {
            let old = rig.forget()?;
            strike::hang_up(rig);
            if let Some(old) = old {
                self.expect_refused(plan, rig, &old).context("a token that was taken back")?;
            }
        }
        Ok(mended)
    }

    /// Checks that a token is revoked, or will be within the time limit.
    fn expect_refused(&self, plan: &Plan, rig: &Rig, token: &str) -> Result<()> {
        let mut session = self.databases.session(plan.builds[0].database)?;
        rig.attach(&mut session, 0)?;
        rig.show(&mut session, token)?;
        wait_for("its refusal", SOON, || Ok((!builds_unless(&mut session, plan, "28000")?).then_some(())))
    }

    /// Waits until the router starts builders again, after its pause for failures.
    pub(super) fn await_builders(&self, plan: &Plan, rig: &Rig) -> Result<()> {
        let mut session = self.databases.session(plan.builds[0].database)?;
        rig.attach(&mut session, 0)?;
        wait_for("a builder", PAUSE, || Ok(builds_unless(&mut session, plan, "57000")?.then_some(())))
    }
}

/// Whether a small build succeeds; it may fail only with this SQLSTATE.
fn builds_unless(session: &mut Session, plan: &Plan, sqlstate: &str) -> Result<bool> {
    let build = Build { form: Form::Create, table: tables::ONE, ..plan.builds[0] };
    match session.execute(&sql(&build)) {
        Ok(()) => {
            session.execute(&format!("DROP INDEX {}", checks::index(&build)))?;
            Ok(true)
        }
        Err(SqlError::Server(notice)) if notice.sqlstate == sqlstate => Ok(false),
        Err(error) => Err(error.into()),
    }
}
