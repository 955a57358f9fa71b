//! Frames of a role with a login only: many values, long texts, long lists.

use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Compression, Execute, Prepare, Query, QueryParams,
    Request, Statement, Value, Values, ValuesBuf,
};

use super::{LONG_TEXT_BYTES, cql_rounds};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::native::{Native, query};

/// Most values in a request.
const VALUES_MAX: usize = 65_535;
/// Elements of a bound list, about 8 MB.
const LIST_ELEMENTS: usize = 2_000_000;
/// Terms of a list as text, about 15 MB.
const TERMS: usize = 5_000_000;
/// Statements of a batch, in turn: too many for the memory of one connection, and the most that
/// fit.
const STATEMENTS: [usize; 2] = [60_000, 6_000];
/// Bounds of a relation, in turn: too many for one statement, and the most that the parser accepts.
const BOUNDS: [usize; 2] = [78_000, 60_000];

/// Encodes a `list<text>` of empty texts.
fn empty_texts(count: usize) -> Vec<u8> {
    let mut value = (count as u32).to_be_bytes().to_vec();
    value.resize(4 + 4 * count, 0);
    value
}

/// Encodes a `list<int>` of 0 to `count` - 1.
pub(super) fn ints(count: u32) -> Vec<u8> {
    let mut value = count.to_be_bytes().to_vec();
    for n in 0..count {
        value.extend_from_slice(&4u32.to_be_bytes());
        value.extend_from_slice(&n.to_be_bytes());
    }
    value
}

/// Encodes a QUERY of `text` with these values.
pub(super) fn bound(native: &mut Native, text: &str, values: &[&[u8]]) -> Vec<u8> {
    let mut buffer = ValuesBuf::new();
    for value in values {
        buffer.push(Value::Bytes(value)).expect("a few values fit");
    }
    let params = QueryParams { values: buffer.values(), ..QueryParams::default() };
    native.encode(0, &Request::Query(Query { text, params }))
}

/// Sends a relation with 60,000 or more bounds on one clustering column of a table without rights.
pub(crate) fn many_bounds(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = BOUNDS.map(|count| {
        let bounds = " AND resource>''".repeat(count);
        format!("SELECT * FROM system_auth.role_permissions WHERE role='x'{bounds}")
    });
    cql_rounds(run, Compression::Lz4, |native, n| native.encode(0, &query(&texts[n as usize % texts.len()])))
}

/// Executes a statement of 65,535 bind markers with as many named values.
pub(crate) fn named_values(run: &AttackRun) -> Result<(), ServerAnswer> {
    let markers = vec!["?"; VALUES_MAX].join(",");
    let text = format!("SELECT key FROM system.local WHERE key IN ({markers})");
    let mut values = ValuesBuf::new();
    for n in 0..VALUES_MAX {
        // Put the marker's name last, so that a search visits all values.
        let name = if n + 1 == VALUES_MAX { "key".to_owned() } else { format!("v{n}") };
        values.push_named(&name, Value::Bytes(b"local")).expect("65,535 values fit");
    }
    let mut native = Native::login(&run.target, run.role, Compression::Lz4)?;
    let id = match native.prepare(&text) {
        Ok(id) => id,
        // Rejected for its number of markers. There is nothing to execute.
        Err(answer) => {
            run.round();
            run.record(answer);
            return Ok(());
        }
    };
    while run.round() {
        let params = QueryParams { values: values.values(), ..QueryParams::default() };
        let outcome = native.ask(&Request::Execute(Execute { id: &id, params, ..Execute::default() }));
        if !run.count(outcome) {
            break;
        }
    }
    Ok(())
}

/// Sends a bound list of 2 million empty texts after IN.
pub(crate) fn in_values(run: &AttackRun) -> Result<(), ServerAnswer> {
    let value = empty_texts(LIST_ELEMENTS);
    let text = "SELECT column_name FROM system_schema.columns WHERE column_name IN ? ALLOW FILTERING";
    cql_rounds(run, Compression::Lz4, |native, _| bound(native, text, &[&value]))
}

