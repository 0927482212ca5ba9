-- VACUUM removes rows from an externally built index, and inserts reuse their space.

--! load glove 1500
CREATE TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove WHERE id < 1200;
--! builds 1200
CREATE INDEX items_v ON items USING hnsw (v vector_cosine_ops);
DELETE FROM items WHERE id % 3 = 0;
VACUUM items;
SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
INSERT INTO items SELECT id, v FROM glove WHERE id >= 1200;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
UPDATE items SET v = v - v - v WHERE id % 3 = 1;
DELETE FROM items WHERE id % 3 = 2;
VACUUM items;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
DELETE FROM items;
VACUUM items;
INSERT INTO items SELECT id, v FROM glove;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
