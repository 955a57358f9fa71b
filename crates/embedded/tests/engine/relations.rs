//! Relations that Cassandra 5.0 refuses, with its texts, and nulls and unset values in each place.

use engine::Value;
use testkit::KEYSPACE;

use crate::cassandra::{Bound, answer, run_after};

const TABLES: &[&str] = &[
    KEYSPACE,
    "CREATE TABLE t (a int, b int, c int, d int, s int static, v int, x text, l list<int>, m \
      map<text, int>, f frozen<map<text, int>>, PRIMARY KEY (a, b, c, d))",
    "CREATE TABLE w (a int, b int, c int, v int, PRIMARY KEY ((a, b), c))",
    "CREATE TABLE g (a int, c frozen<list<int>>, PRIMARY KEY (a, c))",
];

const NEEDS_FILTERING: &str = "Invalid: Cannot execute this query as it might involve data filtering and thus may have \
                               unpredictable performance. If you want to execute this query despite the performance \
                               unpredictability, use ALLOW FILTERING";

#[test]
fn relations_are_refused_with_the_texts_of_cassandra() {
    let refused = [
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) > (1, 2, 3)",
            "Invalid: Expected 2 elements in value tuple, but got 3: (1, 2, 3)",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) > (1, null)",
            "Invalid: Invalid null value in condition for column c",
        ),
        ("SELECT * FROM t WHERE a = 0 AND (b, c) = (1, null)", "Invalid: Invalid null value for column c"),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) IN ((1, null), (1, 1))",
            "Invalid: Invalid null value in condition for columns: [b, c]",
        ),
        ("SELECT * FROM t WHERE a = 0 AND b = null", "Invalid: Invalid null value in condition for column b"),
        ("SELECT * FROM t WHERE a = null", "Invalid: Invalid null value in condition for column a"),
        (
            "SELECT * FROM t WHERE a = 0 AND (d, c) > (0, 0)",
            "Invalid: Clustering columns must appear in the PRIMARY KEY order in multi-column relations: \
          (d, c) > (0, 0)",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, b) > (0, 0)",
            "Invalid: Column \"b\" appeared twice in a relation: (b, b) > (0, 0)",
        ),
        (
            "SELECT * FROM t WHERE (a, b) = (0, 0)",
            "Invalid: Multi-column relations can only be applied to clustering columns but was applied to: a",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (c, d) = (0, 0)",
            "Invalid: PRIMARY KEY column \"c\" cannot be restricted as preceding column \"b\" is not restricted",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND b > 0 AND (c, d) = (0, 0)",
            "Invalid: Clustering column \"c\" cannot be restricted (preceding column \"b\" is restricted by \
          a non-EQ relation)",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (c, d) > (0, 0) AND b > 0",
            "Invalid: PRIMARY KEY column \"c\" cannot be restricted (preceding column \"b\" is restricted by \
          a non-EQ relation)",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) > (0, 0) AND c < 0",
            "Invalid: Column \"c\" cannot be restricted by two inequalities not starting with the same column",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND b = 1 AND (b, c) > (0, 0)",
            "Invalid: b cannot be restricted by more than one relation if it includes an Equal",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND b IN (0, 1) AND (b, c) > (0, 0)",
            "Invalid: b cannot be restricted by more than one relation if it includes a IN",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) > (0, 1) AND b = 0",
            "Invalid: Column \"b\" cannot be restricted by both an equality and an inequality relation",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (b) > (0) AND b > 1",
            "Invalid: More than one restriction was found for the start bound on b",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (c, d) IN ((1, 1), (0, 0)) ALLOW FILTERING",
            "Invalid: Multicolumn IN filters are not supported",
        ),
        (
            "SELECT * FROM t WHERE a = 0 AND (c, d) < (2, 2) ALLOW FILTERING",
            "Invalid: Multi-column slice restrictions cannot be used for filtering.",
        ),
        ("SELECT * FROM t WHERE a = 0 AND b != 1", "Invalid: Unsupported \"!=\" relation: b != 1"),
        (
            "SELECT * FROM t WHERE a = 0 AND (b, c) != (1, 1)",
            "Invalid: Unsupported \"!=\" relation: (b, c) != (1, 1)",
        ),
        ("SELECT * FROM t WHERE a = 0 AND v IS NOT NULL", "Invalid: Unsupported restriction: v IS NOT NULL"),
        (
            "SELECT * FROM t WHERE a = 0 AND x LIKE 'a%'",
            "Invalid: LIKE restriction is only supported on properly indexed columns. x LIKE 'a%' is not valid.",
        ),
        ("SELECT * FROM t WHERE b = 0 AND v = 1", NEEDS_FILTERING),
        ("SELECT * FROM t WHERE token(a) > 0 AND b = 0", NEEDS_FILTERING),
        ("SELECT * FROM t WHERE a > 0", NEEDS_FILTERING),
        ("SELECT * FROM t WHERE token(a) > null", "Invalid: Invalid null token value"),
        (
            "SELECT * FROM t WHERE token(b) = 1",
            "Invalid: The token() function must be applied to all partition key components or none of them",
        ),
        (
            "SELECT * FROM w WHERE token(b, a) > 0",
            "Invalid: The token function arguments must be in the partition key order: a, b",
        ),
        (
            "SELECT * FROM w WHERE token(a, b, c) > 0",
            "Invalid: The token() function must contains only partition key components",
        ),
        (
            "SELECT * FROM t WHERE token(a) > 1 AND token(a) = 2",
            "Invalid: Columns \"a\" cannot be restricted by both an equality and an inequality relation",
        ),
        ("SELECT * FROM t WHERE v = null ALLOW FILTERING", "Invalid: Unsupported null value for column v"),
        (
            "SELECT * FROM t WHERE m[null] = 1 ALLOW FILTERING",
            "Invalid: Unsupported null map key for column m",
        ),
        (
            "SELECT * FROM t WHERE m['a'] > 2 ALLOW FILTERING",
            "Invalid: Only EQ relations are supported on map entries",
        ),
        (
            "SELECT * FROM t WHERE l[0] = 2 ALLOW FILTERING",
            "Invalid: Indexes on list entries (l[index] = value) are not currently supported.",
        ),
        (
            "SELECT * FROM t WHERE v CONTAINS 1 ALLOW FILTERING",
            "Invalid: Cannot use CONTAINS on non-collection column v",
        ),
        (
            "SELECT * FROM t WHERE f['b'] = 2 ALLOW FILTERING",
            "Invalid: Map-entry equality predicates on frozen map column f are not supported",
        ),
        (
            "SELECT * FROM g WHERE a = 0 AND c CONTAINS 1",
            "Invalid: Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
        ),
        (
            "SELECT * FROM t WHERE l CONTAINS 1 AND l = [1] ALLOW FILTERING",
            "Invalid: Collection column 'l' (list<int>) cannot be restricted by a '=' relation",
        ),
        (
            "SELECT s FROM t WHERE a = 0 AND b = 0",
            "Invalid: Cannot restrict clustering columns when selecting only static columns",
        ),
        (
            "SELECT * FROM t WHERE b = 0 ORDER BY b",
            "Invalid: ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ),
        ("SELECT * FROM t WHERE a = 0 ORDER BY nope", "Invalid: Undefined column name nope in table ks.t"),
        (
            "UPDATE t SET v = 1 WHERE a = 7 AND b > 1",
            "Invalid: Slice restrictions are not supported on the clustering columns in UPDATE statements",
        ),
        ("UPDATE t SET v = 1 WHERE a = 7 AND b = 1", "Invalid: Some clustering keys are missing: c, d"),
        (
            "UPDATE t SET v = 1 WHERE a > 7",
            "Invalid: Only EQ and IN relation are supported on the partition key (unless you use the \
          token() function) for UPDATE statements",
        ),
        (
            "UPDATE t SET v = 1 WHERE token(a) = 7",
            "Invalid: The token function cannot be used in WHERE clauses for UPDATE statements",
        ),
        ("UPDATE t SET v = 1 WHERE a = 7 AND l CONTAINS 1", "Invalid: Cannot use UPDATE with CONTAINS"),
        (
            "UPDATE t SET v = 1 WHERE a = 7 AND (b, c, d) = (1, 1, 1) AND v = 1",
            "Invalid: Non PRIMARY KEY columns found in where clause: v ",
        ),
        (
            "DELETE v FROM t WHERE a = 7 AND (b, c) = (1, 1)",
            "Invalid: Range deletions are not supported for specific columns",
        ),
        (
            "DELETE FROM t WHERE a = 7 AND c = 1",
            "Invalid: PRIMARY KEY column \"c\" cannot be restricted as preceding column \"b\" is not restricted",
        ),
        (
            "DELETE FROM t WHERE a IN (7, 8) AND b = 1 AND c = 1 AND d = 1 IF EXISTS",
            "Invalid: IN on the partition key is not supported with conditional deletions",
        ),
    ];
    run_after(TABLES, async move |engine| {
        for (text, expected) in refused {
            assert_eq!(answer(engine, text, &[]).await, expected, "{text}");
        }
    });
}

