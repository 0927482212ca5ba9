use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::connect::Database;
use crate::dsn::Dsn;
use crate::error::Error;
use crate::guard::{self, May};
use crate::plan::{Action, Plan, Step, is_leftover};
use crate::survey::{self, Index};
use crate::window::Window;

/// `pg_try_advisory_lock` of one in each database: "lidx", "main".
const LOCK: &str = "SELECT pg_try_advisory_lock(1818846328, 1835100526)";

/// How often to look whether a table is free, or a rebuild is over.
const LOOK: Duration = Duration::from_millis(200);

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
    let (mut indexes, mut errors) = (Vec::new(), Vec::new());
    for name in survey::databases(dsn).await? {
        let found = async { survey::indexes(&Database::open(dsn, &name).await?).await };
        match found.await {
            Ok(found) => indexes.extend(found),
            Err(error) => errors.push(error),
        }
    }
    Ok((Plan::of(indexes), errors))
}

/// Does what a plan says, database by database; `say` hears of each step when it begins and when it has ended.
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
    say: impl Fn(&Step, Option<&Outcome>) + Send + Sync + 'static,
) -> Vec<Stepped> {
    let say: Arc<Say> = Arc::new(say);
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
        let nothing_of = |why: Outcome| {
            let none = |step: &Step| Stepped { step: step.clone(), outcome: why.clone(), seconds: 0.0 };
            steps.iter().inspect(|step| say(step, Some(&why))).map(none).collect::<Vec<_>>()
        };
        // It is held until this session ends.
        let locked = async {
            let owner = Database::open(dsn, name).await?;
            let is_ours = owner.value::<bool>(LOCK).await?;
            Ok::<_, Error>((owner, is_ours, Database::open(dsn, name).await?))
        };
        let (_owner, database) = match locked.await {
            Ok((owner, true, database)) => (owner, database),
            Ok((_, false, _)) => {
                all.extend(nothing_of(Outcome::Postponed("another maintain is at work in this database".to_owned())));
                continue;
            }
            Err(error) => {
                all.extend(nothing_of(Outcome::Failed(error.to_string())));
                continue;
            }
        };
        // Where the server has no room for more sessions, fewer do it.
        let mut databases = vec![database];
        while databases.len() < settings.jobs
            && let Ok(another) = Database::open(dsn, name).await
        {
            databases.push(another);
        }
        let queue = Arc::new(Queue { steps: Mutex::new(steps), tables: Mutex::default() });
        let mut workers = JoinSet::new();
        for database in databases {
            let worker = Worker {
                database,
                settings: settings.clone(),
                stop: stop.clone(),
                queue: queue.clone(),
                say: say.clone(),
            };
            workers.spawn(worker.run());
        }
        while let Some(done) = workers.join_next().await {
            match done {
                Ok(steps) => all.extend(steps),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
    }
    all
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

type Say = dyn Fn(&Step, Option<&Outcome>) + Send + Sync;

/// Steps that are to be taken, and the tables at which somebody is: two statements that lock a table wait for each other.
struct Queue {
    steps: Mutex<Vec<Step>>,
    tables: Mutex<HashSet<String>>,
}

impl Queue {
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
struct Worker {
    database: Database,
    settings: Settings,
    stop: CancellationToken,
    queue: Arc<Queue>,
    say: Arc<Say>,
}

impl Worker {
    async fn run(self) -> Vec<Stepped> {
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
