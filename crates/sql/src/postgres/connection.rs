//! A client's socket, used on a fast lane. Incoming messages are bounded and split off by their
//! length. Outgoing messages are buffered and written together. `message` decodes the bodies of
//! incoming messages; the library `pgwire` encodes outgoing ones.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use frontdoor::{Account, Charge, ClientCertificates, Stream, Tls};
use lanes::net::TcpStream;
use pgwire::messages::Message;
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::failure::{Failure, state};
use crate::postgres::connection_status::ConnectionStatus;
use crate::postgres::counts::{SqlCounters, add};
use crate::postgres::error::End;
use crate::postgres::message::{Body, Frame, LARGE_BYTES};
use crate::postgres::output::OUTPUT_BYTES;

/// Free space reserved for a read, bytes.
const INPUT_BYTES: usize = 8 << 10;
/// Size of the chunks in which a large message is received, bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum length of messages that contain only names, bytes, as in PostgreSQL.
const SMALL_BYTES_MAX: usize = 10_000;
/// Work units of a message, apart from its bytes: reading, answering and writing take a few
/// microseconds.
const UNITS_PER_MESSAGE: u32 = 50;
/// Kinds of messages that a client may send in the current state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Messages without a type: the startup message, and requests before it.
    Startup,
    /// Answers to the request for a password.
    Password,
    /// Messages of a session.
    Session,
}

/// A large message that is being received.
struct Large {
    kind: u8,
    chunks: Vec<Bytes>,
    /// Bytes that no chunk contains yet, including those in the input buffer.
    left: usize,
    charge: Option<Charge>,
    /// Error if its account is full. Chunks are then discarded on arrival.
    refused: Option<Failure>,
}

/// See the head of this file.
pub(crate) struct ClientConnection {
    /// `None` if the TLS handshake failed.
    stream: Option<Stream>,
    input: BytesMut,
    output: BytesMut,
    phase: Phase,
    message_bytes_max: usize,
    /// The large message that is being received.
    large: Option<Large>,
    /// Account that large messages are charged to. `None` before login.
    account: Option<Arc<Account>>,
    counts: Rc<SqlCounters>,
    /// State shown in system tables.
    status: Rc<ConnectionStatus>,
    /// Size of its buffers that `counts` includes.
    buffer_bytes: u64,
    /// Time since which the last message waits, ns of the monotonic clock.
    since_ns: u64,
    /// The socket was empty when the last read was tried.
    waits_for_socket: bool,
}

impl ClientConnection {
    pub(crate) fn new(
        stream: TcpStream,
        message_bytes_max: usize,
        counts: Rc<SqlCounters>,
        status: Rc<ConnectionStatus>,
    ) -> ClientConnection {
        add(&counts.connections, 1);
        ClientConnection {
            stream: Some(Stream::Plain(stream)),
            input: BytesMut::new(),
            output: BytesMut::new(),
            phase: Phase::Startup,
            message_bytes_max,
            large: None,
            account: None,
            counts,
            status,
            buffer_bytes: 0,
            since_ns: lanes::time::monotonic_ns(),
            waits_for_socket: false,
        }
    }

    /// Returns the time since which the last message waits, ns of the monotonic clock: since it
    /// arrived, but not since before [`rest`](Self::rest).
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Marks the end of a statement. Messages that were sent before have waited for it because
    /// their client wanted it so: statements of a session run one after the other.
    pub(crate) fn rest(&mut self) {
        self.since_ns = lanes::time::monotonic_ns();
    }

