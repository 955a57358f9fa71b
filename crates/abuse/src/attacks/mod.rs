//! Attacks by listener and subject. [`crate::table`] lists them.

pub(crate) mod cql_answers;
pub(crate) mod cql_frames;
pub(crate) mod cql_load;
pub(crate) mod cql_login;
pub(crate) mod cql_pieces;
pub(crate) mod cql_statements;
pub(crate) mod crowds;
pub(crate) mod extremes;
pub(crate) mod http;
pub(crate) mod rights;
pub(crate) mod schema_growth;
mod segments;
pub(crate) mod sql_gathering;
pub(crate) mod sql_login;
pub(crate) mod sql_planning;
pub(crate) mod sql_sessions;
pub(crate) mod sql_statements;
pub(crate) mod together;
pub(crate) mod unfair;

use std::net::TcpStream;

use wire::Compression;

use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::timed_out;
use crate::native::Native;
use crate::postgres::Postgres;

/// Length of long statements, bytes. Just below the longest body that the server accepts after
/// decompression.
const LONG_TEXT_BYTES: usize = 15 << 20;

/// Keeps as many client threads busy as the largest attacks do, and sends nothing. The latency of
/// the probes beside it is the machine's share of their latency beside any attack.
pub(crate) fn control(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(16, |_| {
        while run.round() {
            std::hint::spin_loop();
        }
        Ok(())
    })
}

/// Runs `each` on `threads` threads of this process. Returns the first failure.
fn on_threads(
    threads: usize,
    each: impl Fn(usize) -> Result<(), ServerAnswer> + Sync,
) -> Result<(), ServerAnswer> {
    let each = &each;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || each(thread))).collect();
        let outcomes =
            all.into_iter().map(|one| one.join().unwrap_or_else(|_| panic!("an attacker's thread failed")));
        outcomes.fold(Ok(()), Result::and)
    })
}

/// Sends one frame per round on one connection, each after the answer to the frame before. Replaces
/// a lost connection.
fn cql_rounds(
    run: &AttackRun,
    compression: Compression,
    mut make: impl FnMut(&mut Native, u64) -> Vec<u8>,
) -> Result<(), ServerAnswer> {
    let mut native = Native::login(&run.target, run.role, compression)?;
    for n in 0.. {
        if !run.round() {
            break;
        }
        let frame = make(&mut native, n);
        let outcome = native.send_and_answer(&frame);
        if !run.count(outcome) && run.has_time() {
            native = Native::login(&run.target, run.role, compression)?;
        }
    }
    Ok(())
}

/// Runs one simple query per round on one SQL session. Replaces a lost session.
fn sql_rounds(run: &AttackRun, first: &[&str], texts: &[String]) -> Result<(), ServerAnswer> {
    let login = || {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        first.iter().try_for_each(|text| postgres.query(text).map(drop))?;
        Ok::<Postgres, ServerAnswer>(postgres)
    };
    let mut postgres = login()?;
    for text in texts.iter().cycle() {
        if !run.round() {
            break;
        }
        if !run.count(postgres.query(text)) && run.has_time() {
            postgres = login()?;
        }
    }
    Ok(())
}

/// Returns true if the server has closed a silent connection.
fn is_closed(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let mut byte = [0];
    match stream.peek(&mut byte) {
        Ok(read) => read == 0,
        Err(error) => !timed_out(&error),
    }
}
