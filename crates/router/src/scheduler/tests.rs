use std::time::{Duration, Instant};

use service::{Client, Limits};

use super::{Action, Demand, Others, Refusal, RequestId, Rules, Scheduler};
use crate::spawner::{Outlook, SpawnError};

const SECOND: Duration = Duration::from_secs(1);

fn client(number: u8) -> Client {
    Client::unnamed(([10, 0, 0, number], 5432).into())
}

fn ask(scheduler: &mut Scheduler, from: u8, memory: u64) -> RequestId {
    scheduler.ask(Demand::new(client(from), memory, |bytes| bytes)).unwrap()
}

/// With two idle builders.
fn with_two_builders() -> (Scheduler, Instant) {
    let (mut scheduler, now) = (scheduler(|rules| (rules.min_builders, rules.memory) = (2, (0, 100))), Instant::now());
    for action in scheduler.act(now) {
        let Action::Start { id, .. } = action else { panic!("{action:?}") };
        scheduler.started(id, 100, now);
    }
    (scheduler, now)
}

#[test]
fn a_named_client_keeps_to_its_limits_and_keeps_nobody_else_waiting() {
    let (mut scheduler, now) = with_two_builders();
    let limits = Limits { builds: 1, waiting: 1, memory: 50, rows: 0 };
    let named = Client { name: Some("tenant".into()), limits, ..client(1) };
    let ask_named =
        |scheduler: &mut Scheduler, memory| scheduler.ask(Demand::new(named.clone(), memory, |bytes| bytes));
    assert_eq!(ask_named(&mut scheduler, 51), Err(Refusal::Beyond { needed: 51, limit: 50 }));
    let first = ask_named(&mut scheduler, 20).unwrap();
    assert_eq!(scheduler.act(now), [Action::Grant { request: first, id: 1 }]);
    let second = ask_named(&mut scheduler, u64::MAX).unwrap();
    assert_eq!(scheduler.waiting(), [(second, Some(named.key()))]);
    assert_eq!(ask_named(&mut scheduler, 1), Err(Refusal::Waiting(1)));
    assert_eq!(scheduler.act(now), [], "one build at a time");
    let other = ask(&mut scheduler, 1, 20);
    assert_eq!(
        scheduler.act(now),
        [Action::Grant { request: other, id: 2 }],
        "the same address, but not the same client"
    );
    scheduler.given_back(1);
    scheduler.finished(1, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: second, id: 1 }]);
}

#[test]
fn the_limit_of_waiting_builds_refuses_none_that_need_not_wait() {
    let (mut scheduler, now) = (scheduler(|rules| rules.memory = (10, 100)), Instant::now());
    let limits = Limits { waiting: 1, ..Limits::default() };
    let named = Client { name: Some("tenant".into()), limits, ..client(1) };
    let ask = |scheduler: &mut Scheduler, memory| scheduler.ask(Demand::new(named.clone(), memory, |bytes| bytes));
    let withdrawn = ask(&mut scheduler, 30).unwrap();
    assert_eq!(scheduler.act(now).len(), 1);
    scheduler.leave(withdrawn);
    scheduler.started(1, 30, now);
    ask(&mut scheduler, 90).unwrap();
    assert_eq!(scheduler.act(now), [Action::Start { id: 2, memory: 90 }], "the idle builder is too small");
    let small = ask(&mut scheduler, 20).unwrap();
    assert_eq!(scheduler.act(now), [Action::Grant { request: small, id: 1 }]);
    assert_eq!(ask(&mut scheduler, 20), Err(Refusal::Waiting(1)));
}

#[test]
fn a_build_that_lost_its_builder_keeps_its_turn() {
    let (mut scheduler, now) = (scheduler(|rules| rules.max_builders = 1), Instant::now());
    let named = Client { name: Some("tenant".into()), limits: Limits { waiting: 1, ..Limits::default() }, ..client(1) };
    let demand = Demand::new(named, 1, |bytes| bytes);
    let first = scheduler.ask(demand.clone()).unwrap();
    scheduler.act(now);
    scheduler.started(1, 1, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: first, id: 1 }]);
    let other = ask(&mut scheduler, 2, 1);
    let second = scheduler.ask(demand.clone()).unwrap();
    scheduler.lost(1);
    assert_eq!(scheduler.ask(demand.clone()), Err(Refusal::Waiting(1)));
    let again = Demand { again: true, ..demand };
    let lost = [scheduler.ask(again.clone()).unwrap(), scheduler.ask(again).unwrap()];
    assert_eq!(order(&scheduler), [lost[0], other, lost[1], second]);
}