/// Sends a statement of 15 MiB as text, about 64 KB in LZ4.
pub(crate) fn in_text(run: &AttackRun) -> Result<(), ServerAnswer> {
    let text = list_text();
    cql_rounds(run, Compression::Lz4, |native, _| native.encode(0, &query(&text)))
}

fn list_text() -> String {
    format!("SELECT key FROM system.local WHERE key IN ({}'')", "'',".repeat(TERMS))
}

/// Prepares texts that differ in a comment of 15 MiB.
pub(crate) fn prepare_comments(run: &AttackRun) -> Result<(), ServerAnswer> {
    let filling = "a".repeat(LONG_TEXT_BYTES);
    cql_rounds(run, Compression::Lz4, |native, n| {
        let text = format!("SELECT key FROM system.local /* {n} {filling} */");
        native.encode(0, &Request::Prepare(Prepare { text: &text, keyspace: None }))
    })
}

/// Prepares statements of 5 million terms.
pub(crate) fn prepare_terms(run: &AttackRun) -> Result<(), ServerAnswer> {
    let text = list_text();
    cql_rounds(run, Compression::Lz4, |native, n| {
        let text = format!("{text} /* {n} */");
        native.encode(0, &Request::Prepare(Prepare { text: &text, keyspace: None }))
    })
}

/// Sends nested literals, selectors, signs, types and parentheses.
pub(crate) fn deep(run: &AttackRun) -> Result<(), ServerAnswer> {
    let depth = 100_000;
    let texts = [
        format!("INSERT INTO yard.b (id, v) VALUES (1, {}{})", "[".repeat(depth), "]".repeat(depth)),
        format!("SELECT {}v{} FROM yard.b", "f(".repeat(depth), ")".repeat(depth)),
        format!("SELECT {}v FROM yard.b", "-".repeat(2 * depth + 1).replace("--", "- -")),
        format!("CREATE TABLE yard.x (k {}int{} PRIMARY KEY)", "list<".repeat(depth), ">".repeat(depth)),
        format!("SELECT v FROM yard.b WHERE {}id = 1{}", "(".repeat(depth), ")".repeat(depth)),
    ];
    cql_rounds(run, Compression::Lz4, |native, n| {
        let text = &texts[n as usize % texts.len()];
        native.encode(0, &query(text))
    })
}

fn batch(native: &mut Native, kind: BatchKind, statements: usize, condition: &str) -> Vec<u8> {
    text_batch(native, kind, statements, |n| format!("INSERT INTO yard.b (id) VALUES ({n}){condition}"))
}

/// Encodes a batch of `count` statements as text.
pub(super) fn text_batch(
    native: &mut Native,
    kind: BatchKind,
    count: usize,
    each: impl Fn(usize) -> String,
) -> Vec<u8> {
    let mut entries = BatchBuf::new();
    for n in 0..count {
        let text = each(n);
        let entry = BatchEntry { statement: Statement::Text(&text), values: Values::default() };
        entries.push(entry).expect("at most 65,535 statements fit");
    }
    native.encode(0, &Request::Batch(Batch::new(kind, &entries, BatchParams::default())))
}

/// Sends batches of 60,000 and 6,000 statements as text, two of each size.
pub(crate) fn batches(run: &AttackRun) -> Result<(), ServerAnswer> {
    cql_rounds(run, Compression::Lz4, |native, n| {
        let kind = if n % 2 == 0 { BatchKind::Unlogged } else { BatchKind::Logged };
        batch(native, kind, STATEMENTS[n as usize / 2 % STATEMENTS.len()], "")
    })
}

/// Sends conditional batches of up to 60,000 statements over as many partitions.
pub(crate) fn conditional_batches(run: &AttackRun) -> Result<(), ServerAnswer> {
    cql_rounds(run, Compression::Lz4, |native, n| {
        batch(native, BatchKind::Unlogged, STATEMENTS[n as usize % STATEMENTS.len()], " IF NOT EXISTS")
    })
}
