-- Hamming distance of sign bits: many rows are equally far.

--! load minilm 1500
CREATE TABLE items (id int, v bit(384));
INSERT INTO items SELECT id, binary_quantize(v) FROM minilm;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v bit_hamming_ops);
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT binary_quantize(v)::bit(384) FROM minilm_queries
--! recall 0.95
SELECT id, v <~> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <~> :q AS distance FROM items ORDER BY distance LIMIT 10;
