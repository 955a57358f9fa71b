-- Statements of psql over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: \d, of the relation itself
-- note: every table has a key, which psql shows as an index
-- selects: c.relchecks, c.relkind
-- condition: c.oid => c.oid
SELECT c.relchecks, c.relkind, c.relkind = 'r' AS relhasindex, c.relhasrules, c.relhastriggers, c.relrowsecurity,
c.relforcerowsecurity, false AS relhasoids, c.relispartition, '' AS options, c.reltablespace,
'' AS reloftype, c.relpersistence, c.relreplident, NULL::text AS amname
FROM pg_catalog.pg_class c WHERE $conditions;

-- query: \d, of the key
-- note: psql shows the text after USING, which is the key as CQL writes it
-- selects: c2.relname, i.indisprimary, i.indisunique
-- condition: c.oid => c.oid
SELECT c.relname || '_pkey' AS relname, true AS indisprimary, true AS indisunique,
false AS indisclustered, true AS indisvalid, ' USING (' ||
CASE WHEN k.partitions > 1 THEN '(' || k.partition || ')' ELSE k.partition END ||
coalesce(', ' || k.clustering, '') || ')' AS indexdef, NULL::text AS constraintdef,
NULL::text AS contype, false AS condeferrable, false AS condeferred, 'd' AS indisreplident,
0 AS reltablespace FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN (SELECT keyspace_name, table_name, count(*) FILTER (WHERE kind = 'partition_key') AS partitions,
string_agg(quote_ident(column_name), ', ' ORDER BY position) FILTER (WHERE kind = 'partition_key') AS partition,
string_agg(quote_ident(column_name), ', ' ORDER BY position) FILTER (WHERE kind = 'clustering') AS clustering
FROM (SELECT keyspace_name, table_name, column_name, kind, position FROM system_schema.columns UNION ALL
SELECT keyspace_name, table_name, column_name, kind, position FROM system_virtual_schema.columns) columns
GROUP BY keyspace_name, table_name) k ON k.keyspace_name = n.nspname AND k.table_name = c.relname
WHERE $conditions;

-- query: \dn+
-- has: n.nspacl
-- has: pg_catalog.obj_description(n.oid, 'pg_namespace')
-- condition: n.nspname => n.nspname
SELECT n.nspname AS "Name", pg_catalog.pg_get_userbyid(n.nspowner) AS "Owner",
NULL::text AS "Access privileges", NULL::text AS "Description" FROM pg_catalog.pg_namespace n
WHERE NOT starts_with(n.nspname, 'pg_') AND n.nspname <> 'information_schema' AND $conditions ORDER BY 1;

-- query: \dp, \z
-- note: `LIST ALL PERMISSIONS` returns the rights of a role
-- has: c.relacl
-- column: Column privileges
-- condition: n.nspname => n.nspname
-- condition: c.relname => c.relname
SELECT n.nspname AS "Schema", c.relname AS "Name",
CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END AS "Type",
NULL::text AS "Access privileges", NULL::text AS "Column privileges", NULL::text AS "Policies"
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v') AND NOT starts_with(n.nspname, 'pg_')
AND n.nspname <> 'information_schema' AND $conditions ORDER BY 1, 2;

-- query: \dT
-- note: CQL's user types are structs here, and have no names
-- selects: pg_catalog.format_type(t.oid, NULL) AS "Name"
-- has: pg_catalog.obj_description(t.oid, 'pg_type')
SELECT '' AS "Schema", '' AS "Name", NULL::text AS "Description" WHERE false;

-- query: \du
-- selects: r.rolname, r.rolsuper, r.rolinherit
-- has: b.rolname
-- column: memberof
-- condition: r.rolname => r.role
SELECT r.role AS rolname, is_superuser AS rolsuper, true AS rolinherit,
is_superuser AS rolcreaterole, is_superuser AS rolcreatedb, can_login AS rolcanlogin,
-1 AS rolconnlimit,
NULL::timestamp AS rolvaliduntil, '{' || coalesce(g.granted, '') || '}' AS memberof,
false AS rolreplication, false AS rolbypassrls FROM system_auth.roles r LEFT JOIN
(SELECT member, array_to_string(array_agg(role), ',') AS granted FROM system_auth.role_members
GROUP BY member) g ON g.member = r.role WHERE $conditions ORDER BY 1;
