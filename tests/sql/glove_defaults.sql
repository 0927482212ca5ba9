-- A hard set: word vectors that are not normalised, with all defaults, and at a larger ef_search (taxicab distance only there).

--! load glove 2000
--! builds 2000
CREATE INDEX glove_l2 ON glove USING hnsw (v vector_l2_ops);
--! builds 2000
CREATE INDEX glove_cosine ON glove USING hnsw (v vector_cosine_ops);
--! builds 2000
CREATE INDEX glove_l1 ON glove USING hnsw (v vector_l1_ops);

--! search glove_l2
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM glove ORDER BY distance LIMIT 10;
--! search glove_cosine
--! queries SELECT v FROM glove_queries
SELECT id, v <=> :q AS distance FROM glove ORDER BY distance LIMIT 10;
SET hnsw.ef_search = 200;
--! search glove_l2
--! queries SELECT v FROM glove_queries
SELECT id, v <-> :q AS distance FROM glove ORDER BY distance LIMIT 10;
--! search glove_l1
--! queries SELECT v FROM glove_queries
SELECT id, v <+> :q AS distance FROM glove ORDER BY distance LIMIT 10;
