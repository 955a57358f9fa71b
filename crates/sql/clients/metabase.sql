-- Statements of Metabase over the catalog that DataFusion cannot plan, with statements that it can.
-- `src/catalog/client_queries.rs` describes the format.

-- query: columns
-- column: database-position
-- column: database-is-auto-increment
-- condition: "c"."table_schema" => c.table_schema
-- condition: "c"."table_name" => c.table_name
SELECT c.column_name AS "name", c.udt_name AS "database-type",
c.ordinal_position - 1 AS "database-position", c.table_schema AS "table-schema",
c.table_name AS "table-name", k.column_name IS NOT NULL AS "pk?",
NULL::text AS "field-comment", c.is_nullable = 'NO' AS "database-required",
false AS "database-is-auto-increment" FROM information_schema.columns c
LEFT JOIN information_schema.key_column_usage k ON k.table_schema = c.table_schema
AND k.table_name = c.table_name AND k.column_name = c.column_name WHERE $conditions ORDER BY 4, 5, 3;

-- query: foreign keys
-- note: there are none
-- column: fk-table-schema
-- column: pk-column-name
SELECT '' AS "fk-table-schema", '' AS "fk-table-name", '' AS "fk-column-name",
'' AS "pk-table-schema", '' AS "pk-table-name", '' AS "pk-column-name" WHERE false;

-- query: indexes
-- note: there are none
-- calls: _pg_expandarray
-- column: field-name
SELECT '' AS "table-schema", '' AS "table-name", '' AS "field-name" WHERE false;
