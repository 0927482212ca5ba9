-- An empty table needs no builder: pgvector inserts all rows of the growing index.

--! load glove 800
CREATE TABLE items (id int, v vector(100));
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
CREATE INDEX CONCURRENTLY items_cosine ON items USING hnsw (v vector_cosine_ops);
REINDEX TABLE items;
VACUUM FULL items;
INSERT INTO items SELECT id, v FROM glove;
SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- If all rows are dead, the table does not look empty.
DROP INDEX items_cosine;
DELETE FROM items;
--! builds 0
REINDEX INDEX items_v;
INSERT INTO items SELECT id, v FROM glove WHERE id < 300;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
