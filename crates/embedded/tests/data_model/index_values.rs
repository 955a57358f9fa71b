//! Values with several forms in indexes and views: of one number, of one term, and without a value.

use crate::scenario::check;

#[test]
fn equal_keys_of_other_bytes_are_rows_of_a_view_on_every_page() {
    check(&[
        ("CREATE TABLE t (k varint PRIMARY KEY, v int)", "CREATED t"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL \
             PRIMARY KEY (v, k)",
            "CREATED m",
        ),
        ("INSERT INTO t (k, v) VALUES (blob_as_varint(0x00), 1)", "void"),
        ("INSERT INTO t (k, v) VALUES (blob_as_varint(0x0000), 1)", "void"),
        ("INSERT INTO t (k, v) VALUES (blob_as_varint(0x000000), 1)", "void"),
        ("INSERT INTO t (k, v) VALUES (blob_as_varint(0x00000000), 1)", "void"),
        ("INSERT INTO t (k, v) VALUES (5, 1)", "void"),
        ("SELECT v FROM m WHERE v = 1", "1 1 1 1 1"),
        ("SELECT v FROM m", "1 1 1 1 1"),
        ("SELECT v FROM m WHERE v = 1 ORDER BY k DESC", "1 1 1 1 1"),
        ("SELECT v FROM m WHERE v = 1 AND k = 0", "1 1 1 1"),
    ]);
}

#[test]
fn keys_that_a_view_cannot_have_are_refused_by_the_write() {
    let long = |letter: &str| format!("'{}'", letter.repeat(40_000));
    let (a, b) = (long("a"), long("b"));
    let steps = [
        ("CREATE TABLE t (k text, c text, v int, PRIMARY KEY (k, c))".to_owned(), "CREATED t"),
        (format!("INSERT INTO t (k, c, v) VALUES ({a}, {b}, 1)"), "void"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE c IS NOT NULL AND k IS NOT NULL \
             PRIMARY KEY ((c, k))"
                .to_owned(),
            "CREATED m",
        ),
        (
            format!("INSERT INTO t (k, c, v) VALUES ({b}, {a}, 1)"),
            "! Key length of 80006 is longer than maximum of 65535 (of the key of a view)",
        ),
        (format!("INSERT INTO t (k, c, v) VALUES ('b', {a}, 1)"), "void"),
        (format!("DELETE v FROM t WHERE k = {a} AND c = {b}"), "void"),
        (format!("DELETE FROM t WHERE k = {a}"), "void"),
        ("SELECT k FROM m".to_owned(), "'b'"),
    ];
    let steps: Vec<(&str, &str)> = steps.iter().map(|(text, answer)| (text.as_str(), *answer)).collect();
    check(&steps);
}

#[test]
fn conditions_of_storage_attached_indexes_never_hold_for_empty_values() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, w int, n int, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE INDEX ON t (v) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (w) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (n)", "UPDATED t"),
        ("INSERT INTO t (k, c, v, w, n) VALUES (1, 1, blob_as_int(0x), 5, blob_as_int(0x))", "void"),
        ("INSERT INTO t (k, c, v, w, n) VALUES (1, 2, 3, 5, 3)", "void"),
        ("SELECT c FROM t WHERE v < 5", "2"),
        ("SELECT c FROM t WHERE k = 1 AND v < 5", "2"),
        ("SELECT c FROM t WHERE w = 5 AND v < 5", "2"),
        ("SELECT c FROM t WHERE v < 5 ALLOW FILTERING", "2"),
        ("SELECT c FROM t WHERE v = blob_as_int(0x)", ""),
        ("SELECT c FROM t WHERE k = 1 AND v = blob_as_int(0x)", ""),
        ("SELECT c FROM t WHERE n = blob_as_int(0x)", "1"),
        ("SELECT c FROM t WHERE n < 5 ALLOW FILTERING", "1 2"),
        ("SELECT c FROM t WHERE k = 1 AND w = 5 AND n < 5 ALLOW FILTERING", "1 2"),
    ]);
}

