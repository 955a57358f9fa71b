//! Legal requests and schemas of extreme sizes. Each asks the fast lane for much work at once: long
//! batches on one partition, large values, wide types, large collections, and small segments.

use bytes::Bytes;
use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Compression, Direction, Encoder, Opcode, Prelude,
    Query, QueryParams, Request, Statement, Value, ValuesBuf, Version,
};

use super::cql_answers::{must_bound, text};
use super::cql_frames::{bound, text_batch};
use super::{cql_answers, cql_rounds, segments};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::native::{Native, query};

/// Bytes of a large value, just below the longest body.
const VALUE_BYTES: usize = 15 << 20;
/// Elements of a collection: the most that guardrails accept.
const ELEMENTS: usize = 65_000;
/// Fields of a user type that a table may have.
const FIELDS: usize = 4_000;
/// Columns of a table: the most that guardrails accept.
const COLUMNS: usize = 2_000;

/// Encodes a request for a connection.
type Make<'a> = &'a dyn Fn(&mut Native) -> Vec<u8>;

/// Sends the frames in turn on one connection.
fn frames(run: &AttackRun, make: &[Make<'_>]) -> Result<(), ServerAnswer> {
    cql_rounds(run, Compression::Lz4, |native, n| make[n as usize % make.len()](native))
}

/// Returns the joined texts of 0 to `count` - 1.
fn joined(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(", ")
}

/// Encodes a batch of one prepared statement, with the values of `each` for each number.
fn prepared_batch(
    native: &mut Native,
    kind: BatchKind,
    id: &[u8],
    count: usize,
    each: impl Fn(i32, &mut ValuesBuf),
) -> Vec<u8> {
    let mut entries = BatchBuf::new();
    for n in 0..count as i32 {
        let mut values = ValuesBuf::new();
        each(n, &mut values);
        let entry = BatchEntry { statement: Statement::Prepared(id), values: values.values() };
        entries.push(entry).expect("60,000 statements fit");
    }
    native.encode(0, &Request::Batch(Batch::new(kind, &entries, BatchParams::default())))
}

fn push(values: &mut ValuesBuf, bytes: &[u8]) {
    values.push(Value::Bytes(bytes)).expect("a few values fit");
}

/// Sends batches of up to 60,000 prepared statements on one partition: inserts, deletions of ranges
/// and of rows, updates of one row, conditions and counters. Reads the partition in between.
pub(crate) fn prepared_batches(run: &AttackRun) -> Result<(), ServerAnswer> {
    let made = [
        "CREATE TABLE IF NOT EXISTS yard.one (k int, c int, v text, l list<int>, s int static, PRIMARY KEY (k, c))",
        "CREATE TABLE IF NOT EXISTS yard.counts (k int, c int, n counter, PRIMARY KEY (k, c))",
    ];
    let mut native = cql_answers::made(run, &made)?;
    let mut prepare = |text: &str| native.prepare(text);
    let insert = prepare("INSERT INTO yard.one (k, c, v) VALUES (1, ?, 'value of a row')")?;
    let range = prepare("DELETE FROM yard.one WHERE k = 1 AND c > ? AND c < ?")?;
    let row = prepare("DELETE FROM yard.one WHERE k = 1 AND c = ?")?;
    let append = prepare("UPDATE yard.one SET l = l + [1], s = 1 WHERE k = 1 AND c = ?")?;
    let condition = prepare("INSERT INTO yard.one (k, c, v) VALUES (1, ?, 'a') IF NOT EXISTS")?;
    let count = prepare("UPDATE yard.counts SET n = n + 1 WHERE k = 1 AND c = ?")?;
    let (logged, plain) = (BatchKind::Logged, BatchKind::Unlogged);
    let key = |n: i32, values: &mut ValuesBuf| push(values, &n.to_be_bytes());
    let same = |_: i32, values: &mut ValuesBuf| push(values, &7i32.to_be_bytes());
    let bounds = |n: i32, values: &mut ValuesBuf| {
        push(values, &n.to_be_bytes());
        push(values, &(n + 30_000).to_be_bytes());
    };
    let read = |text: &'static str| move |native: &mut Native| native.encode(0, &query(text));
    frames(
        run,
        &[
            &|native| prepared_batch(native, plain, &insert, 60_000, key),
            &|native| prepared_batch(native, logged, &insert, 60_000, key),
            &read("SELECT v FROM yard.one WHERE k = 1 ORDER BY c DESC LIMIT 1"),
            &|native| prepared_batch(native, plain, &append, 10_000, same),
            &read("SELECT * FROM yard.one WHERE k = 1 AND c = 7"),
            &|native| prepared_batch(native, plain, &range, 20_000, bounds),
            &read("SELECT v FROM yard.one WHERE k = 1 LIMIT 1"),
            &|native| prepared_batch(native, logged, &row, 60_000, key),
            &read("SELECT count(*) FROM yard.one WHERE k = 1"),
            &|native| prepared_batch(native, plain, &condition, 20_000, key),
            &|native| prepared_batch(native, BatchKind::Counter, &count, 30_000, key),
            &|native| prepared_batch(native, BatchKind::Counter, &count, 30_000, same),
            &|native| prepared_batch(native, plain, &insert, 60_000, same),
        ],
    )
}

/// Writes values of 15 MiB of each type whose encoding or text is checked or converted, static ones
/// too. Reads rows beside them.
pub(crate) fn long_values(run: &AttackRun) -> Result<(), ServerAnswer> {
    let table = "CREATE TABLE IF NOT EXISTS yard.long \
                 (k int, c int, t text, a ascii, b blob, n varint, d decimal, l list<text>, s text static, \
                 u frozen<tuple<text, varint>>, PRIMARY KEY (k, c))";
    cql_answers::made(run, &[table])?;
    let letters = vec![b'a'; VALUE_BYTES];
    let umlauts = "ä".repeat(VALUE_BYTES / 2).into_bytes();
    let list = [&1u32.to_be_bytes()[..], &(VALUE_BYTES as u32).to_be_bytes(), &letters].concat();
    let tuple = [
        &2_000_000u32.to_be_bytes()[..],
        &letters[..2_000_000],
        &9_000_000u32.to_be_bytes(),
        &letters[..9_000_000],
    ]
    .concat();
    let digits = "9".repeat(3_000_000);
    let into = |column: &str| format!("INSERT INTO yard.long (k, c, {column}) VALUES (1, 1, ?)");
    let literal =
        |column: &str, value: &str| format!("INSERT INTO yard.long (k, c, {column}) VALUES (1, 2, {value})");
    let sent = |column: &'static str, value: &[u8]| {
        let value = Bytes::copy_from_slice(value);
        move |native: &mut Native| bound(native, &into(column), &[&value])
    };
    let as_text = |text: String| move |native: &mut Native| native.encode(0, &query(&text));
    let static_value = letters.clone();
    frames(
        run,
        &[
            &sent("t", &umlauts),
            &sent("a", &letters),
            &sent("n", &letters),
            &sent("d", &letters),
            &sent("l", &list),
            &sent("u", &tuple),
            &as_text(literal("n", &digits)),
            &as_text(literal("n", &format!("-{digits}"))),
            &as_text(literal("d", &format!("{digits}.{digits}"))),
            &as_text(literal("d", "1e2147483647")),
            &as_text(literal("t", &format!("'{}'", "''".repeat(7_000_000)))),
            &as_text(literal("t", &format!("$${}$$", "$'".repeat(7_000_000)))),
            &as_text(literal("b", &format!("0x{}", "ab".repeat(7_000_000)))),
            &as_text(literal("l", &format!("['{}', '{}']", "x".repeat(7_000_000), "y".repeat(7_000_000)))),
            &move |native| bound(native, "INSERT INTO yard.long (k, s) VALUES (1, ?)", &[&static_value]),
            &as_text("INSERT INTO yard.long (k, c, t) VALUES (1, 3, 'short')".to_owned()),
            &as_text("UPDATE yard.long SET t = 'other' WHERE k = 1 AND c = 3 IF s = 'x'".to_owned()),
            &as_text("SELECT c FROM yard.long WHERE k = 1 AND c = 3".to_owned()),
            &as_text(format!("SELECT c FROM yard.long WHERE n = {digits} ALLOW FILTERING")),
            &as_text("SELECT c, s FROM yard.long WHERE k = 1 AND c > 1".to_owned()),
            &as_text("DELETE n, d, l FROM yard.long WHERE k = 1 AND c IN (1, 2)".to_owned()),
        ],
    )
}

