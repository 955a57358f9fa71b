//! Collections and user types that are not frozen: changes of single elements.

use crate::scenario::check;

const TABLE: (&str, &str) =
    ("CREATE TABLE t (k int PRIMARY KEY, l list<text>, s set<int>, m map<text, int>)", "CREATED t");

#[test]
fn elements_are_added_and_removed() {
    check(&[
        TABLE,
        ("INSERT INTO t (k, l, s, m) VALUES (1, ['b', 'c'], {3, 1}, {'y': 2, 'x': 1})", "void"),
        ("SELECT l, s, m FROM t", "['b', 'c'],{1, 3},{'x': 1, 'y': 2}"),
        ("UPDATE t SET l = l + ['d', 'e'], s = s + {2, -1}, m = m + {'x': 9, 'z': 3} WHERE k = 1", "void"),
        ("SELECT l, s, m FROM t", "['b', 'c', 'd', 'e'],{-1, 1, 2, 3},{'x': 9, 'y': 2, 'z': 3}"),
        ("UPDATE t SET l = ['y', 'z'] + l, s = s - {3, 7}, m = m - {'y', 'q'} WHERE k = 1", "void"),
        ("SELECT l, s, m FROM t", "['y', 'z', 'b', 'c', 'd', 'e'],{-1, 1, 2},{'x': 9, 'z': 3}"),
        ("UPDATE t SET l += ['f'], m['n'] = 5, m['x'] = null WHERE k = 1", "void"),
        ("DELETE s[1], m['nope'] FROM t WHERE k = 1", "void"),
        ("SELECT l, s, m FROM t", "['y', 'z', 'b', 'c', 'd', 'e', 'f'],{-1, 2},{'n': 5, 'z': 3}"),
        ("UPDATE t SET l = ['only'], s = {}, m = null WHERE k = 1", "void"),
        ("SELECT l, s, m FROM t", "['only'],null,null"),
        ("DELETE l FROM t WHERE k = 1", "void"),
        ("SELECT k, l FROM t", "1,null"),
        // A row that only ever had elements is gone with the last of them.
        ("UPDATE t SET s = s + {1} WHERE k = 2", "void"),
        ("SELECT k, s FROM t WHERE k = 2", "2,{1}"),
        ("UPDATE t SET s = s - {1} WHERE k = 2", "void"),
        ("SELECT k, s FROM t WHERE k = 2", ""),
        (
            "BEGIN BATCH UPDATE t SET l = l + ['1'] WHERE k = 3; UPDATE t SET l = ['0'] + l WHERE k = 3; \
             UPDATE t SET l = ['00'] + l WHERE k = 3; UPDATE t SET l = l + ['2'] WHERE k = 3 APPLY BATCH",
            "void",
        ),
        ("SELECT l FROM t WHERE k = 3", "['00', '0', '1', '2']"),
    ]);
}

/// The last one won, whatever it was.
#[test]
fn greatest_value_of_an_element_wins_within_a_statement() {
    check(&[
        TABLE,
        ("UPDATE t SET m['a'] = 1, m['a'] = 5, m['a'] = 3 WHERE k = 1", "void"),
        ("SELECT m FROM t WHERE k = 1", "{'a': 5}"),
        // Values are compared as bytes.
        ("UPDATE t SET m['a'] = 1, m['a'] = -1, m['a'] = 3 WHERE k = 2", "void"),
        ("SELECT m FROM t WHERE k = 2", "{'a': -1}"),
        ("UPDATE t SET m['a'] = null, m['a'] = 5, m['b'] = 1 WHERE k = 3", "void"),
        ("SELECT m FROM t WHERE k = 3", "{'b': 1}"),
        ("UPDATE t SET m = m + {'a': 4}, m['a'] = 2 WHERE k = 4", "void"),
        ("SELECT m FROM t WHERE k = 4", "{'a': 4}"),
        ("UPDATE t SET m = m - {'a'}, m = m + {'a': 4, 'b': 4} WHERE k = 5", "void"),
        ("SELECT m FROM t WHERE k = 5", "{'b': 4}"),
        ("UPDATE t SET s = s - {1}, s = s + {1, 2} WHERE k = 6", "void"),
        ("SELECT s FROM t WHERE k = 6", "{2}"),
        ("UPDATE t SET l = ['a', 'b', 'c'] WHERE k = 7", "void"),
        ("UPDATE t SET l[0] = 'z', l[0] = 'y', l[2] = 'ab', l[2] = 'a', l[1] = null WHERE k = 7", "void"),
        ("SELECT l FROM t WHERE k = 7", "['z', 'ab']"),
        ("UPDATE t USING TTL 1000 SET m['a'] = 9, m['a'] = 2 WHERE k = 8", "void"),
        ("UPDATE t SET m['b'] = 9, m['b'] = 2 WHERE k = 8 IF m['a'] = 9", "true"),
        ("SELECT m FROM t WHERE k = 8", "{'a': 9, 'b': 9}"),
        // In one value, the last one of equal keys counts.
        ("INSERT INTO t (k, m) VALUES (9, {'a': 9, 'a': 5})", "void"),
        ("UPDATE t SET m = m + {'b': 9, 'b': 5} WHERE k = 9", "void"),
        ("SELECT m FROM t WHERE k = 9", "{'a': 5, 'b': 5}"),
    ]);
}

