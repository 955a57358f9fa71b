//! Columns that are dropped with a timestamp, and added again.

use testkit::{Folder, KEYSPACE};

use crate::common::run_in;

/// Runs the statements in a new keyspace with files, on one core and on three, and checks the
/// results.
fn check(steps: &[(&str, &str)]) {
    let script: Vec<&str> = [KEYSPACE].into_iter().chain(steps.iter().map(|(text, _)| *text)).collect();
    let script: &'static str = Box::leak(script.join(";\n").into_boxed_str());
    for cores in [1, 3] {
        let folder = Folder::new("dropped-columns");
        let answers = run_in(Some(&folder), cores, None, script);
        for ((text, expected), answer) in steps.iter().zip(&answers[1..]) {
            assert_eq!(answer, expected, "{text}, on {cores} cores");
        }
        assert_eq!(answers.len(), steps.len() + 1);
    }
}

const TABLE: (&str, &str) =
    ("CREATE TABLE d (k int PRIMARY KEY, m map<text, int>, v int, w int)", "CREATED d");

/// All cells stayed hidden.
#[test]
fn column_added_again_has_the_cells_behind_its_drop() {
    check(&[
        TABLE,
        ("INSERT INTO d (k, v, m) VALUES (1, 1, {'a': 1}) USING TIMESTAMP 100", "void"),
        ("INSERT INTO d (k, v, m) VALUES (2, 2, {'a': 2}) USING TIMESTAMP 300", "void"),
        ("FLUSH d", "void"),
        ("INSERT INTO d (k, v, m) VALUES (3, 3, {'a': 3}) USING TIMESTAMP 200", "void"),
        ("UPDATE d USING TIMESTAMP 300 SET v = 5 WHERE k = 5", "void"),
        ("UPDATE d USING TIMESTAMP 100 SET m['a'] = 5, m['b'] = 5 WHERE k = 5", "void"),
        ("UPDATE d USING TIMESTAMP 250 SET m['b'] = 6 WHERE k = 5", "void"),
        ("ALTER TABLE d DROP v USING TIMESTAMP 200", "UPDATED d"),
        ("SELECT k, m FROM d WHERE k IN (1, 2, 3, 5)", "1,{'a': 1} 2,{'a': 2} 3,{'a': 3} 5,{'a': 5, 'b': 6}"),
        // A compaction keeps the later cells.
        ("COMPACT TABLE d", "void"),
        ("ALTER TABLE d ADD v int", "UPDATED d"),
        (
            "SELECT k, v, writetime(v) FROM d WHERE k IN (1, 2, 3, 5)",
            "1,null,null 2,2,300 3,null,null 5,5,300",
        ),
        ("INSERT INTO d (k, v) VALUES (1, 7)", "void"),
        ("ALTER TABLE d DROP (m, w) USING TIMESTAMP 200", "UPDATED d"),
        ("ALTER TABLE d ADD (m map<text, int>, w int)", "UPDATED d"),
        ("SELECT k, m, v FROM d WHERE k IN (1, 2, 3, 5)", "1,null,7 2,{'a': 2},2 3,null,null 5,{'b': 6},5"),
        // Without a timestamp the time of the statement counts.
        ("ALTER TABLE d DROP v", "UPDATED d"),
        ("ALTER TABLE d ADD v int", "UPDATED d"),
        ("SELECT k, v FROM d WHERE k IN (1, 2, 3, 5)", "1,null 2,null 3,null 5,null"),
        ("INSERT INTO d (k, v) VALUES (2, 8)", "void"),
        ("SELECT v FROM d WHERE k IN (1, 2)", "null 8"),
    ]);
}

#[test]
fn static_column_added_again_has_the_cells_behind_its_drop() {
    check(&[
        ("CREATE TABLE d (k int, c int, s int static, v int, PRIMARY KEY (k, c))", "CREATED d"),
        ("INSERT INTO d (k, c, s, v) VALUES (1, 1, 1, 1) USING TIMESTAMP 100", "void"),
        ("INSERT INTO d (k, s) VALUES (2, 2) USING TIMESTAMP 100", "void"),
        ("INSERT INTO d (k, s) VALUES (3, 3) USING TIMESTAMP 300", "void"),
        ("ALTER TABLE d DROP s USING TIMESTAMP 200", "UPDATED d"),
        ("SELECT * FROM d WHERE k IN (1, 2, 3)", "1,1,1"),
        (
            "ALTER TABLE d ADD s int",
            "! Cannot re-add previously dropped column 's' of kind REGULAR, incompatible with previous kind STATIC",
        ),
        ("ALTER TABLE d ADD s int static", "UPDATED d"),
        ("SELECT * FROM d WHERE k IN (1, 2, 3)", "1,1,null,1 3,null,3,null"),
    ]);
}

