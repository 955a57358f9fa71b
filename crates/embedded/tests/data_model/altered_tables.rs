//! ALTER of tables, types and keyspaces: what changes, what is left alone, and Cassandra's errors.

use crate::scenario::check;

#[test]
fn renamed_key_columns_keep_their_rows() {
    check(&[
        ("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (a, b))", "CREATED t"),
        ("INSERT INTO t (a, b, v) VALUES (1, 2, 3)", "void"),
        ("ALTER TABLE t RENAME a TO x AND b TO y", "UPDATED t"),
        ("SELECT * FROM t", "1,2,3"),
        ("SELECT x, y FROM t WHERE x = 1 AND y = 2", "1,2"),
        ("SELECT a FROM t", "! Undefined column name a in table ks.t"),
        ("INSERT INTO t (x, y, v) VALUES (1, 3, 4)", "void"),
        ("SELECT y, v FROM t WHERE x = 1", "2,3 3,4"),
        ("ALTER TABLE t RENAME IF EXISTS x TO a AND y TO b", "UPDATED t"),
        (
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't'",
            "'a' 'b' 'v'",
        ),
    ]);
}

#[test]
fn only_free_names_and_key_columns_are_renamed() {
    check(&[
        ("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (a, b))", "CREATED t"),
        ("ALTER TABLE t RENAME v TO w", "! Cannot rename non PRIMARY KEY column v"),
        (
            "ALTER TABLE t RENAME a TO v",
            "! Cannot rename column a to v in table 'ks.t'; another column with that name already exists",
        ),
        (
            "ALTER TABLE t RENAME a TO b AND b TO a",
            "! Cannot rename column a to b in table 'ks.t'; another column with that name already exists",
        ),
        // A refused statement renames nothing.
        ("ALTER TABLE t RENAME a TO x AND v TO w", "! Cannot rename non PRIMARY KEY column v"),
        ("SELECT a, b FROM t", ""),
    ]);
}

#[test]
fn statements_with_if_exists_change_what_exists() {
    check(&[
        ("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))", "CREATED t"),
        ("CREATE TYPE u (x int)", "CREATED u"),
        ("ALTER TABLE IF EXISTS nope ADD x int", "void"),
        ("ALTER TABLE nope ADD x int", "! Table 'ks.nope' doesn't exist"),
        ("ALTER TABLE t ADD IF NOT EXISTS a int", "void"),
        ("ALTER TABLE t ADD IF NOT EXISTS (a int, c int)", "UPDATED t"),
        ("ALTER TABLE t ADD a int", "! Column with name 'a' already exists"),
        ("ALTER TABLE t DROP IF EXISTS (c, nope)", "UPDATED t"),
        ("ALTER TABLE t DROP IF EXISTS nope", "void"),
        ("ALTER TABLE t DROP nope", "! Column nope was not found in table 'ks.t'"),
        ("ALTER TYPE IF EXISTS nope ADD y int", "void"),
        ("ALTER TYPE u RENAME IF EXISTS nope TO z", "void"),
        ("ALTER TYPE u RENAME nope TO z", "! Unkown field nope in user type ks.u"),
        ("ALTER TYPE u ADD IF NOT EXISTS x int", "void"),
        ("ALTER KEYSPACE IF EXISTS nope WITH durable_writes = true", "void"),
        ("DROP TABLE nope", "! Table 'ks.nope' doesn't exist"),
        ("DROP FUNCTION IF EXISTS f", "void"),
        ("DROP AGGREGATE IF EXISTS f(int)", "void"),
        ("DROP TRIGGER IF EXISTS r ON nope", "void"),
    ]);
}

