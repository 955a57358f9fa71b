//! A client's socket: messages in, split off by their length and bounded; messages out, gathered and written together, on a fast
//! lane. `message` reads the bodies; the protocol's library writes them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use frontdoor::{Account, Charge, ClientCertificates, Slot, Stream, Tls};
use lanes::net::TcpStream;
use pgwire::messages::Message;
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::counts::{Counts, add};
use crate::failure::{Failure, state};
use crate::login;
use crate::message::{Body, Frame, LARGE_BYTES};
use crate::seen::Seen;
use crate::server::{Here, Sql};
use crate::session::Session;

/// Bytes of answers gathered before they are written.
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;
/// Room for reading, bytes.
const INPUT_BYTES: usize = 8 << 10;
/// Chunks that a large message is received in, bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Longest message of the types that carry names only, bytes, as in PostgreSQL.
const SMALL_BYTES_MAX: usize = 10_000;
/// Work units of a message, apart from its bytes: reading, answering and writing take some microseconds.
const UNITS_PER_MESSAGE: u32 = 50;
/// Time for a client that is refused to take notice.
const REFUSAL: Duration = Duration::from_secs(1);

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client is gone, or said that it goes.
    Gone,
    /// It is to be told why.
    Failed(Failure),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

/// Messages that a client may send now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Those without a type: the startup message, and what comes ahead of it.
    Startup,
    /// Answers to the request for a password.
    Password,
    /// Those of a session.
    Session,
}

/// A message of which a part has come.
struct Large {
    kind: u8,
    chunks: Vec<Bytes>,
    /// Bytes that are to come, those in the input among them.
    left: usize,
    charge: Option<Charge>,
    /// Why there is no memory for it: its chunks are discarded as they come.
    refused: Option<Failure>,
}

/// See the head of this file.
pub(crate) struct Connection {
    /// None if encryption was to begin, and did not.
    stream: Option<Stream>,
    input: BytesMut,
    output: BytesMut,
    phase: Phase,
    message_bytes_max: usize,
    /// The large message that is being received.
    large: Option<Large>,
    /// Whom large messages are charged to, once the client has logged in.
    account: Option<Arc<Account>>,
    counts: Rc<Counts>,
    /// What others see of it.
    seen: Rc<Seen>,
    /// What is counted of its buffers.
    buffer_bytes: u64,
}

impl Connection {
    fn new(stream: TcpStream, message_bytes_max: usize, counts: Rc<Counts>, seen: Rc<Seen>) -> Connection {
        add(&counts.connections, 1);
        Connection {
            stream: Some(Stream::Plain(stream)),
            input: BytesMut::new(),
            output: BytesMut::new(),
            phase: Phase::Startup,
            message_bytes_max,
            large: None,
            account: None,
            counts,
            seen,
            buffer_bytes: 0,
        }
    }

