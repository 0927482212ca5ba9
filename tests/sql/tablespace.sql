-- The index is in another tablespace than its table, and is moved.

--! load glove 600
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE elsewhere LOCATION '';
--! builds 600
CREATE INDEX glove_v ON glove USING hnsw (v vector_l2_ops) TABLESPACE elsewhere;
SET hnsw.ef_search = 100;
--! search glove_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM glove ORDER BY distance LIMIT 10;
ALTER INDEX glove_v SET TABLESPACE pg_default;
--! builds 600
REINDEX (TABLESPACE elsewhere) INDEX glove_v;
--! search glove_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM glove ORDER BY distance LIMIT 10;
DROP TABLE glove;
DROP TABLESPACE elsewhere;
