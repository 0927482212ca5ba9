-- One dimension or entry above the limits is refused with pgvector's messages.

CREATE TABLE items AS SELECT
    array_fill(1, ARRAY[2001])::vector(2001) AS v,
    array_fill(1, ARRAY[4001])::halfvec(4001) AS h,
    repeat('1', 64001)::bit(64001) AS b,
    array_fill(1, ARRAY[1001])::vector::sparsevec(1001) AS s
FROM generate_series(1, 3);

--! fails 54000
CREATE INDEX ON items USING hnsw (v vector_l2_ops);
--! fails 54000
CREATE INDEX ON items USING hnsw (h halfvec_cosine_ops);
--! fails 54000
CREATE INDEX ON items USING hnsw (b bit_hamming_ops);
--! fails 54000
CREATE INDEX ON items USING hnsw (s sparsevec_l2_ops);
--! fails 54000
CREATE INDEX CONCURRENTLY items_s ON items USING hnsw (s sparsevec_ip_ops);

-- The failed CONCURRENTLY leaves an invalid index.
SELECT relname, indisvalid FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = 'items'::regclass;
