use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connect::Database;
use crate::dsn::Dsn;
use crate::error::Error;
use crate::event::{Event, Listener};
use crate::plan::{Action, Plan, Step};
use crate::window::Window;
use crate::worker::{Queue, Worker};
use crate::{guard, survey};

/// `pg_try_advisory_lock` of one in each database: "lidx", "main".
const LOCK: &str = "SELECT pg_try_advisory_lock(1818846328, 1835100526)";

/// What may be done, and when.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Indexes that need it are checked and rebuilt.
    pub rebuild: bool,
    /// What failed REINDEX CONCURRENTLY have left is dropped.
    pub drop_leftovers: bool,
    /// All rebuilds go to a builder, not only those of indexes with the option.
    pub external: bool,
    /// Rebuilds at a time in a database.
    pub jobs: usize,
    /// When steps may begin; always without.
    pub window: Option<Window>,
    /// How far replicas may be behind when a step begins.
    pub max_lag: Duration,
    /// How old the oldest transaction of others may be then.
    pub max_transaction: Duration,
    /// How long to wait for either.
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
    /// Not begun: replicas, transactions, or another maintain.
    Postponed(String),
    /// Not begun, or ended: told to stop, or the window is over.
    Stopped(String),
    /// The statement failed.
    Failed(String),
}

impl Outcome {
    /// With more words.
    pub(crate) fn with(self, more: &str) -> Self {
        match self {
            Self::Postponed(why) => Self::Postponed(why + more),
            Self::Stopped(why) => Self::Stopped(why + more),
            Self::Failed(why) => Self::Failed(why + more),
            other => other,
        }
    }
}

/// A step that was taken, or was to be.
#[derive(Clone, Debug, Serialize)]
pub struct Stepped {
    /// Which.
    #[serde(flatten)]
    pub step: Step,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took.
    pub seconds: f64,
}

/// All hnsw indexes of the database that the connection string names, or of all; and why databases could not be looked at.
///
/// # Errors
/// No connection to the server.
pub async fn look(dsn: &Dsn) -> Result<(Plan, Vec<Error>), Error> {
    let (mut indexes, mut errors, mut notes) = (Vec::new(), Vec::new(), Vec::<String>::new());
    for name in survey::databases(dsn).await? {
        let found = async {
            let database = Database::open(dsn, &name).await?;
            Ok((survey::indexes(&database).await?, survey::notes(&database).await?))
        };
        match found.await {
            Ok((found, told)) => {
                // Those of the server are the same in all databases.
                notes.extend(
                    told.into_iter().filter(|note| !found.is_empty() && !notes.contains(note)).collect::<Vec<_>>(),
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

/// Does what a plan says, database by database; `listener` hears of each step when it begins, while it goes on, and when it has ended.
///
/// After `stop` no step begins; a rebuild under way is cancelled, and what it leaves is dropped. A step that fails ends no other, and a database
/// that cannot be had keeps nobody from the next one.
///
/// # Panics
/// When a step does.
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
        match Workers::of(dsn, name, settings.jobs).await {
            Ok(workers) => all.extend(workers.take(dsn, steps, settings, stop, &listener).await),
            Err(why) => all.extend(steps.into_iter().map(|step| {
                listener(&step, Event::Ended(&why));
                Stepped { step, outcome: why.clone(), seconds: 0.0 }
            })),
        }
    }
    all
}

/// Sessions in a database in which no other maintain is at work.
struct Workers {
    /// It has the lock until it ends.
    owner: Database,
    databases: Vec<Database>,
    /// The oldest transaction when they began.
    since: String,
}

impl Workers {
    /// Up to `jobs`; where the server has no room for more sessions, fewer. `Err`: what becomes of all steps instead.
    async fn of(dsn: &Dsn, name: &str, jobs: usize) -> Result<Self, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let owner = Database::open(dsn, name).await.map_err(failed)?;
        if !owner.value::<bool>(LOCK).await.map_err(failed)? {
            return Err(Outcome::Postponed("another maintain is at work in this database".to_owned()));
        }
        let mut databases = vec![Database::open(dsn, name).await.map_err(failed)?];
        while databases.len() < jobs
            && let Ok(another) = Database::open(dsn, name).await
        {
            databases.push(another);
        }
        let since = guard::now(&owner).await.map_err(failed)?;
        Ok(Self { owner, databases, since })
    }

    async fn take(
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
    fn wants(&self, action: Action) -> bool {
        match action {
            Action::Drop => self.drop_leftovers,
            Action::Check | Action::Rebuild | Action::RebuildAndVacuum => self.rebuild,
            Action::Keep | Action::Wait | Action::Look => false,
        }
    }
}
