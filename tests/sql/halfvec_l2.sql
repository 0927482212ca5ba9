-- Euclidean distance of half-precision vectors.

--! load minilm 1500
CREATE TABLE items (id int, v halfvec(384));
INSERT INTO items SELECT id, v FROM minilm;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v halfvec_l2_ops);
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT v::halfvec FROM minilm_queries
--! recall 0.95
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