#[test]
fn no_builder_is_started_for_a_request_that_its_clients_limits_hold_back() {
    let spare = |rules: &mut Rules| (rules.max_builders, rules.spare_builders) = (9, 1);
    let (mut scheduler, now) = (scheduler(spare), Instant::now());
    let limits = Limits { builds: 1, ..Limits::default() };
    let named = Client { name: Some("tenant".into()), limits, ..client(1) };
    let ask = |scheduler: &mut Scheduler| scheduler.ask(Demand::new(named.clone(), 7, |bytes| bytes)).unwrap();
    let requests = [(); 4].map(|()| ask(&mut scheduler));
    let started = [1, 2].map(|id| Action::Start { id, memory: if id == 1 { 7 } else { 0 } });
    assert_eq!(scheduler.act(now), started, "one for the first request, and a spare one");
    scheduler.started(1, 7, now);
    scheduler.started(2, 7, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: requests[0], id: 1 }]);
    assert_eq!(scheduler.act(now), [], "the spare one is for other clients");
    scheduler.given_back(1);
    scheduler.finished(1, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: requests[1], id: 1 }]);
}

#[test]
fn a_build_gets_what_is_left_of_its_clients_memory_limit() {
    let (mut scheduler, now) = (scheduler(|rules| rules.memory = (10, 100)), Instant::now());
    let named = |name: &str, memory| Client {
        name: Some(name.into()),
        limits: Limits { memory, ..Limits::default() },
        ..client(1)
    };
    // A builder needs twice the memory that its build reserves.
    let ask = |scheduler: &mut Scheduler, client, memory| scheduler.ask(Demand::new(client, memory, |bytes| 2 * bytes));
    ask(&mut scheduler, named("a", 40), 15).unwrap();
    ask(&mut scheduler, named("a", 40), u64::MAX).unwrap();
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 30 }], "the second has to wait for the first");
    scheduler.started(1, 30, now);
    assert_eq!(scheduler.act(now).len(), 1);
    let left = |scheduler: &Scheduler, id, client| scheduler.limited(id, &client).limits.memory;
    assert_eq!((left(&scheduler, 1, named("a", 40)), left(&scheduler, 2, named("a", 40))), (40, 25));
    assert_eq!((left(&scheduler, 2, named("b", 40)), left(&scheduler, 2, named("a", 0))), (40, 0));
    assert_eq!(left(&scheduler, 2, named("a", 15)), 1, "not 0, which is no limit");
    assert_eq!(scheduler.act(now), [], "a build of unknown size may take all that its client may have");
}

fn order(scheduler: &Scheduler) -> Vec<RequestId> {
    scheduler.waiting().into_iter().map(|(request, _)| request).collect()
}

fn scheduler(change: impl FnOnce(&mut Rules)) -> Scheduler {
    let mut rules = Rules { max_builders: 2, idle_ttl: 10 * SECOND, start_timeout: 60 * SECOND, ..Rules::default() };
    change(&mut rules);
    Scheduler::new(rules)
}

#[test]
fn a_builder_is_started_for_a_build_and_stopped_after_idle_ttl() {
    let (mut scheduler, now) = (scheduler(|_| {}), Instant::now());
    assert_eq!(scheduler.act(now), []);
    let request = ask(&mut scheduler, 1, 7);
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 7 }]);
    assert_eq!(scheduler.act(now), [], "once is enough");
    scheduler.started(1, 7, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request, id: 1 }]);
    scheduler.given_back(1);
    assert_eq!(scheduler.act(now + 100 * SECOND), [], "its build may go on");
    scheduler.finished(1, now);
    assert_eq!(scheduler.next_deadline(), Some(now + 10 * SECOND));
    assert_eq!(scheduler.act(now + 9 * SECOND), []);
    assert_eq!(scheduler.act(now + 10 * SECOND), [Action::Stop { id: 1 }]);
    scheduler.stopped(1);
    assert_eq!((scheduler.builders(), scheduler.next_deadline()), (vec![], None));
}

#[test]
fn builds_beyond_max_builders_wait_and_are_not_refused() {
    let (mut scheduler, now) = (scheduler(|_| {}), Instant::now());
    let requests: Vec<_> = (0..3).map(|_| ask(&mut scheduler, 1, 1)).collect();
    assert_eq!(scheduler.act(now).len(), 2);
    assert!(!scheduler.is_full());
    scheduler.started(1, 1, now);
    scheduler.started(2, 1, now);
    assert_eq!(scheduler.act(now).len(), 2);
    assert!(scheduler.is_full());
    assert_eq!(order(&scheduler), requests[2..]);
    assert_eq!(scheduler.act(now + 9999 * SECOND), []);
    scheduler.given_back(2);
    scheduler.finished(2, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: requests[2], id: 2 }]);
}

