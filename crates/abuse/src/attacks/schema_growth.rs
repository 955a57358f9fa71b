//! Schemas that grow until the server refuses: long names of columns, fields and roles, many
//! columns, and columns that were dropped. Other connections read the catalog beside it.

use wire::Compression;

use super::on_threads;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::native::{Native, query};
use crate::postgres::Postgres;

/// Bytes of a long name. A name has at most 65,535.
const NAME_BYTES: usize = 60_000;
/// Bytes of the longest name of a role or level.
const ROLE_BYTES: usize = 255;
/// Requests in flight of the fastest growth.
const IN_FLIGHT: u16 = 64;

/// Returns a quoted name of `bytes` bytes.
fn long(n: usize, bytes: usize) -> String {
    format!("\"{n:_>bytes$}\"")
}

fn joined(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(", ")
}

/// Runs the statements of `make` on one connection, and reads of the catalog on two others over CQL
/// and one over SQL. The readers end with the growth.
fn grow(run: &AttackRun, make: impl Fn(usize) -> String + Sync) -> Result<(), ServerAnswer> {
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed) || !run.has_time();
    let reads = [
        "SELECT column_name FROM system_schema.columns",
        "DESCRIBE SCHEMA",
        "SELECT * FROM system_schema.types",
        "SELECT * FROM system_schema.tables",
        "DESCRIBE TABLES",
    ];
    on_threads(4, |thread| {
        let cql = || Native::login(&run.target, run.role, Compression::Lz4);
        match thread {
            0 => {
                let mut native = cql()?;
                for n in 0.. {
                    if !run.round() {
                        break;
                    }
                    if !run.count(native.query(&make(n))) && run.has_time() {
                        native = cql()?;
                    }
                }
                over.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            1 | 2 => {
                let mut native = cql()?;
                for text in reads.iter().cycle().skip(2 * thread) {
                    if is_over() {
                        break;
                    }
                    if !run.count(native.query(text)) {
                        native = cql()?;
                    }
                }
            }
            _ => {
                let mut postgres = Postgres::login(&run.target, run.role)?;
                let texts = [
                    "SELECT column_name FROM information_schema.columns",
                    "SELECT attname FROM pg_catalog.pg_attribute",
                    "SELECT max(length(column_name)) FROM information_schema.columns GROUP BY table_name",
                ];
                for text in texts.iter().cycle() {
                    if is_over() {
                        break;
                    }
                    if !run.count(postgres.query(text)) {
                        postgres = Postgres::login(&run.target, run.role)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Creates tables with 200 columns whose names have 60,000 bytes.
pub(crate) fn long_columns(run: &AttackRun) -> Result<(), ServerAnswer> {
    let columns = joined(200, |n| format!("{} int", long(n, NAME_BYTES)));
    grow(run, |n| format!("CREATE TABLE IF NOT EXISTS yard.long{n} (k int PRIMARY KEY, {columns})"))
}

/// Creates types with 200 fields whose names have 60,000 bytes, and tables of them.
pub(crate) fn long_fields(run: &AttackRun) -> Result<(), ServerAnswer> {
    let fields = joined(200, |n| format!("{} int", long(n, NAME_BYTES)));
    grow(run, |n| match n % 3 {
        0 => format!("CREATE TYPE IF NOT EXISTS yard.long{} ({fields})", n / 3),
        1 => {
            let columns = joined(100, |column| format!("c{column} frozen<long{}>", n / 3));
            format!("CREATE TABLE IF NOT EXISTS yard.of_long{} (k int PRIMARY KEY, {columns})", n / 3)
        }
        _ => format!("SELECT c0, c1, c2, c3, c4, c5, c6, c7 FROM yard.of_long{}", n / 3),
    })
}

/// Creates tables with as many columns as guardrails accept, and more.
pub(crate) fn many_columns(run: &AttackRun) -> Result<(), ServerAnswer> {
    let few = joined(1_990, |n| format!("a_column_with_a_name_of_usual_length_{n} text"));
    let many = joined(30_000, |n| format!("c{n} frozen<map<text, frozen<list<int>>>>"));
    grow(run, |n| {
        let columns = if n % 8 == 7 { &many } else { &few };
        format!("CREATE TABLE IF NOT EXISTS yard.columns{n} (k int PRIMARY KEY, {columns})")
    })
}

/// Adds columns with long names to one table and drops them again. A server remembers them.
pub(crate) fn dropped_columns(run: &AttackRun) -> Result<(), ServerAnswer> {
    let name = |round: usize, column: usize| long(100 * round + column, NAME_BYTES);
    let make = |n: usize| match (n, n % 2) {
        (0, _) => "CREATE TABLE IF NOT EXISTS yard.dropped (k int PRIMARY KEY, v int)".to_owned(),
        (_, 1) => {
            let columns = joined(100, |column| format!("{} int", name(n / 2, column)));
            format!("ALTER TABLE yard.dropped ADD ({columns})")
        }
        _ => {
            let names = joined(100, |column| name(n / 2 - 1, column));
            format!("ALTER TABLE yard.dropped DROP ({names})")
        }
    };
    grow(run, make)
}

/// Creates roles and levels with names of 255 bytes, grants and attachments, 64 at once.
pub(crate) fn many_roles(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut native = Native::open(&run.target, RUDE)?;
    native.log_in(run.role.name(), Compression::Lz4)?;
    let mut n = 0;
    native.flood(
        IN_FLIGHT,
        |native, stream| {
            n += 1;
            // Roles and levels that were requested this many rounds before exist by now.
            let (made, old) = (long(n / 6, ROLE_BYTES), long((n / 6).saturating_sub(30), ROLE_BYTES));
            let older = long((n / 6).saturating_sub(60), ROLE_BYTES);
            let text = match n % 6 {
                0 => format!("CREATE ROLE IF NOT EXISTS {made} WITH LOGIN = false"),
                1 => format!("CREATE SERVICE LEVEL IF NOT EXISTS {made} WITH shares = 10"),
                2 => format!("GRANT SELECT ON KEYSPACE yard TO {old}"),
                3 => format!("GRANT {older} TO {old}"),
                4 => format!("ATTACH SERVICE LEVEL {old} TO {old}"),
                _ => ["LIST ROLES", "LIST ALL SERVICE LEVELS", "LIST ALL PERMISSIONS"][n / 6 % 3].to_owned(),
            };
            run.round().then(|| native.encode(stream, &query(&text)))
        },
        |answer| {
            if !answer.ends() {
                run.record(answer);
            }
        },
    );
    Ok(())
}
