//! User types and tuples: defined, written as literals, shown, altered while in use, and dropped.

use crate::scenario::check;

#[test]
fn frozen_user_types_are_single_values() {
    check(&[
        ("CREATE TYPE street (name text, number int)", "CREATED street"),
        ("CREATE TYPE address (street frozen<street>, tags set<text>, \"Zip\" int)", "CREATED address"),
        (
            "CREATE TABLE t (k int, c frozen<street>, a frozen<address>, l frozen<list<street>>, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        (
            "INSERT INTO t (k, c, a) VALUES (1, {name: 'b', number: 2}, {street: {number: 7}, tags: {'y', 'x'}})",
            "void",
        ),
        ("INSERT INTO t (k, c, l) VALUES (1, {name: 'a'}, [{name: 'x', number: 1}])", "void"),
        ("INSERT INTO t (k, c, a) VALUES (1, {number: 1, name: 'b'}, null)", "void"),
        (
            "SELECT c, a, l FROM t WHERE k = 1",
            "{name: 'a', number: null},null,[{name: 'x', number: 1}] \
                 {name: 'b', number: 1},null,null \
                 {name: 'b', number: 2},{street: {name: null, number: 7}, tags: {'x', 'y'}, \"Zip\": null},null",
        ),
        (
            "SELECT a FROM t WHERE k = 1 AND c = {name: 'b', number: 2}",
            "{street: {name: null, number: 7}, tags: {'x', 'y'}, \"Zip\": null}",
        ),
        (
            "SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = 'ks'",
            "['street', 'tags', 'Zip'],['frozen<street>', 'set<text>', 'int'] ['name', 'number'],['text', 'int']",
        ),
        (
            "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND \
             column_name = 'l'",
            "'frozen<list<frozen<street>>>'",
        ),
        (
            "INSERT INTO t (k, c) VALUES (1, {nam: 'b'})",
            "! Unknown field 'nam' in value of user defined type street",
        ),
        (
            "INSERT INTO t (k, c) VALUES (1, {'name': 'b'})",
            "! Invalid map literal for c of type frozen<street>",
        ),
        (
            "INSERT INTO t (k, c) VALUES (1, {name: 1})",
            "! Invalid user type literal for c: field name is not of type text",
        ),
    ]);
}

#[test]
fn used_types_are_altered_and_unused_ones_dropped() {
    check(&[
        ("CREATE TYPE IF NOT EXISTS a (x int)", "CREATED a"),
        ("CREATE TYPE IF NOT EXISTS a (x int)", "void"),
        ("CREATE TYPE a (x int)", "! A user type with name 'a' already exists"),
        ("CREATE TYPE b (a frozen<a>)", "CREATED b"),
        ("CREATE TABLE t (k int PRIMARY KEY, v frozen<list<b>>)", "CREATED t"),
        ("CREATE TABLE p (k frozen<a> PRIMARY KEY)", "CREATED p"),
        ("INSERT INTO t (k, v) VALUES (1, [{a: {x: 1}}])", "void"),
        (
            "ALTER TYPE a ADD y text",
            "! Cannot add new field y of type text to user type ks.a as the type is being used in partition \
             key by the following tables: ks.p",
        ),
        ("DROP TABLE p", "DROPPED p"),
        ("ALTER TYPE a ADD y text", "UPDATED a"),
        ("ALTER TYPE a RENAME x TO z", "UPDATED a"),
        ("SELECT v FROM t", "[{a: {z: 1}}]"),
        ("INSERT INTO t (k, v) VALUES (1, [{a: {z: 1, y: 'n'}}])", "void"),
        ("SELECT v FROM t", "[{a: {z: 1, y: 'n'}}]"),
        ("ALTER TYPE a ADD z int", "! Cannot add field z to type ks.a: a field with name z already exists"),
        ("ALTER TYPE a ADD IF NOT EXISTS z int", "void"),
        ("ALTER TYPE a RENAME nope TO n", "! Unkown field nope in user type ks.a"),
        ("ALTER TYPE a RENAME z TO y", "! Duplicate field name y in type ks"),
        ("ALTER TYPE a ALTER z TYPE text", "! Altering field types is no longer supported"),
        (
            "ALTER TYPE a ADD w frozen<b>",
            "! Cannot add new field w of type frozen<ks.b> to user type ks.a as it would create a circular \
             reference",
        ),
        ("ALTER TYPE nope ADD x int", "! Type ks.nope doesn't exist"),
        ("ALTER TYPE IF EXISTS nope ADD x int", "void"),
        ("DROP TYPE a", "! Cannot drop user type 'ks.a' as it is still used by user types b"),
        ("DROP TYPE b", "! Cannot drop user type 'ks.b' as it is still used by tables t"),
        ("DROP TABLE t", "DROPPED t"),
        ("DROP TYPE b", "DROPPED b"),
        ("DROP TYPE a", "DROPPED a"),
        ("DROP TYPE a", "! Type 'ks.a' doesn't exist"),
        ("DROP TYPE IF EXISTS a", "void"),
    ]);
}

