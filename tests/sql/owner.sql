-- The owner of a table need not be a superuser.

--! load glove 600
CREATE ROLE items_owner;
CREATE SCHEMA own AUTHORIZATION items_owner;
GRANT SELECT ON glove, glove_queries TO items_owner;
SET ROLE items_owner;
CREATE TABLE own.items (id int, v vector(100));
INSERT INTO own.items SELECT id, v FROM glove;
--! builds 600
CREATE INDEX items_v ON own.items USING hnsw (v vector_l2_ops);
--! builds 600
REINDEX TABLE own.items;
--! fails 42501
CREATE INDEX glove_v ON glove USING hnsw (v vector_l2_ops);

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM own.items ORDER BY distance LIMIT 10;

-- A superuser's REINDEX runs expressions as the owner; since PostgreSQL 17 without the user's search path.
CREATE FUNCTION own.half(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE SET search_path = public AS
$$ BEGIN RETURN subvector(v, 1, 50); END $$;
--! builds 600
CREATE INDEX items_half ON own.items USING hnsw ((own.half(v)::vector(50)) vector_l2_ops);
RESET ROLE;
--! builds 600 600
REINDEX TABLE own.items;
--! search items_half
--! queries SELECT own.half(v) FROM glove_queries
SELECT id, own.half(v)::vector(50) <-> :q AS distance FROM own.items ORDER BY distance LIMIT 10;

DROP OWNED BY items_owner;
DROP ROLE items_owner;
