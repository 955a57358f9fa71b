//! Blocking CQL client that can also misbehave: frames of any content, requests without reading the
//! answers, and many requests in flight.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::BytesMut;
use wire::{
    Compression, Decoder, Direction, Encoder, Envelope, Framing, Limits, Prepare, Query, QueryParams,
    Request, Response, Version,
};

use crate::answers::{CLOSED, REFUSED, SILENCE, ServerAnswer};
use crate::dial::{RUDE, dial, timed_out};
use crate::target::{AttackTarget, PASSWORD, PATIENCE, Role};

/// Most bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// One connection.
#[derive(Debug)]
pub(crate) struct Native {
    pub(crate) stream: TcpStream,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    /// Core that the server assigned the connection to.
    pub(crate) shard: Option<u32>,
}

impl Native {
    /// Connects from `from` without sending anything.
    pub(crate) fn open(target: &AttackTarget, from: Ipv4Addr) -> Result<Native, ServerAnswer> {
        Native::open_for(target, from, PATIENCE)
    }

    /// Connects as [`Native::open`] does, with time limit `patience` instead of [`PATIENCE`].
    pub(crate) fn open_for(
        target: &AttackTarget,
        from: Ipv4Addr,
        patience: Duration,
    ) -> Result<Native, ServerAnswer> {
        let stream = dial(target.cql, from, patience).map_err(|error| refused(&error))?;
        Ok(Native {
            stream,
            encoder: Encoder::new(Direction::Request, Version::V4),
            decoder: Decoder::new(Direction::Response, Limits::default()),
            input: BytesMut::new(),
            shard: None,
        })
    }

    /// Sends STARTUP and switches to its framing. Returns an error answer as `Err`.
    pub(crate) fn start(&mut self, compression: Compression) -> Result<(), ServerAnswer> {
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        options.extend(compression.name().map(|name| ("COMPRESSION", name)));
        let answer = self.ask(&Request::Startup(options))?;
        if answer.is_error() {
            return Err(answer);
        }
        self.encoder.set_framing(Framing::V4(compression));
        self.decoder.set_framing(Framing::V4(compression));
        Ok(())
    }

    /// Sends name and password.
    pub(crate) fn authenticate(&mut self, user: &str, password: &str) -> Result<ServerAnswer, ServerAnswer> {
        let token = format!("\0{user}\0{password}");
        self.ask(&Request::AuthResponse(Some(token.as_bytes())))
    }

    /// Opens a connection from the attacker's address and logs in.
    pub(crate) fn login(
        target: &AttackTarget,
        role: Role,
        compression: Compression,
    ) -> Result<Native, ServerAnswer> {
        let mut native = Native::open(target, RUDE)?;
        native.log_in(role.name(), compression)?;
        Ok(native)
    }

    /// Sends STARTUP and credentials on an open connection.
    pub(crate) fn log_in(&mut self, user: &str, compression: Compression) -> Result<(), ServerAnswer> {
        if let Ok(envelope) = self.exchange(&Request::Options) {
            self.shard = shard(&envelope);
        }
        self.start(compression)?;
        let answer = self.authenticate(user, PASSWORD)?;
        if answer.is_error() { Err(answer) } else { Ok(()) }
    }

    /// Logs in as [`Native::log_in`] does, in protocol v5.
    pub(crate) fn log_in_v5(&mut self, user: &str, lz4: bool) -> Result<(), ServerAnswer> {
        self.encoder.set_version(Version::V5);
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        options.extend(lz4.then_some(("COMPRESSION", "lz4")));
        let answer = self.ask(&Request::Startup(options))?;
        if answer.is_error() {
            return Err(answer);
        }
        self.encoder.set_framing(Framing::V5 { lz4 });
        self.decoder.set_framing(Framing::V5 { lz4 });
        let answer = self.authenticate(user, PASSWORD)?;
        if answer.is_error() { Err(answer) } else { Ok(()) }
    }

