-- Statements of psycopg over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: the type with a name
-- selects: typarray AS array_oid
-- has: t.oid = to_regtype($1)
SELECT typname AS name, oid, typarray AS array_oid, typname AS regtype, typdelim AS delimiter
FROM pg_catalog.pg_type WHERE typname = $1 ORDER BY oid;
