-- Options out of range, and forms of CREATE INDEX that hnsw does not support.

CREATE TABLE items AS SELECT id, ARRAY[id, 2, 3]::vector(3) AS v, ARRAY[id, 1]::vector(2) AS w FROM generate_series(1, 20) id;

--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 1);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 101);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (ef_construction = 3);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (ef_construction = 1001);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 16, ef_construction = 31);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 50);
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (m = 'many');
--! fails 22023
CREATE INDEX ON items USING hnsw (v vector_l2_ops) WITH (lists = 10);

--! fails 0A000
CREATE INDEX ON items USING hnsw (v vector_l2_ops) INCLUDE (id);
--! fails 0A000
CREATE INDEX ON items USING hnsw (v vector_l2_ops, w vector_l2_ops);
--! fails 0A000
CREATE UNIQUE INDEX ON items USING hnsw (v vector_l2_ops);
--! fails 0A000
CREATE INDEX ON items USING hnsw (v vector_l2_ops DESC);
--! fails 42809
ALTER TABLE items ADD EXCLUDE USING hnsw (v vector_l2_ops WITH <->);

-- The limits of the ranges.
--! builds 20
CREATE INDEX items_2_4 ON items USING hnsw (v vector_l2_ops) WITH (m = 2, ef_construction = 4);
--! builds 20
CREATE INDEX items_100_1000 ON items USING hnsw (w vector_l2_ops) WITH (m = 100, ef_construction = 1000);
--! search items_2_4
--! queries SELECT v FROM items
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_100_1000
--! queries SELECT w FROM items
SELECT id, w <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- An index keeps its graph when its options change; a rebuild uses the new ones.
ALTER INDEX items_2_4 SET (m = 50);
--! fails 22023
REINDEX INDEX items_2_4;
ALTER INDEX items_2_4 RESET (m, ef_construction);
--! builds 20
REINDEX INDEX items_2_4;
