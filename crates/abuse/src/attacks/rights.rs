//! Roles that lose their rights while their statements run. The administrator drops the role, makes
//! it again, takes its login, its password, its permission, or the role that it has it from. What
//! runs must end within a second.

use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use wire::{Compression, Query, QueryParams, Request, Response};

use super::on_threads;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::{FRIEND, RUDE};
use crate::native::{Native, lost, on_stream, query as cql};
use crate::postgres::{Postgres, bind, execute, framed, parse};
use crate::setup;
use crate::target::{PASSWORD, PATIENCE};

/// Cases that run at once.
const AT_ONCE: usize = 6;
/// Time for which a stream runs before its role changes.
const RUNNING: Duration = Duration::from_millis(300);
/// Longest time in which a stream must end after the change, and in which it is seen to end late.
const ENDS_MAX: Duration = Duration::from_secs(1);
const ENDS_LATE: Duration = Duration::from_secs(4);

/// Changes, each as statements in which `$R` is the role and `$G` the role granted to it. The last
/// one must end the streams.
const CHANGES: [(&str, &[&str]); 6] = [
    ("DROP ROLE", &["DROP ROLE $R"]),
    (
        "the same role made again",
        &[
            "DROP ROLE $R",
            "CREATE ROLE $R WITH PASSWORD = 'password of a run' AND LOGIN = true",
            "GRANT SELECT ON KEYSPACE yard TO $R",
        ],
    ),
    ("ALTER ROLE with a password", &["ALTER ROLE $R WITH PASSWORD = 'another'"]),
    ("ALTER ROLE without login", &["ALTER ROLE $R WITH LOGIN = false"]),
    ("REVOKE of SELECT", &["REVOKE SELECT ON KEYSPACE yard FROM $G"]),
    ("REVOKE of a role", &["REVOKE $G FROM $R"]),
];

/// A socket, and a function that runs until the end of its stream.
type Running = (TcpStream, Box<dyn FnOnce() + Send>);
/// A stream: logs in as a role and begins.
type Stream = fn(&AttackRun, &str) -> Result<Running, ServerAnswer>;

/// Streams over CQL.
const CQL: [Stream; 3] = [cql_reads, cql_pages, cql_pipeline];
/// Streams over SQL.
const SQL: [Stream; 4] = [sql_rows, sql_silent, sql_portal, sql_statements];

/// Changes roles beside their reads, pages and pipelines over CQL.
pub(crate) fn cql_streams(run: &AttackRun) -> Result<(), ServerAnswer> {
    cases(run, &CQL)
}

/// Changes roles beside their rows, computations, portals and statements over SQL.
pub(crate) fn sql_streams(run: &AttackRun) -> Result<(), ServerAnswer> {
    cases(run, &SQL)
}

fn cases(run: &AttackRun, streams: &[Stream]) -> Result<(), ServerAnswer> {
    let all: Vec<(usize, usize)> = (0..streams.len())
        .flat_map(|stream| (0..CHANGES.len()).map(move |change| (stream, change)))
        .collect();
    on_threads(AT_ONCE, |thread| {
        for (n, &(stream, change)) in all.iter().cycle().enumerate().skip(thread).step_by(AT_ONCE) {
            if !run.round() {
                break;
            }
            run.record(case(run, n, streams[stream], change)?);
        }
        Ok(())
    })
}

/// Runs one case. Returns "ended", "ended late", or a label that names the change.
fn case(run: &AttackRun, n: usize, stream: Stream, change: usize) -> Result<ServerAnswer, ServerAnswer> {
    let (name, statements) = CHANGES[change];
    let named = |text: &str| text.replace("$R", &format!("leaver{n}")).replace("$G", &format!("group{n}"));
    let mut admin = setup::admin(&run.target)?;
    let made = [
        "DROP ROLE IF EXISTS $R",
        "DROP ROLE IF EXISTS $G",
        "CREATE ROLE $G",
        "GRANT SELECT ON KEYSPACE yard TO $G",
        "CREATE ROLE $R WITH PASSWORD = 'password of a run' AND LOGIN = true",
        "GRANT $G TO $R",
        "ATTACH SERVICE LEVEL rude TO $R",
    ];
    made.iter().try_for_each(|text| admin.must(&named(text)))?;
    let (socket, runs) = stream(run, &named("$R"))?;
    let (sender, ended) = channel();
    let running = std::thread::spawn(move || {
        runs();
        // The other end is gone only after it has seen the end, or given up.
        let _ = sender.send(());
    });
    let early = ended.recv_timeout(RUNNING).is_ok();
    statements.iter().try_for_each(|text| admin.must(&named(text)))?;
    let changed = Instant::now();
    let is_over = early || ended.recv_timeout(ENDS_LATE).is_ok();
    let waited = changed.elapsed();
    drop(socket.shutdown(Shutdown::Both));
    drop(running.join());
    ["DROP ROLE IF EXISTS $R", "DROP ROLE IF EXISTS $G"]
        .iter()
        .try_for_each(|text| admin.must(&named(text)))?;
    Ok(match (early, is_over, waited > ENDS_MAX) {
        (true, ..) => ServerAnswer::new("a stream ended before the change"),
        (_, true, false) => ServerAnswer::new("ended"),
        (_, true, true) => ServerAnswer::new("ended late"),
        (_, false, _) => ServerAnswer::new(format!("goes on after {name}")),
    })
}

