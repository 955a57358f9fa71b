//! Blocking client of the Postgres protocol, written by hand so that it can send any message type,
//! length and body.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use crate::answers::{CLOSED, SILENCE, ServerAnswer};
use crate::dial::{RUDE, dial};
use crate::native::{lost, refused};
use crate::target::{AttackTarget, PASSWORD, PATIENCE, Role};

/// Protocol 3.0.
const VERSION: i32 = 3 << 16;
/// Request codes used instead of a version.
pub(crate) const SSL_REQUEST: i32 = 80_877_103;
pub(crate) const GSSENC_REQUEST: i32 = 80_877_104;
pub(crate) const CANCEL_REQUEST: i32 = 80_877_102;

/// Longest message that the client accepts, bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// One connection.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) stream: TcpStream,
    /// Process id and secret of the session, for requests to cancel. Empty before login.
    pub(crate) secret: Vec<u8>,
}

/// A message of the server.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
}

impl Postgres {
    /// Connects from `from` without sending anything.
    pub(crate) fn open(target: &AttackTarget, from: Ipv4Addr) -> Result<Postgres, ServerAnswer> {
        Postgres::open_for(target, from, PATIENCE)
    }

    /// Connects as [`Postgres::open`] does, with time limit `patience` instead of [`PATIENCE`].
    pub(crate) fn open_for(
        target: &AttackTarget,
        from: Ipv4Addr,
        patience: Duration,
    ) -> Result<Postgres, ServerAnswer> {
        let stream = dial(target.sql, from, patience).map_err(|error| refused(&error))?;
        Ok(Postgres { stream, secret: Vec::new() })
    }

    /// Opens a session of a role, from the attacker's address.
    pub(crate) fn login(target: &AttackTarget, role: Role) -> Result<Postgres, ServerAnswer> {
        let mut postgres = Postgres::open(target, RUDE)?;
        postgres.log_in(role.name(), PASSWORD)?;
        Ok(postgres)
    }

    /// Sends the startup message and logs in by SCRAM. Reads up to the first ReadyForQuery.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> Result<(), ServerAnswer> {
        self.send(&startup(user))?;
        let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        loop {
            let message = self.message()?;
            match (message.kind, message.code()) {
                (b'R', 10) => {
                    let mut body = b"SCRAM-SHA-256\0".to_vec();
                    body.extend_from_slice(&(scram.message().len() as i32).to_be_bytes());
                    body.extend_from_slice(scram.message());
                    self.send(&framed(b'p', &body))?;
                }
                (b'R', 11) => {
                    let invalid = |error: std::io::Error| ServerAnswer::error("of SCRAM", &error.to_string());
                    scram.update(&message.body[4..]).map_err(invalid)?;
                    self.send(&framed(b'p', scram.message()))?;
                }
                (b'K', _) => self.secret = message.body,
                (b'E', _) => return Err(message.answer().unwrap_or_else(|| ServerAnswer::new(CLOSED))),
                (b'Z', _) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends bytes unchanged.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ServerAnswer> {
        self.stream.write_all(bytes).map_err(|error| lost(&error))
    }

    /// Sends messages and reads up to ReadyForQuery. Every answer goes to `each`. A server that
    /// ends the session during the messages has sent the reason before. That answer is read
    /// although sending failed, and is then the error instead of `closed`.
    pub(crate) fn exchange(
        &mut self,
        messages: &[u8],
        mut each: impl FnMut(ServerAnswer),
    ) -> Result<(), ServerAnswer> {
        let sent = self.send(messages);
        let mut reason = None;
        let read = self.until_ready(|answer| {
            let passed = if answer.is_error() { reason.replace(answer) } else { Some(answer) };
            passed.into_iter().for_each(&mut each);
        });
        match (read, reason, sent) {
            // The session has ended for this reason.
            (Err(end), Some(reason), _) if end.label == CLOSED => Err(reason),
            (read, reason, sent) => {
                reason.into_iter().for_each(each);
                sent.and(read)
            }
        }
    }

    /// Runs a simple query up to ReadyForQuery. Returns its last answer.
    pub(crate) fn query(&mut self, text: &str) -> Result<ServerAnswer, ServerAnswer> {
        let mut last = ServerAnswer::new(SILENCE);
        self.exchange(&query(text), |answer| last = answer)?;
        Ok(last)
    }

    /// Runs a query that must succeed. Returns the first column of its rows.
    pub(crate) fn texts(&mut self, text: &str) -> Result<Vec<String>, ServerAnswer> {
        let (mut texts, mut failure) = (Vec::new(), None);
        self.send(&query(text))?;
        loop {
            let message = self.message()?;
            match message.kind {
                b'D' => texts.push(message.first_column()),
                b'E' => failure = message.answer(),
                b'Z' => return failure.map_or(Ok(texts), Err),
                _ => {}
            }
        }
    }

    /// Reads up to ReadyForQuery. Every answer goes to `each`.
    pub(crate) fn until_ready(&mut self, mut each: impl FnMut(ServerAnswer)) -> Result<(), ServerAnswer> {
        loop {
            let message = self.message()?;
            if message.kind == b'Z' {
                return Ok(());
            }
            if let Some(answer) = message.answer() {
                each(answer);
            }
        }
    }

    /// Returns the next message.
    pub(crate) fn message(&mut self) -> Result<Message, ServerAnswer> {
        let mut head = [0; 5];
        self.read(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(ServerAnswer::error("of the codec", "a message of impossible length"));
        }
        let mut body = vec![0; length - 4];
        self.read(&mut body)?;
        Ok(Message { kind: head[0], body })
    }

    /// Reads exactly `into.len()` bytes.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<(), ServerAnswer> {
        match self.stream.read_exact(into) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(ServerAnswer::new(CLOSED)),
            Err(error) => Err(lost(&error)),
        }
    }
}

