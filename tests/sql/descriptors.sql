-- Data like SIFT descriptors: histograms of 128 small integers, most near zero, in clusters, with similar norms.

SELECT setseed(0.25);
CREATE TABLE kinds AS SELECT k, array_agg(-30 * ln(1 - random()) ORDER BY i) AS h
  FROM generate_series(0, 59) k, generate_series(1, 128) i GROUP BY k;
CREATE TABLE raw AS SELECT id, array_agg(greatest(0, h[i] + 25 * (random() + random() - 1)) ORDER BY i) AS h
  FROM generate_series(1, 3000) id JOIN kinds ON k = id * 7919 % 60, generate_series(1, 128) i GROUP BY id;
CREATE TABLE items AS SELECT id, (SELECT array_agg(least(255, round(512 * x / n))::real ORDER BY i) FROM unnest(h) WITH ORDINALITY u (x, i))::vector(128) AS v
  FROM raw, LATERAL (SELECT sqrt(sum(x * x)) AS n FROM unnest(h) x) s;

--! builds 2900
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WHERE id <= 2900;
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT v FROM items WHERE id > 2900
--! recall 0.95
SELECT id, v <-> :q AS distance FROM items WHERE id <= 2900 ORDER BY distance LIMIT 10;
