//! One round: builds, a fault, and checks of everything afterwards.

mod look;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::{Building, Form, SqlError, Stranger, Strangers, resident_bytes, wait_for};

use crate::checks;
use crate::databases::Databases;
use crate::disk::small_disk;
use crate::documented::Documented;
use crate::fault::{Fault, Mode, Party};
use crate::plan::{Build, Plan};
use crate::pods::Kubernetes;
use crate::report::Report;
use crate::rig::{MOST_BUILDERS, Rig};
use crate::strike::{self, Starving};
use crate::tables;

/// The time limit for a statement once the fault is over.
const LONGEST: Duration = Duration::from_secs(60);
/// The most memory of a router or builder that hostile connections may occupy.
const FOR_STRANGERS: u64 = 64 << 20;
/// In addition, the memory that a builder reserves for a build of a hostile client with a valid token: rows, graph and pages.
const FOR_A_BUILD: u64 = 32 << 20;
/// For how long hostile connections exist before the builds begin.
const STRANGE: Duration = Duration::from_millis(700);

/// The state that outlives a round.
pub struct Rounds {
    databases: Databases,
    /// Set if builders are pods.
    kubernetes: Option<Rc<Kubernetes>>,
    rigs: BTreeMap<(Mode, bool), Rig>,
    documented: Documented,
    /// The time of an undisturbed build of each table.
    usual: [Duration; tables::ALL.len()],
    pub report: Report,
}

/// The outcome of a round.
#[derive(Default)]
struct Outcome {
    builds: u32,
    errors: Vec<String>,
    findings: Vec<String>,
    /// Whether the daemons should be replaced.
    is_rig_lost: bool,
}

impl Rounds {
    pub fn start(seed: u64, kubernetes: bool) -> Result<Self> {
        Ok(Self {
            databases: Databases::start(seed)?,
            kubernetes: kubernetes.then(Kubernetes::start).transpose()?,
            rigs: BTreeMap::new(),
            documented: Documented::read()?,
            usual: [Duration::from_millis(300); tables::ALL.len()],
            report: Report::new(seed, kubernetes),
        })
    }

    /// Runs a round and adds its findings to the report.
    pub fn run(&mut self, number: u32, plan: &Plan) {
        let begun = Instant::now();
        if plan.fault == Fault::FullDisk && small_disk().is_none() {
            println!("{number:4}: {plan}: left out, since this system gives us no small disk (unshare --mount)");
            return;
        }
        let mut outcome = Outcome::default();
        if let Err(error) = self.round(plan, &mut outcome) {
            outcome.findings.push(format!("{error:#}").replace('\n', " "));
            outcome.is_rig_lost = true;
            self.databases.clean();
        }
        if outcome.is_rig_lost
            && let Some(rig) = self.rigs.remove(&(plan.mode, plan.tls))
        {
            print!("{}", rig.logs());
        }
        let short = |error: &String| {
            error.split(" DETAIL:").next().unwrap_or_default().split(" HINT:").next().map(str::to_owned)
        };
        let ended: Vec<String> = outcome.errors.iter().filter_map(short).collect();
        let ended = if ended.is_empty() { "no failure".to_owned() } else { ended.join("; ") };
        println!("{number:4}: {plan}: {ended}; {:.1} s", begun.elapsed().as_secs_f64());
        self.report.round(plan, &outcome.errors, outcome.builds, &outcome.findings, number);
    }

    fn round(&mut self, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
        let has_own_rig = plan.fault.has_own_rig();
        let kept = (plan.mode, plan.tls);
        if !self.rigs.contains_key(&kept) {
            let rig = self.new_rig(plan, outcome).context("the daemons do not come to their first builds")?;
            self.rigs.insert(kept, rig);
        }
        let mut rig = match has_own_rig {
            true => self.own_rig(plan)?,
            false => self.rigs.remove(&kept).expect("just put there"),
        };
        let result = self.disturbed(plan, &mut rig, outcome);
        if !has_own_rig {
            self.rigs.insert(kept, rig);
        }
        let took = result?;
        // The next build must work.
        let begun = Instant::now();
        let rig = self.rigs.remove(&kept).expect("just put there");
        let next = Build { form: Form::Create, table: tables::MIDDLE, ..plan.builds[0] };
        if matches!(plan.fault, Fault::ApiServer(_)) {
            self.await_builders(plan, &rig).context("builders after the API server's absence")?;
        }
        let result = self.undisturbed(&rig, &next, outcome).context("the next build");
        if result.is_ok() {
            self.report.recovered(took + begun.elapsed());
        }
        self.report.usage(&rig);
        self.rigs.insert(kept, rig);
        result
    }

    /// Starts daemons and runs two builds, so that their memory has settled.
    fn new_rig(&mut self, plan: &Plan, outcome: &mut Outcome) -> Result<Rig> {
        let mut rig = Rig::start(plan.mode, plan.tls, Fault::Calm, self.kubernetes.as_ref())?;
        for table in [tables::MIDDLE, tables::WIDE] {
            let build = Build { form: Form::Create, table, ..plan.builds[0] };
            self.undisturbed(&rig, &build, outcome)?;
        }
        let left = rig.settle()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(rig)
    }

    /// Starts daemons with special limits for one fault.
    fn own_rig(&self, plan: &Plan) -> Result<Rig> {
        let mut rig = Rig::start(plan.mode, plan.tls, plan.fault, self.kubernetes.as_ref())?;
        let left = rig.settle()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(rig)
    }

