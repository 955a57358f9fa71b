//! Ranges, several values and terms of texts by storage-attached indexes.

use crate::scenario::check;

const NEEDS_FILTERING: &str = "! Cannot execute this query as it might involve data filtering and thus may have \
                               unpredictable performance. If you want to execute this query despite the \
                               performance unpredictability, use ALLOW FILTERING";

#[test]
fn ranges_find_rows_in_the_order_of_a_scan() {
    check(&[
        ("CREATE TABLE t (k int, c int, v int, w double, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 0, 5, 0.5)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 1, -3, 1.5)", "void"),
        ("CREATE INDEX ON t (v) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (w) USING 'sai'", "UPDATED t"),
        ("INSERT INTO t (k, c, v, w) VALUES (0, 2, 9, -0.5)", "void"),
        ("INSERT INTO t (k, c, v, w) VALUES (1, 0, 4, 2.5)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, 1, 2147483647)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (2, 0, -2147483648)", "void"),
        ("INSERT INTO t (k, c) VALUES (3, 0)", "void"),
        ("SELECT k, c FROM t WHERE v > 3 AND v <= 9", "1,0 0,0 0,2"),
        ("SELECT k, c FROM t WHERE v >= -3 AND v < 5", "1,0 0,1"),
        ("SELECT k, c FROM t WHERE v > 9", "1,1"),
        ("SELECT k, c FROM t WHERE v > 2147483647", ""),
        ("SELECT k, c FROM t WHERE v >= 2147483647", "1,1"),
        ("SELECT k, c FROM t WHERE v <= -2147483648", "2,0"),
        ("SELECT k, c FROM t WHERE v < -2147483648", ""),
        ("SELECT k, c FROM t WHERE v > 5 AND v < 5", ""),
        ("SELECT k, c FROM t WHERE v > 9 AND v < 2", ""),
        ("SELECT k, c FROM t WHERE v > 3 LIMIT 2", "1,0 1,1"),
        ("SELECT k, c FROM t WHERE v > 3 PER PARTITION LIMIT 1", "1,0 0,0"),
        ("SELECT count(*) FROM t WHERE v > 3", "4"),
        ("SELECT k, count(*), max(v) FROM t WHERE v > 3 GROUP BY k", "1,2,2147483647 0,2,9"),
        ("SELECT k, c FROM t WHERE v > 3 AND w < 1.0", "0,0 0,2"),
        ("SELECT k, c FROM t WHERE k = 0 AND v > 3", "0,0 0,2"),
        ("SELECT k, c FROM t WHERE token(k) > token(1) AND v > 3", "0,0 0,2"),
        // Overwritten and deleted values.
        ("UPDATE t SET v = 20 WHERE k = 0 AND c = 0", "void"),
        ("UPDATE t SET v = 6 WHERE k = 0 AND c = 1", "void"),
        ("DELETE v FROM t WHERE k = 1 AND c = 0", "void"),
        ("SELECT k, c FROM t WHERE v > 3 AND v <= 9", "0,1 0,2"),
        ("DELETE FROM t WHERE k = 0", "void"),
        ("SELECT k, c FROM t WHERE v > 3", "1,1"),
        ("INSERT INTO t (k, c, v) VALUES (0, 1, 6)", "void"),
        ("SELECT k, c FROM t WHERE v > 3", "1,1 0,1"),
    ]);
}

