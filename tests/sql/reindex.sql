-- All statements that rebuild an index.

--! load glove 1200
CREATE TABLE items AS SELECT id, v FROM glove;
ALTER TABLE items ALTER COLUMN v TYPE vector(100);
--! builds 1200
CREATE INDEX items_v ON items USING hnsw (v vector_cosine_ops);
DELETE FROM items WHERE id < 100;
INSERT INTO items SELECT id + 2000, v FROM glove WHERE id BETWEEN 500 AND 549;

--! builds 1150
REINDEX INDEX items_v;
--! builds 1150
REINDEX INDEX CONCURRENTLY items_v;
--! builds 1150
REINDEX TABLE items;
--! builds 1150
REINDEX TABLE CONCURRENTLY items;
SELECT relname FROM pg_class WHERE relname LIKE 'items%' ORDER BY relname;

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
