//! Many requests at once, and answers that are not read.

use std::time::Duration;

use wire::Compression;

use super::{LONG_TEXT_BYTES, on_threads};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::native::{Native, on_stream, query};

/// Number of connections, each with its requests in flight.
const CONNECTIONS: usize = 4;
/// Requests in flight on each connection, together 8,192.
const IN_FLIGHT: u16 = 2_048;
/// Statements on each connection that wait for the one slot of their level, together 1,024.
const QUEUED: u16 = 256;

/// Reads in a closed loop with 8,192 requests in flight.
pub(crate) fn closed_loop(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(CONNECTIONS, |_| {
        let native = Native::login(&run.target, run.role, Compression::None)?;
        let mut key = 0;
        native.flood(
            IN_FLIGHT,
            |native, stream| {
                key = (key + 1) % 1_000;
                let text = format!("SELECT v FROM yard.t WHERE k = {key}");
                run.round().then(|| native.encode(stream, &query(&text)))
            },
            |answer| {
                if !answer.ends() {
                    run.record(answer);
                }
            },
        );
        Ok(())
    })
}

/// Requests large answers on all streams and never reads them.
pub(crate) fn answers_unread(run: &AttackRun) -> Result<(), ServerAnswer> {
    unread(run, "SELECT * FROM system_schema.columns")
}

/// Requests unpaged answers of 20 MB on all streams and never reads them.
pub(crate) fn big_answers_unread(run: &AttackRun) -> Result<(), ServerAnswer> {
    unread(run, "SELECT * FROM yard.big")
}

fn unread(run: &AttackRun, text: &str) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < 2 * CONNECTIONS {
        let mut native = Native::open_for(&run.target, RUDE, Duration::from_secs(2))?;
        native.log_in(run.role.name(), Compression::None)?;
        let frame = native.encode(0, &query(text));
        for stream in 0..IN_FLIGHT as i16 {
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

/// Reads answers a few bytes at a time.
pub(crate) fn slow_reader(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < 16 {
        let mut native = Native::login(&run.target, run.role, Compression::None)?;
        let frame = native.encode(0, &query("SELECT * FROM yard.big"));
        native.send(&frame)?;
        held.push(native);
    }
    run.hold(|| {
        held.retain_mut(|native| {
            let mut few = [0; 64];
            drop(native.stream.set_read_timeout(Some(Duration::from_millis(1))));
            !matches!(std::io::Read::read(&mut native.stream, &mut few), Ok(0))
        });
    });
    Ok(())
}

/// Queues 1,024 statements with comments of 15 MiB (64 KB in LZ4) behind one slot.
pub(crate) fn queued_comments(run: &AttackRun) -> Result<(), ServerAnswer> {
    let text = format!("SELECT k FROM yard.w LIMIT 100 /* {} */", "a".repeat(LONG_TEXT_BYTES));
    on_threads(CONNECTIONS, |_| {
        let mut native = Native::login(&run.target, run.role, Compression::Lz4)?;
        let frame = native.encode(0, &query(&text));
        native.flood(
            QUEUED,
            |_, stream| run.round().then(|| on_stream(frame.clone(), stream)),
            |answer| {
                if !answer.ends() {
                    run.record(answer);
                }
            },
        );
        Ok(())
    })
}
