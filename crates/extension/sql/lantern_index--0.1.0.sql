\echo Use "CREATE EXTENSION lantern_index" to load this file. \quit

-- Building needs only the library; the extension adds what can be asked in SQL.

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
    OUT rows bigint, OUT index_bytes bigint, OUT builder_memory_bytes bigint, OUT wire_bytes bigint
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_estimate_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION estimate(regclass, name, integer) IS 'what an hnsw index on a column would take to build';

CREATE FUNCTION "check"(
    index regclass, sample integer DEFAULT 100,
    OUT elements bigint, OUT rows bigint, OUT duplicates bigint, OUT deleted bigint, OUT unreachable bigint,
    OUT not_full bigint, OUT errors bigint, OUT recall double precision, OUT advice text
) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'lantern_index_check_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
COMMENT ON FUNCTION "check"(regclass, integer) IS 'verifies an hnsw index and searches it for a sample of rows';
