-- Taxicab distance of half-precision vectors.

--! load glove 1500
CREATE TABLE items (id int, v halfvec(100));
INSERT INTO items SELECT id, v FROM glove;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v halfvec_l1_ops);
SET hnsw.ef_search = 200;

--! search items_v
--! queries SELECT v::halfvec FROM glove_queries
--! recall 0.95
SELECT id, v <+> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <+> :q AS distance FROM items ORDER BY distance LIMIT 10;
