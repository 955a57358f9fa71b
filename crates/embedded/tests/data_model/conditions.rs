//! Writes that depend on stored data: IF of every kind, and list elements by index.

use crate::scenario::check;

#[test]
fn failed_conditions_return_the_stored_values() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int, w text)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, 10) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, v) VALUES (1, 11) IF NOT EXISTS", "false,1,10,null"),
        ("UPDATE t SET v = 20 WHERE k = 1 IF v = 9", "false,10"),
        ("UPDATE t SET v = 20 WHERE k = 1 IF v = 10 AND w = null", "true"),
        ("UPDATE t SET w = 'x' WHERE k = 1 IF v > 5 AND v IN (19, 20)", "true"),
        ("UPDATE t SET w = 'y' WHERE k = 1 IF w != 'x' AND v = 1", "false,'x',20"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF EXISTS", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v = 3", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v = null", "true"),
        ("SELECT * FROM t WHERE k IN (1, 2)", "1,20,'x' 2,1,null"),
        ("DELETE FROM t WHERE k = 1 IF v = 21", "false,20"),
        ("DELETE v FROM t WHERE k = 1 IF v = 20", "true"),
        ("DELETE FROM t WHERE k = 1 IF EXISTS", "true"),
        ("DELETE FROM t WHERE k = 1 IF EXISTS", "false"),
        ("UPDATE t SET v = 1 WHERE k = 2 IF v < null", "! Invalid comparison with null for operator \"<\""),
        ("UPDATE t SET v = 1 WHERE k = 2 IF k = 2", "! PRIMARY KEY column 'k' cannot have IF conditions"),
        (
            "UPDATE t USING TIMESTAMP 1 SET v = 1 WHERE k = 2 IF EXISTS",
            "! Cannot provide custom timestamp for conditional updates",
        ),
        (
            "UPDATE t SET v = 1 WHERE k IN (1, 2) IF EXISTS",
            "! IN on the partition key is not supported with conditional updates",
        ),
        ("INSERT INTO t (k, v) VALUES (3, 1) IF NOT EXISTS USING TTL 100", "true"),
        ("SELECT v FROM t WHERE k = 3", "1"),
    ]);
}

#[test]
fn conditions_test_collections_and_static_columns() {
    check(&[
        ("CREATE TYPE u (a int, b int)", "CREATED u"),
        (
            "CREATE TABLE t (k int, c int, s int static, m map<text, int>, l list<int>, f u, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("INSERT INTO t (k, c, m, l, f) VALUES (1, 1, {'a': 1}, [1, 2], {a: 5})", "void"),
        ("UPDATE t SET l = [9] WHERE k = 1 AND c = 1 IF m['a'] = 2", "false,{'a': 1}"),
        (
            "UPDATE t SET l = l + [3] WHERE k = 1 AND c = 1 IF m['a'] = 1 AND l[1] = 2 AND f.a = 5 AND m \
             CONTAINS KEY 'a' AND l CONTAINS 1",
            "true",
        ),
        ("SELECT l FROM t", "[1, 2, 3]"),
        ("UPDATE t SET m = {} WHERE k = 1 AND c = 1 IF l = [1, 2, 3]", "true"),
        ("UPDATE t SET m['x'] = 1 WHERE k = 1 AND c = 1 IF m = null", "true"),
        ("INSERT INTO t (k, s) VALUES (2, 1) IF NOT EXISTS", "true"),
        ("INSERT INTO t (k, s) VALUES (2, 2) IF NOT EXISTS", "false,2,null,1,null,null,null"),
        ("UPDATE t SET s = 3 WHERE k = 2 IF s = 1", "true"),
        ("UPDATE t SET f.b = 6 WHERE k = 1 AND c = 1 IF s = 3", "false,null"),
        ("UPDATE t SET f.b = 6 WHERE k = 1 AND c = 1 IF s = null", "true"),
        ("SELECT f, m FROM t WHERE k = 1", "{a: 5, b: 6},{'x': 1}"),
        (
            "DELETE FROM t WHERE k = 1 IF EXISTS",
            "! Statements must restrict all PRIMARY KEY columns with equality relations in order to use \
             IF condition on non static columns, but column 'c' is not restricted",
        ),
    ]);
}

#[test]
fn a_batch_applies_whole_or_not_at_all() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE TABLE o (k int PRIMARY KEY, v int)", "CREATED o"),
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS; INSERT INTO t (k, c, v) \
             VALUES (1, 2, 2) APPLY BATCH",
            "true",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; UPDATE t SET v = 9 WHERE k = \
             1 AND c = 2 IF v = 3 APPLY BATCH",
            "false,1,1,1 false,1,2,2",
        ),
        ("SELECT v FROM t", "1 2"),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; DELETE FROM t WHERE k = 1 AND \
             c = 2 APPLY BATCH",
            "true",
        ),
        ("SELECT c, v FROM t", "1,9"),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; INSERT INTO t (k, c) VALUES \
             (2, 2) APPLY BATCH",
            "! Batch with conditions cannot span multiple partitions",
        ),
        (
            "BEGIN BATCH UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1; INSERT INTO o (k) VALUES (1) APPLY BATCH",
            "! Batch with conditions cannot span multiple tables",
        ),
        (
            "BEGIN BATCH USING TIMESTAMP 5 UPDATE t SET v = 9 WHERE k = 1 AND c = 1 IF v = 1 APPLY BATCH",
            "! Cannot provide custom timestamp for conditional BATCH",
        ),
    ]);
}

#[test]
fn lists_are_changed_by_index_and_by_value() {
    check(&[
        ("CREATE TABLE t (k int, c int, l list<text>, s list<int> static, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, l, s) VALUES (1, 1, ['a', 'b', 'a', 'c'], [1, 2])", "void"),
        ("UPDATE t SET l[1] = 'B', s[0] = 9 WHERE k = 1 AND c = 1", "void"),
        ("SELECT l, s FROM t", "['a', 'B', 'a', 'c'],[9, 2]"),
        ("UPDATE t SET l = l - ['a', 'z'] WHERE k = 1 AND c = 1", "void"),
        ("SELECT l FROM t", "['B', 'c']"),
        ("DELETE l[0], s[1] FROM t WHERE k = 1 AND c = 1", "void"),
        ("SELECT l, s FROM t", "['c'],[9]"),
        ("UPDATE t SET l[0] = null WHERE k = 1 AND c = 1", "void"),
        ("SELECT l FROM t", "null"),
        (
            "UPDATE t SET l[0] = 'x' WHERE k = 1 AND c = 1",
            "! Attempted to set an element on a list which is null",
        ),
        (
            "DELETE l[0] FROM t WHERE k = 1 AND c = 1",
            "! Attempted to delete an element from a list which is null",
        ),
        ("UPDATE t SET l = ['p'] WHERE k = 1 AND c = 1", "void"),
        ("UPDATE t SET l[1] = 'x' WHERE k = 1 AND c = 1", "! List index 1 out of bound, list has size 1"),
        ("UPDATE t SET l[-1] = 'x' WHERE k = 1 AND c = 1", "! List index -1 out of bound, list has size 1"),
        ("UPDATE t SET l = l - ['nothing'] WHERE k = 7 AND c = 7", "void"),
        ("SELECT k FROM t WHERE k = 7", ""),
    ]);
}
