//! Relations on clustering columns of a table with indexes: what they need, and why they are
//! refused. Answers are those of Cassandra 5.0.

use crate::scenario::check;

const FILTERING: &str = "! Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use \
    ALLOW FILTERING";

const SLICE: &str = "! Clustering column \"b\" cannot be restricted (preceding column \"a\" is restricted by a \
    non-EQ relation)";

const GAP: &str =
    "! PRIMARY KEY column \"b\" cannot be restricted as preceding column \"a\" is not restricted";

const SETUP: [(&str, &str); 7] = [
    (
        "CREATE TABLE t (k int, a int, b int, f frozen<list<int>>, v int, w int, PRIMARY KEY (k, a, b, f))",
        "CREATED t",
    ),
    ("CREATE INDEX ON t (v)", "UPDATED t"),
    ("CREATE INDEX ON t (b)", "UPDATED t"),
    ("INSERT INTO t (k, a, b, f, v, w) VALUES (1, 1, 1, [1], 3, 1)", "void"),
    ("INSERT INTO t (k, a, b, f, v, w) VALUES (1, 1, 2, [1], 3, 2)", "void"),
    ("INSERT INTO t (k, a, b, f, v, w) VALUES (1, 2, 2, [2], 4, 3)", "void"),
    ("INSERT INTO t (k, a, b, f, v, w) VALUES (1, 3, 0, [2], 3, 4)", "void"),
];

fn check_queries(queries: &[(&str, &str)]) {
    let texts: Vec<String> =
        queries.iter().map(|(relations, _)| format!("SELECT w FROM t WHERE {relations}")).collect();
    let queries = texts.iter().zip(queries).map(|(text, (_, answer))| (text.as_str(), *answer));
    check(&SETUP.into_iter().chain(queries).collect::<Vec<_>>());
}

#[test]
fn relations_of_several_columns_choose_slices_with_an_index_too() {
    check_queries(&[
        ("(a, b) >= (1, 2) ALLOW FILTERING", "2 3 4"),
        ("(a, b) >= (1, 2) AND v = 3 ALLOW FILTERING", "2 4"),
        ("(a, b) IN ((1, 2), (3, 0)) AND v = 3 ALLOW FILTERING", "2 4"),
        ("k = 1 AND (a, b) IN ((1, 2), (2, 2)) AND v = 3", "2"),
        ("(a, b) >= (1, 1) AND v = 3", FILTERING),
        ("(a, b) IN ((1, 1), (2, 2)) AND v = 3", FILTERING),
        ("(a, b) >= (1, 1)", FILTERING),
        ("k = 1 AND (b, f) >= (1, [1]) AND v = 3", FILTERING),
        (
            "k = 1 AND (b, f) >= (1, [1]) AND v = 3 ALLOW FILTERING",
            "! Multi-column slice restrictions cannot be used for filtering.",
        ),
        (
            "k = 1 AND (b, f) IN ((1, [1]), (2, [2])) AND v = 3 ALLOW FILTERING",
            "! Multicolumn IN filters are not supported",
        ),
    ]);
}

#[test]
fn relations_without_an_index_are_refused_as_in_a_table_without_any() {
    let contains =
        "! Clustering columns can only be restricted with CONTAINS with a secondary index or filtering";
    check_queries(&[
        ("k = 1 AND b > 1", GAP),
        ("b > 1", GAP),
        ("k = 1 AND f CONTAINS 2", contains),
        ("f CONTAINS 2", contains),
        ("k = 1 AND w = 2 AND f CONTAINS 3", contains),
        ("w = 2", FILTERING),
        ("k = 1 AND a = 1 AND w = 2", FILTERING),
        ("k = 1 AND a > 1 AND b > 2 AND v = 3", SLICE),
    ]);
}

#[test]
fn index_of_one_relation_leaves_others_to_filtering() {
    check_queries(&[
        ("b = 2", "2 3"),
        ("k = 1 AND b = 2", "2 3"),
        ("k = 1 AND a > 1 AND b = 2", FILTERING),
        ("k = 1 AND a > 1 AND b = 2 AND v = 3", FILTERING),
        ("k = 1 AND b = 2 AND v = 3", FILTERING),
        ("k = 1 AND b > 2 AND v = 3", FILTERING),
        ("k = 1 AND f CONTAINS 2 AND v = 3", FILTERING),
        ("k = 1 AND f CONTAINS 2 AND v = 3 ALLOW FILTERING", "4"),
        ("k > 1 AND v = 3", FILTERING),
        ("a = 1 AND v = 3", FILTERING),
    ]);
}

#[test]
fn deletion_uses_no_index() {
    let steps = [
        ("DELETE FROM t WHERE k = 1 AND a > 1 AND b = 2", SLICE),
        ("DELETE FROM t WHERE k = 1 AND b = 2", GAP),
        ("DELETE FROM t WHERE k = 1 AND v = 3", "! Non PRIMARY KEY columns found in where clause: v "),
        ("SELECT w FROM t", "1 2 3 4"),
    ];
    check(&SETUP.into_iter().chain(steps).collect::<Vec<_>>());
}
