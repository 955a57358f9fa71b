-- Statements of pgjdbc over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: getPrimaryKeys
-- column: KEY_SEQ
-- selects: ci.relname AS PK_NAME
-- has: i.indisprimary
-- condition: n.nspname => schema
-- condition: ct.relname => relation
SELECT NULL AS table_cat, schema AS table_schem, relation AS table_name, column_name,
CAST(row_number() OVER (PARTITION BY schema, relation ORDER BY kind DESC, position) AS SMALLINT) AS key_seq,
relation || '_pkey' AS pk_name
FROM (SELECT keyspace_name AS schema, table_name AS relation, column_name, kind, position
FROM system_schema.columns WHERE kind IN ('partition_key', 'clustering')) AS keys WHERE $conditions
ORDER BY table_name, pk_name, key_seq;

-- query: getIndexInfo
-- note: there are no indexes
-- column: ORDINAL_POSITION
-- selects: ci.reltuples AS CARDINALITY, i.indoption AS I_INDOPTION
SELECT NULL::text AS table_cat, ''::text AS table_schem, ''::text AS table_name, false AS non_unique,
NULL::text AS index_qualifier, ''::text AS index_name, 0::smallint AS type,
0::smallint AS ordinal_position, ''::text AS column_name, NULL::text AS asc_or_desc,
0::bigint AS cardinality, 0::bigint AS pages, NULL::text AS filter_condition WHERE false;

-- query: maximum number of columns of a key
-- selects: setting
-- has: name = 'max_index_keys'
SELECT '32' AS setting;

-- query: getImportedKeys, getExportedKeys, getCrossReference
-- note: there are no foreign keys
-- column: PKTABLE_CAT
-- column: FKTABLE_CAT
-- has: con.contype = 'f'
SELECT NULL::text AS pktable_cat, ''::text AS pktable_schem, ''::text AS pktable_name,
''::text AS pkcolumn_name, NULL::text AS fktable_cat, ''::text AS fktable_schem,
''::text AS fktable_name, ''::text AS fkcolumn_name, 0::smallint AS key_seq,
0::smallint AS update_rule, 0::smallint AS delete_rule, ''::text AS fk_name, ''::text AS pk_name,
0::smallint AS deferrability WHERE false;

-- query: getTypeInfo
-- selects: t.typname, t.oid
-- has: t.typrelid = 0
-- has: c.relkind = 'c'
SELECT typname, oid FROM pg_catalog.pg_type WHERE typrelid = 0;

-- query: getFunctions
-- column: FUNCTION_SCHEM
-- column: FUNCTION_NAME
-- column: SPECIFIC_NAME
SELECT ''::text AS function_cat, ''::text AS function_schem, ''::text AS function_name,
NULL::text AS remarks, 1::smallint AS function_type, ''::text AS specific_name WHERE false;

-- query: getProcedures
-- column: PROCEDURE_SCHEM
-- column: PROCEDURE_NAME
-- column: SPECIFIC_NAME
SELECT NULL::text AS procedure_cat, ''::text AS procedure_schem, ''::text AS procedure_name,
NULL::text AS a, NULL::text AS b, NULL::text AS c, NULL::text AS remarks,
2::smallint AS procedure_type, ''::text AS specific_name WHERE false;

-- query: getTablePrivileges
-- note: `LIST ALL PERMISSIONS` returns the rights of a role
-- selects: n.nspname, c.relname, r.rolname, c.relacl
SELECT ''::text AS nspname, ''::text AS relname, ''::text AS rolname, NULL::text AS relacl
WHERE false;

-- query: types: all, the one with an id, or those with a name
-- selects: typinput = 'pg_catalog.array_in'::regproc AS is_array, typtype, typname, pg_type.oid
-- condition: pg_type.oid => oid
-- condition: typname => typname
SELECT typcategory = 'A' AS is_array, typtype, typname, oid FROM pg_catalog.pg_type
WHERE $conditions ORDER BY oid DESC;
