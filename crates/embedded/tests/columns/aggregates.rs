//! Aggregates of long scans: by column they have the bytes that they have by row. A write time
//! among the selectors makes a query run by row.

use testkit::Random;

use crate::server::Server;
use crate::{SMALL, seed};

/// Columns: name, type, and true for a static column.
const COLUMNS: [(&str, &str, bool); 19] = [
    ("s", "int", true),
    ("sd", "double", true),
    ("b", "bigint", false),
    ("bl", "blob", false),
    ("bo", "boolean", false),
    ("da", "date", false),
    ("de", "decimal", false),
    ("db", "double", false),
    ("fl", "float", false),
    ("ip", "inet", false),
    ("i", "int", false),
    ("sm", "smallint", false),
    ("te", "text", false),
    ("ti", "time", false),
    ("ts", "timestamp", false),
    ("tu", "timeuuid", false),
    ("ty", "tinyint", false),
    ("va", "varint", false),
    ("gone", "int", false),
];

/// Key columns: a partition key of two, and clustering columns in both orders.
const KEYS: [(&str, &str); 4] = [("p", "int"), ("q", "text"), ("c", "timestamp"), ("d", "smallint")];

fn create() -> String {
    let keys = KEYS.map(|(name, ty)| format!("{name} {ty}"));
    let of_column =
        |(name, ty, of_partition)| format!("{name} {ty}{}", if of_partition { " static" } else { "" });
    format!(
        "CREATE TABLE t ({}, {}, PRIMARY KEY ((p, q), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)",
        keys.join(", "),
        COLUMNS.map(of_column).join(", ")
    )
}

/// Returns a constant. Numbers overflow sums, fractions round, and equal values have several forms.
fn constant(ty: &str, random: &mut Random) -> String {
    let n = random.next_u64();
    match ty {
        "bigint" if n.is_multiple_of(3) => (i64::MAX - (n % 5) as i64).to_string(),
        "time" => (n % 86_400_000_000_000).to_string(),
        "bigint" | "timestamp" => (n as i64 / 1_000_000).to_string(),
        "int" if n.is_multiple_of(2) => (i32::MAX - (n % 7) as i32).to_string(),
        "int" => (n as i32).to_string(),
        "smallint" => (n as i16).to_string(),
        "tinyint" => (n as i8).to_string(),
        "date" => format!("'{}-02-{:02}'", 1960 + n % 80, 1 + n % 28),
        "double" | "float" => match n % 50 {
            0 => "-0.0".into(),
            1 => "0.0".into(),
            _ => format!("{}.{:07}", n as i64 % 1000, n % 9_999_991),
        },
        "decimal" => {
            ["1.0", "1.00", "-7.125", "0.333333333", "12345678901234567890.1"][n as usize % 5].into()
        }
        "varint" => ["-1", "170141183460469231731687303715884105727", "5"][n as usize % 3].into(),
        "boolean" => n.is_multiple_of(2).to_string(),
        "blob" => format!("0x{:06x}", n % 0xff_ffff),
        "inet" => format!("'10.{}.0.{}'", n % 7, n % 200),
        "timeuuid" => format!("{:08x}-29bb-11e5-b345-feff819cdc9f", n as u32),
        _ => format!("'{}'", "é".repeat(n as usize % 9) + &(n % 1000).to_string()),
    }
}

/// A partition of some thousand rows.
const LONG: &str = "p = 7 AND q = 'long'";

fn partition(random: &mut Random) -> String {
    format!("p = {} AND q = '{}'", random.below(400), ["", "north"][random.index(2)])
}

/// Returns a row, half of them in a long partition.
fn row(random: &mut Random) -> String {
    if random.one_in(2) {
        return format!("{LONG} AND c = {} AND d = {}", random.below(1500), random.below(2));
    }
    format!("{} AND c = {} AND d = {}", partition(random), random.below(4), random.below(2))
}

