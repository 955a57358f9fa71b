-- Statements of asyncpg over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: types by their ids
-- reads: typeinfo_tree
-- has: ti.oid = any($1::oid[])
-- parameters: 1028
SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, NULL::int AS basetype,
CASE WHEN t.typreceive = 'array_recv' THEN t.typelem END AS elemtype, t.typdelim AS elemdelim,
NULL::int AS range_subtype, NULL::text AS attrtypoids, NULL::text AS attrnames, 0 AS depth,
NULL::text AS basetype_name, e.typname AS elemtype_name, NULL::text AS range_subtype_name
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem WHERE t.oid = ANY($1);
