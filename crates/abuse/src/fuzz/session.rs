//! One session from one seed: a listener, a role, and up to 40 actions.
//!
//! Number of actions and listener are drawn first. A session at a configured listener draws both as
//! well, so that the rest of its random numbers is unchanged.

use std::time::Duration;

use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Compression, Execute, Prepare, Query, QueryParams,
    Request, Statement, Value, Values, ValuesBuf,
};

use super::mutate::{mutate, mutate_text};
use super::random::Random;
use super::{SessionCounts, cql, http, sql};
use crate::answers::{SILENCE, ServerAnswer};
use crate::attack::Listener;
use crate::dial::RUDE;
use crate::native::Native;
use crate::postgres::{self, Postgres};
use crate::target::{AttackTarget, PASSWORD, Role};

/// Most actions of a session.
const ACTIONS_MAX: usize = 40;
/// Longest wait for an answer. Silence is correct for half a frame, for example.
const PATIENCE: Duration = Duration::from_millis(300);
const ROLES: [Role; 4] = [Role::Stranger, Role::LoginOnly, Role::Rude, Role::Rude];
const NAMES: [&str; 3] = ["", "a", "b"];

/// Listeners, each as often as its relative frequency.
const LISTENERS: [Listener; 9] = [
    Listener::Cql,
    Listener::Cql,
    Listener::Cql,
    Listener::Cql,
    Listener::Sql,
    Listener::Sql,
    Listener::Sql,
    Listener::Sql,
    Listener::Http,
];

/// Runs the session of a seed, at listener `configured` if set. Returns its listener and work.
pub(super) fn run(
    target: &AttackTarget,
    seed: u64,
    configured: Option<Listener>,
) -> (Listener, SessionCounts) {
    let mut random = Random::new(seed);
    let actions = 1 + random.below(ACTIONS_MAX);
    let drawn = *random.pick(&LISTENERS);
    let listener = configured.unwrap_or(drawn);
    // The end of a connection ends the session, since closing it is a valid answer.
    let counts = match listener {
        Listener::Cql => over_cql(target, &mut random, actions),
        Listener::Sql => over_sql(target, &mut random, actions),
        Listener::Http | Listener::All => http::session(target, &mut random, actions),
    };
    (listener, counts)
}

fn over_cql(target: &AttackTarget, random: &mut Random, actions: usize) -> SessionCounts {
    let mut counts = SessionCounts::default();
    let role = *random.pick(&ROLES);
    let Ok(mut native) = Native::open_for(target, RUDE, PATIENCE) else { return counts };
    if role != Role::Stranger {
        let logged_in = match random.below(5) {
            0 => native.log_in_v5(role.name(), false),
            1 => native.log_in_v5(role.name(), true),
            2 => native.log_in(role.name(), Compression::Lz4),
            3 => native.log_in(role.name(), Compression::Snappy),
            _ => native.log_in(role.name(), Compression::None),
        };
        if logged_in.is_err() {
            return counts;
        }
    }
    let mut ids: Vec<Vec<u8>> = Vec::new();
    for _ in 0..actions {
        let mut bytes = request(&mut native, random, &mut ids);
        if random.once_in(4) {
            mutate(random, &mut bytes);
        }
        if native.send(&bytes).is_err() {
            return counts;
        }
        counts.add(SessionCounts { actions: 1, bytes: bytes.len() as u64 });
        if random.once_in(5) {
            // A later action reads this answer.
            continue;
        }
        match native.answer() {
            Ok(_) => {}
            Err(answer) if answer.label == SILENCE => {}
            Err(_) => return counts,
        }
    }
    counts
}

