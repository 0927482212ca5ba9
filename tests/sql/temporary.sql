-- Temporary tables. One is emptied by each COMMIT, which needs no builder.

--! load glove 1000
CREATE TEMP TABLE kept AS SELECT id, v FROM glove;
ALTER TABLE kept ALTER COLUMN v TYPE vector(100);
--! builds 1000
CREATE INDEX kept_v ON kept USING hnsw (v vector_l2_ops);
SET hnsw.ef_search = 100;
--! search kept_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM kept ORDER BY distance LIMIT 10;

CREATE TEMP TABLE items (id int, v vector(100)) ON COMMIT DELETE ROWS;
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
BEGIN;
INSERT INTO items SELECT id, v FROM glove WHERE id < 300;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
COMMIT;
SELECT count(*) FROM items;

-- Built when it has rows; emptied at the end of the same transaction.
BEGIN;
INSERT INTO items SELECT id, v FROM glove WHERE id >= 300;
--! builds 700
CREATE INDEX items_cosine ON items USING hnsw (v vector_cosine_ops);
--! search items_cosine
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
COMMIT;
BEGIN;
INSERT INTO items SELECT id, v FROM glove WHERE id < 100;
--! search items_cosine
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
COMMIT;