/// Returns one write. With `brief`, some cells live for a second.
fn write(random: &mut Random, brief: bool) -> String {
    let ttl = match random.below(5) {
        0 if brief => " USING TTL 1",
        1 => " USING TTL 100000",
        _ => "",
    };
    match random.below(20) {
        0..14 => {
            let chosen: Vec<_> = COLUMNS.iter().filter(|_| random.below(3) > 0).collect();
            let set = chosen.iter().map(|(name, ty, _)| format!("{name} = {}", constant(ty, random)));
            let set: Vec<String> = set.collect();
            match random.below(4) {
                _ if set.is_empty() => format!("DELETE FROM t WHERE {}", row(random)),
                0 | 1 => format!("UPDATE t{ttl} SET {} WHERE {}", set.join(", "), row(random)),
                _ => {
                    let (names, values): (Vec<_>, Vec<_>) =
                        set.iter().map(|set| set.split_once(" = ").expect("an assignment")).unzip();
                    let (p, c, d) = (random.below(400), random.below(4), random.below(2));
                    format!(
                        "INSERT INTO t (p, q, c, d, {}) VALUES ({p}, '', {c}, {d}, {}){ttl}",
                        names.join(", "),
                        values.join(", ")
                    )
                }
            }
        }
        14 | 15 => format!("UPDATE t{ttl} SET s = {} WHERE {}", random.below(99), partition(random)),
        16 => format!("DELETE i, te FROM t WHERE {}", row(random)),
        17 => format!("DELETE FROM t WHERE {}", row(random)),
        18 if random.one_in(9) => format!("DELETE FROM t WHERE {LONG} AND c > {}", 1200 + random.below(300)),
        18 => format!("DELETE FROM t WHERE {} AND c > 2", partition(random)),
        _ => format!("DELETE FROM t WHERE {}", partition(random)),
    }
}

/// Returns an aggregate of a column or of an expression.
fn aggregate(random: &mut Random) -> String {
    if random.one_in(6) {
        let all = [
            "p",
            "c",
            "count(*)",
            "sum(cast(i AS bigint))",
            "avg(db + fl)",
            "max(sm + ty)",
            "min(te + 'x')",
            "max(d * sm)",
            "count(toDate(c))",
            "max((int) 5)",
        ];
        return all[random.index(all.len())].to_owned();
    }
    let columns = COLUMNS.iter().map(|(name, ty, _)| (*name, *ty)).chain(KEYS);
    let (name, ty) = random.pick(&columns.collect::<Vec<_>>());
    let is_number =
        ["bigint", "decimal", "double", "float", "int", "smallint", "tinyint", "varint"].contains(&ty);
    let names = ["count", "min", "max", "sum", "avg"];
    format!("{}({name})", names[random.index(if is_number { 5 } else { 3 })])
}

/// Returns the end of a query: a range of tokens, and filters.
fn restriction(random: &mut Random) -> String {
    let (n, text) = (random.below(1000) as i64, random.below(10));
    let tokens = format!("token(p, q) > {}", i64::MIN / 2 + n);
    match random.below(14) {
        0 => format!(" WHERE {tokens}"),
        1 => format!(" WHERE {tokens} AND i > 0 ALLOW FILTERING"),
        2 => format!(" WHERE te >= '{text}' AND db < 500.0 ALLOW FILTERING"),
        3 => " WHERE s > 50 AND q = '' ALLOW FILTERING".into(),
        4 => " WHERE d = 1 AND bo = true ALLOW FILTERING".into(),
        5 => format!(" WHERE c < {} ALLOW FILTERING", n % 5),
        7 | 8 => format!(" WHERE {LONG}"),
        9 => format!(" WHERE {LONG} AND i > 0 AND s < 80 ALLOW FILTERING"),
        10 => " WHERE p IN (6, 7, 8) AND q IN ('', 'long')".into(),
        11 => format!(" WHERE {LONG} AND c > {} AND c < 1000", n % 500),
        6 => " WHERE de IN (1.0, -7.125) ALLOW FILTERING".into(),
        _ => String::new(),
    }
}

/// Runs a query by column and by row, which must have the same bytes, or the same error.
fn check_query(server: &Server, selectors: &[String], restriction: &str, what: &str) {
    let selectors = selectors.join(", ");
    let by_column = server.one(&format!("SELECT {selectors} FROM t{restriction}"));
    let by_row = server.one(&format!("SELECT {selectors}, max(writetime(i)) FROM t{restriction}"));
    let expected = by_row.row.map(|mut row| {
        row.pop();
        row
    });
    assert_eq!(by_column.row, expected, "{what}: {selectors}{restriction}");
}

fn check_queries(server: &Server, random: &mut Random, what: &str) {
    for _ in 0..60 {
        let others = (0..1 + random.below(5)).map(|_| aggregate(random));
        let selectors: Vec<String> =
            ["count(*)", "count(i)"].map(str::to_owned).into_iter().chain(others).collect();
        check_query(server, &selectors, &restriction(random), what);
    }
}

