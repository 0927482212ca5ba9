//! Impossible announcements are rejected before pages are written or memory is allocated.

use protocol::{BuilderMessage, Layout};

use crate::answer::Answer;
use crate::fake::{accept, progress};
use crate::scene::Scene;

/// A change of the announcement.
type Lie = fn(&mut Layout);

#[test]
fn impossible_announcements_are_refused() {
    let mut scene = Scene::new("layout");
    let cases: [(&str, Lie, &str); 11] = [
        ("no block", |layout| layout.blocks = 0, "0 blocks announced"),
        ("one block", |layout| layout.blocks = 1, "1 blocks announced"),
        ("all blocks", |layout| layout.blocks = u32::MAX, "4294967295 blocks announced"),
        ("a few blocks too many", |layout| layout.blocks = 100, "100 blocks announced"),
        ("more elements than rows", |layout| layout.elements += 1, "25 elements announced"),
        ("too few elements for the rows", |layout| layout.elements = 2, "2 elements announced"),
        ("no element", |layout| layout.elements = 0, "0 elements announced"),
        ("as many elements as there are numbers", |layout| layout.elements = u64::MAX, "elements announced"),
        ("a row too many", |layout| layout.rows += 1, "25 rows announced"),
        ("a row too few", |layout| layout.rows -= 1, "23 rows announced"),
        ("as many rows as there are numbers", |layout| layout.rows = u64::MAX, "rows announced"),
    ];
    for (case, change, words) in cases {
        scene.fails_with(case, ("XX001", words), move |peer| {
            let hello = peer.accept()?;
            let mut answer = Answer::new(&hello, &peer.rows()?);
            change(&mut answer.layout);
            answer.send(peer)
        });
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let mut scene = Scene::new("layout_order");
    let layout = BuilderMessage::Layout(Layout { blocks: 4, elements: 24, rows: 24 });
    for (case, message) in [("Progress", progress()), ("Layout", layout.clone())] {
        let words = format!("unexpected {case}");
        scene.fails_with(&format!("{case} before Accept"), ("08P01", &words), move |peer| {
            peer.hello()?;
            peer.say(&message)
        });
    }
    scene.fails_with("Layout before the end of the rows", ("08P01", "unexpected Layout"), {
        let layout = layout.clone();
        move |peer| {
            peer.hello()?;
            // In one segment, so that the client has received both before it sends a row.
            peer.send(&[crate::fake::encoded(&accept(2)), crate::fake::encoded(&layout)].concat())
        }
    });
    scene.fails_with("a second Accept", ("08P01", "unexpected Accept"), |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.say(&accept(2))
    });
    scene.fails_with("a second Layout", ("08P01", "unexpected Layout"), move |peer| {
        peer.accept()?;
        peer.rows()?;
        peer.say(&layout)?;
        peer.say(&layout)
    });
    scene.fails_with("pages before Layout", ("08P01", "unexpected Pages"), |peer| {
        let hello = peer.accept()?;
        let answer = Answer::new(&hello, &peer.rows()?);
        peer.send(&protocol::encode_pages(0, answer.pages[0].1.to_vec()).0)?;
        peer.send(&answer.pages[0].1)
    });
    scene.fails_with("Done in place of Layout", ("08P01", "unexpected Done"), |peer| {
        let hello = peer.accept()?;
        let answer = Answer::new(&hello, &peer.rows()?);
        peer.say(&BuilderMessage::Done(answer.done))
    });
    scene.fails_with("Done in place of pages", ("XX001", "0 blocks came, 4 announced"), |peer| {
        let hello = peer.accept()?;
        let mut answer = Answer::new(&hello, &peer.rows()?);
        answer.pages.clear();
        answer.send(peer)
    });
}