#[test]
fn each_database_gets_its_share() {
    let (mut scheduler, now) = (scheduler(|rules| rules.max_builders = 1), Instant::now());
    let greedy: Vec<_> = (0..3).map(|_| ask(&mut scheduler, 1, 1)).collect();
    let modest = ask(&mut scheduler, 2, 1);
    assert_eq!(order(&scheduler), [greedy[0], modest, greedy[1], greedy[2]]);
    scheduler.act(now);
    scheduler.started(1, 1, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: greedy[0], id: 1 }]);
    assert_eq!(order(&scheduler), [modest, greedy[1], greedy[2]], "whoever builds already comes later");
}

#[test]
fn a_withdrawn_request_gets_no_builder() {
    let (mut scheduler, now) = (scheduler(|_| {}), Instant::now());
    let request = ask(&mut scheduler, 1, 1);
    scheduler.act(now);
    scheduler.leave(request);
    scheduler.started(1, 1, now);
    assert_eq!(scheduler.act(now), []);
    assert_eq!(scheduler.builders(), [(1, "idle")]);
}

#[test]
fn a_build_that_is_too_large_keeps_no_smaller_one_waiting() {
    let change = |rules: &mut Rules| (rules.max_builders, rules.memory) = (4, (10, 100));
    let (mut scheduler, now) = (scheduler(change), Instant::now());
    let large = ask(&mut scheduler, 1, 80);
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 80 }]);
    let error = SpawnError::lasting("maximum memory usage per Pod is 64", "");
    scheduler.failed(1, error.clone(), now);
    let small = ask(&mut scheduler, 2, 20);
    let actions = scheduler.act(now);
    let refusal = Refusal::NoStart(error.clone(), scheduler.retry_after(now));
    assert_eq!(actions, [Action::Refuse { request: large, refusal }, Action::Start { id: 2, memory: 20 }]);
    scheduler.started(2, 20, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: small, id: 2 }]);
    assert_eq!(scheduler.last_failure(), Some(&error), "that a small one has started says nothing of large ones");
    // Another small one fails for the same reason: now it counts for its size, too.
    ask(&mut scheduler, 2, 30);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 30 }]);
    scheduler.failed(3, error.clone(), now);
    let refused = scheduler.act(now);
    assert!(matches!(refused[..], [Action::Refuse { .. }]), "the busy builder is too small: {refused:?}");
    assert_eq!(scheduler.retry_after(now), SECOND, "the first failure of this size");
    ask(&mut scheduler, 3, 25);
    assert_eq!(scheduler.act(now), [Action::Start { id: 4, memory: 25 }]);
}

#[test]
fn a_quota_smaller_than_a_build_keeps_no_smaller_build_waiting() {
    let change = |rules: &mut Rules| (rules.max_builders, rules.memory, rules.idle_ttl) = (4, (10, 100), 9999 * SECOND);
    let (mut scheduler, now) = (scheduler(change), Instant::now());
    let quota = SpawnError { outlook: Outlook::Quota, ..SpawnError::passing("exceeded quota") };
    let large = ask(&mut scheduler, 1, 80);
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 80 }]);
    scheduler.failed(1, quota.clone(), now);
    scheduler.leave(large);
    ask(&mut scheduler, 2, 20);
    assert_eq!(scheduler.act(now), [Action::Start { id: 2, memory: 20 }], "no builder makes room for the large one");
    scheduler.started(2, 20, now);
    assert_eq!(scheduler.act(now).len(), 1);
    scheduler.given_back(2);
    scheduler.finished(2, now);
    ask(&mut scheduler, 2, 40);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 40 }], "the idle one need not make room");
}

