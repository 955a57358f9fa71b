-- Statements of Npgsql over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: all types
-- has: elemproc.proname = 'array_recv'
-- selects: t.typnotnull, t.elemtypoid
SELECT n.nspname, t.oid, t.typname,
CASE WHEN t.typreceive = 'array_recv' THEN 'a' ELSE t.typtype END AS typtype, t.typnotnull,
CASE WHEN t.typreceive = 'array_recv' THEN t.typelem END AS elemtypoid
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
WHERE (t.typtype = 'b' AND (t.typreceive <> 'array_recv' OR e.typtype = 'b'))
OR (t.typtype = 'p' AND t.typname IN ('record', 'void', 'unknown'))
ORDER BY CASE WHEN t.typreceive = 'array_recv' THEN 1 ELSE 0 END;

-- query: all types, until version 4
-- has: pg_proc.proname IN ('array_recv', 'oidvectorrecv')
-- column: type
SELECT n.nspname, t.typname, t.oid, t.typrelid, t.typbasetype,
CASE WHEN t.typreceive = 'array_recv' THEN 'a' ELSE t.typtype END AS type,
CASE WHEN t.typreceive = 'array_recv' THEN t.typelem ELSE 0 END AS elemoid,
CASE WHEN t.typreceive = 'array_recv' THEN 3 ELSE 0 END AS ord
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
WHERE (t.typtype = 'b' AND (t.typreceive <> 'array_recv' OR e.typtype = 'b'))
OR (t.typtype = 'p' AND t.typname IN ('record', 'void')) ORDER BY 8;
