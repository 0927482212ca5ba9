-- NULLs are not indexed.

--! load glove 1000
CREATE TABLE items (id int, v vector(100), nothing vector(100));
INSERT INTO items SELECT id, CASE WHEN id % 3 > 0 THEN v END FROM glove;
--! builds 666
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
--! builds 0
CREATE INDEX items_nothing ON items USING hnsw (nothing vector_cosine_ops);

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

UPDATE items SET nothing = v WHERE id < 100;
--! search items_nothing
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, nothing <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