#[test]
fn a_build_waits_for_the_builds_that_use_up_its_quota() {
    let (mut scheduler, mut now) = (scheduler(|rules| rules.max_builders = 4), Instant::now());
    let small = ask(&mut scheduler, 1, 20);
    assert_eq!(scheduler.act(now).len(), 1);
    scheduler.started(1, 20, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: small, id: 1 }]);
    let large = ask(&mut scheduler, 2, 60);
    let quota = SpawnError { outlook: Outlook::Quota, ..SpawnError::passing("exceeded quota") };
    for failed in 2..10 {
        now += 60 * SECOND;
        assert_eq!(scheduler.act(now), [Action::Start { id: failed, memory: 60 }]);
        scheduler.failed(failed, quota.clone(), now);
        assert_eq!(scheduler.act(now), [], "the small build goes on");
    }
    scheduler.given_back(1);
    scheduler.finished(1, now);
    assert_eq!(scheduler.act(now), [Action::Stop { id: 1 }]);
    scheduler.stopped(1);
    assert_eq!(scheduler.act(now), [Action::Start { id: 10, memory: 60 }], "without a pause");
    // Kubernetes may count the pod that is gone for a moment longer.
    scheduler.failed(10, quota, now);
    assert_eq!(scheduler.act(now), [], "earlier failures do not count");
    now += 2 * SECOND;
    assert_eq!(scheduler.act(now), [Action::Start { id: 11, memory: 60 }]);
    scheduler.started(11, 60, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: large, id: 11 }]);
}

#[test]
fn a_start_that_takes_too_long_is_not_explained_by_the_failure_of_a_larger_one() {
    let (mut scheduler, now) = (scheduler(|rules| rules.max_builders = 4), Instant::now());
    let small = ask(&mut scheduler, 1, 20);
    assert_eq!(scheduler.act(now).len(), 1);
    scheduler.started(1, 20, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: small, id: 1 }]);
    let large = ask(&mut scheduler, 1, 80);
    assert_eq!(scheduler.act(now).len(), 1);
    scheduler.failed(2, SpawnError::passing("no node is large enough"), now);
    scheduler.leave(large);
    // That a builder of its size is busy does not matter, as it can be started.
    let request = ask(&mut scheduler, 2, 10);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 10 }]);
    let refusal = Refusal::Late(60 * SECOND, None);
    assert_eq!(scheduler.act(now + 60 * SECOND), [Action::Refuse { request, refusal }]);
}

#[test]
fn spare_builders_do_not_take_the_room_of_a_large_build() {
    let change = |rules: &mut Rules| (rules.max_builders, rules.spare_builders, rules.memory) = (4, 1, (2, 100));
    let (mut scheduler, now) = (scheduler(change), Instant::now());
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 2 }]);
    scheduler.started(1, 2, now);
    let large = ask(&mut scheduler, 1, 64);
    let started = scheduler.act(now);
    assert!(started.contains(&Action::Start { id: 2, memory: 64 }), "{started:?}");
    // The quota has room for 64, but not beside the spare builder.
    let quota = SpawnError { outlook: Outlook::Quota, ..SpawnError::passing("exceeded quota") };
    for action in started {
        let Action::Start { id, .. } = action else { panic!("{action:?}") };
        scheduler.failed(id, quota.clone(), now);
    }
    assert_eq!(scheduler.act(now), [Action::Stop { id: 1 }]);
    scheduler.stopped(1);
    let [Action::Start { id, memory: 64 }] = scheduler.act(now)[..] else { panic!("the large one is next") };
    scheduler.started(id, 64, now);
    assert!(scheduler.act(now).contains(&Action::Grant { request: large, id }));
}

#[test]
fn one_builder_makes_room_for_one_large_build() {
    let (mut scheduler, now) = (scheduler(|rules| rules.memory = (10, 100)), Instant::now());
    let small = [ask(&mut scheduler, 1, 10), ask(&mut scheduler, 2, 10)];
    assert_eq!(scheduler.act(now).len(), 2);
    [1, 2].into_iter().for_each(|id| scheduler.started(id, 10, now));
    small.into_iter().for_each(|request| scheduler.leave(request));
    let large = ask(&mut scheduler, 3, 50);
    let Ok([Action::Stop { id }]) = <[Action; 1]>::try_from(scheduler.act(now)) else { panic!("one is stopped") };
    assert_eq!(scheduler.act(now), [], "its place is not free yet");
    scheduler.stopped(id);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 50 }]);
    scheduler.started(3, 50, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: large, id: 3 }]);
}

