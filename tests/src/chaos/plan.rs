//! The plan of each round, drawn from the seed alone.

use std::fmt;
use std::time::Duration;

use harness::{Direction, Form, Random, Stranger};

use crate::databases::{DATABASES, PER_CLUSTER};
use crate::fault::{Fault, Mode, Party};
use crate::tables;

/// When the fault occurs.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// After this fraction of the usual build time.
    Time(f32),
    /// After this fraction of the bytes; the stream is stopped there until the fault has occurred.
    Bytes(Direction, f32),
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

/// A round. A fault that affects one session affects the first build.
#[derive(Clone, Debug)]
pub struct Plan {
    pub mode: Mode,
    pub tls: bool,
    pub builds: Vec<Build>,
    pub fault: Fault,
    pub moment: Moment,
    /// A random number that selects one of several processes.
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

/// All rounds of a seed.
pub struct Plans {
    random: Random,
    modes: &'static [Mode],
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
    ApiServer,
}

impl Plans {
    pub fn new(seed: u64, modes: &'static [Mode]) -> Self {
        Self { random: Random::new(seed), modes, deck: Vec::new() }
    }

    /// The next round. Each kind of fault occurs once before any occurs again.
    pub fn next(&mut self) -> Plan {
        if self.deck.is_empty() {
            self.deck = self.shuffled();
        }
        let kind = self.deck.pop().expect("just filled");
        let mut mode = self.modes[self.random.below(self.modes.len())];
        let mut tls = self.random.below(2) == 0;
        let fault = self.fault(kind);
        match fault {
            // These faults have rigs of their own.
            Fault::FullDisk | Fault::LittleMemory if !mode.has_pods() => mode = Mode::Direct,
            Fault::Kill(Party::Router)
            | Fault::Terminate(Party::Router)
            | Fault::Hangup(Party::Router)
            | Fault::Stop(Party::Router, _)
            | Fault::Starve(Party::Router) => {
                let routers: Vec<Mode> = self.modes.iter().copied().filter(|mode| mode.has_router()).collect();
                mode = routers[self.random.below(routers.len())];
            }
            // The slow network is only between clients and the router.
            Fault::Slow(_) | Fault::Delay(_) => mode = mode.relayed(),
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
            // A builder that has begun its build.
            Fault::Starve(_) if !mode.is_redirect() => Moment::Bytes(Direction::ToBuilder, share),
            // The deletion takes Kubernetes some time, during which the stream is stopped.
            Fault::DeletePod if !mode.is_redirect() => {
                Moment::Bytes([Direction::ToBuilder, Direction::ToClient][kind % 2], share)
            }
            // A redirected client sends few bytes through the proxy that counts them.
            _ if mode.is_redirect() || kind == 0 => Moment::Time(share),
            // Half of the builds do not pass the proxy either.
            fault if fault.has_replica() => Moment::Time(share),
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
            // Each of these connections occupies a builder.
            Kind::Strangers(Stranger::Deaf) => Fault::Strangers(Stranger::Deaf, 3),
            Kind::Strangers(stranger) => Fault::Strangers(stranger, 256),
            Kind::ApiServer => Fault::ApiServer(Duration::from_millis(1000 + random.below(7000) as u64)),
        }
    }

    /// One to three builds in different databases; at least one for each router.
    fn builds(&mut self, fault: Fault) -> Vec<Build> {
        // Pods take time to start and end; a short build would have ended before the fault.
        let is_long = self.has_pods() && !fault.is_harmless();
        let (sizes, efforts) = if is_long { ([24, 32], [200, 300, 400]) } else { ([8, 16], [40, 64, 80]) };
        let random = &mut self.random;
        let first = random.below(DATABASES);
        let count = (1 + random.below(3)).max(if fault.has_replica() { 2 } else { 1 });
        let form = |random: &mut Random| Form::ALL[random.below(Form::ALL.len())];
        (0..count)
            .map(|number| Build {
                database: (first + number * (PER_CLUSTER + 1)) % DATABASES,
                table: match fault {
                    Fault::Slow(_) => tables::MIDDLE,
                    Fault::FullDisk | Fault::LittleMemory | Fault::Starve(_) => tables::WIDE,
                    _ if is_long => tables::LARGE[random.below(tables::LARGE.len())],
                    _ => random.below(tables::ALL.len()),
                },
                form: form(random),
                m: sizes[random.below(2)],
                ef_construction: efforts[random.below(3)],
            })
            .collect()
    }

    /// Whether all builders are pods.
    fn has_pods(&self) -> bool {
        self.modes.iter().all(|mode| mode.has_pods())
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
        if self.has_pods() {
            // Pods use the disk of their node, and the kubelet's stand-in cannot give them a small one.
            deck.retain(|kind| !matches!(kind, Kind::Fixed(Fault::FullDisk)));
            deck.extend([Kind::ApiServer, Kind::ApiServer]);
            let replica = [Fault::Replica, Fault::Kill(Party::Replica), Fault::Terminate(Party::Replica)];
            deck.extend(replica.into_iter().chain([Fault::DeletePod, Fault::DeletePod]).map(Kind::Fixed));
        }
        self.random.shuffle(&mut deck);
        deck
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, Plan, Plans};

    fn rounds(seed: u64, modes: &'static [Mode]) -> Vec<Plan> {
        let mut plans = Plans::new(seed, modes);
        (0..100).map(|_| plans.next()).collect()
    }

    #[test]
    fn a_seed_repeats_its_rounds() {
        for modes in [&Mode::OF_PROCESSES[..], &Mode::OF_PODS] {
            let rounds = |seed| format!("{:?}", rounds(seed, modes));
            assert_eq!(rounds(7), rounds(7));
            assert_ne!(rounds(7), rounds(8));
        }
    }

    #[test]
    fn faults_of_kubernetes_are_for_pods() {
        for plan in rounds(7, &Mode::OF_PROCESSES) {
            assert!(!plan.mode.has_pods() && !plan.fault.has_replica() && plan.fault.name() != "ApiServer", "{plan}");
        }
        let plans = rounds(7, &Mode::OF_PODS);
        assert!(plans.iter().all(|plan| plan.mode.has_pods()));
        let of_two = plans.iter().filter(|plan| plan.fault.has_replica());
        assert!(of_two.clone().count() >= 6 && of_two.clone().all(|plan| plan.builds.len() >= 2));
    }
}
