-- The parent's index is made first, ON ONLY; the partitions' indexes are built concurrently and attached.

--! load glove 900
CREATE TABLE items (id int, v vector(100)) PARTITION BY HASH (id);
CREATE TABLE items_0 PARTITION OF items FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE items_1 PARTITION OF items FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO items SELECT id, v FROM glove;
SELECT count(*) FROM items_0;

CREATE INDEX items_v ON ONLY items USING hnsw (v vector_cosine_ops);
--! builds 486
CREATE INDEX CONCURRENTLY items_0_v ON items_0 USING hnsw (v vector_cosine_ops);
--! builds 414
CREATE INDEX CONCURRENTLY items_1_v ON items_1 USING hnsw (v vector_cosine_ops);
ALTER INDEX items_v ATTACH PARTITION items_0_v;
ALTER INDEX items_v ATTACH PARTITION items_1_v;
SELECT indisvalid FROM pg_index WHERE indexrelid = 'items_v'::regclass;

SET hnsw.ef_search = 100;
--! search items_0_v items_1_v
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
