-- All rows have the same value: ten rows share an element.

CREATE TABLE items AS SELECT id, '[1,2,3]'::vector(3) AS v, '[1,2,3]'::halfvec(3) AS h, '101'::bit(3) AS b, '{1:1}/3'::sparsevec(3) AS s
FROM generate_series(1, 400) id;
--! builds 400
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops);
--! builds 400
CREATE INDEX items_h ON items USING hnsw (h halfvec_cosine_ops);
--! builds 400
CREATE INDEX items_b ON items USING hnsw (b bit_hamming_ops);
--! builds 400
CREATE INDEX items_s ON items USING hnsw (s sparsevec_ip_ops);

--! search items_v
--! queries VALUES ('[1,2,3]'::vector), ('[3,2,1]'), ('[0,0,0]')
--! recall 1
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_h
--! queries VALUES ('[1,2,3]'::halfvec), ('[3,2,1]')
--! recall 1
SELECT id, h <=> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_b
--! queries VALUES ('101'::bit(3)), ('000'), ('111')
--! recall 1
SELECT id, b <~> :q AS distance FROM items ORDER BY distance LIMIT 10;
--! search items_s
--! queries VALUES ('{1:1}/3'::sparsevec), ('{2:1}/3')
--! recall 1
SELECT id, s <#> :q AS distance FROM items ORDER BY distance LIMIT 10;