/// Returns true for an answer that does not end a stream: a result, or a rejection of a busy
/// server.
fn goes_on(answer: &ServerAnswer) -> bool {
    !answer.is_error() || ["error 0x1001", "error 0x1200", "error 53200"].contains(&answer.label.as_str())
}

fn cql_login(run: &AttackRun, role: &str) -> Result<(Native, TcpStream), ServerAnswer> {
    let mut native = Native::open_for(&run.target, FRIEND, PATIENCE)?;
    native.log_in(role, Compression::None)?;
    let socket = native.stream.try_clone().map_err(|error| lost(&error))?;
    Ok((native, socket))
}

fn sql_login(run: &AttackRun, role: &str) -> Result<(Postgres, TcpStream), ServerAnswer> {
    let mut postgres = Postgres::open(&run.target, RUDE)?;
    postgres.log_in(role, PASSWORD)?;
    let socket = postgres.stream.try_clone().map_err(|error| lost(&error))?;
    Ok((postgres, socket))
}

/// Reads single rows by a statement that was prepared before the change.
fn cql_reads(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    let (mut native, socket) = cql_login(run, role)?;
    let id = native.prepare("SELECT v FROM yard.t WHERE k = 7")?;
    let reads = move || {
        let execute = wire::Execute { id: &id, ..wire::Execute::default() };
        while native.ask(&Request::Execute(execute.clone())).is_ok_and(|answer| goes_on(&answer)) {}
    };
    Ok((socket, Box::new(reads)))
}

/// Reads a partition by pages of 10 rows, again and again.
fn cql_pages(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    let (mut native, socket) = cql_login(run, role)?;
    let pages = move || {
        let mut state: Option<Vec<u8>> = None;
        loop {
            let paging_state = state.as_deref();
            let params = QueryParams { page_size: Some(10), paging_state, ..QueryParams::default() };
            let request = Request::Query(Query { text: "SELECT v FROM yard.w WHERE k = 1", params });
            let Ok(envelope) = native.exchange(&request) else { return };
            let Ok(Response::Rows(rows)) = envelope.response() else {
                if goes_on(&crate::native::label(&envelope)) { continue } else { return }
            };
            state = rows.metadata.paging_state.map(<[u8]>::to_vec);
        }
    };
    Ok((socket, Box::new(pages)))
}

/// Sends reads of 20 MB on 500 streams, and reads their answers up to the first error.
fn cql_pipeline(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    let (mut native, socket) = cql_login(run, role)?;
    let frame = native.encode(0, &cql("SELECT * FROM yard.big"));
    for stream in 0..500 {
        native.send(&on_stream(frame.clone(), stream))?;
    }
    let reads = move || while native.answer().is_ok_and(|answer| goes_on(&answer)) {};
    Ok((socket, Box::new(reads)))
}

/// Runs a statement after another, or one that does not end.
fn sql_runs(run: &AttackRun, role: &str, text: &'static str) -> Result<Running, ServerAnswer> {
    let (mut postgres, socket) = sql_login(run, role)?;
    Ok((socket, Box::new(move || while postgres.query(text).is_ok_and(|answer| goes_on(&answer)) {})))
}

/// Reads the rows of a statement that does not end.
fn sql_rows(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    sql_runs(run, role, "SELECT l.v, r.v, m.v FROM yard.w AS l, yard.w AS r, yard.w AS m")
}

/// Runs a statement that returns nothing for hours.
fn sql_silent(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    let text = "SELECT count(*) FROM yard.w AS l, yard.w AS r, yard.w AS m WHERE l.c + r.c + m.c < 0";
    sql_runs(run, role, text)
}

/// Fetches 10 rows of a portal at a time.
fn sql_portal(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    let (mut postgres, socket) = sql_login(run, role)?;
    postgres.query("BEGIN")?;
    let text = "SELECT l.v FROM yard.w AS l, yard.w AS r";
    postgres.send(&[parse("s", text), bind("p", "s")].concat())?;
    let fetches = move || {
        loop {
            if postgres.send(&[execute("p", 10), framed(b'H', b"")].concat()).is_err() {
                return;
            }
            let answer = loop {
                match postgres.message() {
                    Ok(message) => match message.answer() {
                        Some(answer) if answer.label != "parsed" => break answer,
                        _ => {}
                    },
                    Err(answer) => break answer,
                }
            };
            if answer.is_error() {
                return;
            }
        }
    };
    Ok((socket, Box::new(fetches)))
}

/// Runs a statement after another.
fn sql_statements(run: &AttackRun, role: &str) -> Result<Running, ServerAnswer> {
    sql_runs(run, role, "SELECT v FROM yard.t WHERE k = 7")
}
