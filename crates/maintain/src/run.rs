use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use database::{Database, Dsn, Error};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connect::open;
use crate::event::{Event, Listener};
use crate::guard;
use crate::plan::{Action, Plan, Step};
use crate::survey::{self, Index};
use crate::window::Window;
use crate::worker::{Queue, Worker};

/// Admits one `maintain` per database; the keys spell "lidx" and "main".
const LOCK: &str = "SELECT pg_try_advisory_lock(1818846328, 1835100526)";

/// What may be done, and when.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Check and rebuild the indexes that need it.
    pub rebuild: bool,
    /// Drop indexes left by failed REINDEX CONCURRENTLY.
    pub drop_leftovers: bool,
    /// Rebuild all indexes on a builder, not only those with the option `external`.
    pub external: bool,
    /// Concurrent rebuilds per database.
    pub jobs: usize,
    /// When steps may begin; `None` means always.
    pub window: Option<Window>,
    /// The largest replay lag of a replica at which a step may begin.
    pub max_lag: Duration,
    /// The largest age of other sessions' transactions at which a step may begin.
    pub max_transaction: Duration,
    /// How long a step waits until it is postponed.
    pub patience: Duration,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// It was done.
    Done,
    /// A check found nothing to do.
    Good,
    /// Not begun, because of replicas, transactions or another session's work.
    Postponed(String),
    /// Not begun, or cancelled: a request to stop, a closed window, or a lost connection.
    Stopped(String),
    /// The statement failed.
    Failed(String),
}

impl Outcome {
    pub(crate) fn told_to_stop() -> Self {
        Self::Stopped("told to stop".to_owned())
    }

    pub(crate) fn advice_has_changed(index: &Index) -> Self {
        Self::Postponed(format!("its advice is \"{}\" by now: {}", index.advice, index.reason))
    }

    /// Appends to the reason.
    pub(crate) fn with(self, more: &str) -> Self {
        match self {
            Self::Postponed(why) => Self::Postponed(why + more),
            Self::Stopped(why) => Self::Stopped(why + more),
            Self::Failed(why) => Self::Failed(why + more),
            other => other,
        }
    }
}

/// A step and its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Stepped {
    /// The step.
    #[serde(flatten)]
    pub step: Step,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The server's WARNINGs.
    pub warnings: Vec<String>,
    /// Duration in seconds, including the time spent waiting.
    pub seconds: f64,
}

/// Examines the hnsw indexes of the connection string's database, or of all databases, and returns the errors of those it cannot read.
///
/// # Errors
/// No connection to the server.
pub async fn look(dsn: &Dsn) -> Result<(Plan, Vec<Error>), Error> {
    let (mut indexes, mut errors, mut notes) = (Vec::new(), Vec::new(), Vec::<String>::new());
    for name in survey::databases(dsn).await? {
        let found = async {
            let database = open(dsn, &name).await?;
            Ok((survey::indexes(&database).await?, survey::notes(&database).await?))
        };
        match found.await {
            Ok((found, new)) => {
                // Notes about the server repeat in every database.
                notes.extend(
                    new.into_iter().filter(|note| !found.is_empty() && !notes.contains(note)).collect::<Vec<_>>(),
                );
                indexes.extend(found);
            }
            Err(error) => errors.push(error),
        }
    }
    let mut plan = Plan::of(indexes);
    plan.notes = notes;
    Ok((plan, errors))
}

