//! Catalog queries of well-known clients that DataFusion cannot plan, with replacements that it
//! can:
//!
//! - pgjdbc's metadata, which JDBC programs and BI tools use
//! - psql's commands
//! - SQLAlchemy's reflection
//! - metadata queries of Metabase and psqlodbc
//! - types that Npgsql, asyncpg and psycopg load
//!
//! A query is recognized by parts of its text that no other query has. The replacement keeps its
//! conditions on names.

/// A catalog query of a client.
struct CatalogQuery {
    /// Parts of its text, with single spaces between words.
    marks: &'static [&'static str],
    /// Columns of the query, each with a column of the replacement. Comparisons of the former are
    /// copied to the latter.
    conditions: &'static [(&'static str, &'static str)],
    /// Types of its parameters, as Postgres' ids, if the client requires them.
    parameters: &'static [u32],
    /// Replacement. `{}` stands for the conditions, each with an AND before it.
    answer: &'static str,
}

/// Selects the key columns of tables in their order.
const KEYS: &str = "SELECT NULL AS table_cat, schema AS table_schem, relation AS table_name, column_name, \
    CAST(row_number() OVER (PARTITION BY schema, relation ORDER BY kind DESC, position) AS SMALLINT) AS key_seq, \
    relation || '_pkey' AS pk_name \
    FROM (SELECT keyspace_name AS schema, table_name AS relation, column_name, kind, position \
    FROM system_schema.columns WHERE kind IN ('partition_key', 'clustering')) AS keys WHERE true{} \
    ORDER BY table_name, pk_name, key_seq";