/// Returns the bytes of a random request.
fn request(native: &mut Native, random: &mut Random, ids: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let stream = random.below(4) as i16;
    let text = cql::statement(random);
    let text = mutate_text(random, text);
    let mut buffer = ValuesBuf::new();
    let named = random.once_in(4);
    for n in 0..random.length(100) {
        let count = random.length(300);
        let bytes = random.bytes(count);
        let value = match random.below(6) {
            0 => Value::Null,
            1 => Value::Unset,
            2 => Value::Bytes(&[0, 0, 0, 1]),
            _ => Value::Bytes(&bytes),
        };
        let pushed = if named { buffer.push_named(&format!("v{n}"), value) } else { buffer.push(value) };
        pushed.expect("a hundred short values fit");
    }
    let params = QueryParams {
        values: buffer.values(),
        skip_metadata: random.once_in(3),
        page_size: random.once_in(2).then(|| *random.pick(&[1, 10, 0, -1, i32::MAX])),
        paging_state: random.once_in(5).then_some(&[7; 20]),
        timestamp: random.once_in(8).then(|| random.next() as i64),
        ..QueryParams::default()
    };
    match random.below(12) {
        0 => native.encode(stream, &Request::Options),
        1 => native.encode(stream, &Request::Register(vec!["SCHEMA_CHANGE"; random.length(2_000)])),
        2 | 3 => {
            if let Ok(id) = native.prepare(&text) {
                ids.push(id);
            }
            native.encode(stream, &Request::Prepare(Prepare { text: &text, keyspace: None }))
        }
        4 | 5 if !ids.is_empty() => {
            let id = random.pick(ids);
            native.encode(stream, &Request::Execute(Execute { id, params, ..Execute::default() }))
        }
        6 => {
            let mut entries = BatchBuf::new();
            for n in 0..random.length(500) {
                let text = if n % 3 == 0 { cql::statement(random) } else { text.clone() };
                let entry = BatchEntry { statement: Statement::Text(&text), values: Values::default() };
                entries.push(entry).expect("a few statements fit");
            }
            let kind = *random.pick(&[BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter]);
            native.encode(stream, &Request::Batch(Batch::new(kind, &entries, BatchParams::default())))
        }
        7 => {
            let count = random.length(5_000);
            random.bytes(count)
        }
        8 => native.encode(stream, &Request::AuthResponse(Some(b"\0nobody\0wrong"))),
        _ => native.encode(stream, &Request::Query(Query { text: &text, params })),
    }
}

fn over_sql(target: &AttackTarget, random: &mut Random, actions: usize) -> SessionCounts {
    let mut counts = SessionCounts::default();
    let role = *random.pick(&ROLES);
    let Ok(mut postgres) = Postgres::open_for(target, RUDE, PATIENCE) else { return counts };
    if role == Role::Stranger {
        if random.once_in(2) && postgres.send(&postgres::startup("nobody")).is_err() {
            return counts;
        }
    } else if postgres.log_in(role.name(), PASSWORD).is_err() {
        return counts;
    }
    for _ in 0..actions {
        let mut bytes = message(random);
        if random.once_in(4) {
            mutate(random, &mut bytes);
        }
        if postgres.send(&bytes).is_err() {
            return counts;
        }
        counts.add(SessionCounts { actions: 1, bytes: bytes.len() as u64 });
        // Read until silence or the end of the statement.
        match postgres.until_ready(|_: ServerAnswer| {}) {
            Ok(()) => {}
            // After a timeout within a message, the next message cannot be found.
            Err(answer) if answer.label == SILENCE => return counts,
            Err(_) => return counts,
        }
    }
    counts
}

/// Returns the bytes of random messages, mostly up to a Sync.
fn message(random: &mut Random) -> Vec<u8> {
    let text = sql::statement(random);
    let text = mutate_text(random, text).replace('\0', " ");
    let (statement, portal) = (*random.pick(&NAMES), *random.pick(&NAMES));
    match random.below(8) {
        0 => {
            let kind = *random.pick(b"BCDEFHPQSXcdfp");
            let count = random.length(300);
            postgres::framed(kind, &random.bytes(count))
        }
        1 | 2 => {
            let rows = *random.pick(&[0, 1, -1, i32::MAX]);
            let parts = [
                postgres::parse(statement, &text),
                postgres::bind(portal, statement),
                postgres::framed(b'D', &[b"P", portal.as_bytes(), b"\0"].concat()),
                postgres::execute(portal, rows),
                postgres::sync(),
            ];
            parts.concat()
        }
        3 => {
            let parts = [
                postgres::framed(b'D', &[b"S", statement.as_bytes(), b"\0"].concat()),
                postgres::execute(portal, 5),
                postgres::framed(b'C', &[b"P", portal.as_bytes(), b"\0"].concat()),
                postgres::sync(),
            ];
            parts.concat()
        }
        _ => postgres::query(&text),
    }
}
