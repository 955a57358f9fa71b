//! Blocking client of the native protocol v4: connects, logs in, runs statements and returns rows.
//! The load uses it for its set-up and to open connections. The demo and tests use it where speed
//! does not matter.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::BytesMut;
use wire::{
    Compression, Decoder, Direction, Encoder, Envelope, Execute, FailureKind, Framing, Limits, Prepare,
    Query, QueryParams, Request, Response, Value, ValuesBuf, Version,
};

use crate::LoadError;

/// Rows requested per page. All pages are fetched.
const PAGE_ROWS: i32 = 5000;

/// One row: its encoded cells. `None` is null.
pub type ResultRow = Vec<Option<Vec<u8>>>;

/// A prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Statement id.
    pub id: Vec<u8>,
    /// Number of bind markers.
    pub markers: usize,
}

/// A page of rows that were counted and not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of rows.
    pub rows: usize,
    /// State by which the next page is requested. `None`: this is the last page.
    pub next: Option<Vec<u8>>,
}

/// A connection on which one request is in flight at a time.
#[derive(Debug)]
pub struct Session<S = TcpStream> {
    stream: S,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    address: String,
    supported: Vec<(String, Vec<String>)>,
}

/// Opens a TCP connection. Tries each address of a host name. `timeout` bounds each wait, here and
/// later.
///
/// # Errors
/// [`LoadError::Connect`].
pub fn open(address: &str, timeout: Duration) -> Result<TcpStream, LoadError> {
    let refused = |reason: String| LoadError::Connect { address: address.to_string(), reason };
    let candidates = address.to_socket_addrs().map_err(|error| refused(error.to_string()))?;
    let mut last = "the host name has no address".to_string();
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => return bounded(stream, timeout).map_err(|error| refused(error.to_string())),
            Err(error) => last = error.to_string(),
        }
    }
    Err(refused(last))
}

/// Bounds each wait of a connection.
pub(crate) fn bounded(stream: TcpStream, timeout: Duration) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

impl Session {
    /// Connects, requests the supported options, starts up, and logs in if the server requires it.
    /// `timeout` bounds each wait, here and later.
    ///
    /// # Errors
    /// [`LoadError::Connect`], [`LoadError::Credentials`], [`LoadError::Protocol`].
    pub fn connect(
        address: &str,
        user: Option<&str>,
        password: Option<&str>,
        timeout: Duration,
    ) -> Result<Session, LoadError> {
        Session::over(open(address, timeout)?, address, user, password)
    }

    /// Returns the socket and ends the session. Nothing is buffered between requests.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl<S: Read + Write> Session<S> {
    /// Starts a session as [`Session::connect`] does, over an open stream. The stream bounds waits.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn over(
        stream: S,
        address: &str,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Session<S>, LoadError> {
        let mut session = Session {
            stream,
            encoder: Encoder::new(Direction::Request, Version::V4),
            decoder: Decoder::new(Direction::Response, Limits::default()),
            input: BytesMut::new(),
            address: address.to_string(),
            supported: Vec::new(),
        };
        session.start_up(user, password)?;
        Ok(session)
    }

