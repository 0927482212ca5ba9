-- Inner product of vectors whose norms differ by ten orders of magnitude.

--! load minilm 1500
CREATE FUNCTION scaled(v vector, factor float8) RETURNS vector LANGUAGE sql IMMUTABLE AS
$$ SELECT array_agg(x * factor)::vector FROM unnest(v::real[]) x $$;

CREATE TABLE items (id int, v vector(384));
INSERT INTO items SELECT id, scaled(v, 10 ^ (id % 11 - 5)) FROM minilm;
--! builds 1500
CREATE INDEX items_v ON items USING hnsw (v vector_ip_ops);

SET hnsw.ef_search = 200;
--! search items_v
--! queries SELECT v FROM minilm_queries
SELECT id, v <#> :q AS distance FROM items ORDER BY distance LIMIT 10;