/// Rows could not be read any more after `ALTER TYPE ... ADD`, and a row inserted again was another
/// one.
#[test]
fn keys_of_altered_types_stay_the_same_keys() {
    check(&[
        ("CREATE TYPE u (a int)", "CREATED u"),
        ("CREATE TYPE w (u frozen<u>, n int)", "CREATED w"),
        (
            "CREATE TABLE s (k int PRIMARY KEY, l set<frozen<list<u>>>, m map<frozen<u>, int>, s \
             set<frozen<u>>, w set<frozen<w>>)",
            "CREATED s",
        ),
        ("CREATE TABLE c (k int, c frozen<u>, d int, v int, PRIMARY KEY (k, c, d))", "CREATED c"),
        (
            "CREATE TABLE r (k int, c frozen<u>, d int, v int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c \
             DESC, d ASC)",
            "CREATED r",
        ),
        ("CREATE TABLE t (k int, c frozen<tuple<u, int>>, v int, PRIMARY KEY (k, c))", "CREATED t"),
        (
            "INSERT INTO s (k, l, m, s, w) VALUES (1, {[{a: 1}, {a: 2}]}, {{a: 1}: 10}, {{a: 3}, {a: 1}, {a: null}}, \
             {{u: {a: 1}, n: 5}})",
            "void",
        ),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {a: 1}, 7, 10)", "void"),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {a: 2}, 7, 20)", "void"),
        ("INSERT INTO r (k, c, d, v) VALUES (1, {a: 1}, 7, 10)", "void"),
        ("INSERT INTO r (k, c, d, v) VALUES (1, {a: 2}, 7, 20)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, ({a: 1}, 5), 10)", "void"),
        ("ALTER TYPE u ADD b int", "UPDATED u"),
        (
            "SELECT s, m, l, w FROM s",
            "{{a: null, b: null}, {a: 1, b: null}, {a: 3, b: null}},{{a: 1, b: null}: 10},\
             {[{a: 1, b: null}, {a: 2, b: null}]},{{u: {a: 1, b: null}, n: 5}}",
        ),
        ("SELECT c, v FROM c", "{a: 1, b: null},10 {a: 2, b: null},20"),
        ("SELECT c, v FROM r", "{a: 2, b: null},20 {a: 1, b: null},10"),
        ("SELECT c, v FROM t", "({a: 1, b: null}, 5),10"),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {a: 1}, 7, 11)", "void"),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {a: 1, b: 0}, 7, 12)", "void"),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {a: 1, b: null}, 8, 13)", "void"),
        ("INSERT INTO c (k, c, d, v) VALUES (1, {b: 9}, 8, 14)", "void"),
        ("INSERT INTO r (k, c, d, v) VALUES (1, {a: 1}, 7, 11)", "void"),
        ("INSERT INTO r (k, c, d, v) VALUES (1, {a: 1, b: 0}, 7, 12)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, ({a: 1}, 5), 11)", "void"),
        ("INSERT INTO t (k, c, v) VALUES (1, ({a: 1, b: 1}, 5), 12)", "void"),
        ("SELECT v FROM c", "14 11 13 12 20"),
        ("SELECT v FROM r", "20 12 11"),
        ("SELECT v FROM t", "11 12"),
        ("SELECT v FROM c WHERE k = 1 AND c = {a: 1}", "11 13"),
        ("SELECT v FROM c WHERE k = 1 AND c > {a: 1}", "12 20"),
        ("SELECT v FROM c WHERE k = 1 AND c >= {a: 1} AND c < {a: 2}", "11 13 12"),
        (
            "UPDATE s SET s = s + {{a: 1}, {a: 1, b: 2}}, m = m + {{a: 1}: 11}, l = l + {[{a: 1}, {a: 2}]}, w = w - \
             {{u: {a: 1}, n: 5}} WHERE k = 1",
            "void",
        ),
        (
            "SELECT s, m, w FROM s",
            "{{a: null, b: null}, {a: 1, b: null}, {a: 1, b: 2}, {a: 3, b: null}},{{a: 1, b: null}: 11},null",
        ),
        ("DELETE FROM c WHERE k = 1 AND c = {a: 1} AND d = 7", "void"),
        ("SELECT v FROM c", "14 13 12 20"),
        ("UPDATE s SET s = s - {{a: 1}} WHERE k = 1", "void"),
        ("SELECT s FROM s", "{{a: null, b: null}, {a: 1, b: 2}, {a: 3, b: null}}"),
    ]);
}

