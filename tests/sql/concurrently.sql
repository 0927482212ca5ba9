-- CREATE INDEX CONCURRENTLY, on a table with dead rows and HOT updates.

--! load glove 1500
CREATE TABLE items (id int, kind int, v vector(100)) WITH (fillfactor = 50);
INSERT INTO items SELECT id, 0, v FROM glove;
UPDATE items SET kind = 1 WHERE id % 3 = 0;
DELETE FROM items WHERE id % 10 = 9;

--! builds 1350
CREATE INDEX CONCURRENTLY items_v ON items USING hnsw (v vector_l2_ops);
--! fails 25001
DO $$ BEGIN EXECUTE 'CREATE INDEX CONCURRENTLY ON items USING hnsw (v vector_l2_ops)'; END $$;

SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
