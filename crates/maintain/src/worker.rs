use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::connect::Database;
use crate::error::Error;
use crate::guard::{self, May};
use crate::plan::{Action, Plan, Step, is_leftover};
use crate::run::{Outcome, Settings, Stepped};
use crate::survey::{self, Index};

/// How often to look whether a table is free, or a rebuild is over.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) type Say = dyn Fn(&Step, Option<&Outcome>) + Send + Sync;

/// Steps that are to be taken, and the tables at which somebody is: two statements that lock a table wait for each other.
pub(crate) struct Queue {
    steps: Mutex<Vec<Step>>,
    tables: Mutex<HashSet<String>>,
}

impl Queue {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self { steps: Mutex::new(steps), tables: Mutex::default() }
    }

    /// The next step whose table is free. `Err`: there are others, whose tables are not.
    fn take(&self) -> Result<Option<Step>, ()> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        match steps.iter().position(|step| !tables.contains(&step.index.table)) {
            Some(at) => {
                let step = steps.remove(at);
                tables.insert(step.index.table.clone());
                Ok(Some(step))
            }
            None if steps.is_empty() => Ok(None),
            None => Err(()),
        }
    }

    /// Whether more is to be done to a table.
    fn has(&self, table: &str) -> bool {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.iter().any(|step| step.index.table == table)
    }

    fn leave(&self, table: &str) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).remove(table);
    }
}

/// Takes steps, one after the other, on a session of its own.
pub(crate) struct Worker {
    pub(crate) database: Database,
    pub(crate) settings: Settings,
    pub(crate) stop: CancellationToken,
    pub(crate) queue: Arc<Queue>,
    pub(crate) say: Arc<Say>,
}

impl Worker {
    pub(crate) async fn run(self) -> Vec<Stepped> {
        let mut all = Vec::new();
        loop {
            let step = match self.queue.take() {
                Ok(Some(step)) => step,
                Ok(None) => return all,
                Err(()) => {
                    sleep(LOOK).await;
                    continue;
                }
            };
            let started = Instant::now();
            let outcome = self.step(&step).await.unwrap_or_else(|error| Outcome::Failed(error.to_string()));
            self.queue.leave(&step.index.table);
            (self.say)(&step, Some(&outcome));
            all.push(Stepped { step, outcome, seconds: started.elapsed().as_secs_f64() });
        }
    }

    async fn step(&self, step: &Step) -> Result<Outcome, Error> {
        match guard::wait(&self.database, &step.index.table, &self.settings, &self.stop).await? {
            May::Begin => {}
            May::NotNow(reason) => return Ok(Outcome::Postponed(reason)),
            May::Stop(reason) => return Ok(Outcome::Stopped(reason)),
        }
        // Others may have dropped it, or built it, since it was looked at.
        let Some(now) = self.now(&step.index).await? else { return Ok(Outcome::Good) };
        let action = Plan::of(vec![now]).steps.remove(0).action;
        (self.say)(step, None);
        match (step.action, action) {
            (Action::Drop, Action::Drop) => {
                self.statement(&format!("DROP INDEX CONCURRENTLY {}", step.index.index)).await
            }
            (Action::Check, Action::Check) => {
                let name = step.index.index.replace('\'', "''");
                let sql = format!("SELECT lantern_index.check_and_remember('{name}')");
                match self.until_stopped(self.database.value::<String>(&sql)).await {
                    Err(_) if self.stop.is_cancelled() => Ok(Outcome::Stopped("told to stop".to_owned())),
                    Ok(found) if found.starts_with("reindex") => self.rebuild(&step.index).await,
                    found => found.map(|_| Outcome::Good),
                }
            }
            (Action::Rebuild | Action::RebuildAndVacuum, Action::Rebuild | Action::RebuildAndVacuum) => {
                let outcome = self.rebuild(&step.index).await?;
                // VACUUM goes through all indexes of the table: the last rebuild is followed by it.
                let is_last = !self.queue.has(&step.index.table);
                if outcome == Outcome::Done && action == Action::RebuildAndVacuum && is_last {
                    return self.statement(&format!("VACUUM {}", step.index.table)).await;
                }
                Ok(outcome)
            }
            _ => Ok(Outcome::Good),
        }
    }

    async fn now(&self, index: &Index) -> Result<Option<Index>, Error> {
        let all = survey::indexes(&self.database).await?;
        Ok(all.into_iter().find(|other| other.index == index.index))
    }

    /// A rebuild; what it leaves when it fails is dropped.
    async fn rebuild(&self, index: &Index) -> Result<Outcome, Error> {
        let before = self.leftovers(&index.table).await?;
        if self.settings.external {
            self.database.run("SET hnsw.external_index = on").await?;
        }
        let outcome = self.statement(&format!("REINDEX INDEX CONCURRENTLY {}", index.index)).await?;
        // What another session is building is not left over: a REINDEX that waited for ours, say.
        if outcome != Outcome::Done && !guard::is_taken(&self.database, &index.table).await? {
            for left in self.leftovers(&index.table).await?.difference(&before) {
                self.database.run(&format!("DROP INDEX CONCURRENTLY IF EXISTS {left}")).await?;
            }
        }
        Ok(outcome)
    }

    /// Invalid hnsw indexes of a table with names as REINDEX CONCURRENTLY gives them: left over if nobody else is at the table.
    async fn leftovers(&self, table: &str) -> Result<HashSet<String>, Error> {
        let all = survey::indexes(&self.database).await?;
        let left = all.into_iter().filter(|index| index.table == table && !index.valid && is_leftover(&index.name));
        Ok(left.map(|index| index.index).collect())
    }

    /// Waits for a statement, and cancels it when told to stop.
    async fn until_stopped<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut running = std::pin::pin!(statement);
        tokio::select! {
            result = &mut running => return result,
            () = self.stop.cancelled() => {}
        }
        loop {
            self.database.cancel().await;
            // A cancel that comes before the statement is lost.
            tokio::select! {
                result = &mut running => return result,
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Runs a statement, and ends it when told to stop.
    async fn statement(&self, sql: &str) -> Result<Outcome, Error> {
        Ok(match self.until_stopped(self.database.run(sql)).await {
            Ok(()) => Outcome::Done,
            Err(_) if self.stop.is_cancelled() => Outcome::Stopped("told to stop".to_owned()),
            Err(error) => Outcome::Failed(error.to_string()),
        })
    }
}
