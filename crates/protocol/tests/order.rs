//! Which messages are allowed in which state.

mod samples;

use lantern_index_protocol::{ProtocolError, SessionState};

/// Runs steps: `c` for the client or `b` for the builder, and the name of the sample sent.
fn run(steps: &[(char, &str)]) -> Result<SessionState, ProtocolError> {
    let client = |name| samples::client().into_iter().find(|(other, _)| *other == name).unwrap().1;
    let builder = |name| samples::builder().into_iter().find(|(other, _)| *other == name).unwrap().1;
    steps.iter().try_fold(SessionState::default(), |state, &(side, name)| match side {
        'c' => state.client(&client(name)),
        _ => state.builder(&builder(name)),
    })
}

const BUILD: [(char, &str); 12] = [
    ('c', "hello"),
    ('b', "wait"),
    ('b', "accept"),
    ('c', "tuples"),
    ('b', "progress"),
    ('c', "tuples"),
    ('c', "end_of_tuples"),
    ('b', "progress"),
    ('b', "layout"),
    ('b', "pages"),
    ('b', "pages"),
    ('b', "done"),
];

#[test]
fn a_build_is_in_order_and_may_be_cancelled_or_fail_anywhere() {
    assert_eq!(run(&BUILD), Ok(SessionState::Ended));
    for end in 1..=BUILD.len() {
        let after = |step| run(&[&BUILD[..end], &[step]].concat());
        let now = run(&BUILD[..end]);
        assert_eq!(after(('c', "heartbeat")), now);
        assert_eq!(after(('c', "cancel")), now);
        let ended = now == Ok(SessionState::Ended);
        assert_eq!(after(('b', "error")).is_ok(), !ended);
        assert_eq!(after(('b', "heartbeat")).is_ok(), !ended);
    }
}

#[test]
fn a_build_may_be_refused_until_it_is_accepted() {
    for (end, ok) in [(0, true), (1, true), (2, true), (3, false), (7, false)] {
        let result = run(&[&BUILD[..end], &[('b', "refuse")]].concat());
        assert_eq!(result.is_ok(), ok, "after {end} steps");
    }
}

#[test]
fn a_router_answers_hello_with_a_redirect() {
    assert_eq!(run(&[('c', "hello"), ('b', "wait"), ('b', "redirect")]), Ok(SessionState::Ended));
    assert_eq!(run(&[&[('c', "ticket"), ('c', "ping"), ('b', "pong")], &BUILD[..]].concat()), Ok(SessionState::Ended));
    for end in [0, 3, 7, BUILD.len()] {
        assert!(run(&[&BUILD[..end], &[('b', "redirect")]].concat()).is_err(), "after {end} steps");
    }
    for end in 1..=BUILD.len() {
        assert!(run(&[&BUILD[..end], &[('c', "ticket")]].concat()).is_err(), "after {end} steps");
    }
}

#[test]
fn pings_come_before_the_build() {
    let ping = [('c', "ping"), ('b', "pong")];
    assert_eq!(run(&ping), Ok(SessionState::Opened));
    assert_eq!(run(&[&ping[..], &ping, &BUILD].concat()), Ok(SessionState::Ended));
    for end in 1..=BUILD.len() {
        for step in ping {
            assert!(run(&[&BUILD[..end], &[step]].concat()).is_err(), "{step:?} after {end} steps");
        }
    }
}

#[test]
fn hello_asks_for_a_build_a_check_or_advice() {
    let admission = [
        ("hello", SessionState::Admission),
        ("hello_check", SessionState::CheckAdmission),
        ("hello_advise", SessionState::AdviceAdmission),
    ];
    for (hello, state) in admission {
        assert_eq!(run(&[('c', hello)]), Ok(state), "{hello}");
    }
}

#[test]
fn only_hello_ping_and_ticket_may_come_first_from_a_client() {
    for step in ["cancel", "heartbeat", "tuples", "end_of_tuples", "index_pages", "end_of_index"] {
        assert!(run(&[('c', step)]).is_err(), "{step}");
    }
}

#[test]
fn hello_accept_end_of_tuples_and_layout_are_needed() {
    let without = |name| {
        let steps: Vec<_> = BUILD.into_iter().filter(|step| step.1 != name).collect();
        run(&steps).map_err(|error| error.to_string())
    };
    assert_eq!(without("hello"), Err("unexpected Wait while opening the session".into()));
    assert_eq!(without("accept"), Err("unexpected Tuples while waiting for admission".into()));
    assert_eq!(without("end_of_tuples"), Err("unexpected Layout while sending rows".into()));
    assert_eq!(without("layout"), Err("unexpected Pages while building the graph".into()));
    assert_eq!(without("tuples"), Ok(SessionState::Ended));
}

/// Asserts that the steps end a session. From the third on, a heartbeat or an error may come, but no step of `wrong`.
fn expect_order(steps: &[(char, &str)], wrong: &[(char, &str)]) {
    assert_eq!(run(steps), Ok(SessionState::Ended));
    for end in 3..steps.len() {
        let after = |step| run(&[&steps[..end], &[step]].concat());
        assert_eq!(after(('c', "heartbeat")), run(&steps[..end]));
        assert!(after(('b', "error")).is_ok());
        for &wrong in wrong {
            assert!(after(wrong).is_err(), "{wrong:?} after {end} steps");
        }
    }
}

const CHECK: [(char, &str); 8] = [
    ('c', "hello_check"),
    ('b', "wait"),
    ('b', "accept_check"),
    ('c', "index_pages"),
    ('c', "end_of_index"),
    ('b', "progress"),
    ('b', "findings"),
    ('b', "done"),
];

#[test]
fn a_check_is_in_order_and_no_build() {
    expect_order(&CHECK, &[('c', "tuples"), ('c', "end_of_tuples"), ('b', "layout"), ('b', "pages")]);
    for end in 0..=BUILD.len() {
        for wrong in [('c', "index_pages"), ('c', "end_of_index"), ('b', "findings")] {
            assert!(run(&[&BUILD[..end], &[wrong]].concat()).is_err(), "{wrong:?} after {end} steps");
        }
    }
    // A Hello for a build gets a build, whatever else the builder can do.
    assert!(run(&[BUILD[0], ('b', "accept_check"), ('c', "tuples"), ('c', "end_of_tuples")]).is_ok());
    // A builder that does not know checks takes the Hello for a build.
    assert!(run(&[CHECK[0], ('b', "accept"), CHECK[3]]).is_err());
}

const ADVISE: [(char, &str); 8] = [
    ('c', "hello_advise"),
    ('b', "wait"),
    ('b', "accept_advise"),
    ('c', "tuples"),
    ('c', "end_of_tuples"),
    ('b', "progress"),
    ('b', "advice"),
    ('b', "done"),
];

#[test]
fn advice_is_in_order_and_no_build() {
    let wrong = [('c', "index_pages"), ('c', "end_of_index"), ('b', "layout"), ('b', "pages"), ('b', "findings")];
    expect_order(&ADVISE, &wrong);
    for end in 0..=BUILD.len() {
        assert!(run(&[&BUILD[..end], &[('b', "advice")]].concat()).is_err(), "advice after {end} steps");
    }
    // A builder that does not know advice takes the Hello for a build.
    assert_eq!(run(&[ADVISE[0], ('b', "accept"), ADVISE[3]]), Ok(SessionState::Rows));
}