#[test]
fn an_idle_builder_makes_room_within_a_quota() {
    let rules = |rules: &mut Rules| {
        (rules.memory, rules.max_builders, rules.idle_ttl) = ((10, 100), 8, 9999 * SECOND);
    };
    let (mut scheduler, now) = (scheduler(rules), Instant::now());
    let small = ask(&mut scheduler, 1, 10);
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 10 }]);
    scheduler.started(1, 10, now);
    scheduler.adopt(10, false);
    scheduler.finished(2, now);
    scheduler.leave(small);
    let large = ask(&mut scheduler, 1, 50);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 50 }]);
    let quota = SpawnError { outlook: Outlook::Quota, ..SpawnError::passing("exceeded quota") };
    scheduler.failed(3, quota.clone(), now);
    assert_eq!(scheduler.act(now), [Action::Stop { id: 1 }]);
    scheduler.stopped(1);
    assert_eq!(scheduler.act(now), [Action::Start { id: 4, memory: 50 }], "at once; the other one may stay");
    let mut time = now;
    scheduler.started(4, 50, time);
    assert_eq!(scheduler.act(time), [Action::Grant { request: large, id: 4 }]);
    scheduler.given_back(4);
    scheduler.finished(4, time);
    // If no idle builder is left, and the quota still leaves no room, it is too small for the build.
    let huge = ask(&mut scheduler, 2, 60);
    let (mut stops, mut failed) = (0, 4);
    loop {
        time += 9 * SECOND;
        assert_eq!(scheduler.act(time), [Action::Start { id: failed + 1, memory: 60 }]);
        failed += 1;
        scheduler.failed(failed, quota.clone(), time);
        match scheduler.act(time)[..] {
            [Action::Stop { id }] => {
                scheduler.stopped(id);
                stops += 1;
            }
            [Action::Refuse { request, .. }] => break assert_eq!((request, stops), (huge, 2)),
            ref actions => assert!(actions.is_empty() && failed < 10, "{actions:?}"),
        }
    }
}

#[test]
fn builders_are_as_large_as_their_builds_need() {
    let (mut scheduler, now) = (scheduler(|rules| rules.memory = (10, 100)), Instant::now());
    let small = ask(&mut scheduler, 1, 1);
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 10 }]);
    let large = ask(&mut scheduler, 1, 9999);
    assert_eq!(scheduler.act(now), [Action::Start { id: 2, memory: 100 }], "the most there is");
    scheduler.started(2, 100, now);
    scheduler.started(1, 10, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: small, id: 1 }, Action::Grant { request: large, id: 2 }]);
    for id in [1, 2] {
        scheduler.given_back(id);
    }
    scheduler.finished(1, now);
    let large = ask(&mut scheduler, 1, 50);
    assert_eq!(scheduler.act(now), [Action::Stop { id: 1 }], "too small, it makes room");
    scheduler.stopped(1);
    assert_eq!(scheduler.act(now), [Action::Start { id: 3, memory: 50 }]);
    scheduler.finished(2, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request: large, id: 2 }], "whichever is there first");
}

#[test]
fn the_minimum_and_the_spare_builders_are_kept() {
    let (mut scheduler, now) = (scheduler(|rules| (rules.min_builders, rules.spare_builders) = (1, 1)), Instant::now());
    assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 0 }]);
    scheduler.started(1, 0, now);
    assert_eq!(scheduler.act(now + 99 * SECOND), []);
    let request = ask(&mut scheduler, 1, 0);
    let actions = [Action::Grant { request, id: 1 }, Action::Start { id: 2, memory: 0 }];
    assert_eq!(scheduler.act(now), actions, "another spare");
    scheduler.started(2, 0, now);
    scheduler.given_back(1);
    scheduler.finished(1, now + SECOND);
    assert_eq!(scheduler.act(now + 10 * SECOND), [Action::Stop { id: 2 }], "the one that was idle longest");
    scheduler.stopped(2);
    assert_eq!(scheduler.act(now + 99 * SECOND), [], "the last one stays");
    scheduler.lost(1);
    assert_eq!(scheduler.act(now), [Action::Stop { id: 1 }, Action::Start { id: 3, memory: 0 }], "another one for it");
}

#[test]
fn failed_starts_back_off_and_the_breaker_refuses_requests() {
    let (mut scheduler, now) = (scheduler(|rules| rules.breaker = 3), Instant::now());
    let request = ask(&mut scheduler, 1, 1);
    let other = ask(&mut scheduler, 2, 1);
    assert_eq!(scheduler.act(now).len(), 2);
    let error = SpawnError::passing("no route to host");
    scheduler.failed(1, error.clone(), now);
    scheduler.failed(2, error.clone(), now);
    assert_eq!(scheduler.last_failure(), Some(&error));
    assert_eq!(scheduler.act(now + SECOND), []);
    assert_eq!(scheduler.next_deadline(), Some(now + 2 * SECOND));
    let again = now + 2 * SECOND;
    assert_eq!(scheduler.act(again), [Action::Start { id: 3, memory: 1 }], "one, to try");
    scheduler.failed(3, error.clone(), again);
    let refused = |request| Action::Refuse { request, refusal: Refusal::NoStart(error.clone(), 4 * SECOND) };
    assert_eq!(scheduler.act(again), [refused(request), refused(other)], "the third time, nobody is kept waiting");
    let request = ask(&mut scheduler, 1, 1);
    assert_eq!(scheduler.act(again), [refused(request)]);
    let request = ask(&mut scheduler, 1, 1);
    let again = again + 4 * SECOND;
    assert_eq!(scheduler.act(again), [Action::Start { id: 4, memory: 1 }]);
    scheduler.started(4, 1, again);
    assert_eq!(scheduler.act(again), [Action::Grant { request, id: 4 }]);
    assert_eq!(scheduler.last_failure(), None);
}

