-- Taxicab distance of sparse vectors.

--! load glove 1500
CREATE FUNCTION sparse(v vector) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(CASE WHEN abs(x) > 0.5 THEN x ELSE 0 END)::vector::sparsevec FROM unnest(v::real[]) x $$;

CREATE TABLE items (id int, v sparsevec(100));
INSERT INTO items SELECT id, sparse(v) FROM glove;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v sparsevec_l1_ops);
SET hnsw.ef_search = 200;

--! search items_v
--! queries SELECT sparse(v) FROM glove_queries
--! recall 0.95
SELECT id, v <+> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <+> :q AS distance FROM items ORDER BY distance LIMIT 10;
