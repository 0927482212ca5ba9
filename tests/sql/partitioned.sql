-- An index on a partitioned table has an index on each partition; later partitions get one too.

--! load glove 1800
CREATE TABLE items (id int, v vector(100)) PARTITION BY RANGE (id);
CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (500);
CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (500) TO (1200);
INSERT INTO items SELECT id, v FROM glove WHERE id < 1200;

--! builds 500 700
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);

CREATE TABLE items_3 (id int, v vector(100));
INSERT INTO items_3 SELECT id, v FROM glove WHERE id BETWEEN 1200 AND 1499;
--! builds 300
ALTER TABLE items ATTACH PARTITION items_3 FOR VALUES FROM (1200) TO (1500);
-- Still empty.
CREATE TABLE items_4 PARTITION OF items DEFAULT;
INSERT INTO items SELECT id, v FROM glove WHERE id >= 1500;

SET hnsw.ef_search = 100;
--! search items_1_v_idx items_2_v_idx items_3_v_idx items_4_v_idx
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

-- A partition keeps an existing index that fits.
CREATE TABLE items_5 (id int, v vector(100));
INSERT INTO items_5 SELECT id + 5000, v FROM glove WHERE id < 200;
--! builds 200
CREATE INDEX own ON items_5 USING hnsw (v vector_l2_ops);
ALTER TABLE items ATTACH PARTITION items_5 FOR VALUES FROM (5000) TO (6000);
ALTER TABLE items DETACH PARTITION items_2;
--! search items_1_v_idx items_3_v_idx items_4_v_idx own
--! queries SELECT v FROM glove_queries
--! lost 10
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! builds 500 300 300 200
REINDEX INDEX items_v;
--! search items_1_v_idx items_3_v_idx items_4_v_idx own
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
