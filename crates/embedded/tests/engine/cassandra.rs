//! Statements that Cassandra 5.0 refuses or accepts, with its error codes and texts.

use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, Error, ParsedTree, Request, StatementOutcome, Value};
use lanes::Group;
use testkit::{Setup, texts};

const SETUP: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE t (k int, c int, d int, e int, s int static, v int, x text, y ascii, n varint, p duration, \
     l list<int>, m map<text, int>, z set<text>, u tuple<int, text>, q tuple<int, tuple<text, int>>, \
     r tuple<int, duration>, PRIMARY KEY (k, c, d, e))",
    "CREATE TABLE w (a int, b int, c int, s int static, v int, PRIMARY KEY ((a, b), c))",
    "CREATE TABLE g (k text, c text, d text, v int, PRIMARY KEY (k, c, d))",
    "INSERT INTO t (k, c, d, e, v, l) VALUES (1, 1, 1, 1, 1, [1, 2])",
    "INSERT INTO t (k, c, d, e, v) VALUES (1, 1, 2, 1, 2)",
    "INSERT INTO t (k, c, d, e, v) VALUES (1, 2, 1, 1, 3)",
];

/// Returns the rows of a statement, or its error behind the name of its code.
pub(crate) async fn answer(engine: &Embedded, text: &str, values: &[Value<'_>]) -> String {
    let statement = match ParsedTree::parse(text) {
        Ok(statement) => Arc::new(statement),
        Err(error) if error.is_invalid => return format!("Invalid: {error}"),
        Err(error) => return format!("Syntax: {error}"),
    };
    let run = async {
        let plan = engine.prepare(statement, Some("ks"))?;
        engine.execute(&plan, &Request { values, ..Request::EMPTY }).outcome(engine).await
    };
    match run.await {
        Ok(StatementOutcome::Rows(rows)) => {
            texts(&rows).iter().map(|row| row.join(",")).collect::<Vec<_>>().join(" ")
        }
        Ok(_) => "done".into(),
        Err(error) => {
            let code = match &error {
                Error::Invalid(_) => "Invalid",
                Error::Syntax(_) => "Syntax",
                Error::Config(_) => "Config",
                _ => "other",
            };
            format!("{code}: {error}")
        }
    }
}

/// Runs statements in an engine with the tables of [`SETUP`]. Each has the expected answer.
fn check(statements: &[(&'static str, &'static str)]) {
    let statements = statements.to_vec();
    run(async move |engine| {
        for (text, expected) in statements {
            assert_eq!(answer(engine, text, &[]).await, expected, "{text}");
        }
    });
}

/// Runs statements with values as [`check`] does.
fn check_values(statements: Vec<(&'static str, Vec<Bound>, &'static str)>) {
    run(async move |engine| {
        for (text, values, expected) in statements {
            let values: Vec<Value<'_>> = values.iter().map(Bound::value).collect();
            assert_eq!(answer(engine, text, &values).await, expected, "{text}");
        }
    });
}

/// Value of a bind marker.
pub(crate) enum Bound {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

impl Bound {
    pub(crate) fn text(text: &str) -> Bound {
        Bound::Bytes(text.as_bytes().to_vec())
    }

    pub(crate) fn int(number: i32) -> Bound {
        Bound::Bytes(number.to_be_bytes().to_vec())
    }

    /// Returns a list; `None` is null.
    pub(crate) fn list(parts: &[Option<i32>]) -> Bound {
        let mut bytes = (parts.len() as i32).to_be_bytes().to_vec();
        for part in parts {
            match part {
                Some(number) => bytes.extend([4_i32.to_be_bytes(), number.to_be_bytes()].concat()),
                None => bytes.extend((-1_i32).to_be_bytes()),
            }
        }
        Bound::Bytes(bytes)
    }

    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Bound::Null => Value::Null,
            Bound::Unset => Value::Unset,
            Bound::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

fn run(test: impl AsyncFnOnce(&Embedded) + Send + 'static) {
    run_after(SETUP, test);
}

/// Runs a test in an engine in which the statements of `setup` have run.
pub(crate) fn run_after(setup: &'static [&'static str], test: impl AsyncFnOnce(&Embedded) + Send + 'static) {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in setup {
            let answer = answer(&engine, text, &[]).await;
            assert_eq!(answer, "done", "{text}");
        }
        test(&engine).await;
    });
    lanes.shutdown();
}