    fn count_buffers(&mut self) {
        let (all, bytes) = (&self.counts.buffer_bytes, self.input.capacity() + self.output.capacity());
        all.set(all.get() + bytes as u64 - self.buffer_bytes);
        self.buffer_bytes = bytes as u64;
        self.seen.buffer_bytes.set(bytes as u64);
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_encrypted)
    }

    /// The role that the client's certificate names.
    pub(crate) fn certificate(&self) -> Option<Arc<str>> {
        self.stream.as_ref().and_then(Stream::client)
    }

    /// What channel binding takes, on an encrypted connection.
    pub(crate) fn end_point(&self) -> Option<Arc<[u8]>> {
        self.stream.as_ref().and_then(Stream::end_point)
    }

    /// Goes on encrypted, as the client has asked for and been told.
    pub(crate) async fn encrypt(&mut self, tls: &Tls) -> Result<(), End> {
        // What came in clear must not pass for part of what comes encrypted.
        if !self.input.is_empty() {
            let text = "received unencrypted data after the request for encryption";
            return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
        }
        if let Some(Stream::Plain(stream)) = self.stream.take() {
            let stream = Stream::encrypted(stream, tls, ClientCertificates::Asked).await?;
            self.seen.is_encrypted.set(true);
            *self.seen.certificate_subject.borrow_mut() = stream.client();
            self.stream = Some(stream);
        }
        Ok(())
    }

    /// The client has sent its startup message: messages have a type from now on, and only passwords are accepted.
    pub(crate) fn started(&mut self, minor: u32) {
        self.seen.started(minor);
        self.phase = Phase::Password;
    }

    /// The client has logged in: its messages may be longer, and large ones are charged to `account`.
    pub(crate) fn allow(&mut self, message_bytes_max: usize, account: Arc<Account>) {
        self.phase = Phase::Session;
        (self.message_bytes_max, self.account) = (message_bytes_max, Some(account));
    }

    /// Waits for the next message. May be dropped while it waits; what has come is kept.
    ///
    /// # Errors
    /// The client is gone, or has sent what is no message.
    pub(crate) async fn next(&mut self) -> Result<Frame, End> {
        loop {
            if let Some(frame) = self.split_off()? {
                lanes::spend(UNITS_PER_MESSAGE);
                return Ok(frame);
            }
            let wanted = self.large.as_ref().map_or(INPUT_BYTES, |large| large.left.min(CHUNK_BYTES));
            self.input.reserve(wanted.saturating_sub(self.input.len()).max(1));
            self.count_buffers();
            let stream = self.stream.as_mut().ok_or(End::Gone)?;
            // The buffer may have much more capacity than was reserved, because it reuses memory
            // that its messages have freed. Without a limit one read copied 3 MB.
            let mut input = (&mut self.input).limit(wanted.max(INPUT_BYTES));
            let read = match stream.read_buf(&mut input).await? {
                0 => return Err(End::Gone),
                read => read,
            };
            add(&self.counts.received_bytes, read as u64);
            // A socket that always has something to read would never wait.
            if lanes::spend_bytes(read) || lanes::should_yield() {
                lanes::yield_now().await;
            }
        }
    }

    /// Splits off the next message, if it has come whole.
    fn split_off(&mut self) -> Result<Option<Frame>, End> {
        if self.large.is_none() {
            let typed = usize::from(self.phase != Phase::Startup);
            let kind = if typed == 1 { self.input.first().copied().unwrap_or(0) } else { 0 };
            if typed == 1 && !self.input.is_empty() {
                self.check_kind(kind)?;
            }
            let Some(length) = self.input.get(typed..typed + 4) else { return Ok(None) };
            let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
            let bytes = self.check_length(kind, length)?;
            if bytes <= LARGE_BYTES {
                if self.input.len() < typed + 4 + bytes {
                    return Ok(None);
                }
                let message = self.input.split_to(typed + 4 + bytes).freeze();
                let body = Body::new(vec![message.slice(typed + 4..)]);
                return Ok(Some(Frame { kind, body, charge: None, refused: None }));
            }
            // Charged from its header on; before login few messages of few bytes are accepted.
            let charge = self.account.as_ref().map(|account| account.charge(bytes as u64)).transpose();
            // A connection that closed here would be reset by what is on its way, and the client would not be told why.
            let (charge, refused) = match charge {
                Ok(charge) => (charge, None),
                Err(full) => (None, Some(Failure::from(full))),
            };
            drop(self.input.split_to(typed + 4));
            self.large = Some(Large { kind, chunks: Vec::new(), left: bytes, charge, refused });
        }
        let Some(large) = &mut self.large else { return Ok(None) };
        // Whole chunks only: one byte a packet must not take a chunk each.
        let chunk = large.left.min(CHUNK_BYTES);
        if self.input.len() < chunk {
            return Ok(None);
        }
        let received = self.input.split_to(chunk);
        if large.refused.is_none() {
            large.chunks.push(received.freeze());
        }
        large.left -= chunk;
        if large.left > 0 {
            return Ok(None);
        }
        let large = self.large.take();
        Ok(large.map(|Large { kind, chunks, charge, refused, .. }| {
            let body = Body::new(chunks);
            Frame { kind, body, charge, refused }
        }))
    }

    /// Checks the type of a message, ahead of its length.
    fn check_kind(&self, kind: u8) -> Result<(), End> {
        let known = match self.phase {
            Phase::Startup => true,
            Phase::Password => kind == b'p',
            Phase::Session => b"QPBDECHSXp".contains(&kind),
        };
        let text = match self.phase {
            _ if known => return Ok(()),
            Phase::Session => format!("invalid frontend message type {kind}"),
            _ => format!("unexpected message while logging in: expected a password, got message type {kind}"),
        };
        Err(End::Failed(Failure::fatal(state::PROTOCOL, text)))
    }

    /// Returns the length of the body, if the message may be so long.
    fn check_length(&self, kind: u8, length: i32) -> Result<usize, End> {
        let invalid = || End::Failed(Failure::fatal(state::PROTOCOL, "invalid message length"));
        let length = usize::try_from(length).ok().filter(|length| *length >= 4).ok_or_else(invalid)?;
        let is_small = self.phase == Phase::Session && !matches!(kind, b'Q' | b'P' | b'B');
        if is_small && length > SMALL_BYTES_MAX {
            return Err(invalid());
        }
        let max = self.message_bytes_max;
        if length > max {
            let text = format!("a message of {length} bytes is longer than this server takes ({max} bytes)");
            return Err(End::Failed(Failure::fatal(state::LIMIT, text)));
        }
        Ok(length - 4)
    }

    /// Gathers a message.
    pub(crate) fn put<M: Message>(&mut self, message: &M) -> Result<(), End> {
        let too_long = |error: pgwire::error::PgWireError| {
            End::Failed(Failure::fatal(state::LIMIT, format!("an answer does not fit: {error}")))
        };
        message.encode(&mut self.output).map_err(too_long)
    }

    pub(crate) fn put_failure(&mut self, failure: &Failure) -> Result<(), End> {
        add(&self.counts.errors, 1);
        self.put(&failure.to_message())
    }

    pub(crate) fn put_parameter(&mut self, name: &str, value: &str) -> Result<(), End> {
        self.put(&ParameterStatus::new(name.to_owned(), value.to_owned()))
    }

    pub(crate) fn put_key(&mut self, session: i32, secret: Bytes) -> Result<(), End> {
        self.put(&BackendKeyData::new(session, SecretKey::Bytes(secret)))
    }

    /// One byte, outside of all messages: the answer to a wish for encryption.
    pub(crate) fn put_byte(&mut self, byte: u8) {
        self.output.extend_from_slice(&[byte]);
    }

    /// Takes what was gathered, to be added to elsewhere and given back.
    pub(crate) fn take_output(&mut self) -> BytesMut {
        std::mem::take(&mut self.output)
    }

    pub(crate) fn give_output(&mut self, output: BytesMut) {
        self.output = output;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES
    }

    /// Writes what was gathered. A client that does not read holds its statement back here.
    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        if !self.output.is_empty() {
            let bytes = self.output.len() as u64;
            self.count_buffers();
            let stream = self.stream.as_mut().ok_or(End::Gone)?;
            let writing = async {
                stream.write_all_buf(&mut self.output).await?;
                stream.flush().await
            };
            self.seen.writing(writing).await?;
            add(&self.counts.sent_bytes, bytes);
        }
        // One long answer is no reason to keep its room.
        if self.output.capacity() > 4 * OUTPUT_BYTES {
            self.output = BytesMut::new();
        }
        self.count_buffers();
        Ok(())
    }

    /// Returns when the client has closed its side. Never if it has sent something meanwhile: that is read later.
    pub(crate) async fn gone(&self) {
        if let Some(stream) = &self.stream {
            stream.closed().await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Counts { connections, buffer_bytes, .. } = &*self.counts;
        connections.set(connections.get() - 1);
        buffer_bytes.set(buffer_bytes.get() - self.buffer_bytes);
    }
}