#[test]
fn a_lasting_error_refuses_requests_at_once() {
    let (mut scheduler, now) = (scheduler(|_| {}), Instant::now());
    let request = ask(&mut scheduler, 1, 1);
    scheduler.act(now);
    let error = SpawnError::lasting("forbidden", "Look at the role.");
    scheduler.failed(1, error.clone(), now);
    assert_eq!(scheduler.act(now), [Action::Refuse { request, refusal: Refusal::NoStart(error, SECOND) }]);
}

#[test]
fn a_request_waits_for_a_busy_builder_if_no_other_can_be_started() {
    for error in [SpawnError::passing("exceeded quota"), SpawnError::lasting("forbidden", "")] {
        let (mut scheduler, mut now) = (scheduler(|rules| rules.max_builders = 3), Instant::now());
        let first = ask(&mut scheduler, 1, 1);
        scheduler.act(now);
        scheduler.started(1, 1, now);
        assert_eq!(scheduler.act(now), [Action::Grant { request: first, id: 1 }]);
        let second = ask(&mut scheduler, 2, 1);
        // Many more attempts than the breaker allows, over a time far beyond the start timeout.
        for id in 2..200 {
            assert_eq!(scheduler.act(now), [Action::Start { id, memory: 1 }], "one at a time");
            scheduler.failed(id, error.clone(), now);
            assert_eq!(scheduler.act(now), []);
            now = scheduler.next_deadline().unwrap();
        }
        scheduler.given_back(1);
        scheduler.finished(1, now);
        assert_eq!(scheduler.act(now), [Action::Grant { request: second, id: 1 }]);
        // No builder is busy, so there is none to wait for.
        let third = ask(&mut scheduler, 2, 1);
        scheduler.lost(1);
        scheduler.act(now);
        scheduler.stopped(1);
        scheduler.failed(200, error, now);
        assert!(matches!(scheduler.act(now)[..], [Action::Refuse { request, .. }] if request == third));
    }
}

#[test]
fn builds_wait_while_other_routers_have_all_builders() {
    let (mut scheduler, mut now) = (scheduler(|rules| rules.max_builders = 2), Instant::now());
    let requests = [ask(&mut scheduler, 1, 1), ask(&mut scheduler, 2, 1)];
    assert_eq!(scheduler.act(now).len(), 2);
    scheduler.failed(1, SpawnError::full("all are taken"), now);
    scheduler.failed(2, SpawnError::full("all are taken"), now);
    // Many more attempts than the breaker allows, over a time far beyond the start timeout.
    for id in 3..200 {
        assert_eq!(scheduler.act(now), []);
        now = scheduler.next_deadline().unwrap();
        assert_eq!(scheduler.act(now), [Action::Start { id, memory: 1 }], "one at a time");
        scheduler.failed(id, SpawnError::full("all are taken"), now);
    }
    now += SECOND;
    assert_eq!(scheduler.act(now), [Action::Start { id: 200, memory: 1 }]);
    scheduler.started(200, 1, now);
    let granted = scheduler.act(now);
    assert!(granted.contains(&Action::Grant { request: requests[0], id: 200 }), "{granted:?}");
}

#[test]
fn no_idle_builder_makes_room_when_a_place_is_free_again() {
    for own_ends in [false, true] {
        let (mut scheduler, now) = (scheduler(|rules| rules.max_builders = 3), Instant::now());
        scheduler.others(Others { all: 1, ..Others::default() });
        let request = ask(&mut scheduler, 1, 10);
        assert_eq!(scheduler.act(now), [Action::Start { id: 1, memory: 10 }]);
        scheduler.failed(1, SpawnError::full("all are taken"), now);
        scheduler.leave(request);
        // No successful start clears the failure: builders of other routers are taken over, not started.
        let lent = [scheduler.adopt(10, false), scheduler.adopt(10, false)];
        lent.into_iter().for_each(|id| scheduler.finished(id, now));
        if own_ends {
            scheduler.lost(lent[1]);
            assert_eq!(scheduler.act(now), [Action::Stop { id: lent[1] }]);
            scheduler.stopped(lent[1]);
        } else {
            scheduler.others(Others::default());
        }
        ask(&mut scheduler, 1, 20);
        assert_eq!(scheduler.act(now), [Action::Start { id: 4, memory: 20 }], "{own_ends}");
    }
}

