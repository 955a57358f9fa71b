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
            "! Invalid INTEGER constant (1) for \"c.name\" of type text",
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
            "! Cannot add new field y of type text to user type a as the type is being used in partition \
             key by the following tables: p",
        ),
        ("DROP TABLE p", "DROPPED p"),
        ("ALTER TYPE a ADD y text", "UPDATED a"),
        ("ALTER TYPE a RENAME x TO z", "UPDATED a"),
        ("SELECT v FROM t", "[{a: {z: 1}}]"),
        ("INSERT INTO t (k, v) VALUES (1, [{a: {z: 1, y: 'n'}}])", "void"),
        ("SELECT v FROM t", "[{a: {z: 1, y: 'n'}}]"),
        ("ALTER TYPE a ADD z int", "! Cannot add field z to type a: a field with name z already exists"),
        ("ALTER TYPE a ADD IF NOT EXISTS z int", "void"),
        ("ALTER TYPE a RENAME nope TO n", "! Unkown field nope in user type ks.a"),
        ("ALTER TYPE a RENAME z TO y", "! Duplicate field name 'y' in type 'a'"),
        ("ALTER TYPE a ALTER z TYPE text", "! Altering field types is no longer supported"),
        (
            "ALTER TYPE a ADD w frozen<b>",
            "! Cannot add new field w of type frozen<b> to user type a as it would create a circular reference",
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

#[test]
fn invalid_types_are_rejected() {
    check(&[
        ("CREATE TYPE a (x int, x text)", "! Duplicate field name 'x' in type 'a'"),
        ("CREATE TYPE a (x counter)", "! A user type cannot contain counters"),
        ("CREATE TYPE a (x nope)", "! Unknown type ks.nope"),
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
            "! Invalid tuple literal for k: too many elements. Type tuple<int, text> expects 2 but got 3",
        ),
        ("INSERT INTO t (k, v) VALUES ([1], null)", "! Invalid list literal for k of type tuple<int, text>"),
    ]);
}