/// Uses a type with 4,000 fields and one with 5,000, alone, in collections, and field by field.
pub(crate) fn wide_types(run: &AttackRun) -> Result<(), ServerAnswer> {
    let fields = |count: usize| joined(count, |n| format!("f{n} int"));
    let value = joined(FIELDS, |n| format!("f{n}: {n}"));
    let bytes: Vec<u8> =
        (0..FIELDS as u32).flat_map(|n| [4u32.to_be_bytes(), n.to_be_bytes()].concat()).collect();
    let several = [&1_000u32.to_be_bytes()[..], &{
        let one = [&(4_000u32).to_be_bytes()[..], &bytes[..4_000]].concat();
        one.repeat(1_000)
    }]
    .concat();
    let as_text = |text: String| move |native: &mut Native| native.encode(0, &query(&text));
    frames(
        run,
        &[
            &as_text(format!("CREATE TYPE IF NOT EXISTS yard.fields ({})", fields(FIELDS))),
            &as_text(format!("CREATE TYPE IF NOT EXISTS yard.more_fields ({})", fields(5_000))),
            &as_text(
                "CREATE TABLE IF NOT EXISTS yard.of_fields (k int PRIMARY KEY, u fields, f frozen<fields>, \
                 l list<frozen<fields>>)"
                    .to_owned(),
            ),
            &as_text("CREATE TABLE IF NOT EXISTS yard.of_more (k int PRIMARY KEY, u more_fields)".to_owned()),
            &as_text(format!("INSERT INTO yard.of_fields (k, u) VALUES (1, {{{value}}})")),
            &as_text(format!("INSERT INTO yard.of_fields (k, f) VALUES (1, {{{value}}})")),
            &|native| {
                bound(native, "INSERT INTO yard.of_fields (k, u, f) VALUES (1, ?, ?)", &[&bytes, &bytes])
            },
            &|native| bound(native, "INSERT INTO yard.of_fields (k, l) VALUES (1, ?)", &[&several]),
            &as_text(format!(
                "UPDATE yard.of_fields SET {} WHERE k = 1",
                joined(FIELDS, |n| format!("u.f{n} = 1"))
            )),
            &as_text(format!("SELECT {} FROM yard.of_fields", joined(FIELDS, |n| format!("u.f{n}")))),
            &as_text("SELECT * FROM yard.of_fields WHERE k = 1".to_owned()),
            &as_text(format!(
                "DELETE {} FROM yard.of_fields WHERE k = 1",
                joined(FIELDS, |n| format!("u.f{n}"))
            )),
            &as_text("ALTER TYPE yard.fields ADD another int".to_owned()),
            &as_text(format!(
                "ALTER TYPE yard.fields RENAME {}",
                (0..500).map(|n| format!("f{n} TO g{n}")).collect::<Vec<_>>().join(" AND ")
            )),
            &as_text(format!("UPDATE yard.of_fields SET u = null, f = null WHERE k = 1 IF f = {{{value}}}")),
        ],
    )
}