/// Serializes a tuple; `None` is null.
fn tuple(fields: &[Option<i32>]) -> Vec<u8> {
    let field = |field: &Option<i32>| match field {
        Some(number) => [4_i32.to_be_bytes(), number.to_be_bytes()].concat(),
        None => (-1_i32).to_be_bytes().to_vec(),
    };
    fields.iter().flat_map(field).collect()
}

/// Serializes a list of tuples.
fn tuples(all: &[&[Option<i32>]]) -> Bound {
    let mut bytes = (all.len() as i32).to_be_bytes().to_vec();
    for fields in all {
        let fields = tuple(fields);
        bytes.extend((fields.len() as i32).to_be_bytes());
        bytes.extend(fields);
    }
    Bound::Bytes(bytes)
}

#[test]
fn markers_stand_for_tuples_and_lists_of_them() {
    let one = |b, c| Bound::Bytes(tuple(&[b, c]));
    let steps = vec![
        ("INSERT INTO t (a, b, c, d, v) VALUES (0, 0, 1, 0, 1)", vec![], "done"),
        ("INSERT INTO t (a, b, c, d, v) VALUES (0, 1, 0, 0, 2)", vec![], "done"),
        ("INSERT INTO t (a, b, c, d, v) VALUES (0, 1, 1, 0, 3)", vec![], "done"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) = ?", vec![one(Some(1), Some(0))], "2"),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) > ?", vec![one(Some(0), Some(1))], "2 3"),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) IN (?, ?)",
            vec![one(Some(1), Some(1)), one(Some(0), Some(1))],
            "1 3",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) IN ?",
            vec![tuples(&[&[Some(1), Some(1)], &[Some(0), Some(1)]])],
            "1 3",
        ),
        ("SELECT v FROM t WHERE a = 0 AND (b, c) IN ?", vec![tuples(&[])], ""),
        ("SELECT v FROM t WHERE (c, d) = ? ALLOW FILTERING", vec![one(Some(1), Some(0))], "1 3"),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) = ?",
            vec![one(Some(1), None)],
            "Invalid: Invalid null value for column c",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) < ?",
            vec![one(Some(1), None)],
            "Invalid: Invalid null value in condition for column c",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) IN ?",
            vec![tuples(&[&[Some(1), None]])],
            "Invalid: Invalid null value in condition for columns: [b, c]",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) IN ?",
            vec![Bound::Null],
            "Invalid: Invalid null value for IN restriction",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) IN ?",
            vec![Bound::Unset],
            "Invalid: Invalid unset value for in(b,c)",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) = ?",
            vec![Bound::Unset],
            "Invalid: Invalid unset value for tuple (b,c)",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND (b, c) > (1, ?)",
            vec![Bound::Unset],
            "Invalid: Invalid unset value for tuple field number 1",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND b IN ?",
            vec![Bound::Null],
            "Invalid: Invalid null value for column b",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND b IN ?",
            vec![Bound::Unset],
            "Invalid: Invalid unset value for column b",
        ),
        (
            "SELECT v FROM t WHERE a = 0 AND b = ?",
            vec![Bound::Unset],
            "Invalid: Invalid unset value for column b",
        ),
        (
            "SELECT v FROM t WHERE v = ? ALLOW FILTERING",
            vec![Bound::Unset],
            "Invalid: Unsupported unset value for column v",
        ),
        (
            "SELECT v FROM t WHERE m[?] = 1 ALLOW FILTERING",
            vec![Bound::Unset],
            "Invalid: Unsupported unset map key for column m",
        ),
        (
            "SELECT v FROM t WHERE m['a'] = ? ALLOW FILTERING",
            vec![Bound::Null],
            "Invalid: Unsupported null map value for column m",
        ),
        (
            "SELECT v FROM t WHERE l CONTAINS ? ALLOW FILTERING",
            vec![Bound::Unset],
            "Invalid: Unsupported unset value for column l",
        ),
    ];
    run_after(TABLES, async move |engine| {
        for (text, values, expected) in steps {
            let values: Vec<Value<'_>> = values.iter().map(Bound::value).collect();
            assert_eq!(answer(engine, text, &values).await, expected, "{text}");
        }
    });
}
