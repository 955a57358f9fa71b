//! A client's socket: messages in, whole and bounded; messages out, gathered and written together. The protocol's library knows
//! the bytes, this knows the socket, on a fast lane.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use frontdoor::Slot;
use lanes::net::TcpStream;
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use pgwire::messages::{DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::server::TlsStream;

use crate::counts::{Counts, add};
use crate::failure::{Failure, state};
use crate::login;
use crate::server::{Here, Sql};
use crate::session::Session;
use crate::tls::Tls;

/// Bytes of answers gathered before they are written.
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;
/// Room for reading, bytes.
const INPUT_BYTES: usize = 8 << 10;
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

/// A client's socket.
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
    /// Encryption was to begin, and did not.
    Closed,
}

impl Stream {
    /// Bytes that were appended, 0 at the end.
    async fn read(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read_buf(input).await,
            Stream::Encrypted(stream) => stream.read_buf(input).await,
            Stream::Closed => Ok(0),
        }
    }

    async fn write_all(&mut self, output: &mut BytesMut) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all_buf(output).await,
            Stream::Encrypted(stream) => {
                stream.write_all_buf(output).await?;
                stream.flush().await
            }
            Stream::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(stream) => Some(stream),
            Stream::Encrypted(stream) => Some(stream.get_ref().0),
            Stream::Closed => None,
        }
    }
}

/// See the head of this file.
pub(crate) struct Connection {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    context: DecodeContext,
    message_bytes_max: usize,
    counts: Rc<Counts>,
    /// What is counted of its buffers.
    buffer_bytes: u64,
}

impl Connection {
    fn new(stream: TcpStream, message_bytes_max: usize, counts: Rc<Counts>) -> Connection {
        let mut context = DecodeContext::default();
        context.protocol_version = ProtocolVersion::PROTOCOL3_0;
        add(&counts.connections, 1);
        Connection {
            stream: Stream::Plain(stream),
            input: BytesMut::new(),
            output: BytesMut::new(),
            context,
            message_bytes_max,
            counts,
            buffer_bytes: 0,
        }
    }

    fn count_buffers(&mut self) {
        let (all, bytes) = (&self.counts.buffer_bytes, self.input.capacity() + self.output.capacity());
        all.set(all.get() + bytes as u64 - self.buffer_bytes);
        self.buffer_bytes = bytes as u64;
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Encrypted(_))
    }

    /// Goes on encrypted, as the client has asked for and been told.
    pub(crate) async fn encrypt(&mut self, tls: &Tls) -> Result<(), End> {
        // What came in clear must not pass for part of what comes encrypted.
        if !self.input.is_empty() {
            let text = "received unencrypted data after the request for encryption";
            return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
        }
        if let Stream::Plain(stream) = std::mem::replace(&mut self.stream, Stream::Closed) {
            self.stream = Stream::Encrypted(Box::new(tls.acceptor().accept(stream).await?));
        }
        self.plain();
        Ok(())
    }

    /// The connection is past its start: messages have a type, and may be longer.
    pub(crate) fn started(&mut self) {
        self.context.awaiting_frontend_ssl = false;
        self.context.awaiting_frontend_startup = false;
    }

    pub(crate) fn allow(&mut self, message_bytes_max: usize) {
        self.message_bytes_max = message_bytes_max;
    }

    /// No encryption will be asked for any more.
    pub(crate) fn plain(&mut self) {
        self.context.awaiting_frontend_ssl = false;
    }

    /// The next message, waited for. What was gathered is written first, as the client may be waiting for it.
    pub(crate) async fn next(&mut self) -> Result<PgWireFrontendMessage, End> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            self.input.reserve(INPUT_BYTES);
            self.count_buffers();
            match self.stream.read(&mut self.input).await? {
                0 => return Err(End::Gone),
                read => add(&self.counts.received_bytes, read as u64),
            }
        }
    }

    /// The next message if it has come whole.
    fn buffered(&mut self) -> Result<Option<PgWireFrontendMessage>, End> {
        let typed = usize::from(!self.context.awaiting_frontend_startup);
        let Some(length) = self.input.get(typed..typed + 4) else { return Ok(None) };
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let protocol = |text: &str| Failure::fatal(state::PROTOCOL, text);
        let length = usize::try_from(length).ok().filter(|length| *length >= 4);
        let length = length.ok_or_else(|| End::Failed(protocol("invalid message length")))?;
        let max = self.message_bytes_max;
        if length > max {
            let text = format!("a message of {length} bytes is longer than this server takes ({max} bytes)");
            return Err(End::Failed(Failure::fatal(state::LIMIT, text)));
        }
        // Whole first: what decodes a part of a message might wait for more than will come.
        if self.input.len() < typed + length {
            return Ok(None);
        }
        let invalid = |error: pgwire::error::PgWireError| End::Failed(protocol(&error.to_string()));
        PgWireFrontendMessage::decode(&mut self.input, &self.context).map_err(invalid)
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

    pub(crate) fn put_key(&mut self, session: i32, secret: i32) -> Result<(), End> {
        self.put(&BackendKeyData::new(session, SecretKey::I32(secret)))
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
            self.stream.write_all(&mut self.output).await?;
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
        let Some(stream) = self.stream.tcp() else { return };
        match stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => {}
            Ok(_) => std::future::pending().await,
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
    let peer = stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string());
    add(&here.counts.accepted, 1);
    let mut connection = Connection::new(stream, config.startup_bytes_max, here.counts.clone());
    let login = login::log_in(&sql, &here, &mut connection, &slot);
    let Some(login) = slot.log_in(config.startup_timeout, login).await else { return };
    let ended = match login {
        Ok(client) => {
            connection.allow(config.message_bytes_max);
            let (number, secret, live) = here.enter(client.login.role().to_string(), peer);
            let _left = Left { here: here.clone(), number };
            Session::new(sql.clone(), here, client, live).run(&mut connection, number, secret).await
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
