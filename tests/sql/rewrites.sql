-- TRUNCATE, VACUUM FULL and CLUSTER give the table a new file, and rebuild the index.

--! load glove 1200
CREATE TABLE items (id int PRIMARY KEY, kind int, v vector(100));
CREATE INDEX items_kind ON items (kind);
INSERT INTO items SELECT id, id % 7, v FROM glove;
--! builds 1200
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);

DELETE FROM items WHERE kind = 6;
--! builds 1029
VACUUM FULL items;
SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! builds 1029
CLUSTER items USING items_kind;
SELECT array_agg(DISTINCT kind) FROM (SELECT kind FROM items LIMIT 100) first;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! fails 0A000
CLUSTER items USING items_v;

TRUNCATE items;
SELECT count(*) FROM items;
INSERT INTO items SELECT id, 0, v FROM glove WHERE id < 400;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- In one transaction.
BEGIN;
TRUNCATE items;
INSERT INTO items SELECT id, 1, v FROM glove WHERE id >= 700;
--! builds 500
REINDEX INDEX items_v;
COMMIT;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

BEGIN;
TRUNCATE items;
INSERT INTO items SELECT id, 1, v FROM glove WHERE id < 10;
ROLLBACK;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
