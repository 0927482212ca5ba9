//! The reason with which a builder ends a build is shown to the user, in every phase.

use std::io;

use protocol::{BuilderMessage, ErrorReport, SqlState, Wait};

use crate::answer::Answer;
use crate::fake::Peer;
use crate::scene::{CREATE, Scene};

fn refuse() -> BuilderMessage {
    let report = ErrorReport::new(SqlState::TOO_MANY_CONNECTIONS, "64 builds are running")
        .detail("That is as many as this builder takes.")
        .hint("Ask another builder.");
    BuilderMessage::Refuse(*report.refuse(5000))
}

fn error() -> BuilderMessage {
    let report = ErrorReport::new(SqlState::OUT_OF_MEMORY, "out of memory");
    BuilderMessage::Error(report.detail("The graph takes 7 GB.").hint("Ask for more."))
}

fn expect_quoted(scene: &mut Scene, case: &str, script: impl FnOnce(&mut Peer) -> io::Result<()> + Send + 'static) {
    println!("{case}:");
    let found = scene.fails(script);
    let refused = [
        "53300",
        "64 builds are running",
        "That is as many as this builder takes.",
        "Ask another builder. Try again in 5 seconds.",
    ];
    let failed = ["53200", "out of memory", "The graph takes 7 GB.", "Ask for more."];
    let expected = if found.sqlstate == "53300" { refused } else { failed };
    let [sqlstate, message, detail, hint] = expected;
    assert_eq!(found.sqlstate, sqlstate, "{case}: {found}");
    assert_eq!(found.message, format!("external index build failed: {message}"), "{case}");
    assert_eq!((found.detail.as_str(), found.hint.as_str()), (detail, hint), "{case}");
}

#[test]
fn a_reason_before_the_rows_is_shown() {
    let mut scene = Scene::new("reports_before");
    expect_quoted(&mut scene, "refused with the greeting", |peer| {
        peer.greet()?;
        peer.say(&refuse())
    });
    expect_quoted(&mut scene, "failed with the greeting", |peer| {
        peer.greet()?;
        peer.say(&error())
    });
    expect_quoted(&mut scene, "refused with the greeting, and gone", |peer| {
        peer.greet()?;
        peer.hang_up();
        peer.say(&refuse())
    });
    expect_quoted(&mut scene, "refused", |peer| {
        peer.hello()?;
        peer.say(&refuse())
    });
    expect_quoted(&mut scene, "refused after a while in the queue", |peer| {
        peer.hello()?;
        peer.say(&BuilderMessage::Wait(Wait { position: 1, reason: "one other is ahead".into() }))?;
        peer.say(&BuilderMessage::Heartbeat)?;
        peer.say(&refuse())
    });
    expect_quoted(&mut scene, "failed in place of Accept", |peer| {
        peer.hello()?;
        peer.say(&error())
    });
    expect_quoted(&mut scene, "accepted and failed", |peer| {
        peer.accept()?;
        peer.hang_up();
        peer.say(&error())
    });
}

#[test]
fn a_reason_after_the_rows_is_shown() {
    let mut scene = Scene::new("reports_after");
    expect_quoted(&mut scene, "failed in place of Layout", |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.say(&error())
    });
    expect_quoted(&mut scene, "failed among the pages", |peer| {
        let hello = peer.accept()?;
        let answer = Answer::new(&hello, &peer.rows()?);
        peer.say(&BuilderMessage::Layout(answer.layout))?;
        let (head, body, _) = protocol::encode_pages(0, answer.pages[0].1.to_vec());
        peer.send(&head)?;
        peer.send(&body)?;
        peer.say(&error())
    });
    scene.fails_with("gone without a word", ("08006", "lost connection"), |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.hang_up();
        Ok(())
    });
}

#[test]
fn a_reason_among_the_rows_is_shown() {
    let mut scene = Scene::large("reports_rows");
    expect_quoted(&mut scene, "failed", |peer| {
        peer.accept()?;
        peer.message()?;
        peer.say(&error())
    });
    expect_quoted(&mut scene, "failed and gone", |peer| {
        peer.accept()?;
        peer.message()?;
        peer.hang_up();
        peer.say(&error())
    });
    expect_quoted(&mut scene, "failed when the client cannot send", |peer| {
        peer.accept()?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        peer.hang_up();
        peer.say(&error())
    });
    scene.fails_with("gone without a word", ("08006", "lost connection"), |peer| {
        peer.accept()?;
        peer.message()?;
        peer.hang_up();
        Ok(())
    });
}

#[test]
fn a_poor_graph_is_warned_of() {
    let mut scene = Scene::new("reports_poor");
    for (recall, self_recall, words) in [
        (Some(799_999), 1_000_000, Some("found 79 percent of the ten nearest neighbors")),
        (Some(800_000), 0, None),
        (None, 500_000, Some("found 50 percent of a sample of values, by a search for each")),
        (None, 800_000, None),
    ] {
        let result = scene.run(CREATE, move |peer| {
            let hello = peer.accept()?;
            let mut answer = Answer::new(&hello, &peer.rows()?);
            (answer.done.recall_ppm, answer.done.self_recall_ppm) = (recall, self_recall);
            answer.send(peer)
        });
        result.unwrap();
        let mut warnings = scene.session.take_notices();
        warnings.retain(|notice| notice.severity == "WARNING");
        assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
        assert!(words.is_none_or(|words| warnings[0].detail.contains(words)), "{warnings:?}");
        scene.session.execute("DROP INDEX items_idx").unwrap();
    }
}