/// Fills lists, sets and maps with 65,000 elements, and changes single ones.
pub(crate) fn collections(run: &AttackRun) -> Result<(), ServerAnswer> {
    let table = "CREATE TABLE IF NOT EXISTS yard.many \
                 (k int PRIMARY KEY, l list<int>, s set<int>, m map<int, text>, f frozen<map<int, int>>)";
    cql_answers::made(run, &[table])?;
    let ints = super::cql_frames::ints(ELEMENTS as u32);
    let pairs = |value: &dyn Fn(u32) -> Vec<u8>| {
        let each = |n: u32| {
            let value = value(n);
            [&4u32.to_be_bytes()[..], &n.to_be_bytes(), &(value.len() as u32).to_be_bytes(), &value].concat()
        };
        let mut bytes = (ELEMENTS as u32).to_be_bytes().to_vec();
        bytes.extend((0..ELEMENTS as u32).flat_map(each));
        bytes
    };
    let (map, frozen) = (pairs(&|_| vec![b'v'; 50]), pairs(&|n| n.to_be_bytes().to_vec()));
    let equal = [&(ELEMENTS as u32).to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 7].repeat(ELEMENTS)].concat();
    let set = |native: &mut Native, change: &str, value: &[u8]| {
        bound(native, &format!("UPDATE yard.many SET {change} WHERE k = 1"), &[value])
    };
    let elements = |native: &mut Native, change: fn(usize) -> String| {
        text_batch(native, BatchKind::Unlogged, 1_000, change)
    };
    let as_text = |text: String| move |native: &mut Native| native.encode(0, &query(&text));
    let indexes = joined(1_000, |n| format!("l[{n}] = 1"));
    frames(
        run,
        &[
            &|native| set(native, "l = ?", &ints),
            &|native| set(native, "s = ?", &ints),
            &|native| set(native, "m = ?", &map),
            &|native| set(native, "f = ?", &frozen),
            &as_text(format!("UPDATE yard.many SET {indexes} WHERE k = 1")),
            &|native| elements(native, |n| format!("UPDATE yard.many SET l[{n}] = 5 WHERE k = 1")),
            &|native| elements(native, |n| format!("DELETE l[{n}] FROM yard.many WHERE k = 1")),
            &|native| set(native, "l = l - ?", &ints),
            &|native| set(native, "l = ? + l", &ints),
            &|native| set(native, "s = s - ?", &ints),
            &|native| set(native, "s = ?", &equal),
            &|native| set(native, "m = m - ?", &ints),
            &|native| elements(native, |n| format!("UPDATE yard.many SET m[{n}] = 'w' WHERE k = 1")),
            &|native| bound(native, "UPDATE yard.many SET l = [1] WHERE k = 1 IF f = ?", &[&frozen]),
            &|native| bound(native, "UPDATE yard.many SET l = [1] WHERE k = 1 IF m = ?", &[&map]),
            &as_text(format!("SELECT {} FROM yard.many WHERE k = 1", joined(500, |n| format!("m[{n}]")))),
            &as_text("SELECT l, s, m, f FROM yard.many WHERE k = 1".to_owned()),
            &as_text(
                "SELECT k FROM yard.many WHERE l CONTAINS 64999 AND m CONTAINS 'x' ALLOW FILTERING"
                    .to_owned(),
            ),
        ],
    )
}