impl Message {
    /// Returns the first four bytes as a number: the kind of an authentication message.
    fn code(&self) -> i32 {
        self.body.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes))
    }

    /// Returns the answer in this message. `None` for rows, notices, parameters and others.
    pub(crate) fn answer(&self) -> Option<ServerAnswer> {
        let name = match self.kind {
            b'E' => return Some(ServerAnswer::error(&self.field(b'C'), &self.field(b'M'))),
            b'C' => "complete",
            b'I' => "empty",
            b'1' => "parsed",
            b's' => "suspended",
            _ => return None,
        };
        Some(ServerAnswer::new(name))
    }

    /// Returns the first column of a DataRow as text. Empty for null.
    fn first_column(&self) -> String {
        let length =
            self.body.get(2..6).and_then(<[u8]>::first_chunk).map_or(0, |four| i32::from_be_bytes(*four));
        let value = self.body.get(6..6 + usize::try_from(length).unwrap_or(0)).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    }

    /// Returns a field of an ErrorResponse.
    fn field(&self, wanted: u8) -> String {
        let found = self.body.split(|byte| *byte == 0).find(|field| field.first() == Some(&wanted));
        found.map_or_else(String::new, |field| String::from_utf8_lossy(&field[1..]).into_owned())
    }
}

/// Encodes a message: type, length, body.
pub(crate) fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.push(kind);
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Encodes a message without a type: length, code, rest.
pub(crate) fn untyped(code: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = (rest.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// Encodes the startup message of a role.
pub(crate) fn startup(user: &str) -> Vec<u8> {
    untyped(VERSION, format!("user\0{user}\0database\0fairlane\0\0").as_bytes())
}

/// Encodes a simple query.
pub(crate) fn query(text: &str) -> Vec<u8> {
    framed(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// Encodes Parse of `text` as statement `name`, without parameter types.
pub(crate) fn parse(name: &str, text: &str) -> Vec<u8> {
    framed(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"].concat())
}

/// Encodes Bind of a statement without parameters to a portal.
pub(crate) fn bind(portal: &str, statement: &str) -> Vec<u8> {
    let body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0", &[0; 6]].concat();
    framed(b'B', &body)
}

/// Encodes Execute of a portal, for at most `rows` rows.
pub(crate) fn execute(portal: &str, rows: i32) -> Vec<u8> {
    framed(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

/// Encodes Sync.
pub(crate) fn sync() -> Vec<u8> {
    framed(b'S', b"")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns a client connected to a server that runs `serve`.
    fn client(serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> Postgres {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (accepted, _) = listener.accept().expect("a connection");
        std::thread::spawn(move || serve(accepted));
        Postgres { stream, secret: Vec::new() }
    }

    #[test]
    fn error_before_the_end_of_a_session_is_its_outcome() {
        let mut postgres = client(|mut stream| {
            let mut head = [0; 100];
            stream.read_exact(&mut head).expect("the beginning of a message");
            // Unread bytes make closing reset the connection while the client sends.
            stream.write_all(&framed(b'E', b"SFATAL\0C53200\0Mmemory is full\0\0")).expect("an answer");
        });
        let mut others = Vec::new();
        let outcome = postgres.exchange(&vec![b'x'; 32 << 20], |answer| others.push(answer));
        assert_eq!(outcome, Err(ServerAnswer::error("53200", "memory is full")));
        assert_eq!(others, []);
    }

    #[test]
    fn error_of_a_statement_leaves_the_session_open() {
        let mut postgres = client(|mut stream| {
            let answer = [framed(b'E', b"C54000\0\0"), framed(b'Z', b"I")].concat();
            stream.write_all(&answer).expect("an answer");
        });
        let mut seen = Vec::new();
        assert_eq!(postgres.exchange(b"", |answer| seen.push(answer)), Ok(()));
        assert_eq!(seen, [ServerAnswer::error("54000", "")]);
    }
}
