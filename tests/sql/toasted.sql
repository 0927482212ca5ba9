-- Values that are compressed, stored out of line (TOAST), or have a short header.

--! load glove 500
CREATE TABLE items (id int, external vector(1000), extended vector(1000), short vector(3));
ALTER TABLE items ALTER COLUMN external SET STORAGE external, ALTER COLUMN extended SET STORAGE extended;
INSERT INTO items
SELECT id, v || v || v || v || v || v || v || v || v || v, v || array_fill(0, ARRAY[900])::vector, subvector(v, 1, 3) FROM glove;

--! builds 500
CREATE INDEX items_external ON items USING hnsw (external vector_l2_ops);
--! builds 500
CREATE INDEX items_extended ON items USING hnsw (extended vector_cosine_ops);
--! builds 500
CREATE INDEX items_short ON items USING hnsw (short vector_l2_ops);

SET hnsw.ef_search = 100;
--! search items_external
--! queries SELECT external FROM items WHERE id % 20 = 0
SELECT id, external <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_extended
--! queries SELECT extended FROM items WHERE id % 20 = 0
SELECT id, extended <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_short
--! queries SELECT subvector(v, 1, 3) FROM glove_queries
SELECT id, short <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
