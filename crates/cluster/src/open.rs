//! Opening a connection to a node: STARTUP, authentication with a client's token, and its keyspace.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use frontdoor::{ReadHalf, Stream, WriteHalf, handshake_failure};
use lanes::net::TcpStream;
use schema::names::always_quoted;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{
    Compression, Decoder, Direction, Encoder, Envelope, FailureKind, Framing, Limits, Opcode, Query, Request,
    Response, Version,
};

use crate::Refusal;
use crate::connection::{Incoming, NodeConnection, Reading, SMALL_BYTES_MAX};
use crate::tls::NodeTls;

/// Time limit from the first packet to an authenticated connection.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest message of a node before the connection is open, bytes.
const OPENING_BYTES_MAX: usize = 64 << 10;

/// Options of STARTUP. With THROW_ON_OVERLOAD a node answers Overloaded, and does not stop to read.
const STARTUP: [(&str, &str); 4] = [
    ("CQL_VERSION", "3.0.0"),
    ("DRIVER_NAME", "fairlane"),
    ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
    ("THROW_ON_OVERLOAD", "1"),
];

/// Beginning of Cassandra's message if a node could not read the role: it has judged nothing.
const UNABLE: &str = "Unable to perform authentication";

/// Findings about a node before anybody has logged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeFacts {
    /// Class of the authenticator. `None`: the node asks for no credentials.
    pub(crate) authenticator: Option<String>,
    /// Highest version of the protocol that the node speaks.
    pub(crate) version: Version,
}

/// Socket of a node with the state of its protocol.
pub(crate) struct Opening {
    node: SocketAddr,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    reader: ReadHalf,
    writer: WriteHalf,
}

/// Opens a connection to a node with a client's SASL token, in a keyspace.
///
/// # Errors
/// [`Refusal::Credentials`] or [`Refusal::Answered`] with the node's own ERROR, otherwise
/// [`Refusal::Unsent`].
pub(crate) async fn open(
    node: SocketAddr,
    version: Version,
    token: Option<&Bytes>,
    keyspace: Option<&str>,
    reading: Reading,
) -> Result<Rc<NodeConnection>, Refusal> {
    let opening = async {
        let mut opening = Opening::connect(node, version, reading.tls.as_deref()).await?;
        opening.log_in(token).await?;
        if let Some(keyspace) = keyspace {
            opening.use_keyspace(keyspace).await?;
        }
        Ok(opening.finish(reading))
    };
    within(node, opening).await
}