#[test]
fn greatest_value_wins_within_a_batch() {
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, v int, m map<text, int>)", "CREATED t"),
        (
            "BEGIN BATCH INSERT INTO t (k, v, m) VALUES (1, 1, {'a': 1}); INSERT INTO t (k, v, m) VALUES (1, 5, {'a': \
             5}); INSERT INTO t (k, v, m) VALUES (1, 3, {'a': 3}); APPLY BATCH",
            "void",
        ),
        ("SELECT v, m FROM t WHERE k = 1", "5,{'a': 5}"),
        (
            "BEGIN BATCH UPDATE t SET v = null, m['a'] = null WHERE k = 2; UPDATE t SET v = 3, m['a'] = 7, m['b'] = 3 \
             WHERE k = 2; APPLY BATCH",
            "void",
        ),
        ("SELECT v, m FROM t WHERE k = 2", "null,{'b': 3}"),
        ("BEGIN BATCH DELETE FROM t WHERE k = 3; INSERT INTO t (k, v) VALUES (3, 1); APPLY BATCH", "void"),
        ("SELECT k FROM t WHERE k = 3", ""),
        (
            "BEGIN BATCH INSERT INTO t (k, v) VALUES (4, 7) IF NOT EXISTS; UPDATE t SET m['a'] = 9, m['a'] = 2 WHERE k \
             = 4; UPDATE t SET m['a'] = 4, v = 1 WHERE k = 4; APPLY BATCH",
            "true",
        ),
        ("SELECT v, m FROM t WHERE k = 4", "7,{'a': 9}"),
    ]);
}

#[test]
fn statements_of_a_batch_read_the_list_before_it() {
    for kind in ["", "UNLOGGED "] {
        let batch = format!(
            "BEGIN {kind}BATCH USING TIMESTAMP 9 UPDATE t SET l = ['p', 'q'] WHERE k = 1; \
             UPDATE t SET l[1] = 'x' WHERE k = 1; UPDATE t SET l[0] = null WHERE k = 1 APPLY BATCH"
        );
        check(&[
            ("CREATE TABLE t (k int PRIMARY KEY, l list<text>)", "CREATED t"),
            ("INSERT INTO t (k, l) VALUES (1, ['a', 'b', 'c']) USING TIMESTAMP 1", "void"),
            (&batch, "void"),
            ("SELECT l FROM t", "['x', 'p', 'q']"),
        ]);
    }
}

#[test]
fn statements_of_a_batch_append_in_their_order() {
    let batch = "BEGIN BATCH UPDATE t SET l = l + ['a'], m[0] = 'w' WHERE k = 1; \
                 UPDATE t SET l = l + ['b'] WHERE k = 1; UPDATE t SET l = l + ['c'] WHERE k = 2; \
                 UPDATE t SET l = l + ['d'], m[1] = 'x' WHERE k = 1; UPDATE t SET l = l + ['e'] WHERE k = 1; \
                 UPDATE t SET l = l + ['f'], m[0] = 'y' WHERE k = 2 APPLY BATCH";
    check(&[
        ("CREATE TABLE t (k int PRIMARY KEY, l list<text>, m list<text>)", "CREATED t"),
        ("INSERT INTO t (k, m) VALUES (1, ['m', 'n'])", "void"),
        ("INSERT INTO t (k, m) VALUES (2, ['o'])", "void"),
        (batch, "void"),
        ("SELECT l, m FROM t WHERE k = 1", "['a', 'b', 'd', 'e'],['w', 'x']"),
        ("SELECT l, m FROM t WHERE k = 2", "['c', 'f'],['y']"),
    ]);
}