#[test]
fn storage_attached_index_sorts_ipv4_addresses_among_those_of_ipv6() {
    check(&[
        ("CREATE TABLE t (k int, c int, i inet, s set<inet>, l inet, PRIMARY KEY (k, c))", "CREATED t"),
        ("CREATE INDEX ON t (i) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (s) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (l)", "UPDATED t"),
        ("INSERT INTO t (k, c, i, l, s) VALUES (2, 1, '1.2.3.4', '1.2.3.4', {'1.2.3.4'})", "void"),
        ("INSERT INTO t (k, c, i, l, s) VALUES (2, 2, '::ffff:1.2.3.4', '::1', {'::1'})", "void"),
        ("INSERT INTO t (k, c, i) VALUES (2, 3, '::1')", "void"),
        ("INSERT INTO t (k, c, i) VALUES (2, 4, '200.1.1.1')", "void"),
        ("INSERT INTO t (k, c, i) VALUES (2, 5, '2001:db8::1')", "void"),
        ("SELECT c FROM t WHERE i = '1.2.3.4'", "1 2"),
        ("SELECT c FROM t WHERE i > '1.0.0.0'", "1 2 4 5"),
        ("SELECT c FROM t WHERE i > '::'", "1 2 3 4 5"),
        ("SELECT c FROM t WHERE i < '100.0.0.0'", "1 2 3"),
        ("SELECT c FROM t WHERE k = 2 AND i < '100.0.0.0'", "1 2 3"),
        ("SELECT c FROM t WHERE i > '::2'", "1 2 4 5"),
        ("SELECT c FROM t WHERE i >= '2000::'", "5"),
        ("SELECT c FROM t WHERE s CONTAINS '1.2.3.4'", "1"),
        ("SELECT c FROM t WHERE l = '1.2.3.4'", "1"),
        ("SELECT c FROM t WHERE l = '::1'", "2"),
    ]);
}

#[test]
fn index_without_a_class_is_preferred_to_terms_of_another() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, a text, b text, c text)", "CREATED t"),
        ("CREATE INDEX a_first ON t (a)", "UPDATED t"),
        ("CREATE INDEX z_second ON t (a) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        ("CREATE INDEX z_first ON t (b)", "UPDATED t"),
        ("CREATE INDEX a_second ON t (b) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        ("INSERT INTO t (k, a, b) VALUES (1, 'Red', 'Red')", "void"),
        ("INSERT INTO t (k, a, b) VALUES (2, 'RED', 'RED')", "void"),
        ("SELECT k FROM t WHERE a = 'red'", ""),
        ("SELECT k FROM t WHERE b = 'red'", ""),
        ("SELECT k FROM t WHERE a = 'Red'", "1"),
        ("SELECT k FROM t WHERE b = 'RED'", "2"),
        ("SELECT k FROM t WHERE k = 1 AND a = 'red' ALLOW FILTERING", ""),
        ("DROP INDEX a_first", "UPDATED t"),
        ("SELECT k FROM t WHERE a = 'red'", "1 2"),
    ]);
}

#[test]
fn values_with_empty_ones_inside_are_found_after_a_field_was_added() {
    check(&[
        ("CREATE TYPE u (a int, b int)", "CREATED u"),
        ("CREATE TABLE t (k int PRIMARY KEY, v frozen<u>)", "CREATED t"),
        ("CREATE INDEX ON t (v)", "UPDATED t"),
        ("INSERT INTO t (k, v) VALUES (1, {a: blob_as_int(0x), b: 1})", "void"),
        ("INSERT INTO t (k, v) VALUES (2, {a: 7})", "void"),
        ("ALTER TYPE u ADD c int", "UPDATED u"),
        ("SELECT k FROM t WHERE v = {a: blob_as_int(0x), b: 1, c: null}", "1"),
        ("SELECT k FROM t WHERE v = {a: 7}", "2"),
        ("UPDATE t SET v = {a: 8, c: 1} WHERE k = 2", "void"),
        ("SELECT k FROM t WHERE v = {a: 7}", ""),
        ("SELECT k FROM t WHERE v = {a: 8, b: null, c: 1}", "2"),
    ]);
}

#[test]
fn ranges_of_a_text_that_no_index_supports_are_refused_as_without_one() {
    let unrestricted =
        "! PRIMARY KEY column \"d\" cannot be restricted as preceding column \"c\" is not restricted";
    check(&[
        ("CREATE TABLE t (k int, c text, d text, v int, PRIMARY KEY (k, c, d))", "CREATED t"),
        ("CREATE INDEX ON t (d) USING 'sai'", "UPDATED t"),
        ("SELECT v FROM t WHERE k = 1 AND d > 'a'", unrestricted),
        ("SELECT v FROM t WHERE d > 'a'", unrestricted),
        (
            "SELECT v FROM t WHERE k = 1 AND d = 'a' AND c > 'a'",
            "! PRIMARY KEY column \"d\" cannot be restricted (preceding column \"c\" is restricted by a non-EQ \
             relation)",
        ),
        ("SELECT v FROM t WHERE k = 1 AND (c, d) > ('a', 'b')", ""),
    ]);
}
