//! What happens in each round: drawn from the seed alone.

use std::fmt;
use std::time::Duration;

use harness::{Direction, Random, Stranger};

use crate::databases::{DATABASES, PER_CLUSTER};
use crate::tables;

/// How builds reach a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Direct,
    Relay,
    Redirect,
    Static,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::Direct, Self::Relay, Self::Redirect, Self::Static];

    pub fn has_router(self) -> bool {
        self != Self::Direct
    }

    /// Whether the router runs the builders itself.
    pub fn has_processes(self) -> bool {
        matches!(self, Self::Relay | Self::Redirect)
    }
}

/// Who is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Backend,
    Postmaster,
    Router,
    Builder,
}

/// What goes wrong, or is done to a daemon that must not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Calm,
    Kill(Party),
    Terminate(Party),
    Hangup(Party),
    Stop(Party, Duration),
    /// No more memory is given to it. It is a new one, which has none to spare.
    Starve(Party),
    Cancel,
    RenewCertificate,
    RenewToken,
    Cut,
    /// 100 KB/s.
    Slow(Direction),
    /// Latency of every piece of data.
    Delay(Duration),
    /// The builder spools, and there is no room.
    FullDisk,
    /// The builder may use less memory than the build needs.
    LittleMemory,
    /// So many at a time.
    Strangers(Stranger, usize),
}

impl Fault {
    /// The same for faults that differ in numbers only.
    pub fn name(self) -> String {
        match self {
            Self::Stop(party, _) => format!("Stop({party:?})"),
            Self::Delay(_) => "Delay".to_owned(),
            Self::Strangers(kind, _) => format!("Strangers({kind:?})"),
            other => format!("{other:?}"),
        }
    }

    /// Whether no statement may fail of it.
    pub fn is_harmless(self) -> bool {
        match self {
            Self::Calm | Self::Hangup(_) | Self::Stop(..) | Self::RenewCertificate | Self::RenewToken => true,
            Self::Slow(_) | Self::Delay(_) | Self::Strangers(..) => true,
            Self::Kill(_) | Self::Terminate(_) | Self::Starve(_) | Self::Cancel | Self::Cut => false,
            Self::FullDisk | Self::LittleMemory => false,
        }
    }

    /// Whether it needs daemons that are made for it.
    pub fn has_own_rig(self) -> bool {
        matches!(self, Self::FullDisk | Self::LittleMemory | Self::Starve(_))
    }

    /// A statement ends by then.
    pub fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Self::Slow(_) | Self::Delay(_) => 60,
            // A builder waits for a client that does not read; then for the next one, which came before us.
            Self::Strangers(Stranger::Deaf, _) => 28,
            fault if fault.is_harmless() => 20,
            // 30 seconds of silence are the most that is waited for.
            _ => 45,
        })
    }

    /// Whether a server of PostgreSQL recovers from its log afterwards.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::Kill(Party::Backend | Party::Postmaster))
    }

    /// Whether a server of PostgreSQL ends its sessions.
    pub fn ends_sessions(self) -> bool {
        self.is_crash() || self == Self::Terminate(Party::Postmaster)
    }

    /// Whether a daemon of the rig may end.
    pub fn ends_daemon(self) -> bool {
        matches!(
            self,
            Self::Kill(Party::Router | Party::Builder)
                | Self::Terminate(Party::Router | Party::Builder)
                | Self::Starve(_)
        )
    }
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// After this share of the time that the builds usually take.
    Time(f32),
    /// At this share of the bytes, where the stream stays until it went wrong.
    Bytes(Direction, f32),
}

/// The statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Create,
    CreateConcurrently,
    Reindex,
    ReindexConcurrently,
}

impl Form {
    const ALL: [Self; 4] = [Self::Create, Self::CreateConcurrently, Self::Reindex, Self::ReindexConcurrently];

    /// Whether there is an index before.
    pub fn is_reindex(self) -> bool {
        matches!(self, Self::Reindex | Self::ReindexConcurrently)
    }

    /// Whether an index that is not valid may be left of a statement that failed: it has committed before it builds.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Self::CreateConcurrently | Self::ReindexConcurrently)
    }
}

/// One build of a round.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Number of the database.
    pub database: usize,
    /// Number of the table.
    pub table: usize,
    pub form: Form,
    pub m: u32,
    pub ef_construction: u32,
}

/// A round. The first build is the victim of what hits one session only.
#[derive(Clone, Debug)]
pub struct Plan {
    pub mode: Mode,
    pub tls: bool,
    pub builds: Vec<Build>,
    pub fault: Fault,
    pub moment: Moment,
    /// Which of several processes.
    pub pick: usize,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "TLS" } else { "plain" };
        write!(f, "{:?} {tls}, {:?} at {:?}:", self.mode, self.fault, self.moment)?;
        for build in &self.builds {
            write!(f, " {:?} {}/{}", build.form, build.database, tables::ALL[build.table].name)?;
        }
        Ok(())
    }
}

/// The rounds of a seed.
pub struct Plans {
    random: Random,
    deck: Vec<Kind>,
}

/// A fault without its numbers.
#[derive(Clone, Copy)]
enum Kind {
    Fixed(Fault),
    Stop(Party),
    Slow,
    Delay,
    Strangers(Stranger),
}

