//! Empty values: no bytes, of types whose other values have bytes. Their text is `null`, but they
//! are none.

use crate::scenario::check;

const EMPTY: &str = "blob_as_int(0x)";

#[test]
fn empty_values_are_written_and_compared() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>, m map<int, int>, s set<int>)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, blob_as_int(0x))", "void"),
        ("SELECT v, int_as_blob(v), v + 1, count(v), to_json(v) FROM t", "null,0x,null,1,'null'"),
        ("SELECT JSON v FROM t", "'{\"v\": \"\"}'"),
        ("SELECT k FROM t WHERE v = blob_as_int(0x) ALLOW FILTERING", "1"),
        ("UPDATE t SET k2 = 1 WHERE k = 1", "! Undefined column name k2 in table ks.t"),
        ("DELETE FROM t WHERE k = 1 IF v = null", "false,null"),
        ("DELETE FROM t WHERE k = 1 IF v = blob_as_int(0x)", "true"),
        ("SELECT k FROM t WHERE k = blob_as_int(0x)", "! Key may not be empty"),
        ("INSERT INTO t (k) VALUES (blob_as_int(0x))", "! Key may not be empty"),
    ]);
}

#[test]
fn empty_values_are_elements() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, l list<int>, m map<int, int>, s set<int>)", "CREATED t"),
        (&format!("INSERT INTO t (k, l) VALUES (1, [1, {EMPTY}])"), "void"),
        (&format!("UPDATE t SET m[1] = 1, m[2] = {EMPTY} WHERE k = 1"), "void"),
        ("SELECT l, m FROM t", "[1, null],{1: 1, 2: null}"),
        ("SELECT JSON l, m FROM t", "'{\"l\": [1, \"\"], \"m\": {\"1\": 1, \"2\": \"\"}}'"),
        // Rows, and elements of sets and maps, are sorted by bytes that empty values do not have.
        (
            &format!("UPDATE t SET s = {{{EMPTY}}} WHERE k = 1"),
            "! expected a value in a key of type int, got an empty value: choose another one",
        ),
        (&format!("SELECT k FROM t WHERE l CONTAINS {EMPTY} ALLOW FILTERING"), "1"),
        (&format!("UPDATE t SET l = l - [{EMPTY}], m[2] = null WHERE k = 1"), "void"),
        ("SELECT l, m FROM t", "[1],{1: 1}"),
        ("INSERT INTO t (k, l) VALUES (1, [null])", "! null is not supported inside collections"),
    ]);
}