    /// 1. OPTIONS, to learn the sharding. 2. STARTUP. 3. On request, SASL PLAIN:
    ///    `\0user\0password`.
    fn start_up(&mut self, user: Option<&str>, password: Option<&str>) -> Result<(), LoadError> {
        let envelope = self.ask(&Request::Options)?;
        self.supported = match self.decode(&envelope)? {
            Response::Supported(options) => {
                let owned = |(name, values): (&str, Vec<&str>)| {
                    (name.to_string(), values.into_iter().map(str::to_string).collect())
                };
                options.into_iter().map(owned).collect()
            }
            other => return Err(self.unexpected(&other)),
        };
        let envelope = self.ask(&Request::Startup(vec![
            ("CQL_VERSION", "3.0.0"),
            ("DRIVER_NAME", "fairlane load"),
            ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
        ]))?;
        let class = match self.decode(&envelope)? {
            Response::Ready => None,
            Response::Authenticate(class) => Some(class.to_string()),
            other => return Err(self.unexpected(&other)),
        };
        self.encoder.set_framing(Framing::V4(Compression::None));
        self.decoder.set_framing(Framing::V4(Compression::None));
        let Some(class) = class else { return Ok(()) };
        let Some(user) = user else {
            let reason = format!("{class} requires a user");
            return Err(LoadError::Credentials { address: self.address.clone(), reason });
        };
        let token = format!("\0{user}\0{}", password.unwrap_or_default());
        let envelope = self.ask(&Request::AuthResponse(Some(token.as_bytes())))?;
        match self.decode(&envelope)? {
            Response::AuthSuccess(_) | Response::Ready => Ok(()),
            Response::Error(failure) => {
                Err(LoadError::Credentials { address: self.address.clone(), reason: failure.message })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Options that the server supports, each with its values.
    pub fn supported(&self) -> &[(String, Vec<String>)] {
        &self.supported
    }

    /// Runs a statement and returns all its rows. A statement without a result returns no rows.
    ///
    /// # Errors
    /// [`LoadError::Statement`] if the server rejects it, [`LoadError::Connect`] on a lost
    /// connection.
    pub fn query(&mut self, text: &str) -> Result<Vec<ResultRow>, LoadError> {
        self.pages(text, |encoder, params| encoder.request(0, &Request::Query(Query { text, params })))
    }

    /// Reads one page of at most `rows` rows: the first one, or the one that begins at `state`.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub fn page(&mut self, text: &str, rows: i32, state: Option<&[u8]>) -> Result<Page, LoadError> {
        let params = QueryParams { page_size: Some(rows), paging_state: state, ..Default::default() };
        let envelope = self.ask(&Request::Query(Query { text, params }))?;
        match self.decode(&envelope)? {
            Response::Rows(page) => {
                Ok(Page { rows: page.iter().count(), next: page.metadata.paging_state.map(<[u8]>::to_vec) })
            }
            Response::Error(failure) => Err(refused(text, &failure)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub fn prepare(&mut self, text: &str) -> Result<Prepared, LoadError> {
        let envelope = self.ask(&Request::Prepare(Prepare { text, keyspace: None }))?;
        match self.decode(&envelope)? {
            Response::Prepared(found) => Ok(Prepared { id: found.id.to_vec(), markers: found.bind.len() }),
            Response::Error(failure) => Err(refused(text, &failure)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a prepared statement with `values` (`None` is null) and returns all its rows.
    ///
    /// # Errors
    /// As [`Session::query`].
    pub fn execute(
        &mut self,
        statement: &Prepared,
        values: &[Option<&[u8]>],
    ) -> Result<Vec<ResultRow>, LoadError> {
        let mut buffer = ValuesBuf::new();
        for value in values {
            let pushed = buffer.push(value.map_or(Value::Null, Value::Bytes));
            pushed.map_err(|error| LoadError::Usage(error.to_string()))?;
        }
        self.pages("a prepared statement", |encoder, params| {
            let params = QueryParams { values: buffer.values(), ..params };
            encoder
                .request(0, &Request::Execute(Execute { id: &statement.id, result_metadata_id: &[], params }))
        })
    }

    /// Fetches all pages. `append` encodes the request with the parameters of a page.
    fn pages(
        &mut self,
        text: &str,
        append: impl for<'p> Fn(&mut Encoder, QueryParams<'p>) -> Result<(), wire::Error>,
    ) -> Result<Vec<ResultRow>, LoadError> {
        let mut rows: Vec<ResultRow> = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let paging_state = state.as_deref();
            let params = QueryParams { page_size: Some(PAGE_ROWS), paging_state, ..Default::default() };
            append(&mut self.encoder, params).map_err(|error| LoadError::Usage(error.to_string()))?;
            let envelope = self.exchange()?;
            match self.decode(&envelope)? {
                Response::Rows(page) => {
                    let owned = |row: Vec<Option<&[u8]>>| {
                        row.into_iter().map(|cell| cell.map(<[u8]>::to_vec)).collect()
                    };
                    rows.extend(page.iter().map(owned));
                    state = page.metadata.paging_state.map(<[u8]>::to_vec);
                    if state.is_none() {
                        return Ok(rows);
                    }
                }
                Response::Void | Response::SetKeyspace(_) | Response::SchemaChange(_) => return Ok(rows),
                Response::Error(failure) => return Err(refused(text, &failure)),
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Sends a request and waits for its answer. Skips events.
    fn ask(&mut self, request: &Request<'_>) -> Result<Envelope, LoadError> {
        self.encoder.request(0, request).map_err(|error| LoadError::Usage(error.to_string()))?;
        self.exchange()
    }

    /// Sends the encoded request and waits for the answer.
    fn exchange(&mut self) -> Result<Envelope, LoadError> {
        let bytes = self.encoder.finish().split();
        self.stream.write_all(&bytes).map_err(|error| self.lost(&error))?;
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(envelope)) if envelope.stream >= 0 => return Ok(envelope),
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(error) => return Err(self.malformed(&error)),
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.lost(&std::io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.input.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn decode<'e>(&self, envelope: &'e Envelope) -> Result<Response<'e>, LoadError> {
        envelope.response().map_err(|error| self.malformed(&error))
    }

    fn malformed(&self, error: &wire::Error) -> LoadError {
        LoadError::Protocol { address: self.address.clone(), reason: error.to_string() }
    }

    fn lost(&self, error: &std::io::Error) -> LoadError {
        let reason = match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "no answer in time".to_string(),
            std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_string(),
            _ => error.to_string(),
        };
        LoadError::Connect { address: self.address.clone(), reason }
    }

    fn unexpected(&self, response: &Response<'_>) -> LoadError {
        let reason = match response {
            Response::Error(failure) if failure.kind == FailureKind::Authentication => {
                return LoadError::Credentials {
                    address: self.address.clone(),
                    reason: failure.message.clone(),
                };
            }
            Response::Error(failure) => failure.to_string(),
            _ => "got an answer of the wrong kind".to_string(),
        };
        LoadError::Protocol { address: self.address.clone(), reason }
    }
}

fn refused(text: &str, failure: &wire::Failure) -> LoadError {
    let statement = text.chars().take(200).collect();
    LoadError::Statement { statement, code: failure.kind.code(), reason: failure.message.clone() }
}
