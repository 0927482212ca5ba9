use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use database::{Database, Dsn, Error};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::connect::open;
use crate::event::{Event, Listener};
use crate::guard;
use crate::plan::{self, Action, GOOD, Step};
use crate::run::{Outcome, Settings, Stepped};
use crate::survey::{self, Index};

/// Interval for polling whether a table is free, and for repeating a cancel request.
const POLL: Duration = Duration::from_millis(200);
/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_secs(1);
/// Delay between attempts to reconnect.
const RECONNECT: Duration = Duration::from_secs(1);
/// The longest that dropping leftovers waits for transactions that use the table.
const CLEARING: Duration = Duration::from_secs(30);

/// The beginning of a check's advice to rebuild.
pub(crate) const REINDEX: &str = "reindex: ";
/// The beginning of the view's reason if it comes from a remembered check.
pub(crate) const BY_CHECK: &str = "the last check found: ";

/// Steps to take, and the tables in use: two statements that lock the same table would wait for each other.
pub(crate) struct Queue {
    steps: Mutex<Vec<Step>>,
    tables: Mutex<HashSet<u32>>,
    /// Tables with a rebuilt index whose dead rows VACUUM has to remove.
    vacuums: Mutex<HashSet<u32>>,
}

impl Queue {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self { steps: Mutex::new(steps), tables: Mutex::default(), vacuums: Mutex::default() }
    }

    /// The next step whose table is free. `Err`: the tables of all remaining steps are in use.
    fn take(&self) -> Result<Option<Step>, ()> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        match steps.iter().position(|step| !tables.contains(&step.index.table_oid)) {
            Some(at) => {
                let step = steps.remove(at);
                tables.insert(step.index.table_oid);
                Ok(Some(step))
            }
            None if steps.is_empty() => Ok(None),
            None => Err(()),
        }
    }

    /// Notes that VACUUM has to follow the table's last step.
    fn vacuum_later(&self, table: u32) {
        self.vacuums.lock().unwrap_or_else(PoisonError::into_inner).insert(table);
    }

    /// Whether VACUUM is due: the table has no more steps, and [`Self::vacuum_later`] has been called. True once.
    fn vacuum_now(&self, table: u32) -> bool {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = !steps.iter().any(|step| step.index.table_oid == table);
        is_last && self.vacuums.lock().unwrap_or_else(PoisonError::into_inner).remove(&table)
    }

    fn leave(&self, table: u32) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).remove(&table);
    }
}

/// What a check finds wrong with an index that was rebuilt.
struct Unhelped {
    advice: String,
    /// Whether its pages have errors.
    is_damaged: bool,
}

/// Takes steps from the queue, one at a time, on its own session.
pub(crate) struct Worker {
    pub(crate) dsn: Dsn,
    pub(crate) database: Database,
    /// Holds the advisory lock, and reads the progress of the busy session.
    pub(crate) owner: Arc<Database>,
    /// The oldest running transaction id when the run began.
    pub(crate) since: String,
    pub(crate) settings: Settings,
    pub(crate) stop: CancellationToken,
    pub(crate) queue: Arc<Queue>,
    pub(crate) listener: Arc<Listener>,
    /// Whether the end of the window has been reported.
    pub(crate) is_late: AtomicBool,
}

impl Worker {
    pub(crate) async fn run(mut self) -> Vec<Stepped> {
        let mut all = Vec::new();
        loop {
            let step = match self.queue.take() {
                Ok(Some(step)) => step,
                Ok(None) => return all,
                Err(()) => {
                    sleep(POLL).await;
                    continue;
                }
            };
            let started = Instant::now();
            let outcome = if self.owner.is_lost() {
                // Another maintain may have the lock by now.
                Outcome::Stopped("the connection was lost".to_owned())
            } else if let Err(error) = self.connected(&step, Duration::ZERO).await {
                self.failed(&error)
            } else {
                self.step(&step).await.unwrap_or_else(|error| Outcome::Failed(error.to_string()))
            };
            let outcome = self.vacuum(&step, outcome).await;
            self.queue.leave(step.index.table_oid);
            let warnings = self.database.take_warnings();
            warnings.iter().for_each(|warning| (self.listener)(&step, Event::Note(warning)));
            (self.listener)(&step, Event::Ended(&outcome));
            all.push(Stepped { step, outcome, warnings, seconds: started.elapsed().as_secs_f64() });
        }
    }

