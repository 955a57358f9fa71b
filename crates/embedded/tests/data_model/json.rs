//! INSERT JSON: columns by name, missing ones, and those that are no value of their type.

use crate::scenario::check;

#[test]
fn insert_json_sets_all_columns() {
    check(&[
        ("CREATE TYPE u (a int, \"B c\" frozen<set<text>>)", "CREATED u"),
        (
            "CREATE TABLE t (k int PRIMARY KEY, v int, \"Foo\" text, l list<int>, s set<int>, m map<text, boolean>, \
             f frozen<map<int, frozen<u>>>, u u, d decimal)",
            "CREATED t",
        ),
        (
            "INSERT INTO t JSON '{\"k\": 0, \"v\": \"7\", \"\\\"Foo\\\"\": \"it''s\", \"l\": [3, 1], \"s\": [3, 1, 3], \
             \"m\": {\"b\": true, \"a\": false}, \"f\": {\"2\": {\"\\\"B c\\\"\": [\"x\"]}}, \"u\": {\"a\": 5}, \
             \"d\": 1.10}'",
            "void",
        ),
        (
            "SELECT k, v, \"Foo\", l, s, m, f, u, d FROM t",
            "0,7,'it''s',[3, 1],{1, 3},{'a': false, 'b': true},{2: {a: null, \"B c\": {'x'}}},\
             {a: 5, \"B c\": null},1.10",
        ),
        // Missing columns become null, unless they shall stay.
        ("INSERT INTO t JSON '{\"k\": 0, \"v\": null}' DEFAULT UNSET", "void"),
        ("SELECT v, l, d FROM t", "null,[3, 1],1.10"),
        ("INSERT INTO t JSON '{\"K\": 0, \"v\": 9, \"s\": []}' DEFAULT NULL", "void"),
        ("SELECT v, l, s, m, f, u, d FROM t", "9,null,null,null,null,null,null"),
        ("INSERT INTO t JSON '{\"k\": 1, \"k\": 2, \"v\": 1}'", "void"),
        ("SELECT v FROM t WHERE k = 2", "1"),
        (
            "INSERT INTO t JSON '{\"k\": 2, \"v\": 3}' IF NOT EXISTS",
            "false,2,null,null,null,null,null,null,null,1",
        ),
        ("INSERT INTO t JSON '{\"k\": 3, \"v\": 3}' IF NOT EXISTS USING TTL 1000", "true"),
        ("INSERT INTO t JSON '{\"k\": 4, \"v\": 3}' USING TIMESTAMP 5", "void"),
        ("SELECT writetime(v) FROM t WHERE k = 4", "5"),
        (
            "BEGIN BATCH INSERT INTO t JSON '{\"k\": 5, \"v\": 1}'; INSERT INTO t JSON '{\"k\": 6, \"v\": 2}'; \
             APPLY BATCH",
            "void",
        ),
        ("SELECT k, v FROM t WHERE k IN (5, 6)", "5,1 6,2"),
    ]);
}

#[test]
fn insert_json_needs_the_whole_key_and_known_columns() {
    check(&[
        ("CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE TABLE n (k int PRIMARY KEY, n counter)", "CREATED n"),
        ("INSERT INTO t JSON '{\"k\": 1, \"s\": 1}'", "! Invalid null value in condition for column c"),
        ("INSERT INTO t JSON '{\"k\": 1, \"s\": 1}' DEFAULT UNSET", "! Invalid unset value for column c"),
        ("INSERT INTO t JSON '{\"k\": 1, \"c\": null}'", "! Invalid null value in condition for column c"),
        (
            "INSERT INTO t JSON '{\"k\": 1, \"c\": 1, \"zzz\": 0}'",
            "! JSON values map contains unrecognized column: zzz",
        ),
        (
            "INSERT INTO t JSON '{\"k\": 1, \"c\": \"x\"}'",
            "! Error decoding JSON value for c: Unable to make int from 'x'",
        ),
        ("INSERT INTO t JSON 'null'", "! Got null for INSERT JSON values"),
        (
            "INSERT INTO n JSON '{\"k\": 1, \"n\": 1}'",
            "! INSERT statements are not allowed on counter tables, use UPDATE instead",
        ),
        ("SELECT k FROM t", ""),
    ]);
}

#[test]
fn select_json_shows_each_row_as_one_text() {
    check(&[
        ("CREATE TYPE u (a int, \"B c\" frozen<set<text>>)", "CREATED u"),
        (
            "CREATE TABLE t (k int, c int, s int static, \"Foo\" text, f float, m map<int, frozen<u>>, b blob, \
             PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        (
            "INSERT INTO t (k, c, s, \"Foo\", f, m, b) VALUES (0, 1, 5, 'a\"\n', 1.5, {2: {a: 1}}, 0x01)",
            "void",
        ),
        ("INSERT INTO t (k, c, f) VALUES (0, 2, NaN)", "void"),
        (
            "SELECT JSON * FROM t WHERE k = 0",
            "'{\"k\": 0, \"c\": 1, \"s\": 5, \"\\\"Foo\\\"\": \"a\\\"\\n\", \"b\": \"0x01\", \"f\": 1.5, \
             \"m\": {\"2\": {\"a\": 1, \"\\\"B c\\\"\": null}}}' \
             '{\"k\": 0, \"c\": 2, \"s\": 5, \"\\\"Foo\\\"\": null, \"b\": null, \"f\": null, \"m\": null}'",
        ),
        ("SELECT JSON c, \"Foo\" AS foo FROM t WHERE k = 0 AND c = 1", "'{\"c\": 1, \"foo\": \"a\\\"\\n\"}'"),
        (
            "SELECT JSON c AS \"Bar\" FROM t WHERE k = 0 ORDER BY c DESC",
            "'{\"\\\"Bar\\\"\": 2}' '{\"\\\"Bar\\\"\": 1}'",
        ),
        ("SELECT JSON count(*) FROM t", "'{\"count\": 2}'"),
        ("SELECT JSON ttl(f), k FROM t LIMIT 1", "'{\"ttl(f)\": null, \"k\": 0}'"),
        ("SELECT JSON DISTINCT k, s FROM t", "'{\"k\": 0, \"s\": 5}'"),
        ("SELECT JSON * FROM t WHERE k = 9", ""),
        (
            "SELECT JSON keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'ks'",
            "'{\"keyspace_name\": \"ks\"}'",
        ),
        (
            "INSERT INTO t JSON '{\"k\": 0, \"c\": 3, \"m\": {\"2\": {\"a\": 1, \"\\\"B c\\\"\": null}}}'",
            "void",
        ),
        ("SELECT m FROM t WHERE k = 0 AND c = 3", "{2: {a: 1, \"B c\": null}}"),
    ]);
}
