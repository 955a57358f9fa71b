//! Materialized views: definitions, writes to their tables, and queries of them.

use crate::scenario::check;

#[test]
fn view_follows_every_kind_of_write() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 0, 7, 1)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 1, 8, 2)", "void"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (v, k, c)",
            "CREATED m",
        ),
        ("SELECT * FROM m WHERE v = 7", "7,0,0,1"),
        ("INSERT INTO t (k, c, v, w) VALUES (1, 0, 7, 3)", "void"),
        ("INSERT INTO t (k, c, w) VALUES (2, 0, 4)", "void"),
        ("UPDATE t SET v = 7 WHERE k = -1 AND c = 5", "void"),
        ("SELECT * FROM m WHERE v = 7", "7,-1,5,null 7,0,0,1 7,1,0,3"),
        // A row moves to another partition, and back with its first timestamp.
        ("INSERT INTO t (k, c, v) VALUES (3, 0, 7) USING TIMESTAMP 10", "void"),
        ("INSERT INTO t (k, c, v) VALUES (3, 0, 8) USING TIMESTAMP 20", "void"),
        ("SELECT k FROM m WHERE v = 7", "-1 0 1"),
        ("SELECT k, c FROM m WHERE v = 8", "0,1 3,0"),
        ("DELETE v FROM t USING TIMESTAMP 30 WHERE k = 3 AND c = 0", "void"),
        ("SELECT k, c FROM m WHERE v = 8", "0,1"),
        ("UPDATE t USING TIMESTAMP 40 SET v = 7 WHERE k = 3 AND c = 0", "void"),
        ("SELECT k FROM m WHERE v = 7", "-1 0 1 3"),
        ("UPDATE t SET w = 9 WHERE k = 1 AND c = 0", "void"),
        ("SELECT w FROM m WHERE v = 7 AND k = 1 AND c = 0", "9"),
        ("UPDATE t SET v = 6 WHERE k = 1 AND c = 0 IF w = 9", "true"),
        ("SELECT k FROM m WHERE v = 7", "-1 0 3"),
        ("SELECT k FROM m WHERE v = 6", "1"),
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (5, 0, 6); INSERT INTO t (k, c, v) VALUES (6, 0, 6); \
             DELETE FROM t WHERE k = 0; APPLY BATCH",
            "void",
        ),
        ("SELECT k FROM m WHERE v = 6", "1 5 6"),
        ("SELECT count(*) FROM m", "5"),
        ("DELETE FROM t WHERE k = 5 AND c >= 0", "void"),
        ("SELECT k FROM m WHERE v = 6", "1 6"),
        ("TRUNCATE t", "void"),
        ("SELECT * FROM m", ""),
        ("INSERT INTO t (k, c, v) VALUES (1, 1, 1)", "void"),
        ("SELECT v, k, c FROM m", "1,1,1"),
        ("DROP MATERIALIZED VIEW m", "DROPPED m"),
        ("SELECT * FROM m", "! table m does not exist"),
    ]);
}

#[test]
fn view_without_a_value_has_every_row() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT c, k, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (c, k)",
            "CREATED m",
        ),
        ("INSERT INTO t (k, c) VALUES (1, 1)", "void"),
        ("UPDATE t SET v = 2 WHERE k = 2 AND c = 1", "void"),
        // Not selected, but the row exists.
        ("UPDATE t SET l = [1] WHERE k = 3 AND c = 1", "void"),
        ("SELECT * FROM m WHERE c = 1", "1,1,null 1,2,2 1,3,null"),
        ("DELETE v FROM t WHERE k = 2 AND c = 1", "void"),
        ("UPDATE t SET l = [] WHERE k = 3 AND c = 1", "void"),
        ("SELECT * FROM m WHERE c = 1", "1,1,null"),
        ("DELETE FROM t WHERE k = 1", "void"),
        ("SELECT * FROM m", ""),
        ("SELECT l FROM m", "! Undefined column name l in table ks.m"),
    ]);
}

