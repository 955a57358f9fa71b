//! Vectors: defined, written as literals, compared, in keys and inside other types, and refused as
//! Cassandra 5.0.9 refuses them.

use crate::scenario::check;

#[test]
fn vectors_are_single_values() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, v vector<int, 2>, x vector<text, 2>, s vector<smallint, 2>, l \
             vector<list<int>, 2>, u vector<tuple<int, text>, 1>, w vector<vector<float, 2>, 2>, f \
             frozen<vector<int, 2>>, b list<vector<int, 2>>, m map<vector<int, 1>, vector<int, 1>>, e \
             set<vector<int, 2>>)",
            "CREATED t",
        ),
        (
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'",
            "'b','list<vector<int, 2>>' 'e','set<vector<int, 2>>' 'f','vector<int, 2>' 'k','int' \
             'l','vector<list<int>, 2>' 'm','map<vector<int, 1>, vector<int, 1>>' \
             's','vector<smallint, 2>' 'u','vector<frozen<tuple<int, text>>, 1>' 'v','vector<int, 2>' \
             'w','vector<vector<float, 2>, 2>' 'x','vector<text, 2>'",
        ),
        (
            "INSERT INTO t (k, v, x, s, l, u, w, f, b, m, e) VALUES (1, [1, 2], ['a', ''], [1, -1], [[1, 2], []], \
             [(1, 'a')], [[1, 2], [3, 4]], [5, 6], [[1, 2]], {[1]: [2]}, {[3, 4], [1, 2], [-1, 2], [1, 2]})",
            "void",
        ),
        (
            "SELECT * FROM t",
            "1,[[1, 2]],{[-1, 2], [1, 2], [3, 4]},[5, 6],[[1, 2], []],{[1]: [2]},[1, -1],[(1, 'a')],[1, 2],\
             [[1.0, 2.0], [3.0, 4.0]],['a', '']",
        ),
        ("UPDATE t SET v = [3, 4], b[0] = [7, 8], m[[1]] = [9], e = e - {[1, 2]} WHERE k = 1", "void"),
        ("SELECT v, b, m, e FROM t WHERE k = 1", "[3, 4],[[7, 8]],{[1]: [9]},{[-1, 2], [3, 4]}"),
        ("SELECT k FROM t WHERE v = [3, 4] ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE v > [3, 3] ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE v > [3, 4] ALLOW FILTERING", ""),
        ("SELECT k FROM t WHERE e CONTAINS [3, 4] ALLOW FILTERING", "1"),
        ("DELETE v FROM t WHERE k = 1", "void"),
        ("SELECT v FROM t WHERE k = 1", "null"),
    ]);
}

#[test]
fn vectors_are_ordered_by_their_elements_in_keys() {
    check(&[
        (
            "CREATE TABLE t (k vector<text, 2>, c vector<int, 2>, d vector<text, 2>, PRIMARY KEY (k, c, d)) WITH \
             CLUSTERING ORDER BY (c DESC, d ASC)",
            "CREATED t",
        ),
        ("INSERT INTO t (k, c, d) VALUES (['a', 'b'], [1, 2], ['b', ''])", "void"),
        ("INSERT INTO t (k, c, d) VALUES (['a', 'b'], [1, 2], ['', 'zz'])", "void"),
        ("INSERT INTO t (k, c, d) VALUES (['a', 'b'], [-1, 9], ['a', 'a'])", "void"),
        ("INSERT INTO t (k, c, d) VALUES (['a', 'b'], [1, -2], ['a', 'a'])", "void"),
        ("INSERT INTO t (k, c, d) VALUES (['a', 'c'], [0, 0], ['a', 'a'])", "void"),
        (
            "SELECT c, d FROM t WHERE k = ['a', 'b']",
            "[1, 2],['', 'zz'] [1, 2],['b', ''] [1, -2],['a', 'a'] [-1, 9],['a', 'a']",
        ),
        ("SELECT d FROM t WHERE k = ['a', 'b'] AND c = [1, 2]", "['', 'zz'] ['b', '']"),
        ("SELECT c FROM t WHERE k = ['a', 'b'] AND c > [-1, 9] AND c < [1, 2]", "[1, -2]"),
        ("SELECT c FROM t WHERE k IN (['a', 'c'], ['a', 'a'])", "[0, 0]"),
    ]);
}

#[test]
fn user_types_hold_vectors_and_vectors_user_types() {
    check(&[
        ("CREATE TYPE u (a int, v vector<float, 2>)", "CREATED u"),
        ("CREATE TABLE t (k int PRIMARY KEY, u u, f frozen<u>, v vector<u, 1>)", "CREATED t"),
        ("INSERT INTO t (k, u, f, v) VALUES (1, {a: 1, v: [1, 2]}, {v: [3, 4]}, [{a: 5}])", "void"),
        ("ALTER TYPE u ADD w vector<text, 1>", "UPDATED u"),
        (
            "SELECT u, f, v FROM t",
            "{a: 1, v: [1.0, 2.0], w: null},{a: null, v: [3.0, 4.0]},[{a: 5, v: null}]",
        ),
        (
            "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND column_name \
             = 'v'",
            "'vector<u, 1>'",
        ),
        (
            "SELECT field_types FROM system_schema.types WHERE keyspace_name = 'ks'",
            "['int', 'vector<float, 2>', 'vector<text, 1>']",
        ),
    ]);
}

#[test]
fn wrong_vectors_are_refused() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v vector<int, 2>, x vector<text, 2>)", "CREATED t"),
        (
            "INSERT INTO t (k, v) VALUES (0, [1])",
            "! Invalid vector literal for v of type vector<int, 2>; expected 2 elements, but given 1",
        ),
        (
            "INSERT INTO t (k, x) VALUES (0, ['a', 'b', 'c'])",
            "! Invalid vector literal for x of type vector<text, 2>; expected 2 elements, but given 3",
        ),
        (
            "INSERT INTO t (k, v) VALUES (0, ['a', 'b'])",
            "! Invalid vector literal for v: value 'a' is not of type int",
        ),
        (
            "INSERT INTO t (k, v) VALUES (0, [(bigint) 1, (bigint) 2])",
            "! Invalid vector literal for v: value (bigint)1 is not of type int",
        ),
        (
            "INSERT INTO t (k, v) VALUES (0, 0x)",
            "! Invalid HEX constant (0x) for \"v\" of type vector<int, 2>",
        ),
        ("CREATE TABLE a (k int PRIMARY KEY, v vector<float, 2147483647>)", "CREATED a"),
        (
            "CREATE TABLE b (k int PRIMARY KEY, v vector<float, 0>)",
            "! vectors may only have positive dimensions; given 0",
        ),
        (
            "CREATE TABLE b (k int PRIMARY KEY, v vector<float, -18>)",
            "! vectors may only have positive dimensions; given -18",
        ),
    ]);
}

#[test]
fn classes_of_cql_types_are_types() {
    check(&[
        (
            "CREATE TABLE t (k 'Int32Type' PRIMARY KEY, v 'org.apache.cassandra.db.marshal.VectorType(FloatType , 3)', \
             l 'ListType(UTF8Type)')",
            "CREATED t",
        ),
        (
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'",
            "'k','int' 'l','list<text>' 'v','vector<float, 3>'",
        ),
        (
            "CREATE TABLE s (k 'NoSuchType' PRIMARY KEY)",
            "! Error setting type NoSuchType: Unable to find abstract-type class \
             'org.apache.cassandra.db.marshal.NoSuchType'",
        ),
    ]);
}
