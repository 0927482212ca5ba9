-- CREATE TABLE … LIKE … INCLUDING INDEXES makes an empty index with the same options.

--! load glove 800
CREATE TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove;
--! builds 800
CREATE INDEX items_v ON items USING hnsw (v vector_cosine_ops) WITH (m = 8, ef_construction = 100);

CREATE TABLE copies (LIKE items INCLUDING INDEXES);
SELECT indexdef FROM pg_indexes WHERE tablename = 'copies';
INSERT INTO copies SELECT * FROM items;
SET hnsw.ef_search = 100;
--! search copies_v_idx
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <=> :q AS distance FROM copies ORDER BY distance LIMIT 10;

--! builds 800
REINDEX TABLE copies;
--! search copies_v_idx
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM copies ORDER BY distance LIMIT 10;
