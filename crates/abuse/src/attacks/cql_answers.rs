//! Statements whose answers are many times larger than what they read: selectors, static columns,
//! metadata of types and names, results of conditional batches, and virtual tables.

use wire::{BatchKind, Compression, Execute, Prepare, Query, QueryParams, Request};

use super::cql_frames::{bound, text_batch};
use super::on_threads;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::native::{Native, on_stream, query};

/// Connections that send such statements at once.
const CLIENTS: usize = 4;
/// Bytes of a large value. Two of them fit into one request of 16 MiB.
const VALUE_BYTES: usize = 7 << 20;
/// Rows below one static value.
const STATIC_ROWS: i32 = 3_000;
/// Every row in one page.
const ALL_ROWS: Option<i32> = Some(i32::MAX);
/// Connections that do not read what they request.
const UNREAD: usize = 50;

/// A statement, the form of its request, and its page size.
pub(super) type Form = (String, bool, Option<i32>);

/// Sends a statement as text.
pub(super) fn text(text: String) -> Form {
    (text, false, None)
}

/// Runs statements that must succeed. Returns their connection.
pub(super) fn made(run: &AttackRun, texts: &[&str]) -> Result<Native, ServerAnswer> {
    let mut native = Native::login(&run.target, run.role, Compression::Lz4)?;
    texts.iter().try_for_each(|text| native.must(text))?;
    Ok(native)
}

/// Sends a request that must succeed, with these values.
pub(super) fn must_bound(native: &mut Native, text: &str, values: &[&[u8]]) -> Result<(), ServerAnswer> {
    let frame = bound(native, text, values);
    let answer = native.send_and_answer(&frame)?;
    if answer.is_error() { Err(answer) } else { Ok(()) }
}

/// Returns `SELECT item, item, … rest`.
fn repeated(item: &str, times: usize, rest: &str) -> String {
    format!("SELECT {}{item} {rest}", format!("{item},").repeat(times - 1))
}

/// Sends the forms in turn on `CLIENTS` connections, each beginning with another one.
pub(super) fn spread(run: &AttackRun, forms: &[Form]) -> Result<(), ServerAnswer> {
    on_threads(CLIENTS, |thread| {
        let compression = if thread % 2 == 0 { Compression::Lz4 } else { Compression::None };
        let mut native = Native::login(&run.target, run.role, compression)?;
        for (text, prepared, page_size) in forms.iter().cycle().skip(thread).step_by(CLIENTS) {
            if !run.round() {
                break;
            }
            let outcome = if *prepared {
                prepared_answer(&mut native, text, *page_size)
            } else {
                let params = QueryParams { page_size: *page_size, ..QueryParams::default() };
                let frame = native.encode(0, &Request::Query(Query { text, params }));
                native.send_and_answer(&frame)
            };
            if !run.count(outcome) && run.has_time() {
                native = Native::login(&run.target, run.role, compression)?;
            }
        }
        Ok(())
    })
}

/// Prepares and executes a statement without markers. A rejection is its answer.
fn prepared_answer(
    native: &mut Native,
    text: &str,
    page_size: Option<i32>,
) -> Result<ServerAnswer, ServerAnswer> {
    let id = match native.prepare(text) {
        Ok(id) => id,
        Err(answer) if answer.ends() => return Err(answer),
        Err(answer) => return Ok(answer),
    };
    let params = QueryParams { page_size, skip_metadata: true, ..QueryParams::default() };
    native.ask(&Request::Execute(Execute { id: &id, params, ..Execute::default() }))
}

/// Reads one value of 7 MiB, and rows of 64 KB and 1 KB, by very many selectors of one column.
pub(crate) fn selectors(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut native =
        made(run, &["CREATE TABLE IF NOT EXISTS yard.large (k int PRIMARY KEY, v blob, m map<int, blob>)"])?;
    let value = vec![b'v'; VALUE_BYTES];
    must_bound(&mut native, "INSERT INTO yard.large (k, v, m) VALUES (1, ?, {1: 0x01})", &[&value])?;
    let aliased: String = (0..3_000).map(|n| format!("v AS a{n}, ")).collect();
    let facts = "token(k), writetime(v), ttl(v), k, c";
    let forms = [
        text(repeated("v", 2_000, "FROM yard.large WHERE k = 1")),
        (repeated("v", 200, "FROM yard.large WHERE k = 1"), true, Some(1)),
        text(format!("SELECT {aliased}k FROM yard.big WHERE k = 1")),
        text(repeated("v", 60_000, "FROM yard.big WHERE k IN (1, 2, 3)")),
        (repeated("v", 300, "FROM yard.big"), false, ALL_ROWS),
        (repeated("v", 60, "FROM yard.big"), true, Some(5_000)),
        (repeated(facts, 4_000, "FROM yard.w WHERE k = 1"), false, ALL_ROWS),
        text(repeated(facts, 1_000, "FROM yard.w")),
        (repeated("v", 2_000, "FROM yard.w WHERE k = 1 ORDER BY c DESC"), true, ALL_ROWS),
        text(repeated("m[1], m, v", 500, "FROM yard.large")),
    ];
    spread(run, &forms)
}