#[test]
fn failures_of_larger_builders_refuse_no_build_that_waits_for_other_routers() {
    for outlook in [Outlook::Full, Outlook::Shared] {
        let (mut scheduler, mut now) = (scheduler(|rules| rules.max_builders = 3), Instant::now());
        let large = ask(&mut scheduler, 1, 80);
        for id in 1..=3 {
            assert_eq!(scheduler.act(now), [Action::Start { id, memory: 80 }]);
            scheduler.failed(id, SpawnError::passing("no node is large enough"), now);
            now = scheduler.next_deadline().unwrap();
        }
        scheduler.leave(large);
        ask(&mut scheduler, 2, 20);
        assert_eq!(scheduler.act(now), [Action::Start { id: 4, memory: 20 }]);
        scheduler.failed(4, SpawnError { outlook, ..SpawnError::passing("other routers have all") }, now);
        assert_eq!(scheduler.act(now), [], "{outlook:?}: it waits");
    }
}

#[test]
fn a_request_waits_for_a_shared_quota_until_the_start_timeout() {
    let shared = || SpawnError { outlook: Outlook::Shared, ..SpawnError::passing("exceeded quota") };
    let spare = |rules: &mut Rules| (rules.max_builders, rules.spare_builders) = (4, 1);
    let (mut scheduler, begun) = (scheduler(spare), Instant::now());
    scheduler.others(Others { all: 1, ..Others::default() });
    assert_eq!(scheduler.act(begun), [Action::Start { id: 1, memory: 0 }]);
    scheduler.failed(1, shared(), begun);
    assert_eq!(scheduler.act(begun + SECOND), [], "without a client no other router gives up a builder");
    let request = ask(&mut scheduler, 1, 1);
    let refusal = Refusal::Late(60 * SECOND, Some(shared()));
    let refused = Action::Refuse { request, refusal };
    let mut now = begun;
    let mut actions = Vec::new();
    while !actions.contains(&refused) {
        now += SECOND;
        assert!(now < begun + 100 * SECOND, "the client waits without limit");
        actions = scheduler.act(now);
        for action in &actions {
            if let Action::Start { id, .. } = action {
                scheduler.failed(*id, shared(), now);
            }
        }
    }
    // A builder of another router has ended.
    scheduler.others(Others::default());
    assert!(matches!(scheduler.act(now + SECOND)[..], [Action::Start { .. }]), "a spare one is started again");
}

#[test]
fn a_request_is_refused_after_the_start_timeout() {
    let (mut scheduler, now) = (scheduler(|rules| rules.breaker = 99), Instant::now());
    let request = ask(&mut scheduler, 1, 1);
    scheduler.act(now);
    assert_eq!(scheduler.next_deadline(), Some(now + 60 * SECOND));
    let refusal = Refusal::Late(60 * SECOND, None);
    assert_eq!(scheduler.act(now + 60 * SECOND), [Action::Refuse { request, refusal }]);
}

#[test]
fn minimum_and_spares_count_the_builders_of_all_routers() {
    let now = Instant::now();
    let some = |all, ready| Others { all, ready, ..Others::default() };
    let kept = |rules: &mut Rules| (rules.min_builders, rules.max_builders) = (2, 4);
    for (others, starts) in [(some(0, 0), 2), (some(1, 0), 1), (some(2, 0), 0), (some(9, 9), 0)] {
        let mut scheduler = scheduler(kept);
        scheduler.others(others);
        assert_eq!(scheduler.act(now).len(), starts, "{others:?}");
    }
    let spare = |rules: &mut Rules| (rules.spare_builders, rules.max_builders) = (2, 4);
    for (others, starts) in [(some(3, 0), 1), (some(1, 1), 1), (some(2, 2), 0), (some(4, 0), 0)] {
        let mut scheduler = scheduler(spare);
        scheduler.others(others);
        assert_eq!(scheduler.act(now).len(), starts, "{others:?}");
    }
}