    fn count_buffers(&mut self) {
        let (all, bytes) = (&self.counts.buffer_bytes, self.input.capacity() + self.output.capacity());
        all.set(all.get() + bytes as u64 - self.buffer_bytes);
        self.buffer_bytes = bytes as u64;
        self.status.buffer_bytes.set(bytes as u64);
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_encrypted)
    }

    /// Returns the role that the client's certificate names.
    pub(crate) fn certificate(&self) -> Option<Arc<str>> {
        self.stream.as_ref().and_then(Stream::client)
    }

    /// Returns the data of channel binding (`tls-server-end-point`). `None` without encryption.
    pub(crate) fn end_point(&self) -> Option<Arc<[u8]>> {
        self.stream.as_ref().and_then(Stream::end_point)
    }

    /// Begins encryption, after the client's request was accepted.
    pub(crate) async fn encrypt(&mut self, tls: &Tls) -> Result<(), End> {
        // An attacker may have injected plain text behind the request. It must not count as
        // encrypted input.
        if !self.input.is_empty() {
            let text = "received unencrypted data after the request for encryption";
            return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
        }
        if let Some(Stream::Plain(stream)) = self.stream.take() {
            let stream = Stream::encrypted(stream, tls, ClientCertificates::Asked).await?;
            self.status.is_encrypted.set(true);
            *self.status.certificate_subject.borrow_mut() = stream.client();
            self.stream = Some(stream);
        }
        Ok(())
    }

    /// Marks the startup message as received: later messages have a type, and only passwords are
    /// accepted until login.
    pub(crate) fn started(&mut self, minor: u32) {
        self.status.started(minor);
        self.phase = Phase::Password;
    }

    /// Marks the client as logged in: its messages may have `message_bytes_max` bytes, and large
    /// ones are charged to `account`.
    pub(crate) fn allow(&mut self, message_bytes_max: usize, account: Arc<Account>) {
        self.phase = Phase::Session;
        (self.message_bytes_max, self.account) = (message_bytes_max, Some(account));
    }

    /// Waits for the next message. The future may be dropped: received bytes stay in the buffer.
    ///
    /// # Errors
    /// The client is gone, or has sent an invalid message.
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
            let mut reading = pin!(stream.read_buf(&mut input));
            let waits = &mut self.waits_for_socket;
            let read = poll_fn(|cx| {
                let polled = reading.as_mut().poll(cx);
                *waits |= polled.is_pending();
                polled
            });
            let read = match read.await? {
                0 => return Err(End::Gone),
                read => read,
            };
            if std::mem::take(&mut self.waits_for_socket) {
                self.since_ns = lanes::ready_since_ns();
            }
            add(&self.counts.received_bytes, read as u64);
            // A socket that always has something to read would never wait.
            if lanes::spend_bytes(read) || lanes::should_yield() {
                lanes::yield_now().await;
            }
        }
    }

    /// Returns the next message, if it is complete.
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
            // Charged as soon as the header is known. Before login there is no account, but
            // messages are few and short.
            let charge = self.account.as_ref().map(|account| account.charge(bytes as u64)).transpose();
            // Closing the connection now would reset it because of unread bytes, and the client
            // would not receive the error.
            let (charge, refused) = match charge {
                Ok(charge) => (charge, None),
                Err(full) => (None, Some(Failure::from(full))),
            };
            drop(self.input.split_to(typed + 4));
            self.large = Some(Large { kind, chunks: Vec::new(), left: bytes, charge, refused });
        }
        let Some(large) = &mut self.large else { return Ok(None) };
        // Only full chunks are split off: a client that sends single bytes would otherwise make a
        // chunk of each.
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

    /// Checks the type of a message, before its length has arrived.
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

    /// Returns the length of the body, if it is within the limit for the message's type.
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

    /// Appends a message to the output buffer.
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

    /// Appends a byte outside of messages: the answer to a request for encryption.
    pub(crate) fn put_byte(&mut self, byte: u8) {
        self.output.extend_from_slice(&[byte]);
    }

    /// Takes the output buffer, to append to it elsewhere. [`give_output`](Self::give_output)
    /// returns it.
    pub(crate) fn take_output(&mut self) -> BytesMut {
        std::mem::take(&mut self.output)
    }

    pub(crate) fn give_output(&mut self, output: BytesMut) {
        self.output = output;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES
    }

    /// Writes the output buffer. If the client does not read, its statement waits here
    /// (backpressure).
    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        if !self.output.is_empty() {
            let bytes = self.output.len() as u64;
            self.count_buffers();
            let stream = self.stream.as_mut().ok_or(End::Gone)?;
            let writing = async {
                stream.write_all_buf(&mut self.output).await?;
                stream.flush().await
            };
            self.status.writing(writing).await?;
            add(&self.counts.sent_bytes, bytes);
        }
        // Do not keep the memory of one long answer.
        if self.output.capacity() > 4 * OUTPUT_BYTES {
            self.output = BytesMut::new();
        }
        self.count_buffers();
        Ok(())
    }

    /// Returns when the client has closed its side. If unread input arrives first, never returns:
    /// the input is read later.
    pub(crate) async fn gone(&self) {
        if let Some(stream) = &self.stream {
            stream.closed().await;
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let SqlCounters { connections, buffer_bytes, .. } = &*self.counts;
        connections.set(connections.get() - 1);
        buffer_bytes.set(buffer_bytes.get() - self.buffer_bytes);
    }
}
