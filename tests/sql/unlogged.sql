-- An unlogged table that becomes logged and then unlogged again.

--! load glove 1200
CREATE UNLOGGED TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove;
--! builds 1200
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! builds 1200
ALTER TABLE items SET LOGGED;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! builds 1200
ALTER TABLE items SET UNLOGGED;
INSERT INTO items SELECT id + 2000, v FROM glove WHERE id < 50;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