/// Sends requests of protocol v5 in segments of one byte, in empty segments, and many requests in
/// one segment each.
pub(crate) fn small_segments(run: &AttackRun) -> Result<(), ServerAnswer> {
    let envelope = |text: &str| {
        let mut encoder = Encoder::new(Direction::Request, Version::V5);
        let request = Request::Query(Query { text, params: QueryParams::default() });
        encoder.request(1, &request).expect("a query fits");
        encoder.finish().to_vec()
    };
    let short = envelope("SELECT v FROM yard.t WHERE k = 1");
    let long = envelope(&format!("SELECT v FROM yard.t WHERE k = 1 /* {} */", "c".repeat(1 << 20)));
    let streams = [
        segments::cut(&short, 1).repeat(500),
        segments::cut(&long, 1),
        segments::cut(&long, 2),
        [segments::segment(b"", true).repeat(300_000), segments::segment(&short, true)].concat(),
        [segments::segment(b"", false).repeat(300_000), segments::segment(&short, true)].concat(),
        segments::segment(&short, true).repeat(2_000),
        segments::segment(&short.repeat(1_000), true),
    ];
    for n in 0.. {
        if !run.round() {
            break;
        }
        let mut native = Native::open(&run.target, RUDE)?;
        native.log_in_v5(run.role.name(), false)?;
        let outcome = native.send_and_answer(&streams[n % streams.len()]);
        run.count(outcome);
    }
    Ok(())
}

/// Sends maps of up to 60,000 options, and custom payloads of 60,000 entries.
pub(crate) fn options(run: &AttackRun) -> Result<(), ServerAnswer> {
    let map = |count: usize| {
        format!(
            "{{'class': 'SizeTieredCompactionStrategy', {}}}",
            joined(count, |n| format!("'option{n}': '{n}'"))
        )
    };
    let as_text = |text: String| move |native: &mut Native| native.encode(0, &query(&text));
    let payload = |_: &mut Native| {
        let entries =
            (0..60_000).map(|n| (format!("entry{n}"), Some(Bytes::from_static(b"value")))).collect();
        let prelude = Prelude { payload: entries, ..Prelude::default() };
        let mut encoder = Encoder::new(Direction::Request, Version::V4);
        let mut body = encoder.begin_with(0, Opcode::Query, &prelude);
        body.long_string("SELECT v FROM yard.t WHERE k = 1");
        body.short(1);
        body.byte(0);
        body.end().expect("fits");
        encoder.finish().to_vec()
    };
    let sizes = [2_000, 60_000];
    let with =
        |option: &str, count: usize| as_text(format!("ALTER TABLE yard.b WITH {option} = {}", map(count)));
    frames(
        run,
        &[
            &with("compaction", sizes[0]),
            &with("compaction", sizes[1]),
            &with("compression", sizes[1]),
            &with("caching", sizes[1]),
            &with("extensions", sizes[1]),
            &with("nothing", sizes[1]),
            &as_text(format!("ALTER KEYSPACE yard WITH replication = {}", map(sizes[1]))),
            &as_text(format!("ALTER ROLE rude WITH OPTIONS = {}", map(sizes[1]))),
            &as_text(format!(
                "ALTER TABLE yard.b WITH {}",
                (0..20_000).map(|n| format!("gc_grace_seconds = {n}")).collect::<Vec<_>>().join(" AND ")
            )),
            &payload,
        ],
    )
}

