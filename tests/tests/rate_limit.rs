//! `hnsw.external_index_max_rate` is reached and not exceeded, even with imprecise timers.

#[path = "../../crates/extension/src/rate_limit/allowance.rs"]
mod allowance;

use std::time::{Duration, Instant};

use allowance::Allowance;

/// The rate in bytes per second under a limit of `rate`, if each batch takes `work` and each pause is `overslept` too long.
fn measured(rate: u64, batch: usize, work: Duration, overslept: Duration) -> f64 {
    let start = Instant::now();
    let mut now = start;
    let mut allowance = Allowance::new(rate, now);
    let batches = (5 * rate / batch as u64).max(20);
    for _ in 0..batches {
        now += work;
        let pause = allowance.spend(batch, now);
        if !pause.is_zero() {
            now += pause + overslept;
        }
    }
    batches as f64 * batch as f64 / (now - start).as_secs_f64()
}

#[test]
fn the_rate_is_reached_and_not_exceeded() {
    let micros = Duration::from_micros;
    for megabytes in [1, 10, 200, 1000] {
        let rate = megabytes << 20;
        for overslept in [micros(0), micros(500), micros(1500), micros(20_000)] {
            for batch in [256 << 10, 32 * 8192] {
                // Half of the time that the limit allows for a batch.
                let share = Duration::from_secs_f64(batch as f64 / rate as f64) / 2;
                for work in [Duration::ZERO, share / 4, share] {
                    let found = measured(rate, batch, work, overslept) / rate as f64;
                    assert!((0.9..1.1).contains(&found), "{megabytes} MB/s, {overslept:?}, {work:?}: {found}");
                }
            }
        }
    }
}

#[test]
fn idle_time_is_not_made_up_for() {
    let now = Instant::now();
    let mut allowance = Allowance::new(1 << 20, now);
    // After an hour without sending, only the bytes of a tenth of a second may pass without a pause.
    let later = now + Duration::from_secs(3600);
    assert_eq!(allowance.spend(100 << 10, later), Duration::ZERO);
    assert!(allowance.spend(1 << 20, later) > Duration::from_millis(850));
}

#[test]
fn slow_work_is_not_held_back() {
    let mut now = Instant::now();
    let mut allowance = Allowance::new(1 << 20, now);
    for _ in 0..100 {
        now += Duration::from_millis(300);
        assert_eq!(allowance.spend(256 << 10, now), Duration::ZERO);
    }
}
