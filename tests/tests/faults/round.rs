mod checks;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Cluster, Column, Direction, Form, Random, Session, Vectors, copy_rows, data_set, open_sockets, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::fault::{Fault, Moment};
use crate::rig::Rig;
use crate::watch::Crashes;

const DATABASE: &str = "faults";
const ROWS: usize = 3000;
/// Rows of table `spare`.
const SPARE: usize = 4000;
const DROP: &str = "DROP INDEX IF EXISTS items_idx";

/// The statement to disturb.
fn sql(form: Form) -> String {
    form.sql("items_idx", "items USING hnsw (v vector_l2_ops) WITH (external = true)")
}

/// The time limit for a statement: it tolerates at most 30 seconds of silence.
const LONGEST: Duration = Duration::from_secs(60);

pub struct Scene {
    cluster: Cluster,
    session: Session,
    /// One with TLS and one without, for the whole test.
    rigs: [Option<Rig>; 2],
    orphans: Vec<String>,
    crashes: Crashes,
    /// By fault, the numbers of failed and of successful builds.
    ended: BTreeMap<Fault, [u32; 2]>,
    messages: BTreeMap<String, u32>,
}

impl Scene {
    pub fn new() -> Self {
        let cluster = Cluster::start().unwrap();
        let mut session = cluster.database(DATABASE).unwrap();
        let (base, queries) = data_set("minilm-384").unwrap();
        copy_rows(&mut session, "items", Column::Vector, &base.clone().truncated(ROWS)).unwrap();
        let spare = (ROWS..ROWS + SPARE).flat_map(|row| base.row(row).to_vec()).collect();
        copy_rows(&mut session, "spare", Column::Vector, &Vectors::new(base.dims(), spare)).unwrap();
        copy_rows(&mut session, "queries", Column::Vector, &queries.truncated(30)).unwrap();
        let mut rigs = [Rig::new(true), Rig::new(false)];
        for rig in &mut rigs {
            for _ in 0..2 {
                rig.build(&mut session, &sql(Form::Create));
                session.execute(DROP).unwrap();
            }
        }
        let rigs = rigs.map(Some);
        let (orphans, crashes) = (cluster.orphaned_files(DATABASE).unwrap(), Crashes::count(&cluster));
        Self { cluster, session, rigs, orphans, crashes, ended: BTreeMap::new(), messages: BTreeMap::new() }
    }

    /// Runs one build with one fault, and checks everything afterwards. Returns how the build ended.
    pub fn round(&mut self, random: &mut Random, form: Form, fault: Fault, moment: Moment, tls: bool) -> String {
        self.change_rows(random);
        let rows = self.digest();
        let mut rig = self.take_rig(fault, tls);
        if form.is_reindex() {
            rig.build(&mut self.session, &sql(Form::Create));
        }
        let (result, is_damaged) = self.disturbed_build(&mut rig, random, fault, moment, &sql(form));
        // After the last page the client only closes the connection, and altered bytes of that may go unnoticed.
        let is_late = matches!(moment, Moment::Late(..));
        assert!(!is_damaged || result.is_err() || is_late, "altered bytes were accepted at {moment:?}");

        // The rows are unchanged. The index is the one from before, a complete new one, or there is none.
        assert_eq!(self.digest(), rows, "rows are lost or altered");
        let indexes = self.valid_indexes(form, result.is_ok());
        match &result {
            Ok(()) => assert_eq!(indexes, 1, "the statement succeeded"),
            // The commit may have succeeded although the connection was lost in the crash.
            Err(_) if fault.is_crash() => assert!(indexes == 1 || !form.is_reindex()),
            Err(_) => assert_eq!(indexes, u32::from(form.is_reindex())),
        }
        assert!(fault != Fault::Stall || result.is_ok(), "a short stall is no failure: {result:?}");
        if indexes == 1 {
            self.expect_whole();
        }
        self.session.execute(DROP).unwrap();
        self.expect_crashes_of(fault);
        self.expect_orphans_of(fault);

        // The next build works.
        if fault != Fault::KillBuilder {
            self.rigs[usize::from(!tls)] = Some(rig);
        }
        let rig = self.rigs[usize::from(!tls)].as_mut().expect("not taken");
        rig.expect_idle();
        rig.build(&mut self.session, &sql(Form::Create));
        self.expect_whole();
        self.session.execute(DROP).unwrap();

        self.ended.entry(fault).or_default()[usize::from(result.is_ok())] += 1;
        let message = result.err().unwrap_or_else(|| "no failure".to_owned());
        // Replace numbers and addresses, which differ between rounds.
        let words = message.lines().take(2).flat_map(|line| line.split(' '));
        let same = words.map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        *self.messages.entry(same.collect::<Vec<_>>().join(" ")).or_default() += 1;
        message.replace('\n', " ")
    }

