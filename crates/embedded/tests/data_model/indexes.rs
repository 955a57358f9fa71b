//! Secondary indexes: statements on them, and queries that they serve.

use crate::scenario::check;

#[test]
fn index_finds_rows_in_the_order_of_a_scan() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 0, 7, 1)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 1, 8, 1)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 2, 7, 2)", "void"),
        ("CREATE INDEX ON t (v)", "UPDATED t"),
        ("INSERT INTO t (k, c, v, w) VALUES (1, 0, 7, 3)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (2, 5, 7, 3)", "void"),
        ("UPDATE t SET v = 7 WHERE k = 1 AND c = 3", "void"),
        ("SELECT k, c FROM t WHERE v = 7", "1,0 1,3 0,0 0,2 2,5"),
        ("SELECT k, c FROM t WHERE v = 7 LIMIT 3", "1,0 1,3 0,0"),
        ("SELECT k, c FROM t WHERE v = 7 PER PARTITION LIMIT 1", "1,0 0,0 2,5"),
        ("SELECT count(*) FROM t WHERE v = 7", "5"),
        ("SELECT k, c FROM t WHERE k = 0 AND v = 7", "0,0 0,2"),
        ("SELECT k, c FROM t WHERE k = 0 AND c > 0 AND v = 7", "0,2"),
        ("SELECT k, c FROM t WHERE v = 9", ""),
        (
            "SELECT k, c FROM t WHERE v = 7 AND w = 3",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
             FILTERING",
        ),
        ("SELECT k, c FROM t WHERE v = 7 AND w = 3 ALLOW FILTERING", "1,0 2,5"),
        (
            "SELECT k, c FROM t WHERE k IN (0, 1) AND v = 7",
            "! Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
        ),
        (
            "SELECT k, c FROM t WHERE k = 0 AND v = 7 ORDER BY c DESC",
            "! ORDER BY with 2ndary indexes is not supported, except for ANN queries.",
        ),
        ("DROP INDEX t_v_idx", "UPDATED t"),
        ("SELECT k, c FROM t WHERE v = 7 ALLOW FILTERING", "1,0 1,3 0,0 0,2 2,5"),
        (
            "SELECT k, c FROM t WHERE v = 7",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
             FILTERING",
        ),
    ]);
}

#[test]
fn overwritten_deleted_and_rewritten_values_are_exact() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v text)", "CREATED t"),
        ("CREATE INDEX i ON t (v)", "UPDATED t"),
        ("INSERT INTO t (k, v) VALUES (1, 'a') USING TIMESTAMP 10", "void"),
        ("INSERT INTO t (k, v) VALUES (1, 'b') USING TIMESTAMP 20", "void"),
        // Finds the stale entry, and has it removed.
        ("SELECT k FROM t WHERE v = 'a'", ""),
        ("SELECT k FROM t WHERE v = 'b'", "1"),
        // Loses to the value at 20.
        ("INSERT INTO t (k, v) VALUES (1, 'a') USING TIMESTAMP 15", "void"),
        ("SELECT k FROM t WHERE v = 'a'", ""),
        ("DELETE v FROM t USING TIMESTAMP 30 WHERE k = 1", "void"),
        ("SELECT k FROM t WHERE v = 'b'", ""),
        ("UPDATE t USING TIMESTAMP 40 SET v = 'b' WHERE k = 1", "void"),
        ("SELECT k FROM t WHERE v = 'b'", "1"),
        ("DELETE FROM t USING TIMESTAMP 50 WHERE k = 1", "void"),
        ("SELECT k FROM t WHERE v = 'b'", ""),
        ("INSERT INTO t (k, v) VALUES (1, 'b') USING TIMESTAMP 60", "void"),
        ("SELECT k FROM t WHERE v = 'b'", "1"),
        ("UPDATE t SET v = 'c' WHERE k = 1 IF v = 'b'", "true"),
        ("SELECT k FROM t WHERE v = 'c'", "1"),
        (
            "BEGIN BATCH INSERT INTO t (k, v) VALUES (2, 'c'); INSERT INTO t (k, v) VALUES (3, 'c'); APPLY BATCH",
            "void",
        ),
        ("SELECT k FROM t WHERE v = 'c'", "1 2 3"),
        ("TRUNCATE t", "void"),
        ("SELECT k FROM t WHERE v = 'c'", ""),
        ("INSERT INTO t (k, v) VALUES (4, 'c')", "void"),
        ("SELECT k FROM t WHERE v = 'c'", "4"),
        ("INSERT INTO t (k, v) VALUES (5, '')", "void"),
        ("SELECT k FROM t WHERE v = ''", "5"),
    ]);
}

