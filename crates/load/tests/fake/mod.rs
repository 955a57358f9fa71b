//! Fake server for load tests with a minimum of the native protocol. It logs in, prepares, answers
//! EXECUTE with fixed rows, and fails as scripted. Each connection has a blocking thread.

#![allow(dead_code, reason = "each test binary and the benchmark use a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use schema::{CqlType, Sharding};
use wire::{
    ColumnSpec, Columns, Decoder, Direction, Encoder, Failure, FailureKind, HEADER_BYTES, Limits, Prelude,
    PreparedHead, Request, RowsHead, Value, Version,
};

/// Behaviour of the server. Request numbers are over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// Rows in the answer to a SELECT by key.
    pub(crate) rows: usize,
    /// Rows of a page. Zero: all rows in one page.
    pub(crate) page_rows: usize,
    pub(crate) password: Option<&'static str>,
    /// Every n-th EXECUTE fails as overloaded.
    pub(crate) fail_every: Option<u64>,
    /// Time to try again in the message of these failures, ms. Zero: none is named.
    pub(crate) retry_ms: u64,
    /// This EXECUTE (from 1) is lost together with its connection.
    pub(crate) drop_at: Option<u64>,
    /// EXECUTEs from this number (from 1) on get no answer.
    pub(crate) silent_from: Option<u64>,
    /// This EXECUTE (from 1) is answered as unprepared.
    pub(crate) forget_at: Option<u64>,
    /// Delay of each answer.
    pub(crate) delay: Duration,
    /// Number of shards published, if more than one. The server's port is then the shard-aware
    /// port.
    pub(crate) shards: Option<u32>,
    /// True to answer PREPARE as if no table existed.
    pub(crate) no_table: bool,
}

/// The first two values of an INSERT: its key, and its clustering key or first column.
pub(crate) type FirstValues = (Vec<u8>, Vec<u8>);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicU64,
    pub(crate) executes: AtomicU64,
    pub(crate) prepares: AtomicU64,
    /// EXECUTEs on a connection to the shard that owns the key, and on others.
    pub(crate) owned: AtomicU64,
    pub(crate) foreign: AtomicU64,
    /// Client ports of the connections with an EXECUTE.
    pub(crate) used: Mutex<BTreeSet<u16>>,
    pub(crate) queries: Mutex<Vec<String>>,
    /// First values of successful INSERTs, with their number.
    pub(crate) written: Mutex<BTreeMap<FirstValues, u64>>,
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    over: Arc<AtomicBool>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

impl Fake {
    pub(crate) fn start(script: Script) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let fake = Fake { address, seen: Arc::default(), over: Arc::default() };
        let seen = fake.seen.clone();
        let over = fake.over.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                seen.connections.fetch_add(1, Ordering::Relaxed);
                let script = script.clone();
                let seen = seen.clone();
                std::thread::spawn(move || drop(serve(stream, &script, &seen)));
            }
        });
        fake
    }
}

fn columns() -> Columns {
    let spec = |name| ColumnSpec::new("keyspace1", "standard1", name, &CqlType::Blob);
    Columns::encode(Version::V4, &[spec("key"), spec("C0")]).expect("short names")
}