#[test]
fn of_two_routers_with_too_many_idle_builders_only_one_stops_its_own() {
    let now = Instant::now();
    for (min_builders, spare_builders) in [(1, 0), (0, 1)] {
        let change = |rules: &mut Rules| (rules.min_builders, rules.spare_builders) = (min_builders, spare_builders);
        let mut schedulers = [scheduler(change), scheduler(change)];
        for scheduler in &mut schedulers {
            let id = scheduler.adopt(1, false);
            scheduler.finished(id, now);
        }
        // Each router counts one idle builder of the other; the first router precedes the second in their order.
        schedulers[0].others(Others { all: 1, ready: 1, all_before: 0, idle_before: 0 });
        schedulers[1].others(Others { all: 1, ready: 1, all_before: 1, idle_before: 1 });
        let later = now + 10 * SECOND;
        assert_eq!(schedulers[0].act(later), [], "{min_builders}, {spare_builders}");
        assert_eq!(schedulers[1].act(later), [Action::Stop { id: 1 }], "{min_builders}, {spare_builders}");
    }
}

#[test]
fn an_idle_builder_is_handed_over_to_a_router_that_waits_for_it() {
    let (mut scheduler, now) = (scheduler(|rules| (rules.max_builders, rules.spare_builders) = (1, 1)), Instant::now());
    scheduler.act(now);
    scheduler.started(1, 7, now);
    let request = ask(&mut scheduler, 1, 1);
    scheduler.wanted(&[1]);
    assert_eq!(scheduler.act(now), [Action::Grant { request, id: 1 }], "its own clients come first");
    scheduler.given_back(1);
    assert_eq!(scheduler.act(now), [], "its build may go on");
    scheduler.finished(1, now);
    assert_eq!(scheduler.act(now), [Action::LetGo { id: 1 }]);
    scheduler.stopped(1);
    scheduler.others(Others { all: 1, ..Others::default() });
    assert_eq!(scheduler.act(now), [], "the other router has the place");
}

#[test]
fn a_builder_that_is_too_small_makes_room_although_others_have_the_rest() {
    let (mut scheduler, now) = (scheduler(|rules| rules.memory = (1, 9)), Instant::now());
    let id = scheduler.adopt(1, false);
    scheduler.finished(id, now);
    scheduler.others(Others { all: 1, ..Others::default() });
    ask(&mut scheduler, 1, 9);
    assert_eq!(scheduler.act(now), [Action::Stop { id }]);
}

#[test]
fn a_draining_router_starts_no_spare_builders_and_lets_idle_ones_go() {
    let (mut scheduler, now) = (scheduler(|rules| (rules.min_builders, rules.spare_builders) = (2, 2)), Instant::now());
    assert_eq!(scheduler.act(now).len(), 2);
    scheduler.drain();
    scheduler.started(1, 0, now);
    assert_eq!(scheduler.act(now), [Action::LetGo { id: 1 }]);
    scheduler.stopped(1);
    assert_eq!(scheduler.act(now), [], "no other one for it");
    scheduler.started(2, 0, now);
    assert_eq!(scheduler.act(now), [Action::LetGo { id: 2 }]);
    let id = scheduler.adopt(0, false);
    assert_eq!(scheduler.act(now), [], "its build may go on");
    scheduler.finished(id, now);
    assert_eq!(scheduler.act(now), [Action::LetGo { id }]);
}

#[test]
fn builders_of_an_earlier_template_take_no_build() {
    let (mut scheduler, now) = (scheduler(|rules| (rules.max_builders, rules.min_builders) = (1, 1)), Instant::now());
    let id = scheduler.adopt(1, true);
    let request = ask(&mut scheduler, 1, 1);
    assert_eq!(scheduler.act(now), [], "the one that it has goes on");
    scheduler.finished(id, now);
    assert_eq!(scheduler.act(now), [Action::Stop { id }]);
    scheduler.stopped(id);
    assert_eq!(scheduler.act(now), [Action::Start { id: 2, memory: 1 }]);
    scheduler.started(2, 1, now);
    assert_eq!(scheduler.act(now), [Action::Grant { request, id: 2 }]);
}

#[test]
fn nobody_waits_for_a_busy_builder_that_takes_no_further_build() {
    let (mut scheduler, now) = (scheduler(|_| {}), Instant::now());
    scheduler.adopt(100, true);
    let request = ask(&mut scheduler, 1, 1);
    assert_eq!(scheduler.act(now), [Action::Start { id: 2, memory: 1 }]);
    let error = SpawnError::lasting("pod is invalid", "Look at the template.");
    scheduler.failed(2, error.clone(), now);
    assert_eq!(scheduler.act(now), [Action::Refuse { request, refusal: Refusal::NoStart(error, SECOND) }]);
}
