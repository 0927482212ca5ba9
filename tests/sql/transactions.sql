-- Builds within transactions, with writes before and after, rolled back in part or completely.

--! load glove 1000
-- The table is made in the same transaction.
BEGIN;
CREATE TABLE items (id int, v vector(100));
INSERT INTO items SELECT id, v FROM glove WHERE id < 600;
--! builds 600
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
INSERT INTO items SELECT id, v FROM glove WHERE id >= 600;
SET hnsw.ef_search = 100;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
COMMIT;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- Only changes after the savepoint are undone.
BEGIN;
-- Rows deleted by a running transaction are indexed, since it may be rolled back.
DELETE FROM items WHERE id < 100;
SAVEPOINT before;
--! builds 1000
CREATE INDEX items_cosine ON items USING hnsw (v vector_cosine_ops);
INSERT INTO items SELECT id + 2000, v FROM glove WHERE id < 50;
ROLLBACK TO before;
SELECT count(*) FROM pg_class WHERE relname = 'items_cosine';
INSERT INTO items SELECT id + 3000, v FROM glove WHERE id < 30;
--! builds 1030
CREATE INDEX items_cosine ON items USING hnsw (v vector_cosine_ops);
COMMIT;
--! search items_cosine
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- A subtransaction that fails.
BEGIN;
SAVEPOINT before;
--! fails 22023
CREATE INDEX items_ip ON items USING hnsw (v vector_ip_ops) WITH (m = 50);
ROLLBACK TO before;
--! builds 930
CREATE INDEX items_ip ON items USING hnsw (v vector_ip_ops);
ROLLBACK;
SELECT relname FROM pg_class WHERE relname LIKE 'items%' ORDER BY relname;
--! search items_v
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- In a function that catches the error.
--! builds 930
DO $$ BEGIN
    BEGIN
        CREATE INDEX items_ip ON items USING hnsw (v vector_ip_ops);
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
END $$;
SELECT count(*) FROM pg_class WHERE relname = 'items_ip';
