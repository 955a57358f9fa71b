-- Statements of SQLAlchemy over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: get_schema_names
-- selects: pg_catalog.pg_namespace.nspname
-- not like: pg_catalog.pg_namespace.nspname
SELECT nspname FROM pg_catalog.pg_namespace WHERE NOT starts_with(nspname, 'pg_') ORDER BY nspname;

-- query: get_columns of a named schema
-- column: identity_options
-- has: pg_catalog.pg_attribute.attidentity
-- compares: pg_catalog.pg_namespace.nspname
-- condition: pg_catalog.pg_namespace.nspname => n.nspname
-- condition: pg_catalog.pg_class.relname => c.relname
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS format_type,
NULL::text AS "default", a.attnotnull AS not_null, c.relname AS table_name,
NULL::text AS comment, '' AS generated, NULL::text AS identity_options, NULL::text AS collation
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE $conditions
ORDER BY c.relname, a.attnum;

-- query: get_table_options of a named schema
-- has: inherits.parent_table_names
-- compares: pg_catalog.pg_namespace.nspname
-- condition: pg_catalog.pg_namespace.nspname => n.nspname
-- condition: pg_catalog.pg_class.relname => c.relname
SELECT c.oid, c.relname, NULL::text AS reloptions, NULL::boolean AS relhasoids,
NULL::text AS access_method_name, NULL::text AS tablespace_name, NULL::text AS parent_table_names
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE $conditions;

-- query: get_pk_constraint, get_unique_constraints
-- column: indnullsnotdistinct
-- has: con.conrelid
-- has: unnest(pg_catalog.pg_index.indkey)
-- condition: con.conrelid => c.oid
-- condition: pg_catalog.pg_constraint.contype => k.contype
SELECT c.oid AS conrelid, array_agg(k.column_name ORDER BY k.kind DESC, k.position) AS cols,
c.relname || '_pkey' AS conname, NULL::text AS description, count(*)::smallint AS indnkeyatts,
false AS indnullsnotdistinct FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN (SELECT *, 'p' AS contype FROM system_schema.columns
WHERE kind IN ('partition_key', 'clustering')) k
ON k.keyspace_name = n.nspname AND k.table_name = c.relname WHERE $conditions
GROUP BY c.oid, c.relname ORDER BY 1, 3;

-- query: get_indexes
-- column: has_constraint
-- has: idx_cols.elements_opclass
SELECT 0 AS indrelid, '' AS relname, false AS indisunique, true AS indisvalid,
false AS has_constraint, '' AS indoption, '' AS reloptions, 0 AS relam, '' AS filter_definition,
0 AS indnkeyatts, false AS indnullsnotdistinct, '' AS elements, '' AS elements_is_expr,
'' AS elements_opclass WHERE false;