#[test]
fn wrong_replication_is_refused() {
    check(&[
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'NetworkTopologyStrategy', 'nowhere': 1}",
            "Config: Unrecognized strategy option {nowhere} passed to NetworkTopologyStrategy for keyspace r",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1, 'x': 1}",
            "Config: Unrecognized strategy option {x} passed to SimpleStrategy for keyspace r",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'SimpleStrategy', 'class': 'x'}",
            "Syntax: Multiple definition for property class",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'Nope', 'replication_factor': 1}",
            "Config: Unable to find replication strategy class 'org.apache.cassandra.locator.Nope'",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'SimpleStrategy', 'replication_factor': -1}",
            "Config: Replication factor must be non-negative, found -1",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'LocalStrategy'}",
            "Invalid: Unable to use given strategy class: LocalStrategy is reserved for internal use.",
        ),
        ("CREATE KEYSPACE r WITH durable_writes = true", "Invalid: Missing mandatory option 'replication'"),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 0}",
            "Config: Configuration for at least one datacenter must be present",
        ),
        (
            "CREATE KEYSPACE r WITH replication = 'x'",
            "Syntax: Invalid value for property 'replication'. It should be a map.",
        ),
        ("ALTER KEYSPACE ks WITH nope = 1", "Syntax: Unknown property 'nope'"),
        (
            "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'nowhere': 2}",
            "Config: Unrecognized strategy option {nowhere} passed to NetworkTopologyStrategy for keyspace ks",
        ),
        (
            "CREATE KEYSPACE r WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}",
            "done",
        ),
        (
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'r'",
            "{'class': 'org.apache.cassandra.locator.NetworkTopologyStrategy', 'datacenter1': '3'}",
        ),
    ]);
}

#[test]
fn table_options_out_of_range_are_refused() {
    let refused = [
        (
            "bloom_filter_fp_chance = 1.5",
            "Config: bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 (got 1.5)",
        ),
        ("bloom_filter_fp_chance = 'x'", "Syntax: Invalid double value x for 'bloom_filter_fp_chance'"),
        (
            "crc_check_chance = 2",
            "Config: crc_check_chance must be larger than or equal to 0 and smaller than or equal to 1.0 (got 2.0)",
        ),
        ("speculative_retry = 'x'", "Config: Invalid value x for option 'speculative_retry'"),
        (
            "speculative_retry = '101p'",
            "Config: Invalid value 101p for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)",
        ),
        (
            "caching = {'x': 'y'}",
            "Config: Invalid caching sub-options [x]: only 'keys' and 'rows_per_partition' are allowed",
        ),
        (
            "caching = {'keys': 'x'}",
            "Config: Invalid value 'x' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed",
        ),
        ("caching = 'all'", "Syntax: Invalid value for property 'caching'. It should be a map."),
        ("comment = {}", "Syntax: Invalid value for property 'comment'. It should be a string"),
        (
            "default_time_to_live = -1",
            "Config: default_time_to_live must be greater than or equal to 0 (got -1)",
        ),
        (
            "default_time_to_live = 630720001",
            "Config: default_time_to_live must be less than or equal to 630720000 (got 630720001)",
        ),
        ("gc_grace_seconds = 1.5", "Syntax: Invalid integer value 1.5 for 'gc_grace_seconds'"),
        ("min_index_interval = 0", "Config: min_index_interval must be greater than or equal to 1 (got 0)"),
        (
            "max_index_interval = 64",
            "Config: max_index_interval must be greater than or equal to min_index_interval (128) (got 64)",
        ),
        (
            "memtable_flush_period_in_ms = -1",
            "Config: memtable_flush_period_in_ms must be greater than or equal to 0 (got -1)",
        ),
        ("memtable = 'x'", "Config: Memtable configuration \"x\" not found."),
        ("read_repair_chance = 0.5", "Syntax: Unknown property 'read_repair_chance'"),
        ("dclocal_read_repair_chance = 0.5", "Syntax: Unknown property 'dclocal_read_repair_chance'"),
        ("replicate_on_write = true", "Syntax: Unknown property 'replicate_on_write'"),
    ];
    run(async move |engine| {
        for (option, expected) in refused {
            for text in ["CREATE TABLE o (k int PRIMARY KEY) WITH", "ALTER TABLE t WITH"] {
                assert_eq!(answer(engine, &format!("{text} {option}"), &[]).await, expected, "{text}");
            }
        }
    });
}