#[test]
fn ranges_of_keys_and_static_columns_find_partitions_and_rows() {
    check(&[
        (
            "CREATE TABLE t (a int, b int, c int, d int, s int static, PRIMARY KEY ((a, b), c, d)) \
             WITH CLUSTERING ORDER BY (c DESC, d ASC)",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (b) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (d) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (s) USING 'sai'", "UPDATED t"),
        ("INSERT INTO t (a, b, c, d, s) VALUES (0, 0, 1, 1, 5)", "void"),
        ("INSERT INTO t (a, b, c, d) VALUES (0, 0, 2, 7)", "void"),
        ("INSERT INTO t (a, b, c, d, s) VALUES (0, 3, 1, 8, 9)", "void"),
        ("INSERT INTO t (a, b, s) VALUES (9, 9, 7)", "void"),
        ("SELECT a, b, c, d FROM t WHERE b < 3", "0,0,2,7 0,0,1,1"),
        ("SELECT count(*) FROM t WHERE d > 6", "2"),
        ("SELECT count(*) FROM t WHERE s >= 7", "2"),
        ("SELECT count(*) FROM t WHERE s > 4", "4"),
        ("SELECT a, b, c, d FROM t WHERE d > 6 AND b = 0", "0,0,2,7"),
    ]);
}

#[test]
fn types_without_ranges_need_filtering_for_them() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, x text, b boolean, u uuid, i inet, n varint, d decimal, l int)",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (x) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (b) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (u) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (i) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (n) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (d) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (l)", "UPDATED t"),
        (
            "INSERT INTO t (k, x, b, u, i, n, d, l) VALUES (1, 'x', true, 00000000-0000-0000-0000-000000000001, \
             '127.0.0.1', 70000000000000000000000, 1.50, 3)",
            "void",
        ),
        ("SELECT k FROM t WHERE x > 'a'", NEEDS_FILTERING),
        ("SELECT k FROM t WHERE x > 'a' ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE b > false", NEEDS_FILTERING),
        ("SELECT k FROM t WHERE u > 00000000-0000-0000-0000-000000000000", NEEDS_FILTERING),
        ("SELECT k FROM t WHERE i > '10.0.0.1'", "1"),
        ("SELECT k FROM t WHERE n > 69999999999999999999999", "1"),
        ("SELECT k FROM t WHERE n > 70000000000000000000000", ""),
        ("SELECT k FROM t WHERE d >= 1.5 AND d < 1.501", "1"),
        ("SELECT k FROM t WHERE d > 1.5", ""),
        // An index without a class has no order.
        ("SELECT k FROM t WHERE l > 2", NEEDS_FILTERING),
        ("SELECT k FROM t WHERE l > 2 ALLOW FILTERING", "1"),
    ]);
}

#[test]
fn several_values_are_intersected() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, a int, b text, m map<text, int>, s int static, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("CREATE INDEX ON t (a) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (b) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (s) USING 'sai'", "UPDATED t"),
        ("CREATE INDEX ON t (entries(m)) USING 'sai'", "UPDATED t"),
        ("INSERT INTO t (k, c, a, b, m, s) VALUES (0, 0, 1, 'x', {'p': 1}, 5)", "void"),
        ("INSERT INTO t (k, c, a, b, m) VALUES (0, 1, 1, 'y', {'p': 1, 'q': 2})", "void"),
        ("INSERT INTO t (k, c, a, b, m) VALUES (0, 2, 2, 'x', {'q': 2})", "void"),
        ("INSERT INTO t (k, c, a, b, m, s) VALUES (1, 0, 1, 'x', {'q': 2}, 6)", "void"),
        ("INSERT INTO t (k, c, a, b) VALUES (2, 0, 1, 'z')", "void"),
        ("SELECT k, c FROM t WHERE a = 1 AND b = 'x'", "1,0 0,0"),
        ("SELECT k, c FROM t WHERE k = 0 AND a = 1 AND b = 'y'", "0,1"),
        ("SELECT k, c FROM t WHERE m['p'] = 1 AND m['q'] = 2", "0,1"),
        ("SELECT k, c FROM t WHERE m['q'] = 2 AND a = 1 AND b = 'x'", "1,0"),
        ("SELECT k, c FROM t WHERE a = 1 AND s = 5", "0,0 0,1"),
        ("SELECT k, c FROM t WHERE a > 1 AND b = 'x'", "0,2"),
        ("SELECT k, c FROM t WHERE a = 7 AND b = 'x'", ""),
        ("SELECT k, c FROM t WHERE a = 1 AND b = 'x' AND s = 6", "1,0"),
        // The other value is stale.
        ("UPDATE t SET b = 'z' WHERE k = 1 AND c = 0", "void"),
        ("SELECT k, c FROM t WHERE a = 1 AND b = 'x'", "0,0"),
        ("SELECT k, c FROM t WHERE a = 1 AND b = 'z'", "1,0 2,0"),
        ("SELECT k, c FROM t WHERE a = 1 AND b = 'z' LIMIT 1", "1,0"),
        ("SELECT count(*) FROM t WHERE a = 1 AND b = 'z'", "2"),
    ]);
}