#[test]
fn collections_are_found_by_elements_keys_and_entries() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, l list<int>, s set<text>, m map<text, int>, f frozen<list<int>>, \
             PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (l)", "UPDATED t"),
        ("CREATE INDEX ON t (s)", "UPDATED t"),
        ("CREATE INDEX mv ON t (values(m))", "UPDATED t"),
        ("CREATE INDEX mk ON t (keys(m))", "UPDATED t"),
        ("CREATE INDEX me ON t (entries(m))", "UPDATED t"),
        ("CREATE INDEX ff ON t (full(f))", "UPDATED t"),
        ("INSERT INTO t (k, c, l, s, m, f) VALUES (0, 0, [1, 2], {'a'}, {'a': 1}, [1])", "void"),
        (
            "INSERT INTO t (k, c, l, s, m, f) VALUES (0, 1, [3, 4], {'b', 'c'}, {'a': 1, 'b': 2}, [1, 2])",
            "void",
        ),
        ("INSERT INTO t (k, c, l, s, m, f) VALUES (1, 0, [1, 4], {'c'}, {'b': 1}, [1])", "void"),
        ("SELECT k, c FROM t WHERE l CONTAINS 1", "1,0 0,0"),
        ("SELECT k, c FROM t WHERE k = 0 AND l CONTAINS 4", "0,1"),
        ("SELECT k, c FROM t WHERE s CONTAINS 'c'", "1,0 0,1"),
        ("SELECT k, c FROM t WHERE m CONTAINS 1", "1,0 0,0 0,1"),
        ("SELECT k, c FROM t WHERE m CONTAINS KEY 'a'", "0,0 0,1"),
        ("SELECT k, c FROM t WHERE m['b'] = 1", "1,0"),
        ("SELECT k, c FROM t WHERE f = [1]", "1,0 0,0"),
        ("UPDATE t SET m = m + {'b': 5}, l = l - [1] WHERE k = 1 AND c = 0", "void"),
        ("SELECT k, c FROM t WHERE m['b'] = 1", ""),
        ("SELECT k, c FROM t WHERE m['b'] = 5", "1,0"),
        ("SELECT k, c FROM t WHERE m CONTAINS 5", "1,0"),
        ("SELECT k, c FROM t WHERE l CONTAINS 1", "0,0"),
        ("DELETE m['a'] FROM t WHERE k = 0 AND c = 1", "void"),
        ("SELECT k, c FROM t WHERE m CONTAINS KEY 'a'", "0,0"),
    ]);
}

#[test]
fn key_and_static_columns_are_indexed() {
    check(&[
        (
            "CREATE TABLE t (a int, b int, c int, d int, s int static, v int, PRIMARY KEY ((a, b), c, d)) \
             WITH CLUSTERING ORDER BY (c ASC, d DESC)",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (b)", "UPDATED t"),
        ("CREATE INDEX ON t (d)", "UPDATED t"),
        ("CREATE INDEX ON t (s)", "UPDATED t"),
        ("INSERT INTO t (a, b, c, d, s, v) VALUES (0, 0, 1, 1, 9, 1)", "void"),
        ("INSERT INTO t (a, b, c, d, v) VALUES (0, 0, 1, 2, 2)", "void"),
        ("INSERT INTO t (a, b, c, d, s, v) VALUES (0, 1, 2, 2, 9, 3)", "void"),
        ("UPDATE t SET v = 4 WHERE a = 1 AND b = 1 AND c = 3 AND d = 1", "void"),
        ("INSERT INTO t (a, b, s) VALUES (5, 1, 9)", "void"),
        ("SELECT a, b, c, d, s FROM t WHERE b = 0", "0,0,1,2,9 0,0,1,1,9"),
        ("SELECT count(*) FROM t WHERE b = 1", "3"),
        ("SELECT count(*) FROM t WHERE d = 2", "2"),
        ("SELECT count(*) FROM t WHERE s = 9", "4"),
        ("SELECT a, c, d FROM t WHERE a = 0 AND b = 0 AND d = 1", "0,1,1"),
        ("UPDATE t SET s = 8 WHERE a = 0 AND b = 0", "void"),
        ("SELECT count(*) FROM t WHERE s = 9", "2"),
        ("SELECT c, d FROM t WHERE s = 8", "1,2 1,1"),
        ("DELETE FROM t WHERE a = 0 AND b = 0 AND c = 1 AND d = 2", "void"),
        ("SELECT c, d FROM t WHERE s = 8", "1,1"),
        ("SELECT count(*) FROM t WHERE d = 2", "1"),
        ("DELETE FROM t WHERE a = 0 AND b = 0", "void"),
        ("SELECT a FROM t WHERE b = 0", ""),
    ]);
}

#[test]
fn clustering_column_is_found_without_a_partition() {
    check(&[
        ("CREATE TABLE t (k int, c int, d int, v int, PRIMARY KEY (k, c, d))", "CREATED t"),
        ("CREATE INDEX ON t (c)", "UPDATED t"),
        ("INSERT INTO t (k, c, d, v) VALUES (1, 1, 1, 10)", "void"),
        ("INSERT INTO t (k, c, d, v) VALUES (1, 2, 1, 11)", "void"),
        ("INSERT INTO t (k, c, d, v) VALUES (2, 1, 1, 12)", "void"),
        ("INSERT INTO t (k, c, d, v) VALUES (2, 1, 2, 13)", "void"),
        ("SELECT v FROM t WHERE c = 1", "10 12 13"),
        ("SELECT v FROM t WHERE c = 1 AND d = 1 ALLOW FILTERING", "10 12"),
        ("SELECT v FROM t WHERE k = 2 AND c = 1", "12 13"),
    ]);
}

#[test]
fn groups_are_made_of_the_rows_that_an_index_finds() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE INDEX ON t (v)", "UPDATED t"),
        ("INSERT INTO t (k, c, v) VALUES (0, 0, 7)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (0, 1, 8)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (0, 2, 7)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, 0, 7)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, 3, 7)", "void"),
        ("SELECT k, count(*), max(c) FROM t WHERE v = 7 GROUP BY k", "1,2,3 0,2,2"),
        ("SELECT k, c, count(*) FROM t WHERE v = 7 GROUP BY k, c", "1,0,1 1,3,1 0,0,1 0,2,1"),
        ("SELECT k, c, count(*) FROM t WHERE v = 7 GROUP BY k, c PER PARTITION LIMIT 1", "1,0,1 0,0,1"),
        ("SELECT k, count(*) FROM t WHERE v = 7 GROUP BY k PER PARTITION LIMIT 1", "1,2 0,2"),
        ("SELECT k, sum(c) FROM t WHERE k = 0 AND v = 7 GROUP BY k", "0,2"),
        ("SELECT min(c), max(k) FROM t WHERE v = 7", "0,1"),
    ]);
}

