//! Levels, roles and tables of a run, created by the administrator on a fresh server.

use std::path::Path;

use wire::{Compression, Execute, QueryParams, Request, Value, ValuesBuf};

use crate::answers::ServerAnswer;
use crate::dial::FRIEND;
use crate::native::Native;
use crate::server::{AttackedServer, Conditions};
use crate::target::{ADMIN, AttackTarget, PASSWORD};

/// Role of the probe in another level than the attackers'.
pub(crate) const WATCHER: &str = "watcher";
/// Role of the probe in the attackers' level.
pub(crate) const NEIGHBOUR: &str = "neighbour";
/// Number of rows that the probes read.
pub(crate) const PROBE_ROWS: i32 = 1_000;

/// Rows of the wide partition, 1 KB each: 20 MB.
const WIDE_ROWS: i32 = 20_000;
/// Rows of the table for large answers, 64 KB each: 20 MB.
const BIG_ROWS: i32 = 320;
/// Requests in flight while inserting rows.
const WINDOW: u16 = 128;

/// Statements of the set-up. The administrator alters level `dial` during a run.
const STATEMENTS: &[&str] = &[
    "CREATE SERVICE LEVEL calm WITH shares = 1000",
    "CREATE SERVICE LEVEL rude WITH shares = 1000",
    "CREATE SERVICE LEVEL narrow WITH shares = 1000 AND max_concurrency = 1 AND max_queue_size = 1024",
    "CREATE SERVICE LEVEL dial WITH shares = 100",
    "CREATE KEYSPACE yard WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE yard.t (k int PRIMARY KEY, v text)",
    "CREATE TABLE yard.absent (k int PRIMARY KEY, v text)",
    "CREATE TABLE yard.b (id int PRIMARY KEY, v text)",
    "CREATE TABLE yard.w (k int, c int, v text, PRIMARY KEY (k, c))",
    "CREATE TABLE yard.big (k int PRIMARY KEY, v text)",
    "CREATE TABLE yard.maps (k int PRIMARY KEY, m map<int, text>)",
];

/// Roles, each with its level and its grants.
const ROLES: &[(&str, &str, &[&str])] = &[
    (WATCHER, "calm", &["SELECT"]),
    (NEIGHBOUR, "rude", &["SELECT"]),
    ("rude", "rude", &["SELECT", "MODIFY", "CREATE", "ALTER", "DROP"]),
    ("narrow", "narrow", &["SELECT"]),
    ("nobody", "rude", &[]),
    ("forger", "rude", &[]),
    ("changer", "rude", &[]),
    // Failing logins make the server reject the role for a time, so no other attack uses it.
    ("stormed", "rude", &[]),
];

/// Creates levels, roles and tables, and fills the tables.
pub(crate) fn make(target: &AttackTarget) -> Result<(), String> {
    let mut admin = admin(target).map_err(|answer| failed("the administrator's login", &answer))?;
    let mut run = |text: &str| admin.must(text).map_err(|answer| failed(text, &answer));
    STATEMENTS.iter().try_for_each(|text| run(text))?;
    for (role, level, grants) in ROLES {
        run(&format!("CREATE ROLE {role} WITH PASSWORD = '{PASSWORD}' AND LOGIN = true"))?;
        run(&format!("ATTACH SERVICE LEVEL {level} TO {role}"))?;
        grants.iter().try_for_each(|grant| run(&format!("GRANT {grant} ON KEYSPACE yard TO {role}")))?;
    }
    fill(target, "INSERT INTO yard.t (k, v) VALUES (?, ?)", None, PROBE_ROWS, 100)?;
    fill(target, "INSERT INTO yard.w (k, c, v) VALUES (?, ?, ?)", Some(1), WIDE_ROWS, 1_000)?;
    fill(target, "INSERT INTO yard.big (k, v) VALUES (?, ?)", None, BIG_ROWS, 64_000)
}

/// Returns the setting `--guardrails` without any threshold, for the guardrails that the server
/// has.
pub(crate) fn no_guardrails(program: &Path) -> Result<String, String> {
    let server = AttackedServer::start(program, &Conditions::default())?;
    let text = "SELECT name FROM system.guardrails";
    let names = admin(&server.target).and_then(|mut admin| admin.texts(text));
    let names = names.map_err(|answer| failed(text, &answer))?;
    Ok(names.iter().map(|name| format!("{name}=0:0")).collect::<Vec<_>>().join(","))
}

/// Opens a session of the administrator.
pub(crate) fn admin(target: &AttackTarget) -> Result<Native, ServerAnswer> {
    let mut native = Native::open(target, FRIEND)?;
    native.log_in(ADMIN, Compression::None)?;
    Ok(native)
}

fn failed(what: &str, answer: &ServerAnswer) -> String {
    format!("setting up the server failed at `{what}`: {} {}", answer.label, answer.text)
}

/// Inserts rows 0 to `rows` - 1 with a text of `bytes` bytes.
fn fill(target: &AttackTarget, text: &str, key: Option<i32>, rows: i32, bytes: usize) -> Result<(), String> {
    let mut admin = admin(target).map_err(|answer| failed(text, &answer))?;
    let id = admin.prepare(text).map_err(|answer| failed(text, &answer))?;
    let value = vec![b'v'; bytes];
    let key = key.map(i32::to_be_bytes);
    let failure = std::sync::Mutex::new(None);
    let mut numbers = 0..rows;
    admin.flood(
        WINDOW,
        |native, stream| {
            let number = numbers.next()?.to_be_bytes();
            let mut values = ValuesBuf::new();
            let all = key.iter().map(|key| &key[..]).chain([&number[..], &value]);
            all.for_each(|value| values.push(Value::Bytes(value)).expect("three values fit"));
            let params = QueryParams { values: values.values(), ..QueryParams::default() };
            Some(native.encode(stream, &Request::Execute(Execute { id: &id, params, ..Execute::default() })))
        },
        |answer| {
            if answer.label.starts_with("error") {
                *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(answer);
            }
        },
    );
    let failure = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    failure.map_or(Ok(()), |answer| Err(failed(text, &answer)))
}
