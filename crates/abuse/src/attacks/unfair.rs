//! Connections that pour requests and do not read, beside a polite connection of the same role and
//! level. The polite one sends a request at a time and measures its longest wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wire::{Compression, Execute, QueryParams, Request, Value, ValuesBuf};

use super::cql_frames::bound;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::{RUDE, reset_on_close};
use crate::native::{Native, lost, on_stream, query};
use crate::postgres::{Postgres, bind, execute, parse, query as sql, sync};

/// Threads that pour, and the connections that each leaves open behind it.
const POURING: usize = 16;
const KEPT: usize = 4;
/// Streams of a connection, all of which have a request in flight.
const STREAMS: i16 = 2_048;
/// Time for which a pouring connection waits for the server to read.
const STUCK: Duration = Duration::from_millis(200);
/// Longest wait of the polite connection that a busy machine explains. The long form measures it
/// exactly, by its probe in the same level.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A connection of either protocol that pours.
trait Pour: Sized {
    fn login(run: &AttackRun) -> Result<Self, ServerAnswer>;
    fn stream(&self) -> &std::net::TcpStream;
}

impl Pour for Native {
    fn login(run: &AttackRun) -> Result<Native, ServerAnswer> {
        let mut native = Native::open(&run.target, RUDE)?;
        native.log_in(run.role.name(), Compression::None)?;
        Ok(native)
    }

    fn stream(&self) -> &std::net::TcpStream {
        &self.stream
    }
}

impl Pour for Postgres {
    fn login(run: &AttackRun) -> Result<Postgres, ServerAnswer> {
        Postgres::login(&run.target, run.role)
    }

    fn stream(&self) -> &std::net::TcpStream {
        &self.stream
    }
}

/// Opens connections on all threads, and pours the bytes of `make` into each until the server reads
/// no more. Runs `polite` meanwhile.
fn pour<C: Pour + Send>(
    run: &AttackRun,
    make: impl Fn(&mut C, usize) -> Result<Vec<u8>, ServerAnswer> + Sync,
    mut polite: impl FnMut() -> Result<ServerAnswer, ServerAnswer>,
) -> Result<(), ServerAnswer> {
    let pouring = AtomicUsize::new(POURING);
    let one = |thread: usize| {
        let mut open = VecDeque::new();
        while run.round() {
            let mut connection = C::login(run)?;
            let bytes = make(&mut connection, thread)?;
            let stream = connection.stream();
            stream.set_write_timeout(Some(STUCK)).map_err(|error| lost(&error))?;
            reset_on_close(stream).map_err(|error| lost(&error))?;
            // A server that stops reading, as it should, lets this time out.
            let _ = std::io::Write::write_all(&mut &*stream, &bytes);
            open.push_back(connection);
            if open.len() > KEPT {
                open.pop_front();
            }
        }
        Ok(open)
    };
    std::thread::scope(|scope| {
        let (one, pouring) = (&one, &pouring);
        for thread in 0..POURING {
            scope.spawn(move || {
                let open = one(thread);
                pouring.fetch_sub(1, Ordering::Relaxed);
                match open {
                    // Leave the connections open until the last one has poured.
                    Ok(open) => {
                        while pouring.load(Ordering::Relaxed) > 0 && run.has_time() {
                            std::thread::sleep(STUCK / 10);
                        }
                        drop(open);
                    }
                    Err(answer) => run.record(answer),
                }
            });
        }
        let mut longest = Duration::ZERO;
        while pouring.load(Ordering::Relaxed) > 0 {
            let start = Instant::now();
            let outcome = polite();
            longest = longest.max(start.elapsed());
            if !run.count(outcome) {
                break;
            }
        }
        if longest > WAIT_MAX {
            let text = format!("longest wait {:.1} s", longest.as_secs_f64());
            run.record(ServerAnswer { label: "a polite request starved".to_owned(), text });
        }
    });
    Ok(())
}

/// Runs [`pour`] with frames of all streams, beside prepared reads of one row.
fn pour_cql(
    run: &AttackRun,
    frame: impl Fn(&mut Native, usize) -> Vec<u8> + Sync,
) -> Result<(), ServerAnswer> {
    let mut polite = <Native as Pour>::login(run)?;
    let id = polite.prepare("SELECT v FROM yard.t WHERE k = ?")?;
    let mut values = ValuesBuf::new();
    values.push(Value::Bytes(&7i32.to_be_bytes())).expect("one value fits");
    let make = |native: &mut Native, thread: usize| {
        let frame = frame(native, thread);
        Ok((0..STREAMS).flat_map(|stream| on_stream(frame.clone(), stream)).collect())
    };
    pour(run, make, || {
        let params = QueryParams { values: values.values(), ..QueryParams::default() };
        polite.ask(&Request::Execute(Execute { id: &id, params, ..Execute::default() }))
    })
}

/// Pours reads of one row, of 100 rows, and of rows that do not exist.
pub(crate) fn reads(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = [
        "SELECT v FROM yard.t WHERE k = 7",
        "SELECT v FROM yard.w WHERE k = 1 LIMIT 100",
        "SELECT v FROM yard.absent WHERE k IN (1, 2, 3, 4, 5, 6, 7, 8, 9)",
    ];
    pour_cql(run, |native, thread| native.encode(0, &query(texts[thread % texts.len()])))
}

/// Pours reads of 20 MB: without pages, and with a filter that no row passes.
pub(crate) fn large_reads(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = [
        "SELECT * FROM yard.big",
        "SELECT k FROM yard.w WHERE v = 'nothing' ALLOW FILTERING",
        "SELECT count(*) FROM yard.w",
    ];
    pour_cql(run, |native, thread| native.encode(0, &query(texts[thread % texts.len()])))
}

/// Pours writes of 8 KB, conditional ones among them.
pub(crate) fn writes(run: &AttackRun) -> Result<(), ServerAnswer> {
    let value = vec![b'v'; 8_000];
    pour_cql(run, |native, thread| {
        let text = match thread % 3 {
            0 => format!("INSERT INTO yard.b (id, v) VALUES ({thread}, ?)"),
            1 => format!("UPDATE yard.b SET v = 'w' WHERE id = {thread} IF v = ?"),
            _ => format!("UPDATE yard.b SET v = ? WHERE id IN ({thread}, 1, 2, 3, 4, 5)"),
        };
        bound(native, &text, &[&value])
    })
}

/// Pours SQL: pipelines of 1,000 statements of both protocols.
pub(crate) fn statements(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut polite = <Postgres as Pour>::login(run)?;
    let text = "SELECT max(length(v)) FROM yard.w";
    let simple = sql(text).repeat(1_000);
    let extended = [parse("", text), bind("", ""), execute("", 0), sync()].concat().repeat(1_000);
    let rows = sql("SELECT v FROM yard.big").repeat(1_000);
    let make = |_: &mut Postgres, thread: usize| Ok([&simple, &extended, &rows][thread % 3].clone());
    pour(run, make, || polite.query("SELECT v FROM yard.t WHERE k = 7"))
}