#[test]
fn definitions_are_checked() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>, f frozen<set<int>>, d duration)",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (k)", "! Cannot create secondary index on the only partition key column k"),
        ("CREATE INDEX ON t (x)", "! Undefined column name x in table ks.t"),
        ("CREATE INDEX ON u (v)", "! Table 'u' doesn't exist"),
        ("CREATE INDEX ON t (d)", "! Secondary indexes are not supported on duration columns"),
        ("CREATE INDEX ON t (keys(l))", "! Cannot create index on keys of column l with non-map type"),
        ("CREATE INDEX ON t (full(l))", "! full() indexes can only be created on frozen collections"),
        (
            "CREATE INDEX ON t (f)",
            "! Cannot create values() index on frozen column f. Frozen collections are immutable and must be fully \
             indexed by using the 'full(f)' modifier",
        ),
        (
            "CREATE INDEX ON t (values(v))",
            "! Cannot create values() index on v. Non-collection columns only support simple indexes",
        ),
        ("CREATE INDEX i ON t (v)", "UPDATED t"),
        ("CREATE INDEX IF NOT EXISTS i ON t (v)", "void"),
        ("CREATE INDEX i ON t (v)", "! Index 'i' already exists"),
        ("CREATE INDEX ON t (v)", "! Index t_v_idx is a duplicate of existing index i"),
        ("CREATE CUSTOM INDEX ON t (v) USING 'sai'", "UPDATED t"),
        (
            "ALTER TABLE t DROP v",
            "! Cannot drop column v because it has dependent secondary indexes (i, t_v_idx)",
        ),
        (
            "SELECT index_name, kind, options FROM system_schema.indexes WHERE keyspace_name = 'ks'",
            "'i','COMPOSITES',{'target': 'v'} 't_v_idx','CUSTOM',{'class_name': 'sai', 'target': 'v'}",
        ),
        (
            "CREATE CUSTOM INDEX ON t (v) USING 'StorageAttachedIndex'",
            "! Cannot create more than one storage-attached index on the same column: v",
        ),
        ("CREATE CUSTOM INDEX ON t (v) USING 'nope'", "! Unable to find custom indexer class 'nope'"),
        ("DROP INDEX i", "UPDATED t"),
        ("DROP INDEX IF EXISTS i", "void"),
        ("DROP INDEX i", "! Index 'ks.i' doesn't exist'"),
        ("CREATE TABLE n (k int PRIMARY KEY, n counter)", "CREATED n"),
        ("CREATE INDEX ON n (n)", "! Secondary indexes on counter tables aren't supported"),
    ]);
}

#[test]
fn storage_attached_indexes_serve_several_filters_and_ranges() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, a int, b int, c text)", "CREATED t"),
        ("CREATE INDEX ON t (a) USING 'sai'", "UPDATED t"),
        ("CREATE CUSTOM INDEX ON t (b) USING 'StorageAttachedIndex'", "UPDATED t"),
        ("INSERT INTO t (k, a, b, c) VALUES (1, 1, 1, 'x')", "void"),
        ("INSERT INTO t (k, a, b, c) VALUES (2, 1, 2, 'x')", "void"),
        ("INSERT INTO t (k, a, b, c) VALUES (3, 2, 2, 'y')", "void"),
        ("SELECT k FROM t WHERE a = 1 AND b = 2", "2"),
        ("SELECT k FROM t WHERE b >= 2", "2 3"),
        ("SELECT k FROM t WHERE a = 1 AND b > 0", "1 2"),
        (
            "SELECT k FROM t WHERE a = 1 AND c = 'x'",
            "! Cannot execute this query as it might involve data filtering and thus may have unpredictable \
             performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
             FILTERING",
        ),
    ]);
}