/// Reads a static value of 7 MiB with each of 3,000 rows.
pub(crate) fn statics(run: &AttackRun) -> Result<(), ServerAnswer> {
    static_table(run)?;
    let keys: Vec<String> = (0..STATIC_ROWS).map(|c| c.to_string()).collect();
    let forms = [
        text("SELECT s FROM yard.statics WHERE k = 1".to_owned()),
        ("SELECT c, s FROM yard.statics".to_owned(), true, ALL_ROWS),
        ("SELECT * FROM yard.statics WHERE k = 1 ORDER BY c DESC".to_owned(), true, Some(1_000)),
        text(format!("SELECT s FROM yard.statics WHERE k = 1 AND c IN ({})", keys.join(","))),
        (repeated("s", 500, "FROM yard.statics WHERE k = 1 LIMIT 100"), false, Some(100)),
        text(format!("SELECT DISTINCT {}k FROM yard.statics", "s, ".repeat(500))),
        ("SELECT s FROM yard.statics WHERE c > 5 ALLOW FILTERING".to_owned(), false, ALL_ROWS),
    ];
    spread(run, &forms)
}

/// Creates and fills a partition with a static value.
pub(super) fn static_table(run: &AttackRun) -> Result<(), ServerAnswer> {
    let table = "CREATE TABLE IF NOT EXISTS yard.statics \
                 (k int, c int, s blob static, v int, PRIMARY KEY (k, c))";
    let mut native = made(run, &[table])?;
    let frame = text_batch(&mut native, BatchKind::Unlogged, STATIC_ROWS as usize, |c| {
        format!("INSERT INTO yard.statics (k, c, v) VALUES (1, {c}, 1)")
    });
    let answer = native.send_and_answer(&frame)?;
    if answer.is_error() {
        return Err(answer);
    }
    let value = vec![b's'; VALUE_BYTES];
    must_bound(&mut native, "INSERT INTO yard.statics (k, s) VALUES (1, ?)", &[&value])
}

/// Sends conditional batches that are not applied, and so answer with a row for each statement.
pub(crate) fn conditional_answers(run: &AttackRun) -> Result<(), ServerAnswer> {
    static_table(run)?;
    let on_static = |n: usize| format!("UPDATE yard.statics SET v = 2 WHERE k = 1 AND c = {n} IF s = 0x00");
    let on_row = |_| "UPDATE yard.statics SET v = 2 WHERE k = 1 AND c = 1 IF v = 9 AND s = 0x00".to_owned();
    let inserts =
        |n: usize| format!("INSERT INTO yard.statics (k, c, s) VALUES (1, {n}, 0x00) IF NOT EXISTS");
    let forms: [&(dyn Fn(usize) -> String + Sync); 3] = [&on_static, &on_row, &inserts];
    on_threads(CLIENTS, |thread| {
        let mut native = Native::login(&run.target, run.role, Compression::Lz4)?;
        for n in thread.. {
            if !run.round() {
                break;
            }
            let count = [2_000, 100][n / forms.len() % 2];
            let frame = text_batch(&mut native, BatchKind::Unlogged, count, forms[n % forms.len()]);
            let outcome = native.send_and_answer(&frame);
            if !run.count(outcome) && run.has_time() {
                native = Native::login(&run.target, run.role, Compression::Lz4)?;
            }
        }
        Ok(())
    })
}

/// Requests the metadata of a type with 2,000 fields, and of a column with a name of 60,000 bytes,
/// thousands of times in one answer: as columns, as markers, and in an answer without rows.
pub(crate) fn metadata(run: &AttackRun) -> Result<(), ServerAnswer> {
    let fields: Vec<String> = (0..2_000).map(|n| format!("a_field_with_a_long_name_{n} int")).collect();
    let ty = format!("CREATE TYPE IF NOT EXISTS yard.wide ({})", fields.join(", "));
    let name = format!("\"{}\"", "n".repeat(60_000));
    let long = format!("CREATE TABLE IF NOT EXISTS yard.long_name (k int PRIMARY KEY, {name} int)");
    let typed = "CREATE TABLE IF NOT EXISTS yard.typed (k int PRIMARY KEY, u frozen<wide>)";
    // A server may refuse such a name, or such a type. The other is left.
    let mut native = made(run, &[])?;
    for text in [ty.as_str(), &long, typed] {
        match native.query(text)? {
            answer if answer.is_error() => run.record(answer),
            _ => {}
        }
    }
    let markers = vec!["?"; 5_000].join(",");
    let forms = [
        text(repeated("u", 5_000, "FROM yard.typed")),
        (repeated("u", 5_000, "FROM yard.typed WHERE k = 1"), true, Some(1)),
        text(repeated(&name, 200, "FROM yard.long_name")),
        text(format!(
            "SELECT {}k FROM yard.long_name",
            format!("writetime({name}), ttl({name}),").repeat(100)
        )),
        (format!("SELECT u FROM yard.typed WHERE u IN ({markers}) ALLOW FILTERING"), true, None),
        (format!("SELECT k FROM yard.long_name WHERE {name} IN ({markers}) ALLOW FILTERING"), true, None),
        text(format!("SELECT {}* FROM yard.typed", "u, ".repeat(10))),
    ];
    spread(run, &forms)?;
    metadata_kept(run, &forms[1].0)
}

