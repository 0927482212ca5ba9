//! Errors of users' functions are the same in external builds as in the database.

use harness::{Builder, Cluster, diagnose, make_diagnose};

/// Functions that raise errors, and a table to index.
const RAISING: &str = "
    CREATE FUNCTION picky(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        IF v::text = '[7,8,9]' THEN
            RAISE EXCEPTION 'no % here, 100 %%', v USING ERRCODE = 'ZZ123', DETAIL = 'a detail', HINT = 'a hint',
                COLUMN = 'a column', CONSTRAINT = 'a constraint', DATATYPE = 'a type', TABLE = 'a table', SCHEMA = 'a schema';
        END IF;
        RETURN v;
    END $$;
    CREATE FUNCTION divides(v vector) RETURNS boolean LANGUAGE sql IMMUTABLE AS
        $$ SELECT 1 / (CASE WHEN v::text = '[7,8,9]' THEN 0 ELSE 1 END) = 1 $$;
    CREATE FUNCTION retries(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        RETURN picky(v);
    EXCEPTION WHEN SQLSTATE 'ZZ123' THEN
        BEGIN
            PERFORM 1 / 0;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
        RAISE;
    END $$;
    CREATE TABLE t (v vector(3));
    INSERT INTO t SELECT ARRAY[i, i + 1, i + 2]::vector FROM generate_series(1, 9) i";

#[test]
fn errors_are_those_of_a_build_in_the_database() {
    let cluster = Cluster::start().unwrap();
    let builder = Builder::start().unwrap();
    let mut session = cluster.database("user_errors").unwrap();
    builder.attach(&mut session).unwrap();
    session.execute("CREATE EXTENSION lantern_index").unwrap();
    make_diagnose(&mut session).unwrap();
    session.execute(RAISING).unwrap();
    for statement in [
        "CREATE INDEX i ON t USING hnsw ((picky(v)::vector(3)) vector_l2_ops)",
        "CREATE INDEX i ON t USING hnsw ((retries(v)::vector(3)) vector_l2_ops)",
        "CREATE INDEX i ON t USING hnsw (v vector_l2_ops) WHERE divides(v)",
        "CREATE INDEX i ON t USING hnsw ((v::text::vector(4)) vector_l2_ops)",
    ] {
        session.execute("SET hnsw.external_index = off").unwrap();
        let local = diagnose(&mut session, statement).unwrap();
        session.execute("SET hnsw.external_index = on").unwrap();
        let external = diagnose(&mut session, statement).unwrap();
        println!("{statement}:\n{external}\n");
        assert_ne!(local, "no error");
        assert_eq!(external, local, "{statement}");
        // The error is the same when no handler catches it.
        let error = session.execute(statement).unwrap_err();
        assert!(local.starts_with(&format!("{} | {}", error.server().sqlstate, error.server().message)), "{error}");
    }

    // Errors of the index expression during a check.
    session.execute("SET hnsw.external_index = on; DELETE FROM t WHERE v::text = '[7,8,9]'").unwrap();
    session.execute("CREATE INDEX i ON t USING hnsw ((picky(v)::vector(3)) vector_l2_ops)").unwrap();
    session
        .execute(
            "CREATE OR REPLACE FUNCTION picky(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN RAISE EXCEPTION 'never' USING ERRCODE = 'ZZ124', CONSTRAINT = 'a constraint'; END $$",
        )
        .unwrap();
    let checked = diagnose(&mut session, "SELECT lantern_index.check('i')").unwrap();
    assert!(checked.starts_with("ZZ124 | never |  |  |  | a constraint |"), "{checked}");
    assert!(checked.contains("PL/pgSQL function picky(vector) line 1 at RAISE"), "{checked}");
    // Errors of the query for advise().
    let advised =
        diagnose(&mut session, "SELECT * FROM lantern_index.advise('t', 'v', queries => 'SELECT picky(v) FROM t')")
            .unwrap();
    assert!(advised.starts_with("ZZ124 | never |  |  |  | a constraint |"), "{advised}");
    assert!(advised.contains("PL/pgSQL function picky(vector) line 1 at RAISE"), "{advised}");
    // The session still works.
    assert_eq!(session.value::<u32>("SELECT count(*) FROM t").unwrap(), 8);
}
