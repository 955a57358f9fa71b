//! Crowds of connections beyond the server's limit of open files. Beside them a session that was
//! there before writes and flushes. After them all of it must work again.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use wire::Compression;

use crate::answers::{REFUSED, ServerAnswer};
use crate::attack::AttackRun;
use crate::dial::dial;
use crate::native::{Native, lost};
use crate::postgres::{SSL_REQUEST, untyped};
use crate::target::Role;

/// Sockets of a crowd, three times the files of the server.
const CROWD: usize = 1_500;
/// Source addresses, so that limits of one address do not end the crowd.
const ADDRESSES: u8 = 50;
/// Longest wait for one member of the crowd.
const PATIENCE: Duration = Duration::from_millis(500);
/// Failures in a row after which the crowd is as large as the server lets it be.
const FAILURES_MAX: usize = 20;
/// Calls of the holding loop between two flushes: a second.
const CALLS_PER_FLUSH: usize = 50;

/// Returns the address of a member of the crowd.
fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, 1 + (n % ADDRESSES as usize) as u8)
}

/// Gathers a crowd, and holds it. `join` returns the `n`th member.
fn crowd<M>(
    run: &AttackRun,
    mut join: impl FnMut(usize) -> Result<M, ServerAnswer>,
) -> Result<(), ServerAnswer> {
    let mut writer = Native::login(&run.target, run.role, Compression::None)?;
    let mut write = |run: &AttackRun, n: usize| {
        let text = format!("INSERT INTO yard.b (id, v) VALUES ({n}, '{}')", "v".repeat(10_000));
        let outcome = writer
            .query(&text)
            .and_then(|answer| if answer.is_error() { Ok(answer) } else { writer.query("FLUSH yard.b") });
        run.count(outcome)
    };
    let (mut held, mut failures) = (Vec::new(), 0);
    while run.round() && held.len() < CROWD && failures < FAILURES_MAX {
        match join(held.len()) {
            Ok(member) => {
                held.push(member);
                failures = 0;
            }
            Err(_) => {
                run.record(ServerAnswer::new(REFUSED));
                failures += 1;
            }
        }
    }
    let mut calls = 0;
    let mut writes = write(run, 0);
    run.hold(|| {
        calls += 1;
        if calls % CALLS_PER_FLUSH == 0 && writes {
            writes = write(run, calls);
        }
    });
    Ok(())
}

fn connect(to: SocketAddr, n: usize) -> Result<TcpStream, ServerAnswer> {
    dial(to, address(n), PATIENCE).map_err(|error| lost(&error))
}

/// Opens silent connections to all listeners in turn.
pub(crate) fn silent(run: &AttackRun) -> Result<(), ServerAnswer> {
    let all = [run.target.cql, run.target.sql, run.target.http];
    crowd(run, |n| connect(all[n % all.len()], n))
}

/// Begins handshakes and requests on all listeners, and does not end them.
pub(crate) fn halves(run: &AttackRun) -> Result<(), ServerAnswer> {
    let tls = [0x16, 3, 1, 0, 0xEC, 1, 0, 0, 0xE8];
    let startup = [4, 0, 0, 0, 1, 0, 0, 0xEA, 0x60];
    let ssl = untyped(SSL_REQUEST, &[]);
    let begins: [(SocketAddr, &[u8]); 4] = [
        (run.target.cql, &tls),
        (run.target.cql, &startup),
        (run.target.sql, &ssl),
        (run.target.http, b"GET /metrics HTTP/1.1\r\nX: "),
    ];
    crowd(run, |n| {
        let (to, begin) = begins[n % begins.len()];
        let mut stream = connect(to, n)?;
        std::io::Write::write_all(&mut stream, begin).map_err(|error| lost(&error))?;
        Ok(stream)
    })
}

/// Opens sessions that have logged in and do nothing.
pub(crate) fn sessions(run: &AttackRun) -> Result<(), ServerAnswer> {
    crowd(run, |n| {
        let mut native = Native::open_for(&run.target, address(n), 4 * PATIENCE)?;
        native.log_in(Role::LoginOnly.name(), Compression::None)?;
        Ok(native)
    })
}