#[test]
fn view_is_read_with_everything_that_select_has() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (v, c, k) WITH CLUSTERING ORDER BY (c DESC, k ASC)",
            "CREATED m",
        ),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 0, 1, 10) USING TIMESTAMP 5", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 1, 1, 11)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 2, 1, 12)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, 13)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (2, 1, 1, 14)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (1, 0, 2, 15)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (2, 0, 3, 16)", "void"),
        ("SELECT c, k FROM m WHERE v = 1", "2,0 1,0 1,1 1,2 0,0"),
        ("SELECT c, k FROM m WHERE v = 1 ORDER BY c ASC", "0,0 1,2 1,1 1,0 2,0"),
        ("SELECT c, k FROM m WHERE v = 1 AND c = 1", "1,0 1,1 1,2"),
        ("SELECT c, k FROM m WHERE v = 1 AND c = 1 AND k = 1", "1,1"),
        ("SELECT c, k FROM m WHERE v = 1 AND c = 1 AND k > 0", "1,1 1,2"),
        ("SELECT c, k FROM m WHERE v = 1 AND c IN (0, 2)", "2,0 0,0"),
        ("SELECT c, k FROM m WHERE v = 1 AND c < 2 LIMIT 2", "1,0 1,1"),
        ("SELECT v, c, k FROM m WHERE v IN (1, 2, 3) PER PARTITION LIMIT 1", "1,2,0 2,0,1 3,0,2"),
        ("SELECT v, c, k FROM m", "1,2,0 1,1,0 1,1,1 1,1,2 1,0,0 2,0,1 3,0,2"),
        ("SELECT v, c, k FROM m PER PARTITION LIMIT 2", "1,2,0 1,1,0 2,0,1 3,0,2"),
        ("SELECT DISTINCT v FROM m", "1 2 3"),
        ("SELECT v, count(*), max(w) FROM m GROUP BY v", "1,5,14 2,1,15 3,1,16"),
        ("SELECT v, c, sum(w) FROM m WHERE v = 1 GROUP BY v, c", "1,2,12 1,1,38 1,0,10"),
        ("SELECT count(*), min(w) FROM m", "7,10"),
        ("SELECT writetime(w) FROM m WHERE v = 1 AND c = 0", "5"),
        ("SELECT JSON v, w FROM m WHERE v = 2", "'{\"v\": 2, \"w\": 15}'"),
        ("SELECT k FROM m WHERE w = 13 ALLOW FILTERING", "1"),
        (
            "SELECT k FROM m WHERE w = 13",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
             FILTERING",
        ),
        ("SELECT v FROM m WHERE c = 1 AND k = 1 ALLOW FILTERING", "1"),
        ("SELECT v FROM m WHERE token(v) > -4069959284402364209 AND token(v) <= -3248873570005575792", "2"),
    ]);
}

#[test]
fn keys_of_many_types_are_found_and_filtered() {
    check(&[
        ("CREATE TYPE u (a int, b text)", "CREATED u"),
        (
            "CREATE TABLE t (a text, b decimal, c frozen<list<int>>, d boolean, u frozen<u>, v blob, \
             PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)",
            "CREATED t",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE a IS NOT NULL AND b >= 1.0 AND c IS NOT NULL \
             AND d = true AND u IS NOT NULL PRIMARY KEY ((u, d), c, b, a)",
            "CREATED m",
        ),
        ("INSERT INTO t (a, b, c, d, u, v) VALUES ('x', 1.00, [1, 2], true, {a: 1, b: 'q'}, 0x01)", "void"),
        ("INSERT INTO t (a, b, c, d, u, v) VALUES ('y', 2.5, [1], true, {a: 1, b: 'q'}, 0x02)", "void"),
        ("INSERT INTO t (a, b, c, d, u, v) VALUES ('y', 0.5, [1], true, {a: 1, b: 'q'}, 0x03)", "void"),
        ("INSERT INTO t (a, b, c, d, u, v) VALUES ('y', 3, [1], false, {a: 1, b: 'q'}, 0x04)", "void"),
        ("SELECT c, a, v FROM m WHERE u = {a: 1, b: 'q'} AND d = true", "[1, 2],'x',0x01 [1],'y',0x02"),
        ("SELECT a FROM m WHERE u = {a: 1, b: 'q'} AND d = true AND c = [1, 2] AND b = 1.0", "'x'"),
        ("SELECT count(*) FROM m", "2"),
        ("UPDATE t SET u = {a: 2} WHERE a = 'x' AND b = 1.00 AND c = [1, 2] AND d = true", "void"),
        ("SELECT a FROM m WHERE u = {a: 1, b: 'q'} AND d = true", "'y'"),
        ("SELECT a FROM m WHERE u = {a: 2} AND d = true", "'x'"),
    ]);
}