/// Serves a client until one side ends it.
pub(crate) async fn serve(sql: Sql, here: Rc<Here>, stream: TcpStream, slot: Slot) {
    let config = sql.config();
    let peer = stream.peer_addr().unwrap_or_else(|_| SocketAddr::new(slot.peer(), 0));
    add(&here.counts.accepted, 1);
    let seen = here.accept(peer);
    let _left = Left { here: here.clone(), number: seen.number };
    let mut connection = Connection::new(stream, config.startup_bytes_max, here.counts.clone(), seen.clone());
    let login = seen.unless_ended(login::log_in(&sql, &here, &mut connection, &slot, peer));
    let Some(login) = slot.log_in(config.startup_timeout, login).await else { return };
    let ended = match login {
        Ok(client) => {
            let account = config.accounts.connection(client.login.role());
            connection.allow(config.message_bytes_max, account.clone());
            let live = here.enter(&seen, client.login.role().to_string(), client.secret_bytes);
            let ended = Rc::downgrade(&live);
            client.login.on_end(move || {
                if let Some(live) = ended.upgrade() {
                    live.role_ended.set(true);
                    live.bell.notify();
                }
            });
            Session::new(sql.clone(), here, client, live, account).run(&mut connection, seen.number).await
        }
        Err(end) => end,
    };
    if let End::Failed(failure) = ended {
        let last = async {
            connection.put_failure(&failure)?;
            connection.flush().await
        };
        let _ = lanes::time::timeout(REFUSAL, last).await;
    }
}

/// Takes a session off its core's list, whichever way it ends.
struct Left {
    here: Rc<Here>,
    number: i32,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.here.leave(self.number);
    }
}
