-- Candidates by sign bits (binary quantisation), re-ranked by the vectors.

--! load minilm 1500
CREATE TABLE items AS SELECT id, v AS embedding FROM minilm;

--! builds 1500
CREATE INDEX items_signs ON items USING hnsw ((binary_quantize(embedding)::bit(384)) bit_hamming_ops);

SET hnsw.ef_search = 100;
--! search items_signs
--! queries SELECT binary_quantize(v)::bit(384) FROM minilm_queries
SELECT id, binary_quantize(embedding)::bit(384) <~> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_signs
--! queries SELECT v FROM minilm_queries
SELECT id, distance FROM (
    SELECT id, embedding <=> :q AS distance FROM items
    ORDER BY binary_quantize(embedding)::bit(384) <~> binary_quantize(:q)::bit(384) LIMIT 50
) candidates
ORDER BY distance LIMIT 10;