#[test]
fn table_is_created_with_a_chosen_id() {
    let id = "5a1c395e-b41f-11e5-9f22-ba0be0483c18";
    let with_id = |name: &str| format!("CREATE TABLE {name} (k int PRIMARY KEY, v int) WITH ID = {id}");
    let (first, second) = (with_id("t"), with_id("other"));
    let taken = format!("! expected an id that no table has, got {id} of ks.t");
    check(&[
        (&first, "CREATED t"),
        ("INSERT INTO t (k, v) VALUES (1, 1)", "void"),
        ("SELECT id FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'", id),
        (&first, "! Cannot add already existing table \"t\" to keyspace \"ks\""),
        (&second, &taken),
        ("ALTER TABLE t WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c19", "! Cannot alter table id."),
        ("CREATE TABLE bad (k int PRIMARY KEY) WITH ID = 55", "! Invalid table id"),
        ("DROP TABLE t", "DROPPED t"),
        // The rows of the first table are gone.
        (&first, "CREATED t"),
        ("SELECT * FROM t", ""),
        ("INSERT INTO t (k, v) VALUES (2, 2)", "void"),
        ("SELECT * FROM t", "2,2"),
    ]);
}

#[test]
fn masks_are_checked_and_shown() {
    check(&[
        (
            "CREATE TABLE t (k int MASKED WITH DEFAULT, c text MASKED WITH mask_inner(1, null), v int, \
             PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        (
            "SELECT column_name, function_keyspace, function_name, function_argument_types, \
             function_argument_values, function_argument_nulls FROM system_schema.column_masks",
            "'c','system','mask_inner',['int', 'int'],['1', ''],[false, true] \
             'k','system','mask_default',null,null,null",
        ),
        // The server itself sees clear values.
        ("INSERT INTO t (k, c, v) VALUES (1, 'secret', 3)", "void"),
        ("SELECT * FROM t", "1,'secret',3"),
        ("ALTER TABLE t ALTER v MASKED WITH mask_replace(7)", "UPDATED t"),
        ("ALTER TABLE t RENAME k TO kk", "UPDATED t"),
        ("SELECT column_name FROM system_schema.column_masks", "'c' 'kk' 'v'"),
        ("ALTER TABLE t ALTER kk DROP MASKED", "UPDATED t"),
        ("ALTER TABLE t ALTER kk DROP MASKED", "void"),
        ("ALTER TABLE t DROP v", "UPDATED t"),
        ("ALTER TABLE t ADD v int", "UPDATED t"),
        ("SELECT column_name FROM system_schema.column_masks", "'c'"),
        ("ALTER TABLE t ADD w int MASKED WITH mask_null()", "UPDATED t"),
        ("SELECT column_name FROM system_schema.column_masks", "'c' 'w'"),
        (
            "ALTER TABLE t ALTER nope MASKED WITH DEFAULT",
            "! Column with name 'nope' doesn't exist on table 't'",
        ),
        ("ALTER TABLE t ALTER IF EXISTS nope MASKED WITH DEFAULT", "void"),
    ]);
}

#[test]
fn functions_that_do_not_fit_mask_nothing() {
    let refused = |mask: &str| format!("CREATE TABLE t (k int PRIMARY KEY, v int MASKED WITH {mask})");
    let of_text = |mask: &str| format!("CREATE TABLE t (k int PRIMARY KEY, v text MASKED WITH {mask})");
    let check_one = |text: &str, expected: &str| check(&[(text, expected)]);
    check_one(
        &refused("mask_missing()"),
        "! Unable to find masking function for v, no declared function matches the signature mask_missing()",
    );
    check_one(
        &refused("mask_default(1)"),
        "! Invalid number of arguments for function system.mask_default(any)",
    );
    check_one(
        &of_text("tojson()"),
        "! Not-masking function tojson() cannot be used for masking table columns",
    );
    check_one(
        &of_text("mask_inner('a', 'b')"),
        "! Function system.mask_inner requires an argument of type int, but found argument 'a' of type ascii",
    );
    check_one(
        &refused("mask_hash()"),
        "! Masking function mask_hash() return type is blob. This is different to the type of the masked column v of \
         type int. Masking functions can only be attached to table columns if they return the same data type as the \
         masked column.",
    );
}