    /// The rig for a round. A builder to be killed is an extra one, so that the memory of the others can be measured.
    fn take_rig(&mut self, fault: Fault, tls: bool) -> Rig {
        let kept = &mut self.rigs[usize::from(!tls)];
        if fault == Fault::KillBuilder {
            let mut extra = Rig::new(tls);
            extra.usual = kept.as_ref().expect("not taken").usual;
            return extra;
        }
        kept.take().expect("not taken")
    }

    fn disturbed_build(
        &mut self,
        rig: &mut Rig,
        random: &mut Random,
        fault: Fault,
        moment: Moment,
        sql: &str,
    ) -> (Result<(), String>, bool) {
        rig.proxy.reset();
        rig.attach(&mut self.session);
        let byte = rig.byte(moment);
        match (fault.corrupts(), byte) {
            (Some(direction), Some((_, at))) => rig.proxy.damage(direction, at, 1 << random.below(8)),
            (_, Some((direction, at))) => rig.proxy.stop_after(direction, at),
            _ => {}
        }
        let pid = self.session.pid();
        let sockets = open_sockets(pid);
        let session = std::mem::replace(&mut self.session, self.cluster.session(DATABASE).unwrap());
        let building = session.start(sql);
        let start = Instant::now();
        if fault.corrupts().is_none() {
            match (moment, byte) {
                (Moment::Time(share), _) => thread::sleep(rig.usual.time.mul_f64(share)),
                // The moment may never come: with TLS or heartbeats, builds differ by some bytes.
                (_, Some((direction, at))) => wait_for("the moment", LONGEST, || {
                    Ok((rig.proxy.passed(direction) >= at || building.is_finished()).then_some(()))
                })
                .unwrap(),
                _ => {}
            }
            self.strike(rig, random, fault, pid);
        }
        let over = wait_for("the statement to end", LONGEST, || Ok(building.is_finished().then_some(())));
        over.unwrap_or_else(|error| panic!("{error} since {:?}", start.elapsed()));
        let (session, result) = building.join().unwrap();
        let is_damaged = fault.corrupts().is_some_and(|direction| rig.proxy.is_damaged(direction));
        rig.proxy.reset();
        if matches!(fault, Fault::KillBackend | Fault::KillServer | Fault::KillPostmaster | Fault::Terminate) {
            self.await_recovery();
        } else {
            self.session = session;
            assert_eq!(open_sockets(pid), sockets, "the backend has kept a connection");
        }
        (result.map_err(|error| error.to_string()), is_damaged)
    }

    fn strike(&mut self, rig: &mut Rig, random: &mut Random, fault: Fault, pid: u32) {
        match fault {
            Fault::KillBuilder => rig.builder.kill(),
            Fault::KillBackend => {
                let pid = Pid::from_raw(pid.cast_signed()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            }
            Fault::KillServer => self.cluster.crash().unwrap(),
            Fault::KillPostmaster => self.cluster.lose_postmaster().unwrap(),
            Fault::Terminate => self.session.execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap(),
            Fault::Cancel => self.session.execute(&format!("SELECT pg_cancel_backend({pid})")).unwrap(),
            Fault::Cut => rig.proxy.cut(),
            Fault::Stall | Fault::Silence => {
                for direction in [Direction::ToBuilder, Direction::ToClient] {
                    rig.proxy.stop_after(direction, rig.proxy.passed(direction));
                }
                if fault == Fault::Silence {
                    return;
                }
                thread::sleep(Duration::from_millis(random.below(2500) as u64));
            }
            Fault::CorruptRows | Fault::CorruptPages => {}
        }
        // Release the bytes on their way.
        rig.proxy.reset();
    }

    /// Replaces a lost session, once the server has recovered.
    fn await_recovery(&mut self) {
        self.session = wait_for("PostgreSQL to be back", Duration::from_secs(60), || {
            let session = self.cluster.session(DATABASE).ok();
            // The session must survive a moment: the server may still be about to end it.
            Ok(session.and_then(|mut session| session.query("SELECT pg_sleep(0.2)").is_ok().then_some(session)))
        })
        .unwrap();
    }

    /// Deletes, updates and inserts some rows, with other vectors of the set.
    fn change_rows(&mut self, random: &mut Random) {
        let (place, other) = (random.below(50), random.below(100));
        self.session
            .execute(&format!(
                "DELETE FROM items WHERE id % 100 = {place}; \
                 UPDATE items i SET v = s.v FROM spare s WHERE i.id % 100 = 99 - {place} \
                 AND s.id = (i.id * 7 + {other} * 40) % {SPARE}; \
                 INSERT INTO items SELECT (SELECT max(id) FROM items) + id + 1, v FROM spare \
                 ORDER BY (id + {other} * 40) % {SPARE} LIMIT {ROWS} - (SELECT count(*) FROM items)"
            ))
            .unwrap();
    }
}