#[test]
fn empty_value_is_a_partition_that_a_scan_finds() {
    check(&[
        ("CREATE TABLE t (p int PRIMARY KEY, v text)", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND p IS NOT NULL \
             PRIMARY KEY (v, p)",
            "CREATED m",
        ),
        ("INSERT INTO t (p, v) VALUES (123, '')", "void"),
        ("INSERT INTO t (p, v) VALUES (1, null)", "void"),
        ("SELECT * FROM m", "'',123"),
        ("SELECT * FROM m WHERE v = ''", "! Key may not be empty"),
        ("SELECT * FROM m WHERE token(v) > -9223372036854775808 AND token(v) <= 0", "'',123"),
    ]);
}

#[test]
fn changes_of_the_table_reach_its_views() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW a AS SELECT * FROM t WHERE k IS NOT NULL AND c > 0 PRIMARY KEY (c, k)",
            "CREATED a",
        ),
        (
            "CREATE MATERIALIZED VIEW b AS SELECT k, c FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (c, k)",
            "CREATED b",
        ),
        ("INSERT INTO t (k, c, v) VALUES (1, 2, 3)", "void"),
        ("ALTER TABLE t ADD w int", "UPDATED t"),
        ("UPDATE t SET w = 4 WHERE k = 1 AND c = 2", "void"),
        ("SELECT * FROM a", "2,1,3,4"),
        ("SELECT * FROM b", "2,1"),
        ("ALTER TABLE t RENAME k TO key AND c TO \"C\"", "UPDATED t"),
        ("SELECT \"C\", key, w FROM a WHERE \"C\" = 2", "2,1,4"),
        ("INSERT INTO t (key, \"C\", w) VALUES (1, 0, 0)", "void"),
        ("SELECT \"C\", key, w FROM a", "2,1,4"),
        (
            "SELECT view_name, base_table_name, include_all_columns, where_clause FROM system_schema.views \
             WHERE keyspace_name = 'ks'",
            "'a','t',true,'key IS NOT NULL AND \"C\" > 0' 'b','t',false,'key IS NOT NULL AND \"C\" IS NOT NULL'",
        ),
        (
            "SELECT column_name, kind, position FROM system_schema.columns WHERE keyspace_name = 'ks' AND \
             table_name = 'a'",
            "'C','partition_key',0 'key','clustering',0 'v','regular',-1 'w','regular',-1",
        ),
        ("SELECT view_name FROM system.built_views WHERE keyspace_name = 'ks'", "'a' 'b'"),
        ("ALTER TABLE t DROP w", "! Cannot drop column w on base table t with materialized views"),
        ("DROP TABLE t", "! Cannot drop a table when materialized views still depend on it (ks)"),
        ("ALTER MATERIALIZED VIEW a WITH comment = 'x'", "UPDATED a"),
        ("SELECT comment FROM system_schema.views WHERE keyspace_name = 'ks' AND view_name = 'a'", "'x'"),
        ("DROP MATERIALIZED VIEW a", "DROPPED a"),
        ("DROP MATERIALIZED VIEW IF EXISTS a", "void"),
        ("DROP MATERIALIZED VIEW b", "DROPPED b"),
        ("ALTER TABLE t DROP w", "UPDATED t"),
        ("DROP TABLE t", "DROPPED t"),
    ]);
}

