//! Constants that Cassandra 5.0 reads in its own way: addresses, days, signs, calls in arithmetic,
//! type hints, and texts of JSON without characters. Each answer is Cassandra's.

use crate::scenario::check;

#[test]
fn addresses_have_the_forms_of_java() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v inet)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, '127.1')", "void"),
        ("INSERT INTO t (k, v) VALUES (2, '2130706433')", "void"),
        ("INSERT INTO t (k, v) VALUES (3, '1.2.300')", "void"),
        ("INSERT INTO t (k, v) VALUES (4, '010.0.0.1')", "void"),
        ("INSERT INTO t (k, v) VALUES (5, '::ffff:1.2.3.4')", "void"),
        (
            "SELECT v FROM t WHERE k IN (1, 2, 3, 4, 5)",
            "'127.0.0.1' '127.0.0.1' '1.2.1.44' '10.0.0.1' '1.2.3.4'",
        ),
        ("INSERT INTO t (k, v) VALUES (1, '1.2.70000')", "! Unable to make inet address from '1.2.70000'"),
        ("INSERT INTO t (k, v) VALUES (1, '4294967296')", "! Unable to make inet address from '4294967296'"),
        ("INSERT INTO t (k, v) VALUES (1, '+1')", "! Unable to make inet address from '+1'"),
        ("INSERT INTO t (k, v) VALUES (1, '1..2')", "! Unable to make inet address from '1..2'"),
    ]);
}

#[test]
fn dates_have_two_digits_for_month_and_day() {
    const REFUSED: &[&str] = &[
        "2020-1-1",
        "2020-01-1",
        "02020-01-01",
        "+2020-01-01",
        "12345-01-01",
        " 2020-01-01",
        "+1",
        "2020-02-30",
    ];
    let mut steps = vec![
        (
            "CREATE TABLE t (k int PRIMARY KEY, d date, ts timestamp, ti time)".to_owned(),
            "CREATED t".to_owned(),
        ),
        ("INSERT INTO t (k, d) VALUES (1, '+12345-01-01')".to_owned(), "void".to_owned()),
    ];
    for text in REFUSED {
        steps.push((
            format!("INSERT INTO t (k, d) VALUES (1, '{text}')"),
            format!("! Unable to coerce '{text}' to a formatted date (long)"),
        ));
    }
    let steps: Vec<(&str, &str)> =
        steps.iter().map(|(text, answer)| (text.as_str(), answer.as_str())).collect();
    check(&steps);
}

#[test]
fn timestamps_end_with_their_month_and_their_day() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v timestamp)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, '2020-02-30')", "void"),
        ("INSERT INTO t (k, v) VALUES (2, '2020-01-01T24:00:00Z')", "void"),
        ("INSERT INTO t (k, v) VALUES (3, '2020-01-01 10:00 UTC')", "void"),
        (
            "SELECT v FROM t WHERE k IN (1, 2, 3)",
            "'2020-02-29 00:00:00.000Z' '2020-01-02 00:00:00.000Z' '2020-01-01 10:00:00.000Z'",
        ),
        ("INSERT INTO t (k, v) VALUES (1, '2020-02-32')", "! Unable to parse a date/time from '2020-02-32'"),
        (
            "INSERT INTO t (k, v) VALUES (1, '2020-01-01 ')",
            "! Unable to parse a date/time from '2020-01-01 '",
        ),
        (
            "INSERT INTO t (k, v) VALUES (1, '2020-01-01 10:00GMT')",
            "! Unable to parse a date/time from '2020-01-01 10:00GMT'",
        ),
        ("INSERT INTO t (k, v) VALUES (1, '+1')", "! Unable to parse a date/time from '+1'"),
    ]);
}

#[test]
fn minus_apart_from_its_number_is_an_operator() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, d date, v int, u duration, f double)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, - 1)", "void"),
        ("INSERT INTO t (k, u) VALUES (1, -1h)", "void"),
        ("SELECT v, u FROM t", "-1,-1h"),
        ("INSERT INTO t (k, f) VALUES (2, -NaN)", "void"),
        ("SELECT double_as_blob(f) FROM t WHERE k = 2", "0x7ff8000000000000"),
    ]);
}

#[test]
fn nested_arithmetic_has_the_type_of_its_column() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, a tinyint, b smallint, c decimal, d bigint)", "CREATED t"),
        ("INSERT INTO t (k, a, b) VALUES (1, 1 * (1 + 1), 1 * 2 + 1)", "void"),
        ("INSERT INTO t (k, c, d) VALUES (1, 2 * (1 + 1), (1 + 2) * 3)", "void"),
        ("SELECT a, b, c, d FROM t", "2,3,4.0,9"),
        ("INSERT INTO t (k, a) VALUES (1, cast((int)(5) as tinyint))", "void"),
        ("INSERT INTO t (k, d) VALUES (1, 1 + null)", "void"),
        ("SELECT a, d FROM t", "5,null"),
    ]);
}

#[test]
fn hinted_constant_is_read_as_its_column() {
    check(&[
        ("CREATE TYPE u (a frozen<list<date>>)", "CREATED u"),
        ("CREATE TABLE t (k int PRIMARY KEY, v blob, d duration)", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, (int)1)", "! Invalid INTEGER constant (1) for \"v\" of type blob"),
        ("INSERT INTO t (k, v) VALUES (1, (nosuch){a: 1})", "! Unknown type ks.nosuch"),
        (
            "INSERT INTO t (k, d) VALUES (1, '1h')",
            "! Invalid STRING constant (1h) for \"d\" of type duration",
        ),
        ("INSERT INTO t (k) VALUES (1)", "void"),
        ("SELECT (frozen<u>){a: ['2020-01-01']} FROM t", "{a: ['2020-01-01']}"),
        ("SELECT (frozen<list<date>>)['2020-01-01'] FROM t", "['2020-01-01']"),
        ("SELECT (date)'2020-01-31' + P1Y, (duration)P1W FROM t", "'2021-01-31',7d"),
    ]);
}

#[test]
fn lists_of_selected_values_may_have_nulls() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATED t"),
        ("INSERT INTO t (k) VALUES (1)", "void"),
        ("SELECT collection_count((list<int>)[v, k]) FROM t", "2"),
    ]);
}

#[test]
fn texts_of_json_without_characters_are_empty_values() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, a smallint, b tinyint, c decimal, d duration, e boolean)",
            "CREATED t",
        ),
        (
            "INSERT INTO t JSON '{\"k\": 1, \"a\": \"\", \"b\": \"\", \"c\": \"\", \"d\": \"\", \"e\": \"\"}'",
            "void",
        ),
        (
            "SELECT JSON * FROM t",
            "'{\"k\": 1, \"a\": \"\", \"b\": \"\", \"c\": \"\", \"d\": \"\", \"e\": false}'",
        ),
        ("SELECT a + 1, count(b) FROM t", "null,1"),
        (
            "INSERT INTO t (k, a) VALUES (2, blob_as_smallint(0x))",
            "! In call to function system.blob_as_smallint, value 0x is not a valid binary \
             representation for type smallint",
        ),
    ]);
}

#[test]
fn last_of_several_times_to_live_counts() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATED t"),
        (
            "INSERT INTO t (k, v) VALUES (1, 1) USING TIMESTAMP 10 AND TTL 5 AND TIMESTAMP 20 AND TTL 0",
            "void",
        ),
        ("SELECT writetime(v), ttl(v) FROM t", "20,null"),
    ]);
}