const QUERIES: [CatalogQuery; 30] = [
    // pgjdbc: getPrimaryKeys
    CatalogQuery {
        marks: &["AS KEY_SEQ, ci.relname AS PK_NAME", "AND i.indisprimary"],
        conditions: &[("n.nspname", "schema"), ("ct.relname", "relation")],
        parameters: &[],
        answer: KEYS,
    },
    // pgjdbc: getIndexInfo; there are no indexes
    CatalogQuery {
        marks: &["AS ORDINAL_POSITION, ci.reltuples AS CARDINALITY", "i.indoption AS I_INDOPTION"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT NULL::text AS table_cat, ''::text AS table_schem, ''::text AS table_name, false AS non_unique, \
                 NULL::text AS index_qualifier, ''::text AS index_name, 0::smallint AS type, \
                 0::smallint AS ordinal_position, ''::text AS column_name, NULL::text AS asc_or_desc, \
                 0::bigint AS cardinality, 0::bigint AS pages, NULL::text AS filter_condition WHERE false",
    },
    // pgjdbc: maximum number of columns of a key
    CatalogQuery {
        marks: &["SELECT setting FROM pg_catalog.pg_settings WHERE name='max_index_keys'"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT '32' AS setting",
    },
    // pgjdbc: getImportedKeys, getExportedKeys, getCrossReference; there are no foreign keys
    CatalogQuery {
        marks: &["AS PKTABLE_CAT", "AS FKTABLE_CAT", "con.contype = 'f'"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT NULL::text AS pktable_cat, ''::text AS pktable_schem, ''::text AS pktable_name, \
                 ''::text AS pkcolumn_name, NULL::text AS fktable_cat, ''::text AS fktable_schem, \
                 ''::text AS fktable_name, ''::text AS fkcolumn_name, 0::smallint AS key_seq, \
                 0::smallint AS update_rule, 0::smallint AS delete_rule, ''::text AS fk_name, ''::text AS pk_name, \
                 0::smallint AS deferrability WHERE false",
    },
    // pgjdbc: getTypeInfo
    CatalogQuery {
        marks: &[
            "SELECT t.typname,t.oid FROM pg_catalog.pg_type t",
            "(t.typrelid = 0 OR (SELECT c.relkind = 'c'",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT typname, oid FROM pg_catalog.pg_type WHERE typrelid = 0",
    },
    // pgjdbc: getFunctions
    CatalogQuery {
        marks: &["AS FUNCTION_SCHEM", "AS FUNCTION_NAME", "AS SPECIFIC_NAME FROM pg_catalog.pg_proc p"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT ''::text AS function_cat, ''::text AS function_schem, ''::text AS function_name, \
                 NULL::text AS remarks, 1::smallint AS function_type, ''::text AS specific_name WHERE false",
    },
    // pgjdbc: getProcedures
    CatalogQuery {
        marks: &[
            "AS PROCEDURE_SCHEM",
            "AS PROCEDURE_NAME",
            "AS SPECIFIC_NAME FROM pg_catalog.pg_namespace n",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT NULL::text AS procedure_cat, ''::text AS procedure_schem, ''::text AS procedure_name, \
                 NULL::text AS a, NULL::text AS b, NULL::text AS c, NULL::text AS remarks, \
                 2::smallint AS procedure_type, ''::text AS specific_name WHERE false",
    },
    // pgjdbc: getTablePrivileges; `LIST ALL PERMISSIONS` returns the rights of a role
    CatalogQuery {
        marks: &["SELECT n.nspname,c.relname,r.rolname,c.relacl"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT ''::text AS nspname, ''::text AS relname, ''::text AS rolname, NULL::text AS relacl \
                 WHERE false",
    },
    // pgjdbc: the type with an id
    CatalogQuery {
        marks: &["SELECT typinput='pg_catalog.array_in'::regproc as is_array", "WHERE pg_type.oid = $1"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT typcategory = 'A' AS is_array, typtype, typname, oid FROM pg_catalog.pg_type WHERE oid = $1",
    },
    // pgjdbc: the type with a name
    CatalogQuery {
        marks: &["SELECT typinput='pg_catalog.array_in'::regproc as is_array", "WHERE typname = $1"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT typcategory = 'A' AS is_array, typtype, typname, oid FROM pg_catalog.pg_type \
                 WHERE typname = $1",
    },
    // pgjdbc: all types
    CatalogQuery {
        marks: &[
            "SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid FROM",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT typcategory = 'A' AS is_array, typtype, typname, oid FROM pg_catalog.pg_type ORDER BY oid DESC",
    },
    // psycopg: the type with a name
    CatalogQuery {
        marks: &["typarray AS array_oid", "FROM pg_type t WHERE t.oid = to_regtype($1)"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT typname AS name, oid, typarray AS array_oid, typname AS regtype, typdelim AS delimiter \
                 FROM pg_catalog.pg_type WHERE typname = $1 ORDER BY oid",
    },
    // Npgsql: all types, when it connects
    CatalogQuery {
        marks: &["elemproc.proname='array_recv'", "t.typnotnull, t.elemtypoid"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT n.nspname, t.oid, t.typname, \
                 CASE WHEN t.typreceive = 'array_recv' THEN 'a' ELSE t.typtype END AS typtype, t.typnotnull, \
                 CASE WHEN t.typreceive = 'array_recv' THEN t.typelem END AS elemtypoid \
                 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
                 LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem \
                 WHERE (t.typtype = 'b' AND (t.typreceive <> 'array_recv' OR e.typtype = 'b')) \
                 OR (t.typtype = 'p' AND t.typname IN ('record', 'void', 'unknown')) \
                 ORDER BY CASE WHEN t.typreceive = 'array_recv' THEN 1 ELSE 0 END",
    },
    // Npgsql until version 4: the same
    CatalogQuery {
        marks: &["pg_proc.proname IN ('array_recv','oidvectorrecv') THEN 3", "ELSE a.typtype END AS type"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT n.nspname, t.typname, t.oid, t.typrelid, t.typbasetype, \
                 CASE WHEN t.typreceive = 'array_recv' THEN 'a' ELSE t.typtype END AS type, \
                 CASE WHEN t.typreceive = 'array_recv' THEN t.typelem ELSE 0 END AS elemoid, \
                 CASE WHEN t.typreceive = 'array_recv' THEN 3 ELSE 0 END AS ord \
                 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
                 LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem \
                 WHERE (t.typtype = 'b' AND (t.typreceive <> 'array_recv' OR e.typtype = 'b')) \
                 OR (t.typtype = 'p' AND t.typname IN ('record', 'void')) ORDER BY 8",
    },
    // asyncpg: types by their ids
    CatalogQuery {
        marks: &["typeinfo_tree(", "any($1::oid[])"],
        conditions: &[],
        parameters: &[1028], // oid[]
        answer: "SELECT t.oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, NULL::int AS basetype, \
                 CASE WHEN t.typreceive = 'array_recv' THEN t.typelem END AS elemtype, t.typdelim AS elemdelim, \
                 NULL::int AS range_subtype, NULL::text AS attrtypoids, NULL::text AS attrnames, 0 AS depth, \
                 NULL::text AS basetype_name, e.typname AS elemtype_name, NULL::text AS range_subtype_name \
                 FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
                 LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem WHERE t.oid = ANY($1)",
    },
    // Metabase: columns
    CatalogQuery {
        marks: &["AS \"database-position\"", "AS \"database-is-auto-increment\""],
        conditions: &[
            ("AND (\"c\".\"table_schema\"", "c.table_schema"),
            ("AND (\"c\".\"table_name\"", "c.table_name"),
        ],
        parameters: &[],
        answer: "SELECT c.column_name AS \"name\", c.udt_name AS \"database-type\", \
                 c.ordinal_position - 1 AS \"database-position\", c.table_schema AS \"table-schema\", \
                 c.table_name AS \"table-name\", k.column_name IS NOT NULL AS \"pk?\", \
                 NULL::text AS \"field-comment\", c.is_nullable = 'NO' AS \"database-required\", \
                 false AS \"database-is-auto-increment\" FROM information_schema.columns c \
                 LEFT JOIN information_schema.key_column_usage k ON k.table_schema = c.table_schema \
                 AND k.table_name = c.table_name AND k.column_name = c.column_name WHERE true{} ORDER BY 4, 5, 3",
    },
    // Metabase: foreign keys; there are none
    CatalogQuery {
        marks: &["AS \"fk-table-schema\"", "AS \"pk-column-name\""],
        conditions: &[],
        parameters: &[],
        answer: "SELECT '' AS \"fk-table-schema\", '' AS \"fk-table-name\", '' AS \"fk-column-name\", \
                 '' AS \"pk-table-schema\", '' AS \"pk-table-name\", '' AS \"pk-column-name\" WHERE false",
    },
    // Metabase: indexes; there are none
    CatalogQuery {
        marks: &["_PG_EXPANDARRAY(\"i\".\"indkey\")", "AS \"field-name\""],
        conditions: &[],
        parameters: &[],
        answer: "SELECT '' AS \"table-schema\", '' AS \"table-name\", '' AS \"field-name\" WHERE false",
    },
    // psqlodbc: SQLPrimaryKeys
    CatalogQuery {
        marks: &["select ta.attname, ia.attnum, ic.relname, n.nspname,", "i.indkey[ia.attnum-1]"],
        conditions: &[("tc.relname", "k.relation"), ("ic.relname", "k.key"), ("n.nspname", "k.schema")],
        parameters: &[],
        answer: "SELECT k.column_name AS attname, CAST(row_number() OVER (PARTITION BY k.schema, k.relation \
                 ORDER BY k.kind DESC, k.position) AS SMALLINT) AS attnum, k.key AS relname, k.schema AS nspname, \
                 k.relation AS relname FROM (SELECT keyspace_name AS schema, table_name AS relation, \
                 table_name || '_pkey' AS key, column_name, kind, position FROM system_schema.columns \
                 WHERE kind IN ('partition_key', 'clustering')) AS k WHERE true{} ORDER BY 4, 3, 2",
    },
    // psqlodbc: SQLForeignKeys; there are none
    CatalogQuery {
        marks: &["as \"FKCOLUMN_NAME\"", "case ref.confupdtype"],
        conditions: &[],
        parameters: &[],
        answer: "SELECT '' AS \"PKTABLE_CAT\", '' AS \"PKTABLE_SCHEM\", '' AS \"PKTABLE_NAME\", \
                 '' AS \"PKCOLUMN_NAME\", '' AS \"FKTABLE_CAT\", '' AS \"FKTABLE_SCHEM\", \
                 '' AS \"FKTABLE_NAME\", '' AS \"FKCOLUMN_NAME\", 0::smallint AS \"KEY_SEQ\", \
                 0::smallint AS \"UPDATE_RULE\", 0::smallint AS \"DELETE_RULE\", '' AS \"FK_NAME\", \
                 '' AS \"PK_NAME\", 0::smallint AS \"DEFERRABILITY\" WHERE false",
    },
    // SQLAlchemy: get_schema_names
    CatalogQuery {
        marks: &[
            "SELECT pg_catalog.pg_namespace.nspname FROM pg_catalog.pg_namespace",
            "NOT LIKE",
            "ESCAPE '/'",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT nspname FROM pg_catalog.pg_namespace WHERE NOT starts_with(nspname, 'pg_') ORDER BY nspname",
    },
    // SQLAlchemy: get_columns of a named schema
    CatalogQuery {
        marks: &[
            "AS identity_options",
            "pg_catalog.pg_attribute.attidentity",
            "pg_catalog.pg_namespace.nspname = ",
        ],
        conditions: &[
            ("pg_catalog.pg_namespace.nspname", "n.nspname"),
            ("pg_catalog.pg_class.relname", "c.relname"),
        ],
        parameters: &[],
        answer: "SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS format_type, \
                 NULL::text AS \"default\", a.attnotnull AS not_null, c.relname AS table_name, \
                 NULL::text AS comment, '' AS generated, NULL::text AS identity_options, NULL::text AS collation \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE true{} \
                 ORDER BY c.relname, a.attnum",
    },
    // SQLAlchemy: get_table_options of a named schema
    CatalogQuery {
        marks: &[
            "inherits.parent_table_names FROM pg_catalog.pg_class",
            "pg_catalog.pg_namespace.nspname = ",
        ],
        conditions: &[
            ("pg_catalog.pg_namespace.nspname", "n.nspname"),
            ("pg_catalog.pg_class.relname", "c.relname"),
        ],
        parameters: &[],
        answer: "SELECT c.oid, c.relname, NULL::text AS reloptions, NULL::boolean AS relhasoids, \
                 NULL::text AS access_method_name, NULL::text AS tablespace_name, NULL::text AS parent_table_names \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE true{}",
    },
    // SQLAlchemy: get_pk_constraint, get_unique_constraints
    CatalogQuery {
        marks: &[
            "AS indnullsnotdistinct FROM (SELECT con.conrelid AS conrelid",
            "unnest(pg_catalog.pg_index.indkey)",
        ],
        conditions: &[("con.conrelid", "c.oid"), ("pg_catalog.pg_constraint.contype", "k.contype")],
        parameters: &[],
        answer: "SELECT c.oid AS conrelid, array_agg(k.column_name ORDER BY k.kind DESC, k.position) AS cols, \
                 c.relname || '_pkey' AS conname, NULL::text AS description, count(*)::smallint AS indnkeyatts, \
                 false AS indnullsnotdistinct FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 JOIN (SELECT *, 'p' AS contype FROM system_schema.columns \
                 WHERE kind IN ('partition_key', 'clustering')) k \
                 ON k.keyspace_name = n.nspname AND k.table_name = c.relname WHERE true{} \
                 GROUP BY c.oid, c.relname ORDER BY 1, 3",
    },
    // SQLAlchemy: get_indexes
    CatalogQuery {
        marks: &[
            "AS has_constraint, pg_catalog.pg_index.indoption",
            "idx_cols.elements_opclass FROM pg_catalog.pg_index",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT 0 AS indrelid, '' AS relname, false AS indisunique, true AS indisvalid, \
                 false AS has_constraint, '' AS indoption, '' AS reloptions, 0 AS relam, '' AS filter_definition, \
                 0 AS indnkeyatts, false AS indnullsnotdistinct, '' AS elements, '' AS elements_is_expr, \
                 '' AS elements_opclass WHERE false",
    },
    // psql: \d+, of the relation itself
    CatalogQuery {
        marks: &[
            "SELECT c.relchecks, c.relkind,",
            "array(select 'toast.' || x from pg_catalog.unnest(tc.reloptions) x)",
        ],
        conditions: &[("c.oid", "c.oid")],
        parameters: &[],
        answer: "SELECT c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relhastriggers, c.relrowsecurity, \
                 c.relforcerowsecurity, false AS relhasoids, c.relispartition, '' AS options, c.reltablespace, \
                 '' AS reloftype, c.relpersistence, c.relreplident, NULL::text AS amname \
                 FROM pg_catalog.pg_class c WHERE true{}",
    },
    // psql: \dn+
    CatalogQuery {
        marks: &["pg_catalog.array_to_string(n.nspacl,", "pg_catalog.obj_description(n.oid, 'pg_namespace')"],
        conditions: &[("n.nspname", "n.nspname")],
        parameters: &[],
        answer: "SELECT n.nspname AS \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) AS \"Owner\", \
                 NULL::text AS \"Access privileges\", NULL::text AS \"Description\" FROM pg_catalog.pg_namespace n \
                 WHERE NOT starts_with(n.nspname, 'pg_') AND n.nspname <> 'information_schema'{} ORDER BY 1",
    },
    // psql: \dp, \z; `LIST ALL PERMISSIONS` returns the rights of a role
    CatalogQuery {
        marks: &["pg_catalog.array_to_string(c.relacl,", "AS \"Column privileges\""],
        conditions: &[("n.nspname", "n.nspname"), ("c.relname", "c.relname")],
        parameters: &[],
        answer: "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", \
                 CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END AS \"Type\", \
                 NULL::text AS \"Access privileges\", NULL::text AS \"Column privileges\", NULL::text AS \"Policies\" \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.relkind IN ('r', 'v') AND NOT starts_with(n.nspname, 'pg_') \
                 AND n.nspname <> 'information_schema'{} ORDER BY 1, 2",
    },
    // psql: \dT; CQL's user types are structs here, and have no names
    CatalogQuery {
        marks: &[
            "pg_catalog.format_type(t.oid, NULL) AS \"Name\"",
            "pg_catalog.obj_description(t.oid, 'pg_type')",
        ],
        conditions: &[],
        parameters: &[],
        answer: "SELECT '' AS \"Schema\", '' AS \"Name\", NULL::text AS \"Description\" WHERE false",
    },
    // psql: \du
    CatalogQuery {
        marks: &["SELECT r.rolname, r.rolsuper, r.rolinherit,", "ARRAY(SELECT b.rolname", "as memberof"],
        conditions: &[("r.rolname", "r.role")],
        parameters: &[],
        answer: "SELECT r.role AS rolname, is_superuser AS rolsuper, true AS rolinherit, \
                 is_superuser AS rolcreaterole, is_superuser AS rolcreatedb, can_login AS rolcanlogin, \
                 -1 AS rolconnlimit, \
                 NULL::timestamp AS rolvaliduntil, '{' || coalesce(g.granted, '') || '}' AS memberof, \
                 false AS rolreplication, false AS rolbypassrls FROM system_auth.roles r LEFT JOIN \
                 (SELECT member, array_to_string(array_agg(role), ',') AS granted FROM system_auth.role_members \
                 GROUP BY member) g ON g.member = r.role WHERE true{} ORDER BY 1",
    },
];

/// Replacement of a catalog query.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Number of parameters of the client's query. The replacement may not use all.
    pub(crate) parameters: usize,
    /// Their types, if the client requires them.
    pub(crate) types: &'static [u32],
}

/// Returns the replacement of a statement, if it is one of these queries.
pub(crate) fn answer(text: &str) -> Option<Answer> {
    // Each of these queries names a table of `pg_catalog`.
    if !text.contains("pg_") {
        return None;
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let query = QUERIES.iter().find(|query| query.marks.iter().all(|mark| text.contains(mark)))?;
    let conditions = query.conditions.iter().filter_map(|(theirs, ours)| condition(&text, theirs, ours));
    let answer = query.answer.replace("{}", &conditions.collect::<String>());
    Some(Answer { text: answer, parameters: parameters(&text), types: query.parameters })
}

/// Operators of comparisons in the client's query, with those of the replacement. Equality is last,
/// because it also joins tables.
const OPERATORS: [(&str, &str); 5] =
    [("IN", "IN"), ("LIKE", "LIKE"), ("~", "~"), ("OPERATOR(pg_catalog.~)", "~"), ("=", "=")];

/// Returns ` AND ours = …`, if the statement compares the column `theirs`.
fn condition(text: &str, theirs: &str, ours: &str) -> Option<String> {
    OPERATORS.into_iter().find_map(|(written, operator)| {
        let (_, rest) = text.split_once(&format!("{theirs} {written} "))?;
        Some(format!(" AND {ours} {operator} {}", &rest[..term(rest)?]))
    })
}

/// Returns the length of the term at the start of a text: a string, a list, or a word.
fn term(text: &str) -> Option<usize> {
    match text.as_bytes().first()? {
        b'\'' => {
            let mut end = 1;
            loop {
                end += text[end..].find('\'')? + 1;
                // A doubled quote is part of the string.
                if !text[end..].starts_with('\'') {
                    return Some(end);
                }
                end += 1;
            }
        }
        b'(' => text.find(')').map(|end| end + 1),
        _ => Some(text.find([' ', ')']).unwrap_or(text.len())),
    }
}

/// Returns the number of the last parameter, or 0 if there is none.
fn parameters(text: &str) -> usize {
    let number = |rest: &str| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    let last = text.split('$').skip(1).filter_map(number).max().unwrap_or(0);
    if last <= usize::from(u16::MAX) { last } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_keeps_conditions_of_the_query() {
        let asked = "SELECT ... AS KEY_SEQ, ci.relname\n  AS PK_NAME FROM pg_catalog.pg_class ct WHERE true  \
                     AND n.nspname = 'it''s' AND ct.relname LIKE 'o%' AND i.indisprimary";
        let answer = answer(asked).map(|answer| answer.text).unwrap_or_default();
        assert!(
            answer.contains("WHERE true AND schema = 'it''s' AND relation LIKE 'o%' ORDER BY"),
            "{answer}"
        );
    }

    #[test]
    fn parameters_stay_and_are_counted() {
        let asked = "AS indnullsnotdistinct FROM (SELECT con.conrelid AS conrelid, \
                     unnest(pg_catalog.pg_index.indkey) AS attnum, generate_subscripts(x, $1::INTEGER) \
                     WHERE pg_catalog.pg_constraint.contype = $3::VARCHAR AND con.conrelid IN ($4, $12)) AS attr";
        let Some(Answer { text, parameters, .. }) = answer(asked) else { panic!("it is known") };
        assert!(
            text.contains("WHERE true AND c.oid IN ($4, $12) AND k.contype = $3::VARCHAR GROUP BY"),
            "{text}"
        );
        assert_eq!(parameters, 12);
    }

    #[test]
    fn other_queries_are_not_replaced() {
        for text in ["SELECT 1", "SELECT * FROM pg_catalog.pg_class", "SELECT 'AND i.indisprimary'"] {
            assert_eq!(answer(text), None, "{text}");
        }
        assert_eq!(condition("WHERE a = 'unfinished", "a", "b"), None);
        assert_eq!(condition("WHERE a = 'x'", "b", "c"), None);
        let found = condition("n.nspname OPERATOR(pg_catalog.~) '^(shop)$' COLLATE x", "n.nspname", "n");
        assert_eq!(found.as_deref(), Some(" AND n ~ '^(shop)$'"));
    }
}