/// Prepares one text with much metadata again and again, each with another comment.
fn metadata_kept(run: &AttackRun, text: &str) -> Result<(), ServerAnswer> {
    let mut native = Native::login(&run.target, run.role, Compression::Lz4)?;
    for n in 0.. {
        if !run.round() {
            break;
        }
        let text = format!("{text} /* {n} */");
        let outcome = native.ask(&Request::Prepare(Prepare { text: &text, keyspace: None }));
        if !run.count(outcome) {
            native = Native::login(&run.target, run.role, Compression::Lz4)?;
        }
    }
    Ok(())
}

/// Reads virtual and system tables by very many selectors of one column, with a login only.
pub(crate) fn virtual_selectors(run: &AttackRun) -> Result<(), ServerAnswer> {
    let forms = [
        text(repeated("column_name", 60_000, "FROM system_schema.columns")),
        (repeated("keyspace_name, table_name", 30_000, "FROM system_schema.columns"), true, ALL_ROWS),
        text(repeated("table_name", 30_000, "FROM system_schema.tables")),
        (repeated("release_version", 60_000, "FROM system.local"), true, Some(1)),
        text(repeated("remedy", 60_000, "FROM system.guardrails")),
        text(repeated("options", 60_000, "FROM system_virtual_schema.tables")),
        text(repeated("comment", 30_000, "FROM system_virtual_schema.tables")),
    ];
    spread(run, &forms)
}

/// Names 10,000 keys after IN, each with an answer of 64 KB, in one page and without pages.
pub(crate) fn in_answers(run: &AttackRun) -> Result<(), ServerAnswer> {
    let keys = |count: usize| (0..count).map(|k| (k % 320).to_string()).collect::<Vec<_>>().join(",");
    let rows = (0..9_999).map(|c| c.to_string()).collect::<Vec<_>>().join(",");
    let forms = [
        text(format!("SELECT v, v FROM yard.big WHERE k IN ({})", keys(320))),
        (repeated("v", 20, &format!("FROM yard.big WHERE k IN ({})", keys(320))), true, ALL_ROWS),
        text(format!("SELECT v, v, v, v FROM yard.big WHERE k IN ({})", keys(60_000))),
        text(repeated("v", 100, &format!("FROM yard.w WHERE k = 1 AND c IN ({rows})"))),
        (repeated("v", 100, &format!("FROM yard.w WHERE k IN (1, 2) AND c IN ({rows})")), true, ALL_ROWS),
        text(repeated("v", 50, "FROM yard.w WHERE k IN (1, 2, 3) PER PARTITION LIMIT 20000")),
    ];
    spread(run, &forms)
}

/// Describes a schema with megabytes of names and comments on 50 connections that do not read.
pub(crate) fn describe_unread(run: &AttackRun) -> Result<(), ServerAnswer> {
    let columns: Vec<String> = (0..150).map(|n| format!("\"{}{n}\" int", "n".repeat(400))).collect();
    let comment = "c".repeat(60_000);
    let mut native = made(run, &[])?;
    for n in 0..20 {
        native.must(&format!(
            "CREATE TABLE IF NOT EXISTS yard.described{n} (k int PRIMARY KEY, {}) WITH comment = '{comment}'",
            columns.join(", ")
        ))?;
    }
    let texts = [
        "DESCRIBE FULL SCHEMA",
        "DESCRIBE KEYSPACE yard",
        "DESCRIBE SCHEMA",
        "SELECT * FROM system_schema.tables",
        "DESCRIBE TABLE yard.described7 WITH INTERNALS",
        "SELECT * FROM system_schema.columns",
    ];
    let mut held = Vec::new();
    while run.round() && held.len() < UNREAD {
        let patience = std::time::Duration::from_secs(2);
        let mut native = Native::open_for(&run.target, RUDE, patience)?;
        native.log_in(run.role.name(), Compression::None)?;
        let frame = native.encode(0, &query(texts[held.len() % texts.len()]));
        for stream in 0..64 {
            // A server that stops reading, as it should, lets this time out.
            if native.send(&on_stream(frame.clone(), stream)).is_err() {
                break;
            }
        }
        held.push(native);
    }
    run.hold(|| {});
    Ok(())
}
