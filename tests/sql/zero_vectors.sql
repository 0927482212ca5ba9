-- A zero vector has no direction: indexes for cosine omit it, others do not.

--! load glove 1000
CREATE FUNCTION zeroed(id int, v vector) RETURNS vector LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN id % 5 = 0 THEN array_fill(0, ARRAY[100])::vector ELSE v END $$;
CREATE TABLE items (id int, v vector(100), h halfvec(100), s sparsevec(100), b bit(100));
INSERT INTO items SELECT id, zeroed(id, v), zeroed(id, v), zeroed(id, v)::sparsevec, binary_quantize(zeroed(id, v)) FROM glove;

--! builds 800
CREATE INDEX items_v ON items USING hnsw (v vector_cosine_ops);
--! builds 800
CREATE INDEX items_h ON items USING hnsw (h halfvec_cosine_ops);
--! builds 800
CREATE INDEX items_s ON items USING hnsw (s sparsevec_cosine_ops);
--! builds 1000
CREATE INDEX items_b ON items USING hnsw (b bit_jaccard_ops);
--! builds 1000
CREATE INDEX items_v_l2 ON items USING hnsw (v vector_l2_ops);
--! builds 1000
CREATE INDEX items_v_ip ON items USING hnsw (v vector_ip_ops);

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_h
--! queries SELECT v::halfvec FROM glove_queries
SELECT id, h <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_s
--! queries SELECT v::sparsevec FROM glove_queries
SELECT id, s <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_b
--! queries SELECT binary_quantize(v)::bit(100) FROM glove_queries
SELECT id, b <%> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_v_l2
--! queries SELECT v FROM items WHERE id < 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_v_ip
--! queries SELECT v FROM items WHERE id BETWEEN 1 AND 40
SELECT id, v <#> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- All values are zero.
CREATE TABLE zeros AS SELECT id, array_fill(0, ARRAY[100])::vector(100) AS v FROM generate_series(1, 50) id;
--! builds 0
CREATE INDEX zeros_v ON zeros USING hnsw (v vector_cosine_ops);
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM zeros ORDER BY v <=> (SELECT v FROM glove LIMIT 1)) found;
