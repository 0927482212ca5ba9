-- Euclidean distance of sparse vectors with different numbers of entries.

--! load minilm 1500
CREATE FUNCTION sparse(v vector) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(CASE WHEN abs(x) > 0.07 THEN x ELSE 0 END)::vector::sparsevec FROM unnest(v::real[]) x $$;

CREATE TABLE items (id int, v sparsevec(384));
INSERT INTO items SELECT id, sparse(v) FROM minilm;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v sparsevec_l2_ops);
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT sparse(v) FROM minilm_queries
--! recall 0.95
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <-> :q AS distance FROM items ORDER BY distance LIMIT 10;
