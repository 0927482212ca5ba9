-- Values with the most dimensions of each type, and sparse vectors with the most entries, can be indexed.

SELECT setseed(0.5);
CREATE TABLE items AS SELECT id, (SELECT array_agg(random() - 0.5 + 0 * id * i) FROM generate_series(1, 2000) i)::vector(2000) AS v
FROM generate_series(1, 60) id;
CREATE TABLE halves AS SELECT id, (v::real[] || v::real[])::halfvec(4000) AS v FROM items;
CREATE TABLE bits AS SELECT id, repeat(binary_quantize(v)::text, 32)::bit(64000) AS v FROM items;
CREATE TABLE sparse AS SELECT id,
    ('{' || (SELECT string_agg(i * 1000000 || ':' || (v::real[])[i], ',') FROM generate_series(1, 1000) i) || '}/1000000000')
        ::sparsevec(1000000000) AS v
FROM items;

--! builds 60
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
--! builds 60
CREATE INDEX halves_v ON halves USING hnsw (v halfvec_l2_ops);
--! builds 60
CREATE INDEX bits_v ON bits USING hnsw (v bit_hamming_ops);
--! builds 60
CREATE INDEX sparse_v ON sparse USING hnsw (v sparsevec_l2_ops);

SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT v FROM items WHERE id <= 10
--! recall 1
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search halves_v
--! queries SELECT v FROM halves WHERE id <= 10
--! recall 1
SELECT id, v <-> :q AS distance FROM halves ORDER BY distance LIMIT 10;
--! search bits_v
--! queries SELECT v FROM bits WHERE id <= 10
--! recall 1
SELECT id, v <~> :q AS distance FROM bits ORDER BY distance LIMIT 10;
--! search sparse_v
--! queries SELECT v FROM sparse WHERE id <= 10
--! recall 1
SELECT id, v <-> :q AS distance FROM sparse ORDER BY distance LIMIT 10;
