//! Relations of several columns, filters of every kind, and bounds on tokens. The answers are those
//! of Cassandra 5.0.9.

use crate::scenario::check;

const SETUP: &[(&str, &str)] = &[
    (
        "CREATE TABLE t (a int, b int, c int, d int, s int static, v int, PRIMARY KEY (a, b, c, d))",
        "CREATED t",
    ),
    (
        "CREATE TABLE x (a int, b int, c int, d int, PRIMARY KEY (a, b, c, d)) WITH CLUSTERING ORDER BY \
      (b DESC, c ASC, d DESC)",
        "CREATED x",
    ),
    ("CREATE TABLE p (a int, b int, c int, v int, PRIMARY KEY ((a, b), c))", "CREATED p"),
    ("CREATE TYPE u (f int, g text)", "CREATED u"),
    (
        "CREATE TABLE f (k int, c frozen<list<int>>, v frozen<map<text, int>>, m map<text, int>, w \
      frozen<u>, n u, PRIMARY KEY (k, c))",
        "CREATED f",
    ),
    ("INSERT INTO t (a, b, c, d, s, v) VALUES (0, 0, 0, 0, 5, 1)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (0, 0, 1, 0, 2)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (0, 0, 1, 1, 3)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (0, 1, 0, 0, 4)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (0, 1, 1, 0, 5)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (0, 1, 1, 1, 6)", "void"),
    ("INSERT INTO t (a, b, c, d, v) VALUES (1, 0, 1, 1, 7)", "void"),
    ("INSERT INTO t (a, s) VALUES (2, 9)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 2, 0, -1)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 2, 0, 1)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 1, -1, 0)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 1, 0, 1)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 1, 0, 0)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 1, 1, 0)", "void"),
    ("INSERT INTO x (a, b, c, d) VALUES (0, 0, 0, 0)", "void"),
    ("INSERT INTO p (a, b, c, v) VALUES (1, 1, 1, 1)", "void"),
    ("INSERT INTO p (a, b, c, v) VALUES (1, 2, 2, 2)", "void"),
    ("INSERT INTO p (a, b, c, v) VALUES (2, 1, 3, 3)", "void"),
    ("INSERT INTO f (k, c, v, m, w) VALUES (1, [1, 2], {'a': 1}, {'x': 1, 'y': 2}, {f: 1, g: 'x'})", "void"),
    ("INSERT INTO f (k, c, v, m, w) VALUES (1, [2, 3], {'b': 2}, {'x': 2}, {f: 2, g: 'y'})", "void"),
];

fn check_after(steps: &[(&str, &str)]) {
    check(&[SETUP, steps].concat());
}

#[test]
fn tuples_choose_and_bound_clustering_keys() {
    check_after(&[
        ("SELECT v FROM t WHERE a = 0 AND (b, c) = (0, 1)", "2 3"),
        ("SELECT v FROM t WHERE a = 0 AND b = 1 AND (c, d) > (0, 0) AND c <= 1", "5 6"),
        ("SELECT v FROM t WHERE a = 0 AND b IN (0, 1) AND (c, d) IN ((1, 1), (0, 0))", "1 3 4 6"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) IN ((1, 1), (0, 0)) AND d >= 0 AND d < 1", "1 5"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c, d) >= (0, 1, 1) AND (b, c) < (1, 1)", "3 4"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c, d) > (0, 1, 0) AND b < 1", "3"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) IN ()", ""),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) > (0, 0) ORDER BY b DESC LIMIT 2", "6 5"),
        ("SELECT a, v FROM t WHERE a IN (1, 0) AND (b, c, d) IN ((0, 1, 1), (0, 0, 0))", "0,1 0,3 1,7"),
        ("SELECT v FROM t WHERE a = 0 AND b = 0 ORDER BY b DESC, b ASC", "1 2 3"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) = (0, 1) ORDER BY d DESC", "3 2"),
    ]);
}

#[test]
fn tuples_compare_over_mixed_orders() {
    check_after(&[
        ("SELECT b, c, d FROM x WHERE a = 0 AND (b, c, d) > (1, 0, 0)", "2,0,1 2,0,-1 1,0,1 1,1,0"),
        (
            "SELECT b, c, d FROM x WHERE a = 0 AND (b, c, d) <= (2, 0, -1) AND (b, c) > (1, -1)",
            "2,0,-1 1,0,1 1,0,0 1,1,0",
        ),
        ("SELECT b, c, d FROM x WHERE a = 0 AND (b, c) < (1, 0) ORDER BY b ASC, c DESC", "0,0,0 1,-1,0"),
        ("SELECT b, c, d FROM x WHERE a = 0 AND b IN (1, 2) AND (c, d) >= (0, 0)", "2,0,1 1,0,1 1,0,0 1,1,0"),
        ("SELECT b, c, d FROM x WHERE (b, c, d) >= (1, 0, 1) ALLOW FILTERING", "2,0,1 2,0,-1 1,0,1 1,1,0"),
    ]);
}

