-- Partial indexes contain exactly the rows that satisfy the predicate.

--! load glove 2000
CREATE TABLE items AS SELECT id, id % 4 AS kind, v FROM glove;
ALTER TABLE items ALTER COLUMN v TYPE vector(100);

--! builds 500
CREATE INDEX items_kind_1 ON items USING hnsw (v vector_l2_ops) WHERE kind = 1;
--! builds 1000
CREATE INDEX items_late ON items USING hnsw (v vector_cosine_ops) WHERE id >= 1000;
-- No row satisfies the predicate, though the table has rows.
--! builds 0
CREATE INDEX items_none ON items USING hnsw (v vector_ip_ops) WHERE kind = 9;

SET hnsw.ef_search = 100;
--! search items_kind_1
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items WHERE kind = 1 ORDER BY distance LIMIT 10;
--! search items_late
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items WHERE id >= 1000 ORDER BY distance LIMIT 10;

-- Rows are inserted and deleted.
UPDATE items SET kind = 1 - kind WHERE id < 100 AND kind < 2;
INSERT INTO items SELECT id + 2000, 9, v FROM glove WHERE id < 30;
--! search items_kind_1
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items WHERE kind = 1 ORDER BY distance LIMIT 10;
--! search items_none
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <#> :q AS distance FROM items WHERE kind = 9 ORDER BY distance LIMIT 10;