#[test]
fn wrong_primary_keys_and_orders_are_refused() {
    check(&[
        (
            "CREATE TABLE o (a int PRIMARY KEY, b int PRIMARY KEY)",
            "Invalid: Multiple PRIMARY KEY specified for table 'o' (exactly one required)",
        ),
        (
            "CREATE TABLE o (a int, b int, PRIMARY KEY (a, a))",
            "Invalid: Duplicate column 'a' in PRIMARY KEY clause for table 'o'",
        ),
        (
            "CREATE TABLE o (a int, PRIMARY KEY (z))",
            "Invalid: Unknown column 'z' referenced in PRIMARY KEY for table 'o'",
        ),
        (
            "CREATE TABLE o (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (c DESC)",
            "Invalid: Missing CLUSTERING ORDER for column b",
        ),
        (
            "CREATE TABLE o (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (c DESC, b ASC)",
            "Invalid: The order of columns in the CLUSTERING ORDER directive must match that of the clustering \
             columns (b must appear before c)",
        ),
        (
            "CREATE TABLE o (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC, a ASC)",
            "Invalid: Only clustering key columns can be defined in CLUSTERING ORDER directive: [a] are not \
             clustering columns",
        ),
        (
            "CREATE TABLE o (a int, b int, c int, PRIMARY KEY (a, b, c)) WITH CLUSTERING ORDER BY (b DESC)",
            "done",
        ),
    ]);
}

#[test]
fn wrong_durations_are_refused() {
    check(&[
        (
            "INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, 1h1h)",
            "Invalid: Invalid duration. The hours are specified multiple times",
        ),
        (
            "INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, 1m1h)",
            "Invalid: Invalid duration. The minutes should be after hours",
        ),
        (
            "INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, '1h1d')",
            "Invalid: Invalid STRING constant (1h1d) for \"p\" of type duration",
        ),
        (
            "INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, 'P1Y1W')",
            "Invalid: Invalid STRING constant (P1Y1W) for \"p\" of type duration",
        ),
        (
            "INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, P1Y1W)",
            "Syntax: line 1:50 mismatched input 'P1Y1W' expecting a term",
        ),
        (
            "SELECT k FROM t WHERE k = 1 AND p < 1h ALLOW FILTERING",
            "Invalid: Slice restrictions are not supported on duration columns",
        ),
        (
            "SELECT k FROM t WHERE k = 1 AND r < (1, 1h) ALLOW FILTERING",
            "Invalid: Slice restrictions are not supported on tuples containing durations",
        ),
        (
            "UPDATE t SET v = 1 WHERE k = 1 AND c = 1 AND d = 1 AND e = 1 IF p > 1h",
            "Invalid: Slice conditions ( > ) are not supported on durations",
        ),
        ("INSERT INTO t (k, c, d, e, p) VALUES (2, 1, 1, 1, P2W)", "done"),
        ("SELECT p FROM t WHERE k = 2 AND p = 14d ALLOW FILTERING", "14d"),
    ]);
}