#[test]
fn filters_take_every_column() {
    check_after(&[
        ("SELECT v FROM t WHERE (b, c) > (0, 1) ALLOW FILTERING", "4 5 6"),
        ("SELECT v FROM t WHERE (b, c) IN ((0, 1), (1, 0)) ALLOW FILTERING", "7 2 3 4"),
        ("SELECT v FROM t WHERE a = 0 AND b > 0 AND (c, d) = (1, 1) ALLOW FILTERING", "6"),
        ("SELECT v FROM t WHERE a = 0 AND c = 1 AND d IN (0, 3) ALLOW FILTERING", "2 5"),
        ("SELECT a, v FROM t WHERE s > 4 ALLOW FILTERING", "0,1 0,2 0,3 0,4 0,5 0,6 2,null"),
        ("SELECT a, v FROM t WHERE a > 0 AND s = 9 ALLOW FILTERING", "2,null"),
        ("SELECT v FROM t WHERE a = 0 AND v > 2 AND v <= 5 ORDER BY b DESC ALLOW FILTERING", "5 4 3"),
        ("SELECT c FROM p WHERE a = 1 ALLOW FILTERING", "2 1"),
        ("SELECT c FROM p WHERE b IN (1, 3) AND c > 1 ALLOW FILTERING", "3"),
        ("SELECT c FROM f WHERE k = 1 AND c CONTAINS 2 AND c CONTAINS 3 ALLOW FILTERING", "[2, 3]"),
        ("SELECT c FROM f WHERE v CONTAINS KEY 'b' ALLOW FILTERING", "[2, 3]"),
        ("SELECT c FROM f WHERE m['x'] = 2 ALLOW FILTERING", "[2, 3]"),
        ("SELECT c FROM f WHERE m CONTAINS KEY 'y' AND m CONTAINS 1 ALLOW FILTERING", "[1, 2]"),
        ("SELECT c FROM f WHERE w > {f: 1, g: 'x'} ALLOW FILTERING", "[2, 3]"),
        ("SELECT c FROM f WHERE w IN ({f: 1, g: 'x'}, {f: 3}) ALLOW FILTERING", "[1, 2]"),
    ]);
}

#[test]
fn tokens_bound_named_partitions() {
    check_after(&[
        ("SELECT v FROM t WHERE token(a) > -9223372036854775808 AND a = 0 AND b = 1", "4 5 6"),
        (
            "SELECT v FROM t WHERE token(a) > 9000000000000000000 AND token(a) < 0 AND a = 0 AND b = 1",
            "4 5 6",
        ),
        ("SELECT v FROM t WHERE token(a) > 9000000000000000000 AND a = 0 AND b = 1", ""),
        ("SELECT c FROM p WHERE token(a, b) > -9223372036854775808 AND a IN (1, 2) AND b = 1", "1 3"),
    ]);
}

#[test]
fn writes_name_rows_and_ranges_by_tuples() {
    check_after(&[
        ("UPDATE t SET v = 8 WHERE a = 3 AND (b, c, d) IN ((1, 2, 3), (1, 2, 4), (2, 0, 0))", "void"),
        ("UPDATE t SET v = 9 WHERE a = 3 AND b = 1 AND (c, d) = (2, 3)", "void"),
        ("SELECT b, c, d, v FROM t WHERE a = 3", "1,2,3,9 1,2,4,8 2,0,0,8"),
        ("DELETE v FROM t WHERE a = 3 AND (b, c) = (1, 2) AND d = 3", "void"),
        ("DELETE FROM t WHERE a = 3 AND (b, c) > (1, 2)", "void"),
        ("SELECT b, c, d, v FROM t WHERE a = 3", "1,2,4,8"),
        ("DELETE FROM x WHERE a = 0 AND (b, c) > (0, 0) AND (b, c, d) < (1, 0, 1)", "void"),
        ("SELECT b, c, d FROM x WHERE a = 0", "2,0,1 2,0,-1 1,0,1 1,1,0 0,0,0"),
    ]);
}