impl Plans {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), deck: Vec::new() }
    }

    /// The next round. All kinds of faults come before one comes again.
    pub fn next(&mut self) -> Plan {
        if self.deck.is_empty() {
            self.deck = self.shuffled();
        }
        let kind = self.deck.pop().expect("just filled");
        let mut mode = Mode::ALL[self.random.below(Mode::ALL.len())];
        let mut tls = self.random.below(2) == 0;
        let fault = self.fault(kind);
        match fault {
            // Those have rigs of their own.
            Fault::FullDisk | Fault::LittleMemory => mode = Mode::Direct,
            Fault::Kill(Party::Router)
            | Fault::Terminate(Party::Router)
            | Fault::Hangup(Party::Router)
            | Fault::Stop(Party::Router, _)
            | Fault::Starve(Party::Router) => mode = Mode::ALL[1 + self.random.below(3)],
            // The network is on the way to the router only.
            Fault::Slow(_) | Fault::Delay(_) if mode == Mode::Redirect => mode = Mode::Relay,
            Fault::Strangers(stranger, _) => tls = stranger.is_before_tls() && tls,
            Fault::RenewCertificate => tls = true,
            _ => {}
        }
        let moment = self.moment(mode, fault);
        let builds = self.builds(fault);
        Plan { mode, tls, builds, fault, moment, pick: self.random.below(1 << 16) }
    }

    fn moment(&mut self, mode: Mode, fault: Fault) -> Moment {
        let (kind, share) = (self.random.below(3), self.random.unit());
        match fault {
            Fault::Slow(_) | Fault::Delay(_) => Moment::Time(0.0),
            // A builder that has begun.
            Fault::Starve(_) if mode != Mode::Redirect => Moment::Bytes(Direction::ToBuilder, share),
            // Of a client that is sent elsewhere, few bytes pass the network that counts them.
            _ if mode == Mode::Redirect || kind == 0 => Moment::Time(share),
            _ if kind == 1 => Moment::Bytes(Direction::ToBuilder, share),
            _ => Moment::Bytes(Direction::ToClient, share),
        }
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let random = &mut self.random;
        match kind {
            Kind::Fixed(fault) => fault,
            Kind::Stop(party) => Fault::Stop(party, Duration::from_millis(100 + random.below(1200) as u64)),
            Kind::Slow if random.below(3) == 0 => Fault::Slow(Direction::ToBuilder),
            Kind::Slow => Fault::Slow(Direction::ToClient),
            Kind::Delay => Fault::Delay(Duration::from_millis(1 + random.below(30) as u64)),
            // Each of those has a builder while it is there.
            Kind::Strangers(Stranger::Deaf) => Fault::Strangers(Stranger::Deaf, 3),
            Kind::Strangers(stranger) => Fault::Strangers(stranger, 256),
        }
    }

    /// One to three, each in another database.
    fn builds(&mut self, fault: Fault) -> Vec<Build> {
        let random = &mut self.random;
        let first = random.below(DATABASES);
        let count = 1 + random.below(3);
        let form = |random: &mut Random| Form::ALL[random.below(Form::ALL.len())];
        (0..count)
            .map(|number| Build {
                database: (first + number * (PER_CLUSTER + 1)) % DATABASES,
                table: match fault {
                    Fault::Slow(_) => tables::MIDDLE,
                    Fault::FullDisk | Fault::LittleMemory | Fault::Starve(_) => tables::WIDE,
                    _ => random.below(tables::ALL.len()),
                },
                form: form(random),
                m: [8, 16][random.below(2)],
                ef_construction: [40, 64, 80][random.below(3)],
            })
            .collect()
    }

    fn shuffled(&mut self) -> Vec<Kind> {
        let mut deck: Vec<Kind> = [Fault::Calm, Fault::Cancel, Fault::Cut, Fault::FullDisk, Fault::LittleMemory]
            .into_iter()
            .chain([Fault::RenewCertificate, Fault::RenewToken, Fault::Calm])
            .chain([Party::Router, Party::Builder].map(Fault::Starve))
            .map(Kind::Fixed)
            .collect();
        for party in [Party::Backend, Party::Postmaster, Party::Router, Party::Builder] {
            deck.extend([Fault::Kill(party), Fault::Terminate(party), Fault::Hangup(party)].map(Kind::Fixed));
            deck.push(Kind::Stop(party));
        }
        deck.extend(Stranger::UNKNOWN.map(Kind::Strangers));
        deck.extend([Kind::Strangers(Stranger::Deaf), Kind::Slow, Kind::Delay]);
        for end in (1..deck.len()).rev() {
            deck.swap(end, self.random.below(end + 1));
        }
        deck
    }
}

#[cfg(test)]
mod tests {
    use super::Plans;

    #[test]
    fn a_seed_repeats_its_rounds() {
        let rounds = |seed| {
            let mut plans = Plans::new(seed);
            (0..100).map(|_| format!("{:?}", plans.next())).collect::<Vec<_>>()
        };
        assert_eq!(rounds(7), rounds(7));
        assert_ne!(rounds(7), rounds(8));
    }
}