    /// Sends a request on stream 0 and returns its answer. An error of the server is an answer.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Result<ServerAnswer, ServerAnswer> {
        let envelope = self.exchange(request)?;
        Ok(label(&envelope))
    }

    /// Runs a statement as text.
    pub(crate) fn query(&mut self, text: &str) -> Result<ServerAnswer, ServerAnswer> {
        self.ask(&query(text))
    }

    /// Runs a statement that must succeed.
    pub(crate) fn must(&mut self, text: &str) -> Result<(), ServerAnswer> {
        let answer = self.query(text)?;
        if answer.is_error() { Err(answer) } else { Ok(()) }
    }

    /// Runs a SELECT that must succeed. Returns the first column of its rows.
    pub(crate) fn texts(&mut self, text: &str) -> Result<Vec<String>, ServerAnswer> {
        let envelope = self.exchange(&query(text))?;
        let Ok(Response::Rows(rows)) = envelope.response() else { return Err(label(&envelope)) };
        let text = |row: Vec<Option<&[u8]>>| {
            let first = row.first().copied().flatten().unwrap_or_default();
            String::from_utf8_lossy(first).into_owned()
        };
        Ok(rows.iter().map(text).collect())
    }

    /// Prepares a statement that must be accepted. Returns its id.
    pub(crate) fn prepare(&mut self, text: &str) -> Result<Vec<u8>, ServerAnswer> {
        let envelope = self.exchange(&Request::Prepare(Prepare { text, keyspace: None }))?;
        match envelope.response() {
            Ok(Response::Prepared(prepared)) => Ok(prepared.id.to_vec()),
            _ => Err(label(&envelope)),
        }
    }

    /// Encodes a request for this connection.
    pub(crate) fn encode(&mut self, stream: i16, request: &Request<'_>) -> Vec<u8> {
        self.encoder.request(stream, request).expect("the attacks send requests that fit their fields");
        self.encoder.finish().split().to_vec()
    }

    /// Sends bytes unchanged.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ServerAnswer> {
        self.stream.write_all(bytes).map_err(|error| lost(&error))
    }

    /// Sends a frame and returns the next answer. A server that closes the connection during the
    /// frame has sent the reason before. That answer is read although sending failed, and is then
    /// the error.
    pub(crate) fn send_and_answer(&mut self, frame: &[u8]) -> Result<ServerAnswer, ServerAnswer> {
        match self.send(frame) {
            Ok(()) => self.answer(),
            Err(lost) => Err(self.answer().unwrap_or(lost)),
        }
    }

    /// Returns the next answer, on any stream.
    pub(crate) fn answer(&mut self) -> Result<ServerAnswer, ServerAnswer> {
        self.envelope().map(|envelope| label(&envelope))
    }

    /// Sends a request on stream 0 and returns the next envelope.
    pub(crate) fn exchange(&mut self, request: &Request<'_>) -> Result<Envelope, ServerAnswer> {
        let bytes = self.encode(0, request);
        self.send(&bytes)?;
        self.envelope()
    }

    /// Returns the next envelope that is not an event.
    pub(crate) fn envelope(&mut self) -> Result<Envelope, ServerAnswer> {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(envelope)) if envelope.stream >= 0 => return Ok(envelope),
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(error) => return Err(ServerAnswer::error("of the codec", &error.to_string())),
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ServerAnswer::new(CLOSED)),
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
    }

    /// Keeps `window` requests in flight. `make` returns the frame of the next request for a
    /// stream, or `None` to end the flood. Every answer goes to `each`.
    pub(crate) fn flood(
        mut self,
        window: u16,
        mut make: impl FnMut(&mut Native, i16) -> Option<Vec<u8>>,
        each: impl Fn(ServerAnswer) + Sync,
    ) {
        let Ok(stream) = self.stream.try_clone() else { return };
        let (free, streams) = channel();
        // The receiver lives until the end of this function.
        (0..window as i16).try_for_each(|stream| free.send(stream)).expect("the channel is open");
        let mut reader = Native {
            stream,
            encoder: Encoder::new(Direction::Request, Version::V4),
            decoder: std::mem::replace(
                &mut self.decoder,
                Decoder::new(Direction::Response, Limits::default()),
            ),
            input: std::mem::take(&mut self.input),
            shard: None,
        };
        std::thread::scope(|scope| {
            let each = &each;
            scope.spawn(move || {
                loop {
                    match reader.envelope() {
                        Ok(envelope) => {
                            each(label(&envelope));
                            if free.send(envelope.stream).is_err() {
                                continue;
                            }
                        }
                        Err(answer) => return each(answer),
                    }
                }
            });
            let mut returned = Vec::new();
            while let Ok(stream) = streams.recv_timeout(PATIENCE) {
                let frame = make(&mut self, stream);
                if frame.is_none_or(|bytes| self.send(&bytes).is_err()) {
                    returned.push(stream);
                    break;
                }
            }
            // Wait for the answers in flight. Then closing the socket ends the reader.
            while returned.len() < usize::from(window) {
                let Ok(stream) = streams.recv_timeout(PATIENCE) else { break };
                returned.push(stream);
            }
            drop(self.stream.shutdown(std::net::Shutdown::Both));
        });
    }
}

/// Returns a QUERY of this text, without parameters.
pub(crate) fn query(text: &str) -> Request<'_> {
    Request::Query(Query { text, params: QueryParams::default() })
}

/// Replaces the stream of a frame of protocol v4. The stream is not part of the compressed body.
pub(crate) fn on_stream(mut frame: Vec<u8>, stream: i16) -> Vec<u8> {
    frame[2..4].copy_from_slice(&stream.to_be_bytes());
    frame
}

/// Returns the answer that represents an I/O error.
pub(crate) fn lost(error: &io::Error) -> ServerAnswer {
    if timed_out(error) { ServerAnswer::new(SILENCE) } else { ServerAnswer::new(CLOSED) }
}

/// Returns the answer that represents a failed connection.
pub(crate) fn refused(error: &io::Error) -> ServerAnswer {
    ServerAnswer { label: REFUSED.to_owned(), text: error.to_string() }
}

fn shard(envelope: &Envelope) -> Option<u32> {
    let Ok(Response::Supported(options)) = envelope.response() else { return None };
    let (_, values) = options.into_iter().find(|(name, _)| *name == "SCYLLA_SHARD")?;
    values.first()?.parse().ok()
}

/// Returns the label of a response.
pub(crate) fn label(envelope: &Envelope) -> ServerAnswer {
    let name = match envelope.response() {
        Ok(Response::Error(failure)) => {
            return ServerAnswer::error(&format!("0x{:04X}", failure.kind.code()), &failure.message);
        }
        Ok(Response::Ready) => "ready",
        Ok(Response::Authenticate(_)) => "authenticate",
        Ok(Response::Supported(_)) => "supported",
        Ok(Response::Void) => "void",
        Ok(Response::Rows(_)) => "rows",
        Ok(Response::SetKeyspace(_)) => "keyspace set",
        Ok(Response::Prepared(_)) => "prepared",
        Ok(Response::SchemaChange(_)) => "schema changed",
        Ok(Response::Event(_)) => "event",
        Ok(Response::AuthChallenge(_)) => "challenge",
        Ok(Response::AuthSuccess(_)) => "logged in",
        Err(error) => return ServerAnswer::error("of the codec", &error.to_string()),
    };
    ServerAnswer::new(name)
}
