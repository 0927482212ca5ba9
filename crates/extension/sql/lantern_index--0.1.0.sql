\echo Use "CREATE EXTENSION lantern_index" to load this file. \quit

-- Building needs only the library; the extension adds what can be asked in SQL.

CREATE FUNCTION version() RETURNS text
    AS 'MODULE_PATHNAME', 'lantern_index_version_wrapper' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION version() IS 'version of the loaded library';
