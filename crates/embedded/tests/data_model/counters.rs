//! Counters, in tables of their own.

use crate::scenario::check;

#[test]
fn counters_are_incremented_and_decremented() {
    check(&[
        (
            "CREATE TABLE t (k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c))",
            "CREATED t",
        ),
        ("UPDATE t SET n = n + 1 WHERE k = 1 AND c = 1", "void"),
        ("UPDATE t SET n = n + 41, m = m - 2, s = s + 7 WHERE k = 1 AND c = 1", "void"),
        ("UPDATE t SET s -= 5 WHERE k = 1", "void"),
        ("SELECT n, m, s FROM t", "42,-2,2"),
        (
            "BEGIN COUNTER BATCH UPDATE t SET n = n + 1 WHERE k = 1 AND c = 1; UPDATE t SET n = n + 1 \
             WHERE k = 1 AND c = 1; UPDATE t SET n = n + 1 WHERE k = 2 AND c = 1 APPLY BATCH",
            "void",
        ),
        ("BEGIN UNLOGGED BATCH UPDATE t SET n = n - 4 WHERE k = 1 AND c = 1 APPLY BATCH", "void"),
        ("SELECT n FROM t WHERE k IN (1, 2) AND c IN (1)", "40 1"),
        ("UPDATE t SET n = n + 9223372036854775807 WHERE k = 3 AND c = 1", "void"),
        ("UPDATE t SET n = n + 1 WHERE k = 3 AND c = 1", "void"),
        ("SELECT n FROM t WHERE k = 3", "-9223372036854775808"),
        ("DELETE n FROM t WHERE k = 1 AND c = 1", "void"),
        ("SELECT n, m FROM t WHERE k = 1", "null,-2"),
        ("UPDATE t SET n = n + 5 WHERE k = 1 AND c = 1", "void"),
        ("SELECT n, m FROM t WHERE k = 1", "5,-2"),
        ("DELETE FROM t WHERE k = 1", "void"),
        ("SELECT n FROM t WHERE k = 1", ""),
        ("UPDATE t SET n = n + 2 WHERE k = 1 AND c IN (1, 2)", "void"),
        ("SELECT c, n FROM t WHERE k = 1", "1,2 2,2"),
    ]);
}

#[test]
fn invalid_uses_of_counters_are_rejected() {
    check(&[
        (
            "CREATE TABLE b (k int PRIMARY KEY, n counter, v int)",
            "! Cannot mix counter and non counter columns in the same table",
        ),
        (
            "CREATE TABLE b (k counter PRIMARY KEY)",
            "! counter type is not supported for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE b (k int PRIMARY KEY, n list<counter>)",
            "! Counters are not allowed inside collections: list<counter>",
        ),
        (
            "CREATE TABLE b (k int PRIMARY KEY, n counter) WITH default_time_to_live = 5",
            "! Cannot set default_time_to_live on a table with counters",
        ),
        ("CREATE TABLE t (k int PRIMARY KEY, n counter)", "CREATED t"),
        ("CREATE TABLE o (k int PRIMARY KEY, v int)", "CREATED o"),
        ("ALTER TABLE t ADD v int", "! ks.t: Cannot have a non counter column (\"v\") in a counter table"),
        (
            "INSERT INTO t (k, n) VALUES (1, 1)",
            "! INSERT statements are not allowed on counter tables, use UPDATE instead",
        ),
        (
            "UPDATE t SET n = 5 WHERE k = 1",
            "! Cannot set the value of counter column n (counters can only be incremented/decremented, not set)",
        ),
        ("UPDATE t SET n = 1 + n WHERE k = 1", "! Invalid operation (n = 1 - n) for non list column n"),
        ("UPDATE t SET n = n + null WHERE k = 1", "! Invalid null value for counter increment/decrement"),
        (
            "UPDATE t USING TIMESTAMP 5 SET n = n + 1 WHERE k = 1",
            "! Cannot provide custom timestamp for counter updates",
        ),
        ("UPDATE t USING TTL 5 SET n = n + 1 WHERE k = 1", "! Cannot provide custom TTL for counter updates"),
        (
            "DELETE FROM t USING TIMESTAMP 5 WHERE k = 1",
            "! Cannot provide custom timestamp for counter updates",
        ),
        (
            "UPDATE t SET n = n + 1 WHERE k = 1 IF EXISTS",
            "! Conditional updates are not supported on counter tables",
        ),
        (
            "BEGIN BATCH UPDATE t SET n = n + 1 WHERE k = 1 APPLY BATCH",
            "! Cannot include a counter statement in a logged batch",
        ),
        (
            "BEGIN COUNTER BATCH UPDATE t SET n = n + 1 WHERE k = 1; INSERT INTO o (k) VALUES (1) APPLY BATCH",
            "! Cannot include non-counter statement in a counter batch",
        ),
        (
            "BEGIN UNLOGGED BATCH UPDATE t SET n = n + 1 WHERE k = 1; INSERT INTO o (k) VALUES (1) APPLY BATCH",
            "! Counter and non-counter mutations cannot exist in the same batch",
        ),
        ("SELECT n FROM t", ""),
    ]);
}
