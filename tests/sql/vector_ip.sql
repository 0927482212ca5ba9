-- Inner product of vectors with five different norms, so that it differs from the cosine.

--! load minilm 1500
CREATE FUNCTION scaled(v vector, factor float8) RETURNS vector LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(x * factor)::vector FROM unnest(v::real[]) x $$;

CREATE TABLE items (id int, v vector(384));
INSERT INTO items SELECT id, scaled(v, 1 + id % 5 / 4.0) FROM minilm;

--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v vector_ip_ops);
SET hnsw.ef_search = 100;

--! search items_v
--! queries SELECT v FROM minilm_queries
--! recall 0.95
SELECT id, v <#> :q AS distance FROM items ORDER BY distance LIMIT 10;

--! search items_v
--! queries SELECT v FROM items WHERE id % 30 = 1
SELECT id, v <#> :q AS distance FROM items ORDER BY distance LIMIT 10;