#[test]
fn each_element_has_a_timestamp_and_may_expire() {
    check(&[
        TABLE,
        ("UPDATE t USING TIMESTAMP 10 SET m = {'a': 1, 'b': 1} WHERE k = 1", "void"),
        ("UPDATE t USING TIMESTAMP 9 SET m['a'] = 9, m['c'] = 9 WHERE k = 1", "void"),
        // Replacing a collection deletes cells up to just before the write's timestamp.
        ("SELECT m FROM t", "{'a': 1, 'b': 1}"),
        ("UPDATE t USING TIMESTAMP 11 SET m['b'] = 2 WHERE k = 1", "void"),
        ("UPDATE t USING TIMESTAMP 10 SET m = {'z': 0} WHERE k = 1", "void"),
        ("SELECT m FROM t", "{'a': 1, 'b': 2, 'z': 0}"),
        ("DELETE m FROM t USING TIMESTAMP 10 WHERE k = 1", "void"),
        ("SELECT m FROM t", "{'b': 2}"),
        ("UPDATE t USING TIMESTAMP 20 AND TTL 100000 SET s = s + {1} WHERE k = 1", "void"),
        ("UPDATE t USING TIMESTAMP 20 SET s = s + {2} WHERE k = 1", "void"),
        ("SELECT s FROM t", "{1, 2}"),
        ("SELECT writetime(s), writetime(s[2]), maxwritetime(s) FROM t", "[20, 20],20,20"),
    ]);
}

#[test]
fn filters_and_selections_use_collection_elements() {
    check(&[
        TABLE,
        ("INSERT INTO t (k, l, s, m) VALUES (1, ['a', 'b'], {1}, {'x': 1})", "void"),
        ("INSERT INTO t (k, l, s, m) VALUES (2, ['b'], {1, 2}, {'x': 2, 'y': 1})", "void"),
        ("SELECT m['x'], s[2], m['q'] FROM t WHERE k = 2", "2,2,null"),
        ("SELECT m['x'] FROM t WHERE k = 1", "1"),
        ("SELECT k FROM t WHERE l CONTAINS 'a' ALLOW FILTERING", "1"),
        ("SELECT k FROM t WHERE s CONTAINS 2 ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE m CONTAINS 2 ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE m CONTAINS KEY 'y' ALLOW FILTERING", "2"),
        ("SELECT k FROM t WHERE m['x'] = 1 ALLOW FILTERING", "1"),
        ("SELECT count(m) FROM t", "2"),
        (
            "SELECT k FROM t WHERE s = {1} ALLOW FILTERING",
            "! Collection column 's' (set<int>) cannot be restricted by a '=' relation",
        ),
        (
            "SELECT k FROM t WHERE k CONTAINS 1 ALLOW FILTERING",
            "! Cannot use CONTAINS on non-collection column k",
        ),
        (
            "SELECT k FROM t WHERE s CONTAINS KEY 1 ALLOW FILTERING",
            "! Cannot use CONTAINS KEY on non-map column s",
        ),
        (
            "SELECT k FROM t WHERE m['x'] > 1 ALLOW FILTERING",
            "! Only EQ relations are supported on map entries",
        ),
        ("SELECT l[0] FROM t", "! Element selection is only allowed on sets and maps, but l is a list"),
        (
            "SELECT type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 't' AND \
             column_name = 'm'",
            "'map<text, int>'",
        ),
    ]);
}