/// Carries out a plan, database by database; `listener` gets the events of each step.
///
/// After `stop` no step begins; a running rebuild is cancelled, and its leftovers are dropped. A step or database that fails does not end
/// the others.
///
/// # Panics
/// When a step panics.
pub async fn work(
    dsn: &Dsn,
    plan: &Plan,
    settings: &Settings,
    stop: &CancellationToken,
    listener: impl Fn(&Step, Event<'_>) + Send + Sync + 'static,
) -> Vec<Stepped> {
    let listener: Arc<Listener> = Arc::new(listener);
    let mut databases: Vec<&str> = Vec::new();
    for step in plan.due() {
        if !databases.contains(&step.index.database.as_str()) {
            databases.push(&step.index.database);
        }
    }
    let mut all = Vec::new();
    for name in databases {
        let due = plan.due().filter(|step| step.index.database == name && settings.wants(step.action));
        let steps: Vec<Step> = due.cloned().collect();
        if steps.is_empty() {
            continue;
        }
        let workers = tokio::select! {
            workers = Workers::of(dsn, name, jobs(&steps, settings.jobs)) => workers,
            () = stop.cancelled() => Err(Outcome::told_to_stop()),
        };
        match workers {
            Ok(workers) => all.extend(workers.carry_out(dsn, steps, settings, stop, &listener).await),
            Err(why) => all.extend(steps.into_iter().map(|step| {
                listener(&step, Event::Ended(&why));
                Stepped { step, outcome: why.clone(), warnings: Vec::new(), seconds: 0.0 }
            })),
        }
    }
    all
}

/// The number of sessions that can work at a time: two steps on one table do not.
fn jobs(steps: &[Step], most: usize) -> usize {
    steps.iter().map(|step| step.index.table_oid).collect::<HashSet<_>>().len().min(most)
}

/// Sessions in one database, which hold the lock against other runs of maintain.
struct Workers {
    /// Holds the advisory lock until it disconnects.
    owner: Database,
    databases: Vec<Database>,
    /// The oldest running transaction id when the sessions began.
    since: String,
}

impl Workers {
    /// Opens up to `jobs` sessions, fewer if the server accepts no more. `Err` is the outcome of all steps.
    async fn of(dsn: &Dsn, name: &str, jobs: usize) -> Result<Self, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let owner = open(dsn, name).await.map_err(failed)?;
        if !owner.value::<bool>(LOCK).await.map_err(failed)? {
            return Err(Outcome::Postponed("another maintain is at work in this database".to_owned()));
        }
        let mut databases = vec![open(dsn, name).await.map_err(failed)?];
        while databases.len() < jobs
            && let Ok(another) = open(dsn, name).await
        {
            databases.push(another);
        }
        let since = guard::oldest_running(&owner).await.map_err(failed)?;
        Ok(Self { owner, databases, since })
    }

    async fn carry_out(
        self,
        dsn: &Dsn,
        steps: Vec<Step>,
        settings: &Settings,
        stop: &CancellationToken,
        listener: &Arc<Listener>,
    ) -> Vec<Stepped> {
        let (queue, owner) = (Arc::new(Queue::new(steps)), Arc::new(self.owner));
        let mut workers = JoinSet::new();
        for database in self.databases {
            let worker = Worker {
                dsn: dsn.clone(),
                database,
                owner: owner.clone(),
                since: self.since.clone(),
                settings: settings.clone(),
                stop: stop.clone(),
                queue: queue.clone(),
                listener: listener.clone(),
                is_late: AtomicBool::new(false),
            };
            workers.spawn(worker.run());
        }
        workers.join_all().await.into_iter().flatten().collect()
    }
}

impl Settings {
    pub(crate) fn wants(&self, action: Action) -> bool {
        match action {
            Action::Drop => self.drop_leftovers,
            Action::Check | Action::Rebuild | Action::RebuildAndVacuum => self.rebuild,
            Action::Keep | Action::Wait | Action::Look => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::jobs;
    use crate::plan::{Action, Step};
    use crate::survey::Index;

    #[test]
    fn there_are_no_more_jobs_than_tables() {
        let of = |table_oid| Step { index: Index { table_oid, ..Index::default() }, action: Action::Rebuild };
        let steps = [1, 2, 1, 3].map(of);
        assert_eq!([1, 2, 8].map(|most| jobs(&steps, most)), [1, 2, 3]);
    }
}
