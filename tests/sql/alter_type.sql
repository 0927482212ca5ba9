-- The type of the indexed column changes.

--! load glove 1000
CREATE TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove;
--! builds 1000
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
SET hnsw.ef_search = 100;

--! builds 1000
ALTER TABLE items ALTER COLUMN v TYPE vector(40) USING subvector(v, 1, 40);
--! search items_v
--! queries SELECT subvector(v, 1, 40) FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- The operator class does not accept the new type.
--! fails 42804
ALTER TABLE items ALTER COLUMN v TYPE halfvec(40);
DROP INDEX items_v;
ALTER TABLE items ALTER COLUMN v TYPE halfvec(40);
--! builds 1000
CREATE INDEX items_v ON items USING hnsw (v halfvec_l2_ops);
--! search items_v
--! queries SELECT subvector(v, 1, 40)::halfvec(40) FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- The type of another column changes: the table is rewritten.
--! builds 1000
ALTER TABLE items ALTER COLUMN id TYPE bigint;
--! search items_v
--! queries SELECT subvector(v, 1, 40)::halfvec(40) FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