#[test]
fn user_types_are_changed_field_by_field() {
    check(&[
        ("CREATE TYPE u (a int, b text, c frozen<list<int>>)", "CREATED u"),
        ("CREATE TABLE t (k int, c int, v u, st u static, f frozen<u>, PRIMARY KEY (k, c))", "CREATED t"),
        ("INSERT INTO t (k, c, v, f) VALUES (1, 1, {a: 1, c: [1, 2]}, {b: 'f'})", "void"),
        ("SELECT v, v.a, v.c, f.b FROM t", "{a: 1, b: null, c: [1, 2]},1,[1, 2],'f'"),
        ("UPDATE t SET v.b = 'x', v.a = null, st.a = 7 WHERE k = 1 AND c = 1", "void"),
        (
            "SELECT v, st, st.a, st.b FROM t WHERE k = 1 AND c = 1",
            "{a: null, b: 'x', c: [1, 2]},{a: 7, b: null, c: null},7,null",
        ),
        ("DELETE v.c FROM t WHERE k = 1 AND c = 1", "void"),
        ("SELECT v FROM t WHERE k = 1", "{a: null, b: 'x', c: null}"),
        ("UPDATE t SET v = {a: 3} WHERE k = 1 AND c = 1", "void"),
        ("SELECT v FROM t WHERE k = 1", "{a: 3, b: null, c: null}"),
        ("DELETE v.a FROM t WHERE k = 1 AND c = 1", "void"),
        ("SELECT v FROM t WHERE k = 1", "null"),
        ("ALTER TYPE u ADD d int", "UPDATED u"),
        ("UPDATE t SET v.d = 4 WHERE k = 1 AND c = 1", "void"),
        ("SELECT v, v.d FROM t WHERE k = 1", "{a: null, b: null, c: null, d: 4},4"),
        (
            "UPDATE t SET f.a = 1 WHERE k = 1 AND c = 1",
            "! Invalid operation (f.a = 1) for frozen UDT column f",
        ),
        ("UPDATE t SET v.n = 1 WHERE k = 1 AND c = 1", "! UDT column v does not have a field named n"),
        ("DELETE f.a FROM t WHERE k = 1 AND c = 1", "! Frozen UDT column f does not support field deletions"),
        (
            "UPDATE t SET v.a = 1, v.a = 2 WHERE k = 1 AND c = 1",
            "! Multiple incompatible setting of column v",
        ),
        (
            "SELECT k FROM t WHERE v = {a: 1} ALLOW FILTERING",
            "! Non-frozen UDT column 'v' (u) cannot be restricted by any relation",
        ),
    ]);
}

#[test]
fn invalid_changes_of_collections_are_rejected() {
    check(&[
        (
            "CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>, s set<int>, m map<int, int>, f frozen<list<int>>)",
            "CREATED t",
        ),
        ("UPDATE t SET s[1] = 2 WHERE k = 1", "! Invalid operation (s[1] = 2) for set column s"),
        (
            "UPDATE t SET f[1] = 2 WHERE k = 1",
            "! Invalid operation (f[1] = 2) for frozen collection column f",
        ),
        ("UPDATE t SET v[1] = 2 WHERE k = 1", "! Invalid operation (v[1] = 2) for non collection column v"),
        ("UPDATE t SET v = v + 1 WHERE k = 1", "! Invalid operation (v = v + 1) for non counter column v"),
        (
            "UPDATE t SET f = f + [1] WHERE k = 1",
            "! Invalid operation (f = f + [1]) for frozen collection column f",
        ),
        ("UPDATE t SET s = {1} + s WHERE k = 1", "! Invalid operation (s = {1} - s) for non list column s"),
        ("UPDATE t SET l = [1], l = l + [2] WHERE k = 1", "! Multiple incompatible setting of column l"),
        ("DELETE f[1] FROM t WHERE k = 1", "! Invalid deletion operation for frozen collection column f"),
        ("DELETE v[1] FROM t WHERE k = 1", "! Invalid deletion operation for non collection column v"),
        ("INSERT INTO t (k, l) VALUES (1, [1, null])", "! null is not supported inside collections"),
        ("UPDATE t SET m[null] = 1 WHERE k = 1", "! Invalid null map key"),
        (
            "INSERT INTO t (k, s) VALUES (1, [1])",
            "! Unexpected receiver type 'set<int>'; only list and vector are expected",
        ),
        (
            "CREATE TABLE b (k set<int> PRIMARY KEY)",
            "! Invalid non-frozen collection type set<int> for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE b (k int PRIMARY KEY, v list<set<int>>)",
            "! Non-frozen collections are not allowed inside collections: list<set<int>>",
        ),
        ("ALTER TABLE t ADD n set<text>", "UPDATED t"),
        ("UPDATE t SET n = n + {'a'} WHERE k = 1", "void"),
        ("ALTER TABLE t DROP n", "UPDATED t"),
        ("ALTER TABLE t ADD n set<text>", "UPDATED t"),
        ("SELECT n FROM t", ""),
    ]);
}