/// Asks a node for its authenticator, and for the highest version that it speaks.
///
/// # Errors
/// Those of [`open`].
pub(crate) async fn probe(node: SocketAddr, tls: Option<&NodeTls>) -> Result<NodeFacts, Refusal> {
    let probing = async {
        for version in [Version::V5, Version::V4] {
            let mut opening = Opening::connect(node, version, tls).await?;
            match opening.start_up().await {
                Ok(authenticator) => return Ok(NodeFacts { authenticator, version }),
                // A node answers a version that it does not speak in one that it does.
                Err(_) if version == Version::V5 => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last version returns")
    };
    within(node, probing).await
}

/// Opens a connection to a node that sends its events.
///
/// # Errors
/// Those of [`open`].
pub(crate) async fn open_for_events(
    node: SocketAddr,
    version: Version,
    token: Option<&Bytes>,
    tls: Option<&NodeTls>,
) -> Result<Opening, Refusal> {
    let opening = async {
        let mut opening = Opening::connect(node, version, tls).await?;
        opening.log_in(token).await?;
        opening.register().await?;
        Ok(opening)
    };
    within(node, opening).await
}

async fn within<T>(node: SocketAddr, work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = |_| {
        Refusal::Unreachable(format!("the node {node} did not answer within {} s", OPEN_TIMEOUT.as_secs()))
    };
    lanes::time::timeout(OPEN_TIMEOUT, work).await.map_err(late)?
}

impl Opening {
    async fn connect(node: SocketAddr, version: Version, tls: Option<&NodeTls>) -> Result<Opening, Refusal> {
        let failed = |error| Refusal::Unreachable(format!("the node {node} cannot be reached: {error}"));
        let stream = TcpStream::connect(node).await.map_err(failed)?;
        // A failure shows at the first read.
        let _ = stream.set_nodelay(true);
        let stream = match tls {
            Some(tls) => {
                let encrypted = Stream::connect(stream, &tls.current(), node.ip()).await;
                encrypted.map_err(|error| unencrypted(node, &error))?
            }
            None => Stream::Plain(stream),
        };
        let (reader, writer) = stream.into_split();
        Ok(Opening {
            node,
            encoder: Encoder::new(Direction::Request, version),
            decoder: Decoder::new(Direction::Response, Limits { body_bytes_max: OPENING_BYTES_MAX }),
            input: BytesMut::new(),
            reader,
            writer,
        })
    }

    /// Sends STARTUP. Returns the class of the authenticator if the node wants credentials.
    async fn start_up(&mut self) -> Result<Option<String>, Refusal> {
        let answer = self.ask(&Request::Startup(STARTUP.to_vec())).await?;
        let authenticator = match answer.response().map_err(|error| self.malformed(&error))? {
            Response::Ready => None,
            Response::Authenticate(class) => Some(class.to_owned()),
            // It says nothing about the client: another node may take it.
            Response::Error(failure) => {
                return Err(Refusal::Unsent(format!("the node {}: {}", self.node, failure.message)));
            }
            _ => return Err(refused(answer)),
        };
        let framing = Framing::after_startup(self.encoder.version(), Compression::None);
        let framing = framing.expect("no compression is always possible");
        self.encoder.set_framing(framing);
        self.decoder.set_framing(framing);
        Ok(authenticator)
    }

    /// Starts the protocol, with a client's token if the node asks for it.
    async fn log_in(&mut self, token: Option<&Bytes>) -> Result<(), Refusal> {
        match (self.start_up().await?, token) {
            (Some(_), Some(token)) => self.authenticate(token).await,
            (None, None) => Ok(()),
            // A role's connections must all be judged by passwords, or none.
            (Some(_), None) => Err(self.differs("asks for a password")),
            (None, Some(_)) => Err(self.differs("asks for no password")),
        }
    }

    async fn authenticate(&mut self, token: &[u8]) -> Result<(), Refusal> {
        let answer = self.ask(&Request::AuthResponse(Some(token))).await?;
        let failure = match answer.response().map_err(|error| self.malformed(&error))? {
            Response::AuthSuccess(_) => return Ok(()),
            Response::Error(failure) => failure,
            _ => return Err(refused(answer)),
        };
        Err(match failure.kind {
            FailureKind::Authentication if failure.message.starts_with(UNABLE) => {
                Refusal::Unsent(format!("the node {}: {}", self.node, failure.message))
            }
            FailureKind::Authentication | FailureKind::Unauthorized => Refusal::Credentials(answer),
            _ => refused(answer),
        })
    }

    async fn use_keyspace(&mut self, keyspace: &str) -> Result<(), Refusal> {
        let text = format!("USE {}", always_quoted(keyspace));
        let answer = self.ask(&Request::Query(Query { text: &text, ..Query::default() })).await?;
        match answer.opcode {
            Opcode::Result => Ok(()),
            _ => Err(refused(answer)),
        }
    }

    /// Asks the node for all events of its kinds. It sends them from now on.
    async fn register(&mut self) -> Result<(), Refusal> {
        let answer = self.ask(&Request::Register(wire::EVENT_TYPES.to_vec())).await?;
        match answer.opcode {
            Opcode::Ready => Ok(()),
            _ => Err(refused(answer)),
        }
    }

    /// Sends a message and waits for its answer.
    async fn ask(&mut self, request: &Request<'_>) -> Result<Envelope, Refusal> {
        self.send(request).await?;
        self.receive().await
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        self.encoder.request(0, request).map_err(|error| self.malformed(&error))?;
        let sent = self.writer.write_all(self.encoder.finish()).await;
        self.encoder.finish().clear();
        sent.map_err(|error| self.lost(&error.to_string()))
    }

    /// Waits for the next message. Dropping the future loses nothing.
    pub(crate) async fn receive(&mut self) -> Result<Envelope, Refusal> {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(envelope)) => return Ok(envelope),
                Ok(None) => {}
                Err(error) => return Err(self.malformed(&error)),
            }
            match self.reader.read_buf(&mut self.input).await {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(_) => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    fn differs(&self, what: &str) -> Refusal {
        Refusal::Unsent(format!("the node {} {what}, unlike the node that was asked at the start", self.node))
    }

    fn lost(&self, reason: &str) -> Refusal {
        Refusal::Unreachable(format!("the connection to the node {} was lost: {reason}", self.node))
    }

    fn malformed(&self, error: &wire::Error) -> Refusal {
        Refusal::Unsent(format!("the node {} does not speak this protocol: {error}", self.node))
    }

    fn finish(self, reading: Reading) -> Rc<NodeConnection> {
        let Opening { node, encoder, mut decoder, input, reader, writer } = self;
        decoder.set_limits(Limits::default());
        decoder.set_inline_max(SMALL_BYTES_MAX);
        let Reading { group, memory, .. } = reading;
        let incoming = Incoming { reader, decoder, input, memory, charge: None };
        NodeConnection::start(node, encoder, writer, incoming, group)
    }
}

/// Returns the refusal for a TLS handshake that failed.
fn unencrypted(node: SocketAddr, error: &io::Error) -> Refusal {
    let reason = handshake_failure(error).unwrap_or_else(|| error.to_string());
    Refusal::Unreachable(format!(
        "the TLS handshake with the node {node} failed: {reason} (--cluster-ca, --cluster-tls-name)"
    ))
}

/// Returns the refusal for an answer that is no success.
fn refused(answer: Envelope) -> Refusal {
    match answer.opcode {
        Opcode::Error => Refusal::Answered(answer),
        opcode => Refusal::Unsent(format!("a node answered {opcode:?}, which was not expected")),
    }
}