#[test]
fn column_is_added_again_with_a_compatible_type() {
    let refused = |name: &str, new: &str, old: &str| {
        format!(
            "! Cannot add a column '{name}' of type {new}, incompatible with previously dropped column '{name}' of \
             type {old}"
        )
    };
    check(&[
        ("CREATE TYPE u (a int)", "CREATED u"),
        (
            "CREATE TABLE d (k int PRIMARY KEY, a ascii, f frozen<list<int>>, m map<text, int>, n u, t text, v int)",
            "CREATED d",
        ),
        ("INSERT INTO d (k, t) VALUES (1, 'text') USING TIMESTAMP 300", "void"),
        ("ALTER TABLE d DROP (a, f, m, t, v) USING TIMESTAMP 200", "UPDATED d"),
        ("ALTER TABLE d DROP n", "! Cannot drop non-frozen column n of user type u"),
        ("ALTER TABLE d ADD v text", &refused("v", "text", "int")),
        ("ALTER TABLE d ADD v bigint", &refused("v", "bigint", "int")),
        ("ALTER TABLE d ADD v blob", &refused("v", "blob", "int")),
        ("ALTER TABLE d ADD m map<text, text>", &refused("m", "map<text, text>", "map<text, int>")),
        (
            "ALTER TABLE d ADD m frozen<map<text, int>>",
            &refused("m", "frozen<map<text, int>>", "map<text, int>"),
        ),
        ("ALTER TABLE d ADD f list<int>", &refused("f", "list<int>", "frozen<list<int>>")),
        ("ALTER TABLE d ADD (a text, f frozen<list<int>>, t blob)", "UPDATED d"),
        ("SELECT t FROM d", "0x74657874"),
        ("ALTER TABLE d DROP nope", "! Column nope was not found in table 'ks.d'"),
        ("ALTER TABLE d DROP IF EXISTS nope USING TIMESTAMP 5", "void"),
        ("ALTER TABLE d DROP k USING TIMESTAMP 5", "! Cannot drop PRIMARY KEY column k"),
    ]);
}

/// The table was empty.
#[test]
fn dropped_columns_are_shown() {
    let shown = "SELECT * FROM system_schema.dropped_columns WHERE keyspace_name = 'ks'";
    check(&[
        TABLE,
        ("CREATE TYPE u (a int, b text)", "CREATED u"),
        ("CREATE TABLE e (k int, c int, s frozen<u> static, PRIMARY KEY (k, c))", "CREATED e"),
        (shown, ""),
        ("ALTER TABLE d DROP (w, m) USING TIMESTAMP 200000", "UPDATED d"),
        ("ALTER TABLE e DROP s USING TIMESTAMP -1000", "UPDATED e"),
        (
            shown,
            "'ks','d','m','1970-01-01 00:00:00.200Z','regular','map<text, int>' \
             'ks','d','w','1970-01-01 00:00:00.200Z','regular','int' \
             'ks','e','s','1969-12-31 23:59:59.999Z','static','frozen<tuple<int, text>>'",
        ),
        ("DROP TYPE u", "DROPPED u"),
        // It stays there when it is added again.
        ("ALTER TABLE d ADD w int", "UPDATED d"),
        ("DROP TABLE e", "DROPPED e"),
        (
            "SELECT column_name FROM system_schema.dropped_columns WHERE keyspace_name = 'ks' AND table_name = 'd'",
            "'m' 'w'",
        ),
        (
            shown,
            "'ks','d','m','1970-01-01 00:00:00.200Z','regular','map<text, int>' \
             'ks','d','w','1970-01-01 00:00:00.200Z','regular','int'",
        ),
        ("DROP TABLE d", "DROPPED d"),
        (shown, ""),
    ]);
}
