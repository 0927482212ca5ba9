-- What the job `demo` of compose.yaml does: vectors, an index that the builder makes, a search, and a look at the index.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS lantern_index;
SELECT * FROM lantern_index.ping();

DROP TABLE IF EXISTS demo;
CREATE TABLE demo (id bigserial PRIMARY KEY, embedding vector(128));
-- `0 * row` makes the inner query depend on the row; otherwise it would be evaluated once for all rows.
INSERT INTO demo (embedding)
    SELECT ARRAY(SELECT random() + 0 * row FROM generate_series(1, 128))::real[]
    FROM generate_series(1, 20000) row;
ANALYZE demo;

CREATE INDEX demo_embedding_idx ON demo USING hnsw (embedding vector_l2_ops) WITH (external = true);

SELECT id, round((embedding <-> (SELECT embedding FROM demo WHERE id = 1))::numeric, 3) AS distance
    FROM demo ORDER BY embedding <-> (SELECT embedding FROM demo WHERE id = 1) LIMIT 5;
SELECT elements, errors, recall, advice FROM lantern_index.check('demo_embedding_idx', 100);
