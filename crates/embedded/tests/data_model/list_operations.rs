//! Several operations of one statement on a list: each sees the effects of those before it.

use crate::scenario::check;

const TABLE: (&str, &str) = ("CREATE TABLE t (k int PRIMARY KEY, l list<text>)", "CREATED t");

#[test]
fn operations_see_elements_that_earlier_ones_removed() {
    check(&[
        TABLE,
        ("INSERT INTO t (k, l) VALUES (1, ['a', 'b', 'c', 'd', 'e'])", "void"),
        ("DELETE l[1], l[1] FROM t WHERE k = 1", "void"),
        ("SELECT l FROM t", "['a', 'd', 'e']"),
        ("UPDATE t SET l[0] = null, l[0] = 'z' WHERE k = 1", "void"),
        ("SELECT l FROM t", "['z', 'e']"),
        (
            "UPDATE t SET l = l - ['z'], l[1] = 'x' WHERE k = 1",
            "! List index 1 out of bound, list has size 1",
        ),
        ("UPDATE t SET l = l - ['z'], l[0] = 'x' WHERE k = 1", "void"),
        ("SELECT l FROM t", "['x']"),
        ("DELETE l, l[0] FROM t WHERE k = 1", "! Attempted to delete an element from a list which is null"),
        (
            "DELETE l[0], l[0] FROM t WHERE k = 1",
            "! Attempted to delete an element from a list which is null",
        ),
        ("SELECT l FROM t", "['x']"),
    ]);
}

#[test]
fn operations_see_elements_that_earlier_ones_added() {
    check(&[
        TABLE,
        ("INSERT INTO t (k, l) VALUES (1, ['y', 'x'])", "void"),
        // The greater of two values at one timestamp wins.
        ("UPDATE t SET l = l + ['p', 'q'], l = ['o'] + l, l[0] = 'first', l[4] = 'z' WHERE k = 1", "void"),
        ("SELECT l FROM t", "['o', 'y', 'x', 'p', 'z']"),
        (
            "UPDATE t SET l[5] = 'n', l = l + ['m'] WHERE k = 1",
            "! List index 5 out of bound, list has size 5",
        ),
        ("UPDATE t SET l = l + ['n', 'm'], l = l - ['n', 'y'] WHERE k = 1", "void"),
        ("SELECT l FROM t", "['o', 'x', 'p', 'z', 'm']"),
        ("UPDATE t SET l[1] = 'new', l = l - ['new', 'z'] WHERE k = 1", "void"),
        ("SELECT l FROM t", "['o', 'p', 'm']"),
        ("UPDATE t USING TIMESTAMP 1 SET l[0] = 'old', l = l - ['p'], l[2] = null WHERE k = 1", "void"),
        ("SELECT l FROM t", "['o', 'p', 'm']"),
    ]);
}

#[test]
fn removals_before_other_operations_are_bounded() {
    let insert = format!("INSERT INTO t (k, l) VALUES (1, [{}])", ["'a'"; 300].join(", "));
    let delete = |count: usize| format!("DELETE {} FROM t WHERE k = 1", vec!["l[0]"; count].join(", "));
    check(&[
        TABLE,
        (&insert, "void"),
        (
            &delete(258),
            "! expected at most 256 operations of a statement that remove elements of a list before others, got more: \
             send several statements",
        ),
        (&delete(257), "void"),
        ("UPDATE t SET l[42] = 'z' WHERE k = 1", "void"),
        ("UPDATE t SET l[43] = 'z' WHERE k = 1", "! List index 43 out of bound, list has size 43"),
    ]);
}

#[test]
fn positions_that_are_null_are_refused() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, l list<text>, m map<text, int>)", "CREATED t"),
        ("INSERT INTO t (k, l) VALUES (1, ['a'])", "void"),
        ("UPDATE t SET l[null] = 'b' WHERE k = 1", "! Invalid null value for list index"),
        ("DELETE l[null] FROM t WHERE k = 1", "! Invalid null value for list index"),
        ("DELETE l FROM t WHERE k = 1 IF l[null] = 'b'", "! Invalid null value for list element access"),
        ("DELETE l FROM t WHERE k = 2 IF m[null] = 3", "! Invalid null value for map element access"),
        (
            "DELETE l FROM t WHERE k = 1 IF l > []",
            "! Invalid comparison with an empty list for operator \">\"",
        ),
        (
            "DELETE l FROM t WHERE k = 1 IF m <= {}",
            "! Invalid comparison with an empty map for operator \"<=\"",
        ),
        ("DELETE l FROM t WHERE k = 1 IF l < null", "! Invalid comparison with null for operator \"<\""),
        ("SELECT l FROM t", "['a']"),
    ]);
}

#[test]
fn counters_are_never_null() {
    let refused = "! Invalid null value for counter increment/decrement";
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, c counter)", "CREATED t"),
        ("UPDATE t SET c = c + 1 WHERE k = 1", "void"),
        ("UPDATE t SET c = c + null WHERE k = 1", refused),
        ("UPDATE t SET c = null WHERE k = 1", refused),
        ("SELECT * FROM t WHERE c = null ALLOW FILTERING", refused),
        ("SELECT * FROM t WHERE c IN (1, null) ALLOW FILTERING", refused),
    ]);
}
