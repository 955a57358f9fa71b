//! A client's socket: messages in, whole and bounded; messages out, gathered and written together. The protocol's library knows
//! the bytes, this knows the socket, on a fast lane.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lanes::net::TcpStream;
use pgwire::messages::startup::{BackendKeyData, ParameterStatus, SecretKey};
use pgwire::messages::{DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::failure::{Failure, state};
use crate::login;
use crate::server::{Counted, Here, Sql};
use crate::session::Session;

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

/// See the head of this file.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    context: DecodeContext,
    message_bytes_max: usize,
}

impl Connection {
    fn new(stream: TcpStream, message_bytes_max: usize) -> Connection {
        let mut context = DecodeContext::default();
        context.protocol_version = ProtocolVersion::PROTOCOL3_0;
        Connection { stream, input: BytesMut::new(), output: BytesMut::new(), context, message_bytes_max }
    }

    /// The connection is past its start: messages have a type, and may be longer.
    pub(crate) fn started(&mut self) {
        self.context.awaiting_frontend_ssl = false;
        self.context.awaiting_frontend_startup = false;
    }

    pub(crate) fn allow(&mut self, message_bytes_max: usize) {
        self.message_bytes_max = message_bytes_max;
    }

    /// No more encryption will be asked for.
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
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(End::Gone);
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
        while !self.output.is_empty() {
            let written = self.stream.write(&self.output).await?;
            if written == 0 {
                return Err(End::Gone);
            }
            self.output.advance(written);
        }
        // One long answer is no reason to keep its room.
        if self.output.capacity() > 4 * OUTPUT_BYTES {
            self.output = BytesMut::new();
        }
        Ok(())
    }

    /// Returns when the client has closed its side. Never if it has sent something meanwhile: that is read later.
    pub(crate) async fn gone(&self) {
        match self.stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => {}
            Ok(_) => std::future::pending().await,
        }
    }
}

/// Serves a client until one side ends it.
pub(crate) async fn serve(sql: Sql, here: Rc<Here>, stream: TcpStream, _counted: Counted) {
    let config = sql.config();
    let peer = stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string());
    let mut connection = Connection::new(stream, config.startup_bytes_max);
    let login = login::log_in(&sql, &here, &mut connection);
    let Ok(login) = lanes::time::timeout(config.startup_timeout, login).await else { return };
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

/// Tells a client that there are too many.
pub(crate) async fn refuse(stream: TcpStream, connections_max: usize) {
    let mut connection = Connection::new(stream, 0);
    let text = format!("sorry, too many clients already: {connections_max} connections are the limit");
    let refusal = async {
        connection.put_failure(&Failure::fatal(state::CONNECTIONS, text))?;
        connection.flush().await
    };
    let _ = lanes::time::timeout(REFUSAL, refusal).await;
}
