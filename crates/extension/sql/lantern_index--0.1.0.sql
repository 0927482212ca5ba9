\echo Use "CREATE EXTENSION lantern_index" to load this file. \quit

-- Builds need only the library; the extension adds functions and a view.

-- CREATE EXTENSION uses an existing schema of this name. Names in the statements below could then mean functions and operators of the
-- schema's owner instead of PostgreSQL's, and these would run with the rights of whoever reads the view.
DO $$
DECLARE
    owner name := (SELECT r.rolname FROM pg_catalog.pg_namespace n
                   JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
                   WHERE n.nspname OPERATOR(pg_catalog.=) 'lantern_index' AND NOT r.rolsuper
                     AND r.rolname OPERATOR(pg_catalog.<>) CURRENT_USER);
BEGIN
    IF owner IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = pg_catalog.format('schema lantern_index belongs to role "%s", which is no superuser', owner),
            HINT = 'Drop or rename the schema: CREATE EXTENSION makes its own.';
    END IF;
END
$$;

CREATE FUNCTION version() RETURNS text
    AS 'MODULE_PATHNAME', 'lantern_index_version_wrapper' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION version() IS 'version of the loaded library';

CREATE FUNCTION ping(
    OUT address text, OUT tls text, OUT verified boolean, OUT builder_version text, OUT protocol integer,
    OUT latency_ms double precision, OUT memory_free bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_ping_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION ping() IS 'connects to the builder, as a build would, and asks whether it is there';

CREATE FUNCTION estimate(
    relation regclass, column_name name, m integer DEFAULT 16,
    OUT rows bigint, OUT index_bytes bigint, OUT builder_memory_bytes bigint, OUT wire_bytes bigint,
    OUT backend_memory_bytes bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_estimate_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION estimate(regclass, name, integer) IS 'rows, size, memory and network traffic of an hnsw index on a column, estimated';

CREATE FUNCTION advise(
    relation regclass, column_name name, opclass text DEFAULT NULL, target_recall double precision DEFAULT 0.95,
    k integer DEFAULT 10, queries text DEFAULT NULL, max_rows integer DEFAULT 100000,
    OUT statement text, OUT settings text, OUT query text, OUT recall double precision, OUT ef_search integer,
    OUT visited bigint, OUT index_bytes bigint, OUT cached_bytes bigint, OUT build_seconds double precision,
    OUT builder_memory_bytes bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_advise_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 5;
COMMENT ON FUNCTION advise(regclass, name, text, double precision, integer, text, integer) IS
    'hnsw indexes for a target recall, and how to search them, best first: a builder tries them on a sample';

CREATE FUNCTION "check"(
    index regclass, sample integer DEFAULT 100, external boolean DEFAULT NULL,
    OUT elements bigint, OUT rows bigint, OUT duplicates bigint, OUT deleted bigint, OUT unreachable bigint,
    OUT not_full bigint, OUT errors bigint, OUT recall double precision, OUT advice text,
    OUT checked_by text
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_check_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION "check"(regclass, integer, boolean) IS 'verifies an hnsw index and searches it for a sample of rows';

CREATE FUNCTION index_state(
    index oid, scans bigint, dead_share double precision, checked text, pgvector text,
    OUT size bigint, OUT m integer, OUT ef_construction integer, OUT external boolean, OUT deleted_share double precision,
    OUT advice text, OUT reason text, OUT expression text
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_index_state_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION index_state(oid, bigint, double precision, text, text) IS 'state of an hnsw index, from a few of its pages; for the view indexes';

-- A check is valid for one filenode: REINDEX makes a new file.
CREATE TABLE checks (
    index oid PRIMARY KEY, filenode oid NOT NULL, checked_at timestamptz NOT NULL,
    elements bigint NOT NULL, rows bigint NOT NULL, deleted bigint NOT NULL, unreachable bigint NOT NULL, errors bigint NOT NULL,
    recall double precision, advice text NOT NULL
);
COMMENT ON TABLE checks IS 'what check_and_remember() found';

CREATE FUNCTION check_and_remember(index regclass, sample integer DEFAULT 100, external boolean DEFAULT NULL) RETURNS text AS $$
    -- SKIP LOCKED: another check may be deleting the same rows, and keeps them locked until it ends, which may take long.
    DELETE FROM lantern_index.checks AS old
        WHERE old.index OPERATOR(pg_catalog.=) ANY (
            SELECT gone.index FROM lantern_index.checks AS gone
            WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) gone.index)
            FOR UPDATE SKIP LOCKED);
    INSERT INTO lantern_index.checks AS old
        SELECT $1, pg_catalog.pg_relation_filenode($1), pg_catalog.clock_timestamp(),
               c.elements, c.rows, c.deleted, c.unreachable, c.errors, c.recall, c.advice
        FROM lantern_index."check"($1, $2, $3) c
        ON CONFLICT (index) DO UPDATE SET
            filenode = excluded.filenode, checked_at = excluded.checked_at, elements = excluded.elements, rows = excluded.rows,
            deleted = excluded.deleted, unreachable = excluded.unreachable, errors = excluded.errors, recall = excluded.recall,
            advice = excluded.advice
        RETURNING old.advice
$$ LANGUAGE sql VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION check_and_remember(regclass, integer, boolean) IS 'checks an hnsw index, and keeps the result for the view indexes';

-- From here on no name is looked up in the schema: roles that were once granted CREATE on it may have made functions there.
SET LOCAL search_path = pg_catalog, pg_temp;

-- No part waits for a lock: sizes and expressions come from index_state(). An invalid index counts as being built while another session holds
-- the lock of CREATE INDEX or REINDEX on its table: their progress reports show one index at a time, and none in between. VACUUM and ANALYZE
-- take the same lock, and are left out. PostgreSQL has last_idx_scan from 16 on. After a reset or a crash, statistics count only newer rows;
-- reltuples counts all. For a partial index, only dead rows that cannot all lie outside it count.
CREATE VIEW lantern_index.indexes WITH (security_barrier) AS
    SELECT i.indrelid::regclass AS table_name, i.indexrelid::regclass AS index_name, coalesce(quote_ident(f.attname), s.expression) AS column_name,
           o.opcname AS opclass, format_type(a.atttypid, a.atttypmod) AS type,
           s.m, s.ef_construction, s.external, i.indisvalid AND i.indisready AS valid, s.size,
           CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
           u.idx_scan AS scans, (to_jsonb(u) ->> 'last_idx_scan')::timestamptz AS last_scan,
           s.deleted_share, d.dead_share, k.checked_at, k.recall, k.advice AS check_result,
           CASE WHEN b.building THEN 'building' ELSE coalesce(s.advice, 'unknown') END AS advice,
           CASE WHEN NOT b.building THEN s.reason END AS reason
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i'
    JOIN pg_class h ON h.oid = i.indrelid
    JOIN pg_am m ON m.oid = c.relam AND m.amname = 'hnsw'
    JOIN pg_opclass o ON o.oid = i.indclass[0]
    JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = 1
    LEFT JOIN pg_attribute f ON f.attrelid = i.indrelid AND f.attnum = i.indkey[0]
    LEFT JOIN pg_stat_all_indexes u ON u.indexrelid = i.indexrelid
    LEFT JOIN pg_stat_all_tables t ON t.relid = i.indrelid
    LEFT JOIN pg_extension v ON v.extname = 'vector'
    LEFT JOIN lantern_index.checks k ON k.index = i.indexrelid AND k.filenode = c.relfilenode AND has_table_privilege(i.indrelid, 'SELECT')
    CROSS JOIN LATERAL (SELECT nullif(greatest(t.n_live_tup + t.n_dead_tup, h.reltuples::double precision), 0)) w (all_rows)
    CROSS JOIN LATERAL (SELECT t.n_dead_tup / w.all_rows) d (dead_share)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN i.indpred IS NOT NULL AND c.reltuples > 0 AND c.reltuples < h.reltuples
                    THEN least(c.reltuples / w.all_rows, 1) ELSE 1 END
    ) p (indexed)
    CROSS JOIN LATERAL (
        SELECT NOT i.indisvalid AND EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'relation' AND l.relation = i.indrelid AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'AccessExclusiveLock') AND l.pid <> pg_backend_pid()
              AND l.pid NOT IN (
                  SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_progress_vacuum p ON p.pid IN (a.pid, a.leader_pid)
                  UNION ALL SELECT pid FROM pg_stat_progress_analyze))
    ) b (building)
    LEFT JOIN LATERAL lantern_index.index_state(
        i.indexrelid, u.idx_scan, greatest(0, d.dead_share - 1 + p.indexed) / p.indexed, k.advice, v.extversion
    ) s ON true;
COMMENT ON VIEW lantern_index.indexes IS 'all hnsw indexes of the database, and one word of advice for each';
GRANT SELECT ON lantern_index.indexes TO public;
