//! Statements of a role with rights on one keyspace: products of lists, deleted rows, and DDL and
//! roles in a loop.

use wire::{Compression, Execute, QueryParams, Request, Value, ValuesBuf};

use super::cql_frames::{bound, ints};
use super::{cql_rounds, on_threads};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::native::{Native, query};
use crate::target::PASSWORD;

/// Values of one list. Requests could have this many before lists were limited.
const KEYS: u32 = 10_000;
/// Connections that send the same request at once.
const CLIENTS: usize = 4;

/// Reads 10,000 keys that do not exist, again and again.
pub(crate) fn absent_keys(run: &AttackRun) -> Result<(), ServerAnswer> {
    let keys = ints(KEYS);
    let text = "SELECT * FROM yard.absent WHERE k IN ?";
    on_threads(CLIENTS, |_| cql_rounds(run, Compression::Lz4, |native, _| bound(native, text, &[&keys])))
}

/// Deletes 10,000 × 10,000 rows by two lists.
pub(crate) fn delete_product(run: &AttackRun) -> Result<(), ServerAnswer> {
    let keys = ints(KEYS);
    let text = "DELETE FROM yard.w WHERE k IN ? AND c IN ?";
    cql_rounds(run, Compression::Lz4, |native, _| bound(native, text, &[&keys, &keys]))
}

/// Writes 1 MB into 10,000 partitions.
pub(crate) fn update_many(run: &AttackRun) -> Result<(), ServerAnswer> {
    let (keys, value) = (ints(KEYS), vec![b'v'; 1_000_000]);
    let text = "UPDATE yard.b SET v = ? WHERE id IN ?";
    cql_rounds(run, Compression::Lz4, |native, _| bound(native, text, &[&value, &keys]))
}

/// Adds elements to one map, 1,000 at a time, without end.
pub(crate) fn map_append(run: &AttackRun) -> Result<(), ServerAnswer> {
    cql_rounds(run, Compression::Lz4, |native, n| {
        let element = |i: u64| format!("{}: 'element {i}'", n * 1_000 + i);
        let elements = (0..1_000).map(element).collect::<Vec<_>>().join(", ");
        native.encode(0, &query(&format!("UPDATE yard.maps SET m = m + {{{elements}}} WHERE k = 1")))
    })
}

/// Deletes the rows of one partition and reads across their tombstones.
pub(crate) fn tombstones(run: &AttackRun) -> Result<(), ServerAnswer> {
    let native = Native::login(&run.target, run.role, Compression::None)?;
    let mut rows = 0..60_000;
    let failed = std::sync::Mutex::new(None);
    native.flood(
        512,
        |native, stream| {
            let text = format!("DELETE FROM yard.w WHERE k = 7 AND c = {}", rows.next()?);
            Some(native.encode(stream, &query(&text)))
        },
        // Record only errors. The end of the flood closes the connection.
        |answer| {
            if answer.label.starts_with("error") {
                *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(answer);
            }
        },
    );
    if let Some(answer) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        run.record(answer);
    }
    let text = "SELECT * FROM yard.w WHERE k = 7 LIMIT 1";
    on_threads(CLIENTS, |_| cql_rounds(run, Compression::None, |native, _| native.encode(0, &query(text))))
}

/// Reads one row of a wide partition by a scan.
pub(crate) fn wide_scan(run: &AttackRun) -> Result<(), ServerAnswer> {
    let text = "SELECT k FROM yard.w LIMIT 1";
    on_threads(CLIENTS, |_| cql_rounds(run, Compression::None, |native, _| native.encode(0, &query(text))))
}

/// Reads a table of 20 MB without paging.
pub(crate) fn unpaged(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(CLIENTS, |_| {
        cql_rounds(run, Compression::Lz4, |native, _| native.encode(0, &query("SELECT * FROM yard.big")))
    })
}

/// Creates, alters and drops tables, with comments of 1 MB.
pub(crate) fn ddl(run: &AttackRun) -> Result<(), ServerAnswer> {
    let comment = "c".repeat(1_000_000);
    on_threads(2, |thread| {
        cql_rounds(run, Compression::Lz4, |native, n| {
            let text = match n % 4 {
                0 => format!("CREATE TABLE IF NOT EXISTS yard.loop{thread} (k int PRIMARY KEY, v text)"),
                1 => format!("ALTER TABLE yard.loop{thread} WITH comment = '{comment}'"),
                2 => format!("ALTER TABLE yard.loop{thread} WITH comment = 'round {n}'"),
                _ => format!("DROP TABLE IF EXISTS yard.loop{thread}"),
            };
            native.encode(0, &query(&text))
        })
    })
}

/// Sets its own password, with 64 statements in flight, without end.
pub(crate) fn alter_role(run: &AttackRun) -> Result<(), ServerAnswer> {
    let native = Native::login(&run.target, run.role, Compression::None)?;
    let text = format!("ALTER ROLE {} WITH PASSWORD = '{PASSWORD}'", run.role.name());
    native.flood(
        64,
        |native, stream| run.round().then(|| native.encode(stream, &query(&text))),
        |answer| {
            if !answer.ends() {
                run.record(answer);
            }
        },
    );
    Ok(())
}

/// Prepares new texts continuously, more than the server caches.
pub(crate) fn prepare_flood(run: &AttackRun) -> Result<(), ServerAnswer> {
    let native = Native::login(&run.target, run.role, Compression::None)?;
    let mut n = 0u64;
    native.flood(
        256,
        |native, stream| {
            n += 1;
            let text = format!("SELECT key FROM system.local WHERE key = 'text {n}'");
            let prepare = Request::Prepare(wire::Prepare { text: &text, keyspace: None });
            run.round().then(|| native.encode(stream, &prepare))
        },
        |answer| {
            if !answer.ends() {
                run.record(answer);
            }
        },
    );
    Ok(())
}

/// Executes ids that were never prepared, with values that match no statement.
pub(crate) fn unknown_ids(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut values = ValuesBuf::new();
    for _ in 0..1_000 {
        values.push(Value::Unset).expect("1,000 values fit");
    }
    cql_rounds(run, Compression::None, |native, n| {
        let params = QueryParams { values: values.values(), ..QueryParams::default() };
        let id = n.to_be_bytes().repeat(2);
        native.encode(0, &Request::Execute(Execute { id: &id, params, ..Execute::default() }))
    })
}