    /// Builds an index without a fault, checks it and drops it.
    fn undisturbed(&mut self, rig: &Rig, build: &Build, outcome: &mut Outcome) -> Result<()> {
        rig.proxy.reset();
        let mut session = self.databases.session(build.database)?;
        rig.attach(&mut session, 0)?;
        let begun = Instant::now();
        outcome.builds += 1;
        session.execute(&sql(build))?;
        self.usual[build.table] = begun.elapsed();
        checks::is_right(&mut session, &tables::ALL[build.table], false)?;
        session.execute(&format!("DROP INDEX {}", checks::index(build)))?;
        Ok(())
    }

    /// Runs the builds with the fault. Returns the time until statements had ended and daemons were restarted.
    fn disturbed(&mut self, plan: &Plan, rig: &mut Rig, outcome: &mut Outcome) -> Result<Duration> {
        if plan.fault.has_replica() {
            rig.start_replica()?;
        }
        let mut sessions = Vec::new();
        for (at, build) in plan.builds.iter().enumerate() {
            let mut session = self.databases.session(build.database)?;
            rig.attach(&mut session, at)?;
            if build.form.is_reindex() {
                outcome.builds += 1;
                // These daemons are made to fail, so others build the index first.
                let form = Form::Create;
                let create = sql(&Build { form, ..*build });
                let local = create.replace("external = true", "external = false");
                session.execute(if plan.fault.has_own_rig() { &local } else { &create }).context("the build before")?;
                session.execute("SET hnsw.external_index = on")?;
            }
            sessions.push(session);
        }
        let strangers = match plan.fault {
            Fault::Strangers(kind, count) => Some(self.strangers(rig, kind, count, outcome)?),
            _ => None,
        };
        let (backend, sockets) = (sessions[0].pid(), harness::open_sockets(sessions[0].pid()));
        let bytes = plan.builds.iter().map(|build| tables::ALL[build.table].bytes()).sum();
        let usual = plan.builds.iter().map(|build| self.usual[build.table]).max().unwrap_or_default();
        rig.proxy.reset();
        strike::arm(rig, plan.moment, bytes);
        let running: Vec<Building> =
            sessions.into_iter().zip(&plan.builds).map(|(session, build)| session.start(&sql(build))).collect();
        outcome.builds += running.len() as u32;
        let is_over = || running.iter().all(JoinHandle::is_finished);
        strike::await_moment(rig, plan.moment, bytes, usual, is_over);
        let builders = rig.pids(Party::Builder);
        if plan.mode.starts_builders() {
            builders
                .iter()
                .for_each(|&pid| self.report.memory(&format!("builder, {:?}", plan.mode), resident_bytes(pid)));
        }
        let mut starving = Starving::default();
        let struck = Instant::now();
        strike::strike(plan, rig, &mut self.databases, backend, &mut starving)?;
        let patience = plan.fault.patience() * self.slowness();
        if wait_for("the statements to end", patience, || Ok(is_over().then_some(()))).is_err() {
            outcome.findings.push(format!("a statement does not end within {} s", patience.as_secs()));
        }
        rig.proxy.reset();
        drop((starving, strangers));
        wait_for("the statements to end when the fault is over", LONGEST, || Ok(is_over().then_some(())))?;
        let took = struck.elapsed();
        let ended: Vec<_> =
            running.into_iter().map(|thread| thread.join().expect("a session does not panic")).collect();
        let is_session_left = !plan.fault.ends_sessions() && plan.fault != Fault::Terminate(Party::Backend);
        if is_session_left && harness::open_sockets(backend) > sockets {
            outcome.findings.push("the backend has kept a connection".to_owned());
        }
        let results: Vec<Result<(), SqlError>> = ended.into_iter().map(|(_, result)| result).collect();
        self.judge(plan, &results, outcome);
        self.look_at_databases(plan, &results, outcome)?;
        let is_ending = plan.fault == Fault::Terminate(Party::Replica);
        outcome.findings.extend(rig.end_replica(is_ending)?);
        let mended = self.look_at_daemons(plan, rig, &builders, outcome)?;
        Ok(took + mended)
    }

    /// A factor for time limits, from 1 up on a busy machine.
    fn slowness(&self) -> u32 {
        self.usual[tables::MIDDLE].as_secs().clamp(1, 10) as u32
    }

    /// Starts hostile connections, and waits until they occupy as much as they can.
    fn strangers(&self, rig: &Rig, kind: Stranger, count: usize, outcome: &mut Outcome) -> Result<Strangers> {
        let parties = if rig.mode().has_router() { Party::Router } else { Party::Builder };
        let resident = || rig.pids(parties).into_iter().map(resident_bytes).sum::<u64>();
        let before = resident();
        let strangers = Strangers::send(rig.address(), &[kind], count, rig.token())?;
        let begun = Instant::now();
        let mut most = 0;
        while begun.elapsed() < STRANGE {
            most = most.max(resident());
            thread::sleep(Duration::from_millis(20));
        }
        if strangers.connected() < count.min(MOST_BUILDERS) {
            outcome.findings.push(format!("only {} strangers of {count} were let in", strangers.connected()));
        }
        let builds = if kind == Stranger::Deaf { count as u64 } else { 0 };
        if most > before + FOR_STRANGERS + builds * FOR_A_BUILD {
            let (before, most) = (before >> 20, most >> 20);
            outcome.findings.push(format!("{parties:?}: {most} MiB with {count} {kind:?}, {before} before"));
        }
        Ok(strangers)
    }
}

/// The statement of a build.
fn sql(build: &Build) -> String {
    let table = tables::ALL[build.table];
    let (m, ef_construction) = (build.m, build.ef_construction);
    let definition = format!(
        "{} USING hnsw (v {}) WITH (m = {m}, ef_construction = {ef_construction}, external = true)",
        table.name,
        table.metric.operator_class(table.kind)
    );
    build.form.sql(&checks::index(build), &definition)
}
