-- REFRESH rebuilds the index of a materialized view; with CONCURRENTLY it updates single rows.

--! load glove 1000
CREATE TABLE items AS SELECT id, v FROM glove;
CREATE MATERIALIZED VIEW view AS SELECT id, v::vector(100) AS v FROM items WHERE id % 2 = 0;
CREATE UNIQUE INDEX ON view (id);
--! builds 500
CREATE INDEX view_v ON view USING hnsw (v vector_l2_ops);

UPDATE items SET id = id + 2000 WHERE id >= 900;
INSERT INTO items SELECT id + 4000, v FROM glove WHERE id < 100;
--! builds 550
REFRESH MATERIALIZED VIEW view;
SET hnsw.ef_search = 100;
--! search view_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM view ORDER BY distance LIMIT 10;

DELETE FROM items WHERE id < 100;
REFRESH MATERIALIZED VIEW CONCURRENTLY view;
--! search view_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM view ORDER BY distance LIMIT 10;

REFRESH MATERIALIZED VIEW view WITH NO DATA;
--! builds 500
REFRESH MATERIALIZED VIEW view;
--! search view_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM view ORDER BY distance LIMIT 10;