#[test]
fn texts_are_found_by_the_terms_of_their_index() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, a text, b text, c text, s set<text>, m map<text, text>)",
            "CREATED t",
        ),
        (
            "INSERT INTO t (k, a, b, c, s, m) \
             VALUES (1, 'Camel', 'Cam\u{e1}l', 'Éppinger', {'Red', 'BLUE'}, {'Key': 'Value'})",
            "void",
        ),
        ("CREATE INDEX ON t (a) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        ("CREATE INDEX ON t (b) USING 'sai' WITH OPTIONS = {'normalize': 'true'}", "UPDATED t"),
        (
            "CREATE INDEX ON t (c) USING 'sai' WITH OPTIONS = {'ascii': true, 'case_sensitive': 'FALSE'}",
            "UPDATED t",
        ),
        ("CREATE INDEX ON t (s) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        ("CREATE INDEX ON t (keys(m)) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        ("CREATE INDEX ON t (values(m)) USING 'sai' WITH OPTIONS = {'case_sensitive': false}", "UPDATED t"),
        (
            "INSERT INTO t (k, a, b, c, s, m) VALUES (2, 'CAMEL', 'camel', 'eppinger', {'red'}, {'KEY': 'v'})",
            "void",
        ),
        ("SELECT k FROM t WHERE a = 'camel'", "1 2"),
        ("SELECT k FROM t WHERE a = 'cAMEL'", "1 2"),
        ("SELECT k FROM t WHERE a = 'came'", ""),
        ("SELECT k FROM t WHERE b = 'Cama\u{301}l'", "1"),
        ("SELECT k FROM t WHERE b = 'camel'", "2"),
        ("SELECT k FROM t WHERE c = 'EPPINGER'", "1 2"),
        ("SELECT k FROM t WHERE s CONTAINS 'RED'", "1 2"),
        ("SELECT k FROM t WHERE s CONTAINS 'blue'", "1"),
        ("SELECT k FROM t WHERE m CONTAINS KEY 'key'", "1 2"),
        ("SELECT k FROM t WHERE m CONTAINS 'VALUE'", "1"),
        ("SELECT k FROM t WHERE a = 'camel' AND c = 'eppinger' AND s CONTAINS 'blue'", "1"),
        ("UPDATE t SET a = 'Horse' WHERE k = 1", "void"),
        ("SELECT k FROM t WHERE a = 'camel'", "2"),
        ("SELECT k FROM t WHERE a = 'HORSE'", "1"),
        ("SELECT k FROM t WHERE a = 'HORSE' AND k = 1", "1"),
    ]);
}

#[test]
fn index_without_a_class_refuses_values_over_64_kib() {
    let text = |length: usize| format!("'{}'", "a".repeat(length));
    let refusal = |size: usize, index: &str, column: &str| {
        format!(
            "! Cannot index value of size {size} for index {index} on ks.t({column}) (maximum allowed size=65535)"
        )
    };
    let (long, short) = (text(65_535), text(65_534));
    let steps = [
        (
            "CREATE TABLE t (k int PRIMARY KEY, v text, s set<text>, m map<text, text>, w text, \
             f frozen<list<text>>)"
                .into(),
            "CREATED t".into(),
        ),
        ("CREATE INDEX iv ON t (v)".into(), "UPDATED t".into()),
        ("CREATE INDEX js ON t (s)".into(), "UPDATED t".into()),
        ("CREATE INDEX km ON t (entries(m))".into(), "UPDATED t".into()),
        ("CREATE INDEX lf ON t (full(f))".into(), "UPDATED t".into()),
        ("CREATE INDEX sw ON t (w) USING 'sai'".into(), "UPDATED t".into()),
        (format!("INSERT INTO t (k, v, s) VALUES (1, {short}, {{{short}}})"), "void".into()),
        (format!("SELECT k FROM t WHERE v = {short}"), "1".into()),
        (format!("SELECT k FROM t WHERE s CONTAINS {short}"), "1".into()),
        (format!("INSERT INTO t (k, v) VALUES (2, {long})"), refusal(65_535, "iv", "v")),
        (format!("UPDATE t SET s = s + {{{long}}} WHERE k = 1"), refusal(65_535, "js", "s")),
        (format!("UPDATE t SET m[{short}] = 'x' WHERE k = 1"), refusal(65_541, "km", "m")),
        (format!("INSERT INTO t (k, f) VALUES (2, [{short}])"), refusal(65_542, "lf", "f")),
        (format!("INSERT INTO t (k, v) VALUES (3, {long}) IF NOT EXISTS"), refusal(65_535, "iv", "v")),
        (
            format!(
                "BEGIN BATCH INSERT INTO t (k, w) VALUES (4, 'x'); UPDATE t SET v = {long} WHERE k = 5; \
                 APPLY BATCH"
            ),
            refusal(65_535, "iv", "v"),
        ),
        ("SELECT k FROM t".into(), "1".into()),
        (
            format!("SELECT k FROM t WHERE v = {}", text(65_536)),
            "! Index expression values may not be larger than 64K".into(),
        ),
        // Storage-attached indexes accept them.
        (format!("INSERT INTO t (k, w) VALUES (6, {long})"), "void".into()),
        (format!("SELECT k FROM t WHERE w = {long}"), "6".into()),
    ];
    let steps: Vec<(&str, &str)> =
        steps.iter().map(|(text, answer): &(String, String)| (text.as_str(), answer.as_str())).collect();
    check(&steps);
}
