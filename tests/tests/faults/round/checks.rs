use std::collections::BTreeMap;

use harness::{Form, expect_every_row, inspect, near_rows};

use super::{DATABASE, Scene};
use crate::fault::Fault;
use crate::watch::Crashes;

/// The tolerance for a builder's memory; the rows and the graph of a build take 6 MB.
const SLACK: u64 = 32 << 20;

impl Scene {
    /// A digest of all rows, which shows whether one is lost or altered.
    pub fn digest(&mut self) -> String {
        let sql =
            "SELECT format('%s %s', count(*), sum(hashtextextended(encode(vector_send(v), 'hex'), id))) FROM items";
        self.session.value(sql).unwrap()
    }

    /// The number of valid indexes. Drops an invalid one, which only certain failures may leave.
    pub fn valid_indexes(&mut self, form: Form, succeeded: bool) -> u32 {
        let others = "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'items'::regclass AND NOT indisvalid";
        let others = self.session.query(others).unwrap();
        assert!(others.len() <= usize::from(form.is_concurrent() && !succeeded), "{others:?}");
        for other in others.iter().flatten().flatten() {
            self.session.execute(&format!("DROP INDEX {other}")).unwrap();
        }
        self.session.value("SELECT count(*) FROM pg_index WHERE indrelid = 'items'::regclass AND indisvalid").unwrap()
    }

    /// Checks that the index has no errors, returns every row, and agrees with an exact search.
    pub fn expect_whole(&mut self) {
        inspect(&self.cluster, &mut self.session, "items_idx").unwrap();
        expect_every_row(&mut self.session, "items", u32::MAX).unwrap();
        // Rows with the same vector are interchangeable, and each round adds some: map them to the least id.
        let first = self.session.query("SELECT id, min(id) OVER (PARTITION BY v) FROM items").unwrap();
        let number = |cell: &Option<String>| cell.as_ref().and_then(|text| text.parse().ok()).unwrap();
        let first: BTreeMap<u32, u32> = first.iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
        let mut near = |exactly| -> Vec<(u32, u32)> {
            let rows = near_rows(&mut self.session, "items", "queries", 10, exactly).unwrap();
            rows.into_iter().map(|(query, row)| (query, first[&row])).collect()
        };
        let (found, exact) = (near(false), near(true));
        let hits = found.iter().filter(|answer| exact.contains(answer)).count();
        assert!(hits * 100 >= exact.len() * 97, "{hits} of {} rows are found", exact.len());
    }

    /// Checks that PostgreSQL has crashed if the fault does that, and otherwise has not.
    pub fn expect_crashes_of(&mut self, fault: Fault) {
        let mut expected = self.crashes;
        let now = Crashes::count(&self.cluster);
        match fault {
            Fault::KillServer | Fault::KillPostmaster => expected.of_servers += 1,
            // PostgreSQL ends the other processes too, and logs those that did not end by themselves.
            Fault::KillBackend => {
                assert!(now.of_processes > expected.of_processes);
                (expected.of_processes, expected.of_servers) = (now.of_processes, expected.of_servers + 1);
            }
            _ => {}
        }
        assert_eq!(now, expected, "there was another crash than the one asked for");
        self.crashes = now;
    }

    /// A crash leaves at most one file, as during pgvector's own builds; other faults leave none.
    pub fn expect_orphans_of(&mut self, fault: Fault) {
        let now = self.cluster.orphaned_files(DATABASE).unwrap();
        let new: Vec<_> = now.iter().filter(|file| !self.orphans.contains(file)).collect();
        assert!(new.len() <= usize::from(fault.is_crash()), "{new:?}");
        self.orphans = now;
    }

    /// Checks that the builders' memory does not grow after the first builds.
    pub fn expect_no_creep(&self) {
        for rig in self.rigs.iter().flatten() {
            let (first, last) = rig.memory.split_at(2.min(rig.memory.len()));
            let warm = first.iter().max().copied().unwrap_or_default();
            let most = last.iter().max().copied().unwrap_or_default();
            assert!(most <= warm + SLACK, "resident bytes after each build: {:?}", rig.memory);
        }
    }

    /// Numbers of builds by fault, and the messages.
    pub fn summary(&self) -> String {
        let mut text = String::from("fault: failed builds, others\n");
        for (fault, [failed, others]) in &self.ended {
            text += &format!("  {fault:?}: {failed}, {others}\n");
        }
        text += "messages:\n";
        for (message, times) in &self.messages {
            text += &format!("  {times} x {message}\n");
        }
        for (rig, name) in self.rigs.iter().flatten().zip(["TLS", "plain"]) {
            let mib: Vec<u64> = rig.memory.iter().map(|bytes| bytes >> 20).collect();
            text += &format!("MiB of the builder ({name}) after undisturbed builds: {mib:?}\n");
        }
        text + &format!("{:?}; orphaned files: {}", self.crashes, self.orphans.len())
    }
}