#[test]
fn invalid_types_are_rejected() {
    check(&[
        ("CREATE TYPE a (x int, x text)", "! Duplicate field name 'x' in type 'a'"),
        ("CREATE TYPE a (x counter)", "! A user type cannot contain counters"),
        ("CREATE TYPE a (x nope)", "! A user type cannot contain non-frozen UDTs"),
        ("CREATE TYPE a (x int)", "CREATED a"),
        ("CREATE TYPE b (x a)", "! A user type cannot contain non-frozen UDTs"),
        ("CREATE TYPE other.b (x int)", "! Keyspace 'other' doesn't exist"),
        (
            "CREATE TABLE t (k int PRIMARY KEY, v frozen<other.a>)",
            "! Statement on keyspace ks cannot refer to a user type in keyspace other; user types can \
             only be used in the keyspace they are defined in",
        ),
        (
            "CREATE TABLE t (k int PRIMARY KEY, v frozen<int>)",
            "! frozen<> is only allowed on collections, tuples, and user-defined types (got int)",
        ),
    ]);
}

#[test]
fn tuples_are_single_values() {
    check(&[
        ("CREATE TABLE t (k tuple<int, text>, v tuple<int, list<int>, text>, PRIMARY KEY (k))", "CREATED t"),
        ("INSERT INTO t (k, v) VALUES ((1, 'a'), (1, [3, 2], null))", "void"),
        ("INSERT INTO t (k, v) VALUES ((2, 'a'), (1))", "void"),
        ("SELECT v FROM t WHERE k = (1, 'a')", "(1, [3, 2], null)"),
        (
            "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND \
             column_name = 'v'",
            "'frozen<tuple<int, frozen<list<int>>, text>>'",
        ),
        (
            "INSERT INTO t (k, v) VALUES ((1, 'a', 2), null)",
            "! Invalid tuple literal for k: too many elements. Type frozen<tuple<int, text>> expects 2 but got 3",
        ),
        (
            "INSERT INTO t (k, v) VALUES ([1], null)",
            "! Unexpected receiver type 'frozen<tuple<int, text>>'; only list and vector are expected",
        ),
    ]);
}
