//! Two hundred builds over fifty builders, in simulated time.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use service::Client;

use super::{Action, Demand, RequestId, Rules, Scheduler};

/// An event at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    Starts(u64, u64),
    Ends(u64),
    Stopped(u64),
}

/// A pseudo-random number from a seed.
fn noise(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[test]
fn two_hundred_builds_over_fifty_builders() {
    const BUILDS: usize = 200;
    const BUILDERS: usize = 50;
    let begin = Instant::now();
    let rules = Rules { max_builders: BUILDERS, memory: (1, 64), ..Rules::default() };
    let idle_ttl = rules.idle_ttl;
    let mut scheduler = Scheduler::new(rules);
    let mut events: BTreeMap<(Duration, u64), Event> = BTreeMap::new();
    let mut number = 0;
    let mut later = |events: &mut BTreeMap<_, _>, at: Duration, event| {
        number += 1;
        events.insert((at, number), event);
    };
    // One database requests 150 builds at once, four others request theirs a little later.
    for build in 0..BUILDS {
        let at = if build < 150 { Duration::ZERO } else { Duration::from_secs(1 + noise(build as u64) % 60) };
        later(&mut events, at, Event::Arrives(build));
    }
    let client = |build: usize| {
        let number = if build < 150 { 1 } else { (build % 4 + 2) as u8 };
        Client::unnamed(([10, 0, 0, number], 5432).into())
    };
    let mut asked: HashMap<RequestId, (usize, Duration)> = HashMap::new();
    let mut waited: Vec<(usize, Duration)> = Vec::new();
    let (mut starts, mut most, mut end) = (0, 0, Duration::ZERO);

    let mut now = Duration::ZERO;
    loop {
        let due = scheduler.next_deadline().map(|at| at.duration_since(begin));
        match events.first_key_value().map(|(&(at, _), _)| at) {
            Some(at) if due.is_none_or(|due| at <= due) => {
                now = at;
                match events.pop_first().unwrap().1 {
                    Event::Arrives(build) => {
                        let memory = 1 + noise(build as u64) % 64;
                        let request = scheduler.ask(Demand::new(client(build), memory, |bytes| bytes)).unwrap();
                        asked.insert(request, (build, now));
                    }
                    Event::Starts(id, memory) => scheduler.started(id, memory, begin + now),
                    Event::Ends(id) => {
                        scheduler.given_back(id);
                        scheduler.finished(id, begin + now);
                        end = now;
                    }
                    Event::Stopped(id) => scheduler.stopped(id),
                }
            }
            _ => match due {
                Some(due) => now = now.max(due),
                None => break,
            },
        }
        for action in scheduler.act(begin + now) {
            match action {
                Action::Start { id, memory } => {
                    starts += 1;
                    later(&mut events, now + Duration::from_secs(5 + noise(id) % 25), Event::Starts(id, memory));
                }
                Action::Stop { id } | Action::LetGo { id } => {
                    later(&mut events, now + Duration::from_secs(2), Event::Stopped(id));
                }
                Action::Grant { request, id } => {
                    let (build, since) = asked.remove(&request).expect("granted once");
                    waited.push((build, now - since));
                    later(&mut events, now + Duration::from_secs(60 + noise(id ^ request) % 600), Event::Ends(id));
                }
                Action::Refuse { request, refusal } => panic!("{request}: {refusal:?}"),
            }
        }
        most = most.max(scheduler.builders().len());
    }

    assert_eq!(
        (waited.len(), asked.len(), scheduler.builders().len()),
        (BUILDS, 0, 0),
        "all were served, nothing is left"
    );
    assert!(most <= BUILDERS, "{most} builders at a time");
    // Most builds get an existing builder.
    assert!(starts < BUILDS, "{starts} builders started");
    let longest =
        |small: bool| waited.iter().filter(|(build, _)| (*build >= 150) == small).map(|(_, wait)| *wait).max();
    let (small, large) = (longest(true).unwrap(), longest(false).unwrap());
    assert!(small < large, "150 builds of one database do not delay those of the others: {small:?}, {large:?}");
    assert!(end + idle_ttl + Duration::from_secs(2) >= now, "idle builders are stopped in time: {now:?}");
    let mut waits: Vec<Duration> = waited.iter().map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    println!(
        "{starts} builders started, at most {most} at a time; waits: median {:?}, 95 % {:?}, longest {:?} (others {small:?}); all done after {end:?}",
        waits[BUILDS / 2],
        waits[BUILDS * 95 / 100],
        waits[BUILDS - 1]
    );
}