    async fn step(&mut self, step: &Step) -> Result<Outcome, Error> {
        let mut action = step.action;
        let now = loop {
            if let Some(ended) = self.wait(step, action).await? {
                return Ok(ended);
            }
            // The index may have been dropped, renamed or rebuilt meanwhile, and may need something else by now.
            let Some(index) = survey::index(&self.database, step.index.oid).await? else { return Ok(Outcome::Good) };
            let now = Step::of(index);
            // A VACUUM has obstacles of its own.
            if now.action != Action::RebuildAndVacuum || action == Action::RebuildAndVacuum {
                break now;
            }
            action = now.action;
        };
        let is_fine = now.is_fine();
        if !is_fine && !self.settings.wants(now.action) {
            return Ok(Outcome::advice_has_changed(&now.index));
        }
        let step = &Step { index: step.index.clone(), action: if is_fine { step.action } else { now.action } };
        (self.listener)(step, Event::Begun);
        match now.action {
            Action::Drop => self.statement(step, &format!("DROP INDEX CONCURRENTLY {}", now.index.index)).await,
            Action::Check => {
                let sql = check_and_remember(&format!("{}::regclass", now.index.oid));
                match self.until_stopped(step, self.database.value::<String>(&sql)).await {
                    Err(_) if self.stop.is_cancelled() => Ok(Outcome::told_to_stop()),
                    Ok(found) if found.starts_with(REINDEX) => {
                        let action = plan::rebuild(&now.index);
                        // A check may take long.
                        if let Some(ended) = self.wait(step, action).await? {
                            return Ok(ended);
                        }
                        // Another session may have rebuilt it meanwhile.
                        match survey::index(&self.database, now.index.oid).await?.map(Step::of) {
                            Some(now) if !now.is_fine() && !self.settings.wants(now.action) => {
                                Ok(Outcome::advice_has_changed(&now.index))
                            }
                            Some(now) if !now.is_fine() => self.rebuild_and_check(step, &now.index, action).await,
                            _ => Ok(Outcome::Good),
                        }
                    }
                    found => {
                        if let Some(advice) = found.as_ref().ok().filter(|advice| *advice != GOOD) {
                            (self.listener)(step, Event::Note(advice));
                        }
                        found.map(|_| Outcome::Good)
                    }
                }
            }
            Action::Rebuild | Action::RebuildAndVacuum if now.index.reason.starts_with(BY_CHECK) => {
                self.rebuild_and_check(step, &now.index, now.action).await
            }
            Action::Rebuild | Action::RebuildAndVacuum => self.rebuild(step, &now.index, now.action).await,
            Action::Keep | Action::Wait | Action::Look => Ok(Outcome::Good),
        }
    }

    /// Waits until the action may begin; the outcome if it may not.
    async fn wait(&self, step: &Step, action: Action) -> Result<Option<Outcome>, Error> {
        let dead_since = (action == Action::RebuildAndVacuum).then_some(self.since.as_str());
        let note = |reason: &str| (self.listener)(step, Event::Note(reason));
        guard::wait(&self.database, step.index.table_oid, dead_since, &self.settings, &self.stop, &note).await
    }

    /// After the table's last step, vacuums the table if an index was rebuilt because of dead rows: with these rows in the table, the next
    /// run would rebuild the index again. Once per table, since VACUUM scans all its indexes. Not if the last step could not begin: VACUUM may
    /// not begin then either, and would repair the index that was not rebuilt. Returns the step's outcome, to which a failed VACUUM is added.
    async fn vacuum(&mut self, step: &Step, outcome: Outcome) -> Outcome {
        let table = step.index.table_oid;
        let may_begin = !matches!(outcome, Outcome::Postponed(_) | Outcome::Stopped(_));
        if !self.queue.vacuum_now(table) || !may_begin || self.stop.is_cancelled() || self.owner.is_lost() {
            return outcome;
        }
        let vacuumed = self.vacuumed(step, table).await.unwrap_or_else(|error| self.failed(&error));
        match (outcome, vacuumed) {
            (outcome, Outcome::Done) => outcome,
            (Outcome::Done | Outcome::Good, vacuumed) => vacuumed,
            (outcome, Outcome::Failed(why)) => outcome.with(&format!("; VACUUM failed: {why}")),
            (outcome, _) => outcome.with("; VACUUM was cancelled"),
        }
    }

    async fn vacuumed(&mut self, step: &Step, table: u32) -> Result<Outcome, Error> {
        self.connected(step, Duration::ZERO).await?;
        // The table may have been renamed or dropped.
        let name = format!(
            "SELECT oid::regclass::text, current_setting('server_version_num')::int >= 180000 FROM pg_class WHERE oid = {table}"
        );
        let rows = self.database.rows(&name).await?;
        let Some((name, recurses)) = rows.first().map(|row| (row.get::<_, String>(0), row.get(1))) else {
            return Ok(Outcome::Done);
        };
        // From PostgreSQL 18 on, VACUUM includes the tables that inherit from this one.
        let only = if recurses { "ONLY " } else { "" };
        (self.listener)(step, Event::Note("VACUUM of the table …"));
        // Another session may have locked the table.
        self.limit_locks(self.settings.patience).await?;
        let outcome = self.statement(step, &format!("VACUUM {only}{name}")).await?;
        self.database.run("SET lock_timeout = 0").await?;
        Ok(outcome)
    }