/// Uses a table with 2,000 columns, and tries one with 20,000.
pub(crate) fn many_columns(run: &AttackRun) -> Result<(), ServerAnswer> {
    let table = |name: &str, count: usize| {
        format!(
            "CREATE TABLE IF NOT EXISTS yard.{name} (k int PRIMARY KEY, {})",
            joined(count, |n| format!("c{n} int"))
        )
    };
    let names = joined(COLUMNS - 1, |n| format!("c{n}"));
    let numbers = joined(COLUMNS - 1, |n| n.to_string());
    let insert = &|key: usize| format!("INSERT INTO yard.columns (k, {names}) VALUES ({key}, {numbers})");
    let sets = joined(COLUMNS - 1, |n| format!("c{n} = {n}"));
    let as_text = |text: String| move |native: &mut Native| native.encode(0, &query(&text));
    let conditions = (0..COLUMNS - 1).map(|n| format!("c{n} = 0")).collect::<Vec<_>>().join(" AND ");
    let batch = |native: &mut Native| text_batch(native, BatchKind::Unlogged, 100, insert);
    frames(
        run,
        &[
            &as_text(table("columns", COLUMNS - 1)),
            &as_text(insert(1)),
            &batch,
            &as_text("SELECT * FROM yard.columns".to_owned()),
            &as_text(format!("SELECT {names} FROM yard.columns WHERE k = 1")),
            &as_text(format!("UPDATE yard.columns SET {sets} WHERE k IN (1, 2, 3, 4, 5, 6, 7, 8, 9)")),
            &as_text(format!("UPDATE yard.columns SET c1 = 1 WHERE k = 1 IF {conditions}")),
            &as_text(format!("SELECT k FROM yard.columns WHERE {conditions} ALLOW FILTERING")),
            &as_text(format!(
                "SELECT {} FROM yard.columns",
                joined(COLUMNS - 1, |n| format!("writetime(c{n}), ttl(c{n})"))
            )),
            &as_text(format!("DELETE {names} FROM yard.columns WHERE k = 1")),
            &as_text(table("more_columns", 20_000)),
            &as_text("DROP TABLE yard.columns".to_owned()),
        ],
    )
}

/// Names thousands of partitions and rows by IN, with keys of 1 KB, and restricts as many columns.
pub(crate) fn wide_in(run: &AttackRun) -> Result<(), ServerAnswer> {
    let tables =
        ["CREATE TABLE IF NOT EXISTS yard.texts (k text, c text, d text, v text, PRIMARY KEY (k, c, d))"];
    let mut native = cql_answers::made(run, &tables)?;
    must_bound(
        &mut native,
        "INSERT INTO yard.texts (k, c, d, v) VALUES ('1', ?, '', '')",
        &[&[b'c'; 60_000]],
    )?;
    let long = |count: usize, bytes: usize| joined(count, |n| format!("'{n:0bytes$}'"));
    let few = long(100, 4);
    let forms = [
        text(format!("SELECT v FROM yard.texts WHERE k IN ({})", long(9_999, 1_000))),
        text(format!("SELECT v FROM yard.texts WHERE k IN ({})", long(200, 60_000))),
        text(format!("SELECT v FROM yard.texts WHERE k IN ({few}) AND c IN ({few})")),
        text(format!("SELECT v FROM yard.texts WHERE k = '1' AND c IN ({few}) AND d IN ({few})")),
        text(format!(
            "SELECT v FROM yard.texts WHERE k IN ({0}) AND c IN ({0}) AND d IN ({0})",
            long(300, 4)
        )),
        text(format!("DELETE FROM yard.texts WHERE k IN ({few}) AND c IN ({few})")),
        text(format!("UPDATE yard.texts SET v = 'x' WHERE k IN ({few}) AND c IN ({few}) AND d = ''")),
        text(format!("SELECT v FROM yard.texts WHERE v IN ({}) ALLOW FILTERING", long(9_999, 1_000))),
        (format!("SELECT v FROM yard.texts WHERE k IN ({few}) ORDER BY c"), true, Some(i32::MAX)),
        text(format!("SELECT v FROM yard.texts WHERE k = '1' AND c IN ({})", long(9_999, 1_000))),
    ];
    cql_answers::spread(run, &forms)
}
