-- The index has half precision, the table has full precision.

--! load minilm 1500
CREATE TABLE items AS SELECT id, v AS embedding FROM minilm;

--! builds 1500
CREATE INDEX items_half ON items USING hnsw ((embedding::halfvec(384)) halfvec_cosine_ops);
--! builds 1500
CREATE INDEX items_part ON items USING hnsw ((subvector(embedding, 1, 64)::vector(64)) vector_l2_ops);

SET hnsw.ef_search = 100;
--! search items_half
--! queries SELECT v::halfvec(384) FROM minilm_queries
SELECT id, embedding::halfvec(384) <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_part
--! queries SELECT subvector(v, 1, 64) FROM minilm_queries
SELECT id, subvector(embedding, 1, 64)::vector(64) <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