fn serve(mut stream: TcpStream, script: &Script, seen: &Seen) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let ports = (stream.peer_addr()?.port(), stream.local_addr()?.port());
    let mut decoder = Decoder::new(Direction::Request, Limits::default());
    let mut encoder = Encoder::new(Direction::Response, Version::V4);
    let mut input = BytesMut::new();
    let mut chunk = vec![0; 64 << 10];
    let columns = columns();
    loop {
        while let Some(envelope) = decoder.decode(&mut input).map_err(std::io::Error::other)? {
            let request = envelope.request().map_err(std::io::Error::other)?;
            if !answer(&mut encoder, envelope.stream, &request, script, seen, &columns, ports) {
                return Ok(());
            }
        }
        if encoder.pending() > 0 {
            stream.write_all(&encoder.finish().split())?;
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            read => input.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Returns the shard of a connection, given the ports of client and server.
fn shard(script: &Script, (client, _): (u16, u16)) -> u32 {
    u32::from(client) % script.shards.unwrap_or(1)
}

/// Answers a request. Returns false to close the connection.
fn answer(
    encoder: &mut Encoder,
    stream: i16,
    request: &Request<'_>,
    script: &Script,
    seen: &Seen,
    columns: &Columns,
    ports: (u16, u16),
) -> bool {
    let plain = Prelude::default();
    let fail = |encoder: &mut Encoder, kind, text: &str| {
        encoder.error(stream, &Failure::new(kind, text), &Prelude::default()).expect("fits");
    };
    match request {
        Request::Options => {
            let mut options = vec![("CQL_VERSION", "3.0.0".to_string())];
            if let (Some(shards), (_, port)) = (script.shards, ports) {
                options.extend([
                    ("SCYLLA_SHARD", shard(script, ports).to_string()),
                    ("SCYLLA_NR_SHARDS", shards.to_string()),
                    ("SCYLLA_SHARDING_IGNORE_MSB", "12".to_string()),
                    ("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin".to_string()),
                    ("SCYLLA_PARTITIONER", "org.apache.cassandra.dht.Murmur3Partitioner".to_string()),
                    ("SCYLLA_SHARD_AWARE_PORT", port.to_string()),
                ]);
            }
            let options: Vec<_> = options.into_iter().map(|(name, value)| (name, vec![value])).collect();
            let borrowed: Vec<(&str, Vec<&str>)> =
                options.iter().map(|(name, value)| (*name, vec![value[0].as_str()])).collect();
            encoder.supported(stream, &borrowed).expect("fits");
        }
        Request::Startup(_) if script.password.is_none() => encoder.ready(stream),
        Request::Startup(_) => encoder.authenticate(stream, "PasswordAuthenticator").expect("fits"),
        Request::AuthResponse(token) => {
            let expected = format!("\0tester\0{}", script.password.unwrap_or_default());
            if *token == Some(expected.as_bytes()) {
                encoder.auth_success(stream, None).expect("fits");
            } else {
                fail(encoder, FailureKind::Authentication, "Bad credentials");
            }
        }
        Request::Query(query) => {
            seen.queries.lock().expect("no panic").push(query.text.to_string());
            if query.text.starts_with("SELECT") {
                page(encoder, stream, script, columns, query.params.paging_state);
            } else {
                encoder.void(stream, &plain).expect("fits");
            }
        }
        Request::Prepare(_) if script.no_table => fail(encoder, FailureKind::Invalid, "unconfigured table"),
        Request::Prepare(prepare) => {
            seen.prepares.fetch_add(1, Ordering::Relaxed);
            let id = if prepare.text.starts_with("SELECT") { b"r" } else { b"w" };
            let head = PreparedHead {
                id,
                result_metadata_id: &[],
                bind: columns,
                partition_key_indexes: &[0],
                result: columns,
            };
            encoder.prepared(stream, &head, &plain).expect("fits");
        }
        Request::Execute(execute) => {
            let number = seen.executes.fetch_add(1, Ordering::Relaxed) + 1;
            seen.used.lock().expect("no panic").insert(ports.0);
            if let (Some(shards), Some(Value::Bytes(key))) =
                (script.shards, execute.params.values.iter().next())
            {
                let owner = Sharding { shards, ignore_msb: 12 }.shard_of(schema::token::token(key));
                let right = owner == shard(script, ports);
                if right { &seen.owned } else { &seen.foreign }.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(script.delay);
            if script.drop_at == Some(number) {
                return false;
            }
            if script.silent_from.is_some_and(|from| number >= from) {
                return true;
            }
            if script.forget_at == Some(number) {
                fail(encoder, FailureKind::Unprepared(execute.id.to_vec()), "unknown id");
            } else if script.fail_every.is_some_and(|every| number.is_multiple_of(every)) {
                let message = match script.retry_ms {
                    0 => "too much".to_string(),
                    ms => format!("too much. Try again in {ms} ms."),
                };
                fail(encoder, FailureKind::Overloaded, &message);
            } else if execute.id == b"w" {
                wrote(seen, execute.params.values.iter());
                encoder.void(stream, &plain).expect("fits");
            } else {
                rows(encoder, stream, script.rows, columns, None);
            }
        }
        Request::Batch(batch) => {
            let number = seen.executes.fetch_add(1, Ordering::Relaxed) + 1;
            if script.drop_at == Some(number) {
                return false;
            }
            if script.fail_every.is_some_and(|every| number.is_multiple_of(every)) {
                fail(encoder, FailureKind::Overloaded, "too much");
                return true;
            }
            batch.iter().for_each(|entry| wrote(seen, entry.values.iter()));
            encoder.void(stream, &plain).expect("fits");
        }
        _ => fail(encoder, FailureKind::Protocol, "unsupported request"),
    }
    true
}

/// Records a row by its first two values.
fn wrote<'v>(seen: &Seen, values: impl Iterator<Item = Value<'v>>) {
    let mut values = values.map(|value| match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    });
    let row = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
    *seen.written.lock().expect("no panic").entry(row).or_default() += 1;
}

fn rows(encoder: &mut Encoder, stream: i16, count: usize, columns: &Columns, next: Option<&[u8]>) {
    let head = RowsHead { skip_metadata: true, paging_state: next, ..Default::default() };
    let mut writer = encoder.rows(stream, &head, columns, &Prelude::default());
    for _ in 0..count {
        writer.cell(Some(b"a key"));
        writer.cell(None);
    }
    writer.end().expect("fits");
}

/// Answers one page. The length of the paging state is the number of rows already returned.
fn page(encoder: &mut Encoder, stream: i16, script: &Script, columns: &Columns, state: Option<&[u8]>) {
    let given = state.map_or(0, |state| state.len());
    let left = script.rows - given.min(script.rows);
    let now = if script.page_rows == 0 { left } else { left.min(script.page_rows) };
    let next = vec![0; given + now];
    rows(encoder, stream, now, columns, (now < left).then_some(&next));
}

/// Serves with the least work per EXECUTE, so that the load is measured. The answer is a fixed
/// frame with the stream replaced, and other requests are recognized by their opcode.
pub(crate) fn serve_fast(listener: &TcpListener) {
    let script = Script { rows: 1, ..Script::default() };
    let columns = columns();
    let mut encoder = Encoder::new(Direction::Response, Version::V4);
    rows(&mut encoder, 0, 1, &columns, None);
    let fixed = encoder.finish().split();
    while let Ok((mut socket, _)) = listener.accept() {
        let fixed = fixed.clone();
        let columns = columns.clone();
        let script = script.clone();
        std::thread::spawn(move || -> std::io::Result<()> {
            socket.set_nodelay(true)?;
            let seen = Seen::default();
            let mut encoder = Encoder::new(Direction::Response, Version::V4);
            let mut input = vec![0; 256 << 10];
            let mut filled = 0;
            let mut out = Vec::new();
            loop {
                match socket.read(&mut input[filled..])? {
                    0 => return Ok(()),
                    read => filled += read,
                }
                let mut at = 0;
                while filled - at >= HEADER_BYTES {
                    let length =
                        u32::from_be_bytes([input[at + 5], input[at + 6], input[at + 7], input[at + 8]]);
                    let end = at + HEADER_BYTES + length as usize;
                    if end > filled {
                        break;
                    }
                    if input[at + 4] == wire::Opcode::Execute as u8 {
                        let start = out.len();
                        out.extend_from_slice(&fixed);
                        out[start + 2..start + 4].copy_from_slice(&input[at + 2..at + 4]);
                    } else {
                        let mut decoder = Decoder::new(Direction::Request, Limits::default());
                        let mut one = BytesMut::from(&input[at..end]);
                        let decoded = decoder.decode(&mut one).map_err(std::io::Error::other)?;
                        let envelope = decoded.expect("a whole frame");
                        let request = envelope.request().map_err(std::io::Error::other)?;
                        answer(&mut encoder, envelope.stream, &request, &script, &seen, &columns, (0, 0));
                        out.extend_from_slice(&encoder.finish().split());
                    }
                    at = end;
                }
                input.copy_within(at..filled, 0);
                filled -= at;
                socket.write_all(&out)?;
                out.clear();
            }
        });
    }
}
