//! The token is sent to the builder, and appears nowhere else.

use protocol::{BuilderMessage, ErrorReport, SqlState};

use crate::answer::build;
use crate::scene::{CLUSTER, CREATE, Scene};

#[test]
fn the_token_reaches_the_builder() {
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
fn the_token_is_never_shown() {
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
fn from_current_does_not_copy_the_mask() {
    let mut scene = Scene::new("token_copy");
    let session = &mut scene.session;
    session.execute("SET hnsw.external_index_token = 'tell nobody'").unwrap();
    let body = "RETURNS int LANGUAGE sql AS 'SELECT 1'";
    let error =
        session.execute(&format!("CREATE FUNCTION f() {body} SET hnsw.external_index_token FROM CURRENT")).unwrap_err();
    assert_eq!(error.server().sqlstate, "22023", "{error}");
    assert!(error.server().detail.contains("FROM CURRENT cannot copy it"), "{error}");
}

#[test]
fn the_token_is_not_stored_where_every_role_can_read_it() {
    let mut scene = Scene::new("token_stored");
    let session = &mut scene.session;
    session.execute("CREATE ROLE token_owner").unwrap();
    for (object, end) in [
        ("ALTER DATABASE token_stored SET", ""),
        ("ALTER ROLE token_owner SET", ""),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql SET", " AS 'SELECT 1'"),
    ] {
        let set = |name: &str| format!("{object} hnsw.external_index_token{name} = 'stored'{end}");
        let error = session.execute(&set("")).unwrap_err();
        assert_eq!(error.server().sqlstate, "22023", "{error}");
        assert!(error.server().detail.contains("Set hnsw.external_index_token_file instead"), "{error}");
        session.execute(&set("_file")).unwrap();
    }
    assert_eq!(session.value::<u32>("SELECT f()").unwrap(), 1);
    session.execute("ALTER SYSTEM SET hnsw.external_index_token = 'x'").unwrap();
    session.execute("ALTER SYSTEM RESET hnsw.external_index_token").unwrap();
}

#[test]
fn the_token_file_is_read_for_each_build() {
    let mut scene = Scene::new("token_file");
    let path = CLUSTER.dir().join("builder.token");
    scene.session.execute(&format!("SET hnsw.external_index_token_file = '{}'", path.display())).unwrap();
    let failure = scene.session.execute(CREATE).unwrap_err();
    let failure = failure.server();
    assert_eq!(failure.sqlstate, "F0000", "{}", failure.message);
    assert!(
        failure.message.contains("could not read \"") && failure.message.contains("builder.token"),
        "{}",
        failure.message
    );
    assert_eq!(failure.hint, "Check the setting hnsw.external_index_token_file.");
    for secret in ["open sesame", "open barley"] {
        std::fs::write(&path, format!("{secret}\n")).unwrap();
        scene
            .run(CREATE, move |peer| {
                let hello = peer.hello()?;
                assert_eq!(hello.token, secret);
                build(peer, &hello)
            })
            .unwrap();
        scene.session.execute("DROP INDEX items_idx").unwrap();
    }
    scene.session.execute("RESET hnsw.external_index_token_file").unwrap();
    assert!(!CLUSTER.log().contains("open barley"));
}
