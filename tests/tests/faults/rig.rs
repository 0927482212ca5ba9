use std::time::{Duration, Instant};

use harness::{Builder, BuilderOptions, Direction, Proxy, Session, open_sockets, wait_for};

use crate::fault::Moment;

/// Bytes and time of an undisturbed build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    pub to_builder: u64,
    pub to_client: u64,
    pub time: Duration,
}

/// A builder behind a proxy.
pub struct Rig {
    pub builder: Builder,
    pub proxy: Proxy,
    pub usual: Usual,
    /// Resident bytes after each undisturbed build.
    pub memory: Vec<u64>,
}

impl Rig {
    pub fn new(tls: bool) -> Self {
        // A short timeout: a frame whose length was altered is waited for until then.
        let options = BuilderOptions::serve(&["--idle-timeout", "20s"]);
        let builder = Builder::start_with(&BuilderOptions { tls, ..options }).unwrap();
        let proxy = Proxy::start(builder.address()).unwrap();
        Self { builder, proxy, usual: Usual::default(), memory: Vec::new() }
    }

    pub fn attach(&self, session: &mut Session) {
        self.builder.attach_through(session, self.proxy.port()).unwrap();
    }

    /// Runs a build without a fault.
    pub fn build(&mut self, session: &mut Session, sql: &str) {
        self.proxy.reset();
        self.attach(session);
        let start = Instant::now();
        session.execute(sql).unwrap();
        self.usual = Usual {
            to_builder: self.proxy.passed(Direction::ToBuilder),
            to_client: self.proxy.passed(Direction::ToClient),
            time: start.elapsed(),
        };
        self.expect_idle();
        self.memory.push(self.builder.resident_bytes());
    }

    /// The direction and byte offset of the moment; `None` for a time.
    pub fn byte(&self, moment: Moment) -> Option<(Direction, u64)> {
        let all = |direction| match direction {
            Direction::ToBuilder => self.usual.to_builder,
            Direction::ToClient => self.usual.to_client,
        };
        match moment {
            Moment::Byte(direction, share) => Some((direction, (all(direction) as f64 * share) as u64)),
            Moment::Early(direction, bytes) => Some((direction, bytes)),
            Moment::Late(direction, bytes) => Some((direction, all(direction).saturating_sub(bytes))),
            Moment::Time(_) => None,
        }
    }

    /// Waits until the builder has no build, and no connection but ours for this question.
    pub fn expect_idle(&self) {
        self.builder.expect_idle(Duration::from_secs(60)).unwrap();
        self.proxy.cut();
        let pid = self.builder.pid().expect("it runs");
        // Two listening sockets, and those by which its runtimes wake each other.
        wait_for("the builder's connections to end", Duration::from_secs(60), || {
            Ok((open_sockets(pid) <= 6).then_some(()))
        })
        .unwrap();
    }
}