#[test]
fn view_definitions_are_checked() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, v int, w int, l list<int>, d duration, s int static, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("CREATE TABLE n (k int PRIMARY KEY, n counter)", "CREATED n"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c FROM u WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Base table 'u' doesn't exist",
        ),
        (
            "CREATE MATERIALIZED VIEW n AS SELECT k, c FROM t WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Cannot create materialized view 'n' - a table with the same name already exists",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM n WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Materialized views are not supported on counter tables",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k)",
            "! Cannot include static column 's' in materialized view 'm'",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k AS x, c FROM t WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Cannot use aliases when defining a materialized view (got k AS x)",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, writetime(v) FROM t WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Can only select columns by name when defining a materialized view (got writetime(v))",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k FROM t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (k, c)",
            "! Unknown column 'c' referenced in PRIMARY KEY for materialized view 'm'",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (k, c, k)",
            "! Duplicate column 'k' in PRIMARY KEY clause for materialized view 'm'",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND v IS NOT NULL \
             PRIMARY KEY (v, k)",
            "! Cannot create materialized view 'm' without primary key columns c from base table 't'",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v, w FROM t WHERE k IS NOT NULL AND c IS NOT NULL AND \
             v IS NOT NULL AND w IS NOT NULL PRIMARY KEY (v, w, k, c)",
            "! Cannot include more than one non-primary key column in materialized view primary key (got v, w)",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, d FROM t WHERE k IS NOT NULL AND c IS NOT NULL AND \
             d IS NOT NULL PRIMARY KEY (d, k, c)",
            "! duration type is not supported for PRIMARY KEY column 'd'",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (v, k, c)",
            "! Primary key columns v must be restricted with 'IS NOT NULL' or otherwise",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL AND v = 1 \
             PRIMARY KEY (v, k, c)",
            "! Non-primary key columns can only be restricted with 'IS NOT NULL' (got: v restricted illegally)",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c FROM t WHERE token(k) > 1 AND k IS NOT NULL AND \
             c IS NOT NULL PRIMARY KEY (k, c)",
            "! Cannot use token relation when defining a materialized view",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL AND \
             v IS NOT NULL PRIMARY KEY (v, k, c) WITH CLUSTERING ORDER BY (k ASC)",
            "! Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c FROM t WHERE k = ? AND c IS NOT NULL PRIMARY KEY (k, c)",
            "! Bind variables are not allowed in CREATE MATERIALIZED VIEW statements",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (k, c) WITH default_time_to_live = 10",
            "! Cannot set default_time_to_live for a materialized view. Data in a materialized view always expire at \
             the same time than the corresponding data in the parent table.",
        ),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT k, c, v FROM t WHERE k IS NOT NULL AND c IS NOT NULL \
             PRIMARY KEY (c, k)",
            "CREATED m",
        ),
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS m AS SELECT k, c FROM t WHERE k IS NOT NULL PRIMARY KEY (k)",
            "void",
        ),
        (
            "CREATE MATERIALIZED VIEW o AS SELECT k, c FROM m WHERE k IS NOT NULL PRIMARY KEY (k)",
            "! Base table 'm' doesn't exist",
        ),
        ("CREATE INDEX ON m (v)", "! Secondary indexes on materialized views aren't supported"),
        ("INSERT INTO m (c, k) VALUES (1, 1)", "! Cannot directly modify a materialized view"),
        ("UPDATE m SET v = 1 WHERE c = 1 AND k = 1", "! Cannot directly modify a materialized view"),
        ("DELETE FROM m WHERE c = 1", "! Cannot directly modify a materialized view"),
        ("TRUNCATE m", "! Cannot TRUNCATE materialized view directly; must truncate base table instead"),
        (
            "ALTER TABLE m WITH comment = 'x'",
            "! Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead",
        ),
        (
            "DROP TABLE m",
            "! Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.",
        ),
        ("DROP MATERIALIZED VIEW t", "! Materialized view 'ks.t' doesn't exist"),
        ("ALTER MATERIALIZED VIEW x WITH comment = ''", "! Materialized view 'ks.x' doesn't exist"),
        (
            "ALTER TABLE t WITH gc_grace_seconds = 0",
            "! Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is used \
             to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire \
             before being replayed.",
        ),
    ]);
}

#[test]
fn value_that_no_key_can_have_is_refused() {
    let long = "x".repeat(70_000);
    let insert: &'static str = Box::leak(format!("INSERT INTO t (p, v) VALUES (1, '{long}')").into());
    check(&[
        ("CREATE TABLE t (p int PRIMARY KEY, v text, n int)", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND p IS NOT NULL \
             PRIMARY KEY (v, p)",
            "CREATED m",
        ),
        (
            insert,
            "! Key length of 70000 is longer than maximum of 65535 (column v, which is in the key of a view)",
        ),
        ("SELECT p FROM t", ""),
    ]);
}

#[test]
fn tools_see_built_views_apart_from_indexes() {
    check(&[
        ("CREATE TABLE t (p int PRIMARY KEY, v int)", "CREATED t"),
        ("CREATE INDEX i ON t (v)", "UPDATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND p IS NOT NULL \
             PRIMARY KEY (v, p)",
            "CREATED m",
        ),
        ("SELECT keyspace_name, view_name FROM system.built_views", "'ks','m'"),
        ("SELECT * FROM system.view_builds_in_progress", ""),
        ("SELECT table_name, index_name FROM system.\"IndexInfo\"", "'ks','i'"),
        ("SELECT count(*) FROM m", "0"),
    ]);
}