    /// Rebuilds an index, and drops the leftovers if that fails. `action` says whether VACUUM has to follow.
    async fn rebuild(&mut self, step: &Step, index: &Index, action: Action) -> Result<Outcome, Error> {
        let before = survey::leftovers(&self.database, index.table_oid).await?;
        if self.settings.external {
            self.database.run("SET hnsw.external_index = on").await?;
        }
        let outcome = self.statement(step, &format!("REINDEX INDEX CONCURRENTLY {}", index.index)).await?;
        if outcome == Outcome::Done {
            if action == Action::RebuildAndVacuum {
                self.queue.vacuum_later(index.table_oid);
            }
            return Ok(outcome);
        }
        Ok(match self.drop_leftovers(step, index.table_oid, &before).await {
            Ok(None) => outcome,
            Ok(Some(what)) => outcome.with(what),
            Err(error) => outcome.with(&format!("; its leftovers remain, for --drop-leftovers: {error}")),
        })
    }

    /// Rebuilds an index because of a check, and checks the new one.
    async fn rebuild_and_check(&mut self, step: &Step, index: &Index, action: Action) -> Result<Outcome, Error> {
        let outcome = self.rebuild(step, index, action).await?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
        let note = match self.until_stopped(step, self.check_again(&index.index)).await {
            Ok(None) => return Ok(outcome),
            Ok(Some(Unhelped { advice, is_damaged: true })) => return Ok(Outcome::Failed(advice)),
            Ok(Some(Unhelped { advice, is_damaged: false })) => advice,
            Err(_) if self.stop.is_cancelled() => return Ok(outcome),
            // Only the check's result is missing.
            Err(error) => format!("the new index could not be checked: {error}"),
        };
        (self.listener)(step, Event::Note(&note));
        Ok(outcome)
    }

    /// Checks an index after its rebuild. If it is no better, another rebuild would not help: with some rows, pgvector's own build leaves
    /// many elements unreachable. This is stored, so that the next run does not rebuild the index again. Errors in its pages stay a reason
    /// to rebuild it: storage or memory may be bad.
    async fn check_again(&self, name: &str) -> Result<Option<Unhelped>, Error> {
        // The name is a parameter: owners of databases choose names, and settings by which a literal is read.
        let found = self.database.rows_with(&check_and_remember("$1::text::regclass"), &[&name]).await?;
        let found: String = found[0].get(0);
        let Some(why) = found.strip_prefix(REINDEX) else { return Ok(None) };
        let advice = format!("a rebuild did not help: {why}");
        let keep = "UPDATE lantern_index.checks SET advice = CASE WHEN errors > 0 THEN advice ELSE $2 END \
                    WHERE index = $1::text::regclass RETURNING errors > 0";
        let kept = self.database.rows_with(keep, &[&name, &advice]).await?;
        Ok(Some(Unhelped { is_damaged: kept.first().is_some_and(|row| row.get(0)), advice }))
    }