#[test]
fn distinct_and_limits_of_partitions_are_checked() {
    check(&[
        (
            "SELECT DISTINCT a FROM w",
            "Invalid: SELECT DISTINCT queries must request all the partition key columns (missing b)",
        ),
        (
            "SELECT DISTINCT a, b, c FROM w",
            "Invalid: SELECT DISTINCT queries must only request partition key columns and/or static columns (not c)",
        ),
        (
            "SELECT DISTINCT a, b FROM w WHERE a = 1 AND b = 1 AND c = 1",
            "Invalid: SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static \
             columns.",
        ),
        (
            "SELECT DISTINCT a, b FROM w PER PARTITION LIMIT 1",
            "Invalid: PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ),
        (
            "SELECT count(*) FROM w PER PARTITION LIMIT 1",
            "Invalid: PER PARTITION LIMIT is not allowed with aggregate queries.",
        ),
        ("INSERT INTO w (a, b, c, s) VALUES (1, 2, 3, 4)", "done"),
        ("SELECT DISTINCT a FROM w WHERE a = 1 AND b = 2", "1"),
        ("SELECT DISTINCT s, b, a FROM w", "4,2,1"),
    ]);
}

#[test]
fn wrong_conditions_are_refused() {
    const ROW: &str = "UPDATE t SET v = 1 WHERE k = 1 AND c = 1 AND d = 1 AND e = 1 IF";
    let refused = [
        ("l CONTAINS null", "Invalid: Invalid comparison with null for operator \"CONTAINS\""),
        ("z CONTAINS null", "Invalid: Invalid comparison with null for operator \"CONTAINS\""),
        ("m CONTAINS KEY null", "Invalid: Invalid comparison with null for operator \"CONTAINS KEY\""),
        ("l[1] CONTAINS 3", "Syntax: line 1:69 mismatched input 'CONTAINS' expecting a comparison"),
    ];
    run(async move |engine| {
        for (condition, expected) in refused {
            assert_eq!(answer(engine, &format!("{ROW} {condition}"), &[]).await, expected, "{condition}");
        }
    });
}

#[test]
fn text_is_not_cast_into_ascii() {
    check(&[
        (
            "INSERT INTO t (k, c, d, e, y) VALUES (2, 1, 1, 1, (text)'a')",
            "Invalid: Cannot assign value (text)'a' to y of type ascii",
        ),
        (
            "INSERT INTO t (k, c, d, e, v) VALUES (2, 1, 1, 1, (int)'a')",
            "Invalid: Cannot cast value 'a' to type int",
        ),
        (
            "INSERT INTO t (k, c, d, e, v) VALUES (2, 1, 1, 1, (bigint)1)",
            "Invalid: Cannot assign value (bigint)1 to v of type int",
        ),
        ("INSERT INTO t (k, c, d, e, x, y, n) VALUES (2, 1, 1, 1, (ascii)'a', (ascii)'b', (int)7)", "done"),
        ("SELECT x, y, n FROM t WHERE k = 2", "'a','b',7"),
    ]);
}

/// The bytes of a cast were stored without a look at the column.
#[test]
fn cast_values_are_values_of_their_column() {
    check(&[
        ("CREATE TABLE h (k int PRIMARY KEY, w time, b frozen<set<blob>>)", "done"),
        ("INSERT INTO h (k, w) VALUES (1, (bigint)1)", "done"),
        ("INSERT INTO h (k, w) VALUES (1, (bigint)-1)", "Invalid: Unable to make long (for time) from: '-1'"),
        (
            "UPDATE h SET b = (frozen<set<int>>){-1, 1} WHERE k = 1",
            "Invalid: Cannot assign value (frozen<set<int>>){-1, 1} to b of type frozen<set<blob>>",
        ),
        (
            "UPDATE h SET b = (frozen<set<text>>){'b', 'a'} WHERE k = 1",
            "Invalid: Invalid set literal for b: value 'b' is not of type blob",
        ),
        ("UPDATE h SET b = (frozen<set<blob>>){0x62, 0x61} WHERE k = 1", "done"),
        ("SELECT w, b FROM h", "'00:00:00.000000001',{0x61, 0x62}"),
    ]);
}

/// All of a table was compacted before, and with all data in memory the reason was another one.
#[test]
fn column_that_cannot_be_added_again_is_refused_at_once() {
    check(&[
        ("CREATE TABLE h (k int PRIMARY KEY, v int)", "done"),
        ("ALTER TABLE h DROP v USING TIMESTAMP 5", "done"),
        (
            "ALTER TABLE h ADD v text",
            "Invalid: Cannot add a column 'v' of type text, incompatible with previously dropped column 'v' of type \
             int",
        ),
    ]);
}

#[test]
fn keys_over_64_kib_are_refused_and_elements_accepted() {
    let long = || Bound::text(&"x".repeat(65_536));
    let half = || Bound::text(&"x".repeat(32_768));
    let refused = "Invalid: Key length of 65536 is longer than maximum of 65535";
    let mut set = 1_i32.to_be_bytes().to_vec();
    set.extend(65_536_i32.to_be_bytes());
    set.extend([b'x'; 65_536]);
    check_values(vec![
        ("INSERT INTO g (k, c, d, v) VALUES ('a', ?, '', 1)", vec![long()], refused),
        ("INSERT INTO g (k, c, d, v) VALUES ('a', ?, ?, 1)", vec![half(), half()], refused),
        ("DELETE FROM g WHERE k = 'a' AND c = ?", vec![long()], "done"),
        ("DELETE FROM g WHERE k = 'a' AND c = ? AND d = ''", vec![long()], refused),
        ("INSERT INTO g (k, c, d, v) VALUES ('a', ?, 'b', 1)", vec![half()], "done"),
        // Its encoding has 45,001 bytes.
        ("CREATE TABLE h (k int, c frozen<list<int>>, PRIMARY KEY (k, c))", vec![], "done"),
        (
            "INSERT INTO h (k, c) VALUES (1, ?)",
            vec![Bound::list(&[Some(7); 9_000])],
            "Invalid: Key length of 72004 is longer than maximum of 65535",
        ),
        ("SELECT v FROM g", vec![], "1"),
        ("INSERT INTO t (k, c, d, e, z) VALUES (2, 1, 1, 1, ?)", vec![Bound::Bytes(set)], "done"),
        ("UPDATE t SET m[?] = 7 WHERE k = 2 AND c = 1 AND d = 1 AND e = 1", vec![long()], "done"),
        ("SELECT m[?] FROM t WHERE k = 2", vec![long()], "7"),
        ("SELECT k FROM t WHERE k = 2 AND z CONTAINS ? ALLOW FILTERING", vec![long()], "2"),
    ]);
}

#[test]
fn null_time_to_live_is_none() {
    let insert = "INSERT INTO o (k, v) VALUES (1, 1) USING TTL ?";
    run(async move |engine| {
        let table = "CREATE TABLE o (k int PRIMARY KEY, v int) WITH default_time_to_live = 1000";
        assert_eq!(answer(engine, table, &[]).await, "done");
        assert_eq!(answer(engine, insert, &[Value::Null]).await, "done");
        assert_eq!(answer(engine, "SELECT ttl(v) FROM o", &[]).await, "null");
        assert_eq!(answer(engine, insert, &[Value::Unset]).await, "done");
        assert_ne!(answer(engine, "SELECT ttl(v) FROM o", &[]).await, "null", "the default one");
    });
}

#[test]
fn null_and_unset_are_accepted_inside_if_in() {
    let update = "UPDATE t SET x = 'y' WHERE k = 1 AND c = 1 AND d = 1 AND e = 1 IF";
    let listed: &'static str = format!("{update} n IN ?").leak();
    let terms: &'static str = format!("{update} v IN (?, ?)").leak();
    let ints: &'static str = format!("{update} v IN ?").leak();
    let nulls: &'static str = format!("{update} s IN (?, 5)").leak();
    check_values(vec![
        (ints, vec![Bound::list(&[None, Some(1)])], "true"),
        (ints, vec![Bound::list(&[None, Some(2)])], "false,1"),
        (listed, vec![Bound::list(&[None])], "true"),
        (ints, vec![Bound::Null], "Invalid: Invalid null list in IN condition"),
        (ints, vec![Bound::Unset], "Invalid: Invalid 'unset' value in condition"),
        (terms, vec![Bound::Unset, Bound::int(1)], "true"),
        (terms, vec![Bound::Null, Bound::int(2)], "false,1"),
        (nulls, vec![Bound::Null], "true"),
    ]);
}

#[test]
fn order_by_follows_equal_clustering_columns() {
    let wrong = "Invalid: Order by currently only supports the ordering of columns following their declared order \
                 in the PRIMARY KEY";
    check(&[
        ("SELECT d FROM t WHERE k = 1 AND c = 1 ORDER BY d DESC", "2 1"),
        ("SELECT d FROM t WHERE k = 1 AND c = 1 ORDER BY d ASC", "1 2"),
        ("SELECT d FROM t WHERE k = 1 AND c = 1 AND d = 1 ORDER BY e DESC", "1"),
        ("SELECT c, d FROM t WHERE k IN (1, 2) AND c = 1 ORDER BY d DESC", "1,2 1,1"),
        ("SELECT d FROM t WHERE k = 1 ORDER BY d", wrong),
        ("SELECT d FROM t WHERE k = 1 AND c IN (1, 2) ORDER BY d", wrong),
        ("SELECT d FROM t WHERE k = 1 AND c > 1 ORDER BY d", wrong),
        ("SELECT d FROM t WHERE k = 1 ORDER BY c, e", wrong),
        ("SELECT d FROM t WHERE k = 1 ORDER BY c ASC, d DESC", "Invalid: Unsupported order by relation"),
    ]);
}

#[test]
fn static_column_is_set_under_a_condition_on_a_row() {
    check(&[
        ("UPDATE t SET s = 5 WHERE k = 1 AND c = 1 AND d = 1 AND e = 1 IF v = 1", "true"),
        ("UPDATE t SET s = 6 WHERE k = 1 AND c = 1 AND d = 1 AND e = 1 IF v = 2", "false,1"),
        ("SELECT DISTINCT k, s FROM t", "1,5"),
        (
            "UPDATE t SET s = 6 WHERE k = 1 AND c = 1 AND d = 1 AND e = 1",
            "Invalid: Invalid restrictions on clustering columns since the UPDATE statement modifies only static \
             columns",
        ),
    ]);
}

#[test]
fn tuples_are_parsed_from_text() {
    check(&[
        ("INSERT INTO t (k, c, d, e, u, q) VALUES (2, 1, 1, 1, '1:a', '1:b\\:2')", "done"),
        ("INSERT INTO t (k, c, d, e, u) VALUES (2, 1, 1, 2, '@:x\\:y')", "done"),
        ("INSERT INTO t (k, c, d, e, u) VALUES (2, 1, 1, 3, 7)", "done"),
        ("SELECT u, q FROM t WHERE k = 2", "(1, 'a'),(1, ('b', 2)) (null, 'x:y'),null (7),null"),
        (
            "INSERT INTO t (k, c, d, e, u) VALUES (2, 1, 1, 1, '1:a:b')",
            "Invalid: Invalid tuple literal: too many elements. Type frozen<tuple<int, text>> expects 2 but got 3",
        ),
    ]);
}

#[test]
fn names_of_tables_and_types_are_cassandras() {
    let long: &'static str = format!("CREATE TABLE {} (k int PRIMARY KEY)", "t".repeat(222)).leak();
    let too_long: &'static str = format!("CREATE TABLE {} (k int PRIMARY KEY)", "t".repeat(223)).leak();
    let refused: &'static str = format!(
        "Invalid: Table name must not be more than 222 characters long (got 223 characters for \"{}\")",
        "t".repeat(223)
    )
    .leak();
    check(&[
        (long, "done"),
        (too_long, refused),
        ("CREATE TYPE \"a-b \"\"c\" (x int,, y int,)", "done"),
        ("CREATE TYPE \"int\" (x int)", "done"),
        ("CREATE TABLE o (k int PRIMARY KEY,, v frozen<\"a-b \"\"c\">, i frozen<\"int\">,)", "done"),
        ("INSERT INTO o (k, v, i) VALUES (1, {x: 1, y: 2}, {x: 3})", "done"),
        ("SELECT v, i FROM o", "{x: 1, y: 2},{x: 3}"),
        (
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = 'ks' AND table_name = 'o'",
            "'i','frozen<\"int\">' 'k','int' 'v','frozen<\"a-b \"\"c\">'",
        ),
    ]);
}

