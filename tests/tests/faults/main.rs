//! Random faults at random times: no data is lost, and nothing is left over.
//!
//! `LANTERN_INDEX_FAULT_ROUNDS=100` runs more rounds, with other faults each time. `LANTERN_INDEX_FAULT_SEED` repeats the faults of an
//! earlier run, except for the machine's timing.

mod fault;
mod lengths;
mod rig;
mod round;
mod watch;

use std::env;
use std::time::{Instant, SystemTime};

use fault::{Fault, Moment};
use harness::{Form, Random};
use round::Scene;

/// Rounds of a normal run.
const ROUNDS: u32 = 6;

#[test]
fn faults_lose_nothing() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let rounds = number("LANTERN_INDEX_FAULT_ROUNDS");
    // A normal run is the same every time: six different faults, with and without TLS.
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs());
    let seed = number("LANTERN_INDEX_FAULT_SEED").unwrap_or_else(|| rounds.map_or(43, |_| clock()));
    println!("LANTERN_INDEX_FAULT_SEED={seed}");
    let mut random = Random::new(seed);
    let mut scene = Scene::new();
    let start = Instant::now();
    let mut deck = Vec::new();
    for round in 1..=rounds.unwrap_or(ROUNDS.into()) {
        if deck.is_empty() {
            deck = Fault::QUICK.to_vec();
            deck.extend(rounds.map(|_| Fault::Silence));
            random.shuffle(&mut deck);
        }
        let fault = deck.pop().expect("just filled");
        let tls = random.below(2) == 0;
        let form = Form::ALL[random.below(Form::ALL.len())];
        let moment = Moment::draw(&mut random, fault);
        let what = format!("{form:?}, {fault:?} at {moment:?}, tls {tls}");
        let ended = scene.round(&mut random, form, fault, moment, tls);
        println!("{:4.0} s, round {round} of seed {seed}: {what}: {ended}", start.elapsed().as_secs_f64());
    }
    scene.expect_no_creep();
    println!("{}", scene.summary());
}
