-- A thousand duplicates of one value among five hundred other rows: they must not cut these off.

--! load glove 500
CREATE TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove WHERE id < 250;
INSERT INTO items SELECT 1000 + i, v FROM glove, generate_series(1, 1000) i WHERE id = 17;
INSERT INTO items SELECT id, v FROM glove WHERE id >= 250;
--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_v
--! queries SELECT v FROM glove
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
