-- Columns that pgvector does not index: without dimensions, or of a type without a fixed length.

CREATE TABLE items AS SELECT '[1,2,3]'::vector AS v, '[1,2,3]'::halfvec AS h, '{1:1}/3'::sparsevec AS s, '101'::varbit(3) AS b
FROM generate_series(1, 3);

--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops);
--! fails 22023
CREATE INDEX ON items USING hnsw (h halfvec_l2_ops);
--! fails 22023
CREATE INDEX ON items USING hnsw (s sparsevec_l2_ops);
--! fails 0A000
CREATE INDEX ON items USING hnsw (b bit_hamming_ops);
--! fails 42704
CREATE INDEX ON items USING hnsw (v);
--! fails 42804
CREATE INDEX ON items USING hnsw (v halfvec_l2_ops);

-- With dimensions, they can be indexed.
--! builds 3
CREATE INDEX items_v ON items USING hnsw ((v::vector(3)) vector_l2_ops);
--! builds 3
CREATE INDEX items_b ON items USING hnsw ((b::bit(3)) bit_hamming_ops);

-- But not if a row has other dimensions.
INSERT INTO items (b) VALUES ('10');
--! fails 22000
INSERT INTO items (v) VALUES ('[1,2]');
DROP INDEX items_v;
INSERT INTO items (v) VALUES ('[1,2]');
--! fails 22000
CREATE INDEX items_v ON items USING hnsw ((v::vector(3)) vector_l2_ops);
