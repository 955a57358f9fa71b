-- Statements of psqlodbc over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: SQLPrimaryKeys
-- selects: ta.attname, ia.attnum, ic.relname, n.nspname
-- has: i.indkey[ia.attnum - 1]
-- condition: tc.relname => k.relation
-- condition: ic.relname => k.key
-- condition: n.nspname => k.schema
SELECT k.column_name AS attname, CAST(row_number() OVER (PARTITION BY k.schema, k.relation
ORDER BY k.kind DESC, k.position) AS SMALLINT) AS attnum, k.key AS relname, k.schema AS nspname,
k.relation AS relname FROM (SELECT keyspace_name AS schema, table_name AS relation,
table_name || '_pkey' AS key, column_name, kind, position FROM system_schema.columns
WHERE kind IN ('partition_key', 'clustering')) AS k WHERE $conditions ORDER BY 4, 3, 2;

-- query: SQLForeignKeys
-- note: there are none
-- column: FKCOLUMN_NAME
-- has: ref.confupdtype
SELECT '' AS "PKTABLE_CAT", '' AS "PKTABLE_SCHEM", '' AS "PKTABLE_NAME",
'' AS "PKCOLUMN_NAME", '' AS "FKTABLE_CAT", '' AS "FKTABLE_SCHEM",
'' AS "FKTABLE_NAME", '' AS "FKCOLUMN_NAME", 0::smallint AS "KEY_SEQ",
0::smallint AS "UPDATE_RULE", 0::smallint AS "DELETE_RULE", '' AS "FK_NAME",
'' AS "PK_NAME", 0::smallint AS "DEFERRABILITY" WHERE false;
