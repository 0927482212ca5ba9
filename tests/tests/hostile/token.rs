//! The token is sent to the builder, and appears nowhere else.

use protocol::{BuilderMessage, ErrorReport, SqlState};

use crate::answer::build;
use crate::scene::{CLUSTER, CREATE, Scene};

#[test]
fn the_builder_gets_it() {
    let mut scene = Scene::new("token");
    scene.session.execute("SET hnsw.external_index_token = 'open sesame'").unwrap();
    scene
        .run(CREATE, |peer| {
            let hello = peer.hello()?;
            assert_eq!(hello.token, "open sesame");
            build(peer, &hello)
        })
        .unwrap();
    scene.session.execute("DROP INDEX items_idx; RESET hnsw.external_index_token").unwrap();
    scene.fails_with("no token", ("28000", "token"), |peer| {
        assert!(peer.hello()?.token.is_empty());
        let report = ErrorReport::new(SqlState::INVALID_AUTHORIZATION, "the token is missing or wrong")
            .hint("Set hnsw.external_index_token.");
        peer.say(&BuilderMessage::Refuse(*report.refuse(0)))
    });
}

#[test]
fn nobody_is_shown_it() {
    let mut scene = Scene::new("token_secret");
    let session = &mut scene.session;
    let shown = "SHOW hnsw.external_index_token";
    assert_eq!(session.value::<String>(shown).unwrap(), "");
    session.execute("SET hnsw.external_index_token = 'tell nobody'").unwrap();
    assert_eq!(session.value::<String>(shown).unwrap(), "********");
    let all = session.query("SHOW ALL").unwrap();
    assert!(!all.iter().flatten().flatten().any(|text| text.contains("tell nobody")));
    let listed = "SELECT count(*) FROM pg_settings WHERE name = 'hnsw.external_index_token'";
    assert_eq!(session.value::<u32>(listed).unwrap(), 0);
    session.execute("CREATE ROLE curious; SET ROLE curious").unwrap();
    for statement in [shown, "SELECT current_setting('hnsw.external_index_token')"] {
        assert_eq!(session.execute(statement).unwrap_err().server().sqlstate, "42501");
    }
    let error = session.execute("SET hnsw.external_index_token = 'mine'").unwrap_err();
    assert_eq!(error.server().sqlstate, "42501", "{error}");
    session.execute("RESET ROLE; RESET hnsw.external_index_token").unwrap();
    assert!(!CLUSTER.log().contains("tell nobody"));
}

/// The mask that SHOW returns for the token must never be used as a token.
#[test]
fn it_is_not_copied_from_what_is_shown() {
    let mut scene = Scene::new("token_copy");
    let session = &mut scene.session;
    session.execute("SET hnsw.external_index_token = 'tell nobody'").unwrap();
    let body = "RETURNS int LANGUAGE sql AS 'SELECT 1'";
    let error =
        session.execute(&format!("CREATE FUNCTION f() {body} SET hnsw.external_index_token FROM CURRENT")).unwrap_err();
    assert_eq!(error.server().sqlstate, "22023", "{error}");
    assert!(error.server().detail.contains("FROM CURRENT cannot copy it"), "{error}");
    session.execute(&format!("CREATE FUNCTION f() {body} SET hnsw.external_index_token = 'mine'")).unwrap();
    assert_eq!(session.value::<u32>("SELECT f()").unwrap(), 1);
}