#[test]
fn aggregates_by_column_are_those_by_row() {
    for cores in [1, 3] {
        let seed = seed(70 + cores as u64);
        let mut random = Random::new(seed);
        let server = Server::start(cores, SMALL);
        server.run(vec![create()]);
        for round in 0..3 {
            server.run((0..3000).map(|_| write(&mut random, false)).collect());
            let rows = server.one("SELECT count(*) FROM t");
            // Counting by column reads no bytes of rows. Of three cores some may have too few rows.
            assert!(cores > 1 || rows.bytes_read == 0, "{} bytes read", rows.bytes_read);
            check_queries(&server, &mut random, &format!("seed {seed} on {cores} cores, round {round}"));
            server.flush();
        }
        server.run((0..2000).map(|_| write(&mut random, true)).collect());
        server.wait(std::time::Duration::from_millis(2100));
        check_queries(&server, &mut random, &format!("seed {seed} on {cores} cores, after expiry"));
        let only_gone = |n| format!("UPDATE t SET gone = 1 WHERE p = {n} AND q = 'new' AND c = 0 AND d = 0");
        server.run((0..50).map(only_gone).collect());
        server.run(vec!["ALTER TABLE t DROP gone".into(), "ALTER TABLE t ADD gone int".into()]);
        check_queries(&server, &mut random, &format!("seed {seed} on {cores} cores, a column dropped"));
        // Numbers without bytes are counted, and are the least.
        server.run(vec!["UPDATE t SET i = blobAsInt(0x) WHERE p = 1 AND q = 'x' AND c = 1 AND d = 1".into()]);
        let empty = ["count(i)", "min(i)", "max(i)", "sum(i)", "avg(i)"].map(str::to_owned);
        check_query(&server, &empty, "", &format!("seed {seed} on {cores} cores, an empty number"));
        server.stop();
    }
}

#[test]
fn aggregates_by_column_go_on_over_portions() {
    for cores in [1, 3] {
        let server = Server::start(cores, 4 << 20);
        server.run(vec!["CREATE TABLE t (k int PRIMARY KEY, i int, db double, te text)".into()]);
        let mut random = Random::new(seed(80));
        let text = "long ".repeat(400);
        // More bytes than one portion of columns, and more partitions than one of rows.
        let long = (0..9000).map(|k| {
            let db = constant("double", &mut random);
            format!("INSERT INTO t (k, i, db, te) VALUES ({k}, {k}, {db}, '{k}{text}')")
        });
        server.run(long.collect());
        let short = (9000..40_000).map(|k| format!("INSERT INTO t (k, db) VALUES ({k}, 0.{k})"));
        server.run(short.collect());
        let rows = server.one("SELECT count(*), count(te), min(k) FROM t").row.expect("rows");
        assert_eq!(server.one("SELECT count(*) FROM t").bytes_read, 0, "{cores} cores read by column");
        let count = |n: i64| Some(n.to_be_bytes().to_vec());
        assert_eq!(rows, [count(40_000), count(9000), Some(vec![0; 4])]);
        let selectors = ["max(te)", "min(te)", "sum(db)", "avg(db)", "sum(i)", "count(*)"].map(str::to_owned);
        check_query(&server, &selectors, "", &format!("{cores} cores"));
        server.stop();
    }
}

#[test]
fn failing_expressions_fail_by_column_and_by_row() {
    let server = Server::start(1, SMALL);
    server.run(vec!["CREATE TABLE t (k int PRIMARY KEY, i int)".into()]);
    server.run((0..2000).map(|k| format!("INSERT INTO t (k, i) VALUES ({k}, {})", k % 7)).collect());
    check_query(&server, &["sum(k / i)".to_owned()], "", "a division by zero");
    check_query(&server, &["sum(k / i)".to_owned()], " WHERE i > 0 ALLOW FILTERING", "no division by zero");
    server.stop();
}

#[test]
fn rows_behind_the_first_of_a_long_partition_in_one_file_count_once() {
    let server = Server::start(1, 64 << 20);
    server.run(vec!["CREATE TABLE t (k int, c int, i int, PRIMARY KEY (k, c))".into()]);
    let rows = (0..5000).map(|c| format!("INSERT INTO t (k, c, i) VALUES (1, {c}, {c})"));
    server.run(rows.collect());
    server.flush();
    let count = server.one("SELECT count(*) FROM t WHERE k = 1").row.expect("a row");
    assert_eq!(count, [Some(5000_i64.to_be_bytes().to_vec())]);
    let selectors = ["count(*)", "sum(i)", "min(c)", "max(i)"].map(str::to_owned);
    check_query(&server, &selectors, " WHERE k = 1", "a long partition");
    server.stop();
}