    /// Drops the leftovers of a failed rebuild. Returns what has become of them; `None` if there were none.
    async fn drop_leftovers(
        &mut self,
        step: &Step,
        table: u32,
        before: &BTreeMap<u32, String>,
    ) -> Result<Option<&'static str>, Error> {
        self.connected(step, self.settings.patience.min(CLEARING)).await?;
        let is_taken = guard::is_taken(&self.database, table).await?;
        let mut left = survey::leftovers(&self.database, table).await?;
        left.retain(|oid, _| !before.contains_key(oid));
        if left.is_empty() {
            return Ok(None);
        }
        // Another session, such as a REINDEX that waited for ours, may be building these indexes.
        if is_taken {
            return Ok(Some("; another session uses the table: leftovers may remain, for --drop-leftovers"));
        }
        self.limit_locks(self.settings.patience.min(CLEARING)).await?;
        let mut dropped = Ok(());
        for name in left.values() {
            if dropped.is_ok() {
                dropped = self.database.run(&format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).await;
            }
        }
        // A rebuild must wait without limit.
        self.database.run("SET lock_timeout = 0").await?;
        dropped.map(|()| Some("; its leftovers have been dropped"))
    }

    /// Limits how long a statement waits for a lock; PostgreSQL counts milliseconds, and takes 0 as no limit.
    async fn limit_locks(&self, limit: Duration) -> Result<(), Error> {
        let limit = limit.as_millis().clamp(1, u128::from(i32::MAX.unsigned_abs()));
        self.database.run(&format!("SET lock_timeout = {limit}")).await
    }

    /// Reconnects if the session or the server has ended. After a request to stop, a server that does not answer is given up once `grace`
    /// is over.
    async fn connected(&mut self, step: &Step, grace: Duration) -> Result<(), Error> {
        let place = format!("{}/{}", self.dsn.place(), self.database.name);
        let stop = self.stop.clone();
        let given_up = async {
            stop.cancelled().await;
            sleep(grace).await;
        };
        tokio::select! {
            result = self.reconnected(step) => result,
            () = given_up => Err(Error::Connect { place, reason: "told to stop".to_owned() }),
        }
    }

    /// If the connection does not succeed at once, the listener gets one note with the error.
    async fn reconnected(&mut self, step: &Step) -> Result<(), Error> {
        let (started, lost, mut is_noted) = (Instant::now(), self.database.pid, false);
        // A session about to end may not be marked as lost yet: query it.
        while self.database.is_lost() || self.database.run("SELECT 1").await.is_err() {
            match open(&self.dsn, &self.database.name).await {
                Ok(database) => self.database = database,
                Err(error) if started.elapsed() > self.settings.patience || self.stop.is_cancelled() => {
                    return Err(error);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_noted, true) {
                        let note = format!("the connection was lost; cannot connect again yet: {error}");
                        (self.listener)(step, Event::Note(&note));
                    }
                    sleep(RECONNECT).await;
                }
            }
        }
        // The client sees the old session end before its locks are released.
        let ends = format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {lost})");
        while lost != self.database.pid
            && started.elapsed() < self.settings.patience.min(CLEARING)
            && !self.database.value::<bool>(&ends).await?
        {
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Waits for a statement, reports progress, and cancels it when asked to stop.
    async fn until_stopped<T>(
        &self,
        step: &Step,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut running = std::pin::pin!(statement);
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                result = &mut running => return result,
                () = self.stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            tokio::select! {
                result = &mut running => return result,
                () = self.stop.cancelled() => break,
                () = self.report_progress(step) => {}
            }
        }
        loop {
            // A cancel request that arrives before the statement has no effect: repeat it.
            let cancel = async {
                self.database.cancel().await;
                sleep(POLL).await;
            };
            tokio::select! {
                result = &mut running => return result,
                () = cancel => {}
            }
        }
    }

    /// Reports progress, and once that the window is closed. Errors are ignored: they must not end the statement. All columns of another
    /// role's progress are NULL, unless this one may see statistics.
    async fn report_progress(&self, step: &Step) {
        let sql = format!(
            "SELECT phase, coalesce(nullif(tuples_total, 0), nullif(blocks_total, 0)) IS NOT NULL, \
                    CASE WHEN tuples_total > 0 THEN tuples_done / tuples_total::float8 \
                         WHEN blocks_total > 0 THEN blocks_done / blocks_total::float8 ELSE 0 END \
             FROM pg_stat_progress_create_index WHERE pid = {pid} AND phase IS NOT NULL \
             UNION ALL \
             SELECT phase, heap_blks_total > 0, CASE WHEN heap_blks_total > 0 THEN heap_blks_scanned / heap_blks_total::float8 ELSE 0 END \
             FROM pg_stat_progress_vacuum WHERE pid = {pid} AND phase IS NOT NULL",
            pid = self.database.pid
        );
        if let Ok(rows) = self.owner.rows(&sql).await
            && let Some(row) = rows.first()
        {
            (self.listener)(step, Event::Progress(row.get(0), row.get::<_, bool>(1).then(|| row.get(2))));
        }
        if !self.is_late.load(Ordering::Relaxed)
            && let Ok(Some(time)) = guard::past_window(&self.owner, &self.settings).await
        {
            self.is_late.store(true, Ordering::Relaxed);
            let note = format!("the window is closed, it is {time}: what has begun is finished, nothing else begins");
            (self.listener)(step, Event::Note(&note));
        }
    }

    /// Runs a statement, and cancels it when asked to stop.
    async fn statement(&self, step: &Step, sql: &str) -> Result<Outcome, Error> {
        Ok(match self.until_stopped(step, self.database.run(sql)).await {
            Ok(()) => Outcome::Done,
            Err(error) => self.failed(&error),
        })
    }

    fn failed(&self, error: &Error) -> Outcome {
        if self.stop.is_cancelled() { Outcome::told_to_stop() } else { Outcome::Failed(error.to_string()) }
    }
}

/// The query that checks the index which this expression of type `regclass` denotes. All arguments are typed, so that no overload of the
/// function fits as well.
fn check_and_remember(index: &str) -> String {
    format!("SELECT lantern_index.check_and_remember({index}, 100, NULL::boolean)")
}