#[test]
fn schema_tables_hold_the_maps_of_cassandra() {
    const TIERED: &str = "{'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', \
                          'max_threshold': '32', 'min_threshold': '4'}";
    const LZ4: &str =
        "{'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}";
    let shown = [
        ("comment = ''", "compaction", TIERED),
        ("compaction = {'class': 'SizeTieredCompactionStrategy'}", "compaction", TIERED),
        (
            "compaction = {'class': 'LeveledCompactionStrategy', 'max_threshold': 8}",
            "compaction",
            "{'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy', 'max_threshold': '8', \
             'min_threshold': '4'}",
        ),
        ("compaction = {'class': 'LeveledCompactionStrategy'}", "bloom_filter_fp_chance", "0.1"),
        ("comment = ''", "bloom_filter_fp_chance", "0.01"),
        ("comment = ''", "compression", LZ4),
        ("compression = {'sstable_compression': 'LZ4Compressor'}", "compression", LZ4),
        (
            "compression = {'class': 'ZstdCompressor', 'chunk_length_kb': 64}",
            "compression",
            "{'chunk_length_in_kb': '64', 'class': 'org.apache.cassandra.io.compress.ZstdCompressor'}",
        ),
        ("compression = {'enabled': false}", "compression", "{'enabled': 'false'}"),
        ("compression = {'sstable_compression': ''}", "compression", "{'enabled': 'false'}"),
        ("comment = ''", "caching", "{'keys': 'ALL', 'rows_per_partition': 'NONE'}"),
        ("caching = {'keys': 'none'}", "caching", "{'keys': 'NONE', 'rows_per_partition': 'NONE'}"),
        ("caching = {'rows_per_partition': 10}", "caching", "{'keys': 'NONE', 'rows_per_partition': '10'}"),
        ("speculative_retry = '99PERCENTILE'", "speculative_retry", "'99p'"),
        ("speculative_retry = 'none'", "speculative_retry", "'NEVER'"),
        ("speculative_retry = 'min(99p, 50ms)'", "speculative_retry", "'MIN(99p,50ms)'"),
        ("additional_write_policy = 50ms", "additional_write_policy", "'50ms'"),
    ];
    run(async move |engine| {
        for (option, column, expected) in shown {
            for text in [
                &*format!("CREATE TABLE o (k int PRIMARY KEY) WITH {option}"),
                &*format!(
                    "SELECT {column} FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 'o'"
                ),
                "DROP TABLE o",
            ] {
                let expected = if text.starts_with("SELECT") { expected } else { "done" };
                assert_eq!(answer(engine, text, &[]).await, expected, "{option}: {text}");
            }
        }
    });
}
