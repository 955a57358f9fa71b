//! A real server on loopback, in memory, and a small client that sends exactly the requested bytes.
#![expect(clippy::disallowed_methods, reason = "the client runs outside the lanes")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use embedded::Embedded;
use lanes::{Group, Lanes};
use server::logging::Logger;
use server::{Listening, PerCore, Server, ServerConfig};
pub use testkit::ADMIN;
use wire::*;

/// Time limit of every wait. An operation that takes longer has failed.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A server that ends with the test.
pub struct TestServer {
    pub lanes: Lanes,
    pub server: Server,
    pub at: Listening,
}

/// Returns settings for tests: free ports, no delays.
pub fn settings() -> ServerConfig {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerConfig {
        listen: loopback,
        shard_aware_port: Some(0),
        http: Some(loopback),
        auth_failure_delay: Duration::from_millis(1),
        ..ServerConfig::default()
    }
}

/// Wraps the engine that the server uses.
pub type Wrap = Arc<dyn Fn(Rc<Embedded>) -> Rc<dyn engine::Engine> + Send + Sync>;

impl TestServer {
    /// Starts a server of `cores` cores.
    pub fn start(cores: usize, config: ServerConfig) -> TestServer {
        TestServer::start_with(cores, config, Arc::new(|engine| engine))
    }

    /// Starts a server of `cores` cores over a wrapped engine.
    pub fn start_with(cores: usize, config: ServerConfig, wrap: Wrap) -> TestServer {
        TestServer::start_all(cores, config, wrap, Logger::silent())
    }

    /// Starts a server of `cores` cores with a logger.
    pub fn start_logging(cores: usize, config: ServerConfig, logger: Logger) -> TestServer {
        TestServer::start_all(cores, config, Arc::new(|engine| engine), logger)
    }

    fn start_all(cores: usize, config: ServerConfig, wrap: Wrap, logger: Logger) -> TestServer {
        TestServer::start_before(None, cores, config, wrap, logger)
    }

    /// Starts a server of one core in front of a cluster of one node.
    pub fn start_front(node: &TestServer, config: ServerConfig) -> TestServer {
        TestServer::start_front_of(cluster::Topology::of_addresses(&[node.at.cql]), node, config)
    }

    /// Starts a server of one core in front of a cluster with this topology.
    pub fn start_front_of(
        topology: cluster::Topology,
        node: &TestServer,
        config: ServerConfig,
    ) -> TestServer {
        let topology = Arc::new(cluster::PublishedTopology::new(topology));
        let levels = workload::Levels::new(node.lanes.clone());
        let options = cluster::FrontOptions {
            node_window: Some(128),
            account: None,
            refresh: None,
            fleet: None,
            tls: None,
        };
        let open = move || cluster::Shared::open(options, levels, topology);
        let shared = node.lanes.block_on(0, Group::CONTROL, open);
        let shared = shared.expect("the node answers");
        TestServer::start_before(Some(shared), 1, config, Arc::new(|engine| engine), Logger::silent())
    }

    fn start_before(
        shared: Option<Arc<cluster::Shared>>,
        cores: usize,
        config: ServerConfig,
        wrap: Wrap,
        logger: Logger,
    ) -> TestServer {
        let lanes = testkit::Setup::new(cores).start();
        let server = Server::new(config, logger, cores);
        let joined = server.clone();
        testkit::open_roles(&lanes, &workload::Levels::new(lanes.clone()), move |engine, access| {
            if let Some(shared) = &shared {
                let (access, topology) = (access.clone(), shared.topology().clone());
                let follow = async move { access.follow_cluster(topology, None).await.expect("no fleet") };
                lanes::spawn(Group::CONTROL, follow).detach();
            }
            let front = shared.clone().map(cluster::Front::new);
            joined.join(PerCore { engine: wrap(engine), access, front });
        });
        let at = server.open_on(&lanes).expect("the ports open");
        TestServer { lanes, server, at }
    }

    /// Sets a guardrail's warn threshold on all cores, and switches its fail threshold off.
    pub fn limit(&self, guardrail: engine::Guardrail, warn: u64) {
        for core in 0..self.lanes.cores() {
            self.lanes.block_on(core, Group::CONTROL, move || async move {
                engine::Engine::registry(&*testkit::engine()).guardrails().set(guardrail, warn, 0);
            });
        }
    }

    /// Opens a connection without sending any bytes.
    pub fn connect(&self) -> Client {
        Client::connect(self.at.cql)
    }

    /// Opens an authenticated connection.
    pub fn client(&self, version: Version, (name, password): (&str, &str)) -> Client {
        let mut client = self.connect();
        client.startup(version, Compression::None);
        let answer = client.log_in(name, password);
        assert!(matches!(answer, Answer::AuthSuccess), "{name} logs in: {answer:?}");
        client
    }

    /// Returns status line and body of a path of the HTTP port.
    pub fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.at.http.expect("on")).expect("connects");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout is set");
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
            .expect("is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.lanes.shutdown();
    }
}

/// A response, owned.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Error(Failure),
    Ready,
    Authenticate(String),
    Supported(Vec<(String, Vec<String>)>),
    Void,
    Rows { columns: Vec<String>, rows: Vec<Vec<Option<Vec<u8>>>>, paging: Option<Vec<u8>> },
    SetKeyspace(String),
    Prepared { id: Vec<u8>, result_id: Vec<u8> },
    SchemaChange(SchemaChange),
    Event(Event),
    AuthSuccess,
}

impl Answer {
    fn of(response: Response<'_>) -> Answer {
        match response {
            Response::Error(failure) => Answer::Error(failure),
            Response::Ready => Answer::Ready,
            Response::Authenticate(class) => Answer::Authenticate(class.to_owned()),
            Response::Supported(options) => {
                let owned = |(key, values): (&str, Vec<&str>)| {
                    (key.to_owned(), values.into_iter().map(str::to_owned).collect())
                };
                Answer::Supported(options.into_iter().map(owned).collect())
            }
            Response::Void => Answer::Void,
            Response::Rows(rows) => {
                let names = rows.metadata.columns.map(|columns| columns.decode().expect("columns"));
                Answer::Rows {
                    columns: names.into_iter().flatten().map(|column| column.name.into_owned()).collect(),
                    rows: rows
                        .iter()
                        .map(|row| row.into_iter().map(|c| c.map(<[u8]>::to_vec)).collect())
                        .collect(),
                    paging: rows.metadata.paging_state.map(<[u8]>::to_vec),
                }
            }
            Response::SetKeyspace(name) => Answer::SetKeyspace(name.to_owned()),
            Response::Prepared(prepared) => {
                Answer::Prepared { id: prepared.id.to_vec(), result_id: prepared.result_metadata_id.to_vec() }
            }
            Response::SchemaChange(change) => Answer::SchemaChange(change),
            Response::Event(event) => Answer::Event(event),
            Response::AuthSuccess(_) => Answer::AuthSuccess,
            Response::AuthChallenge(_) => panic!("there is one step of authentication"),
        }
    }

    /// Returns the error's code. Panics for other answers.
    pub fn code(&self) -> i32 {
        match self {
            Answer::Error(failure) => failure.kind.code(),
            other => panic!("an error was expected: {other:?}"),
        }
    }

    /// Returns the cells as text. Panics for other answers than rows.
    pub fn texts(&self) -> Vec<Vec<String>> {
        let Answer::Rows { rows, .. } = self else { panic!("rows were expected: {self:?}") };
        let text = |cell: &Option<Vec<u8>>| match cell {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "null".to_owned(),
        };
        rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }
}

/// The client's end of a connection.
pub struct Client {
    /// Warnings of the last answer.
    pub warnings: Vec<String>,
    /// Id of the trace of the last answer.
    pub tracing_id: Option<[u8; 16]>,
    pub stream: TcpStream,
    pub encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
    next_stream: i16,
}

impl Client {
    pub fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).expect("connects");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout is set");
        Client {
            warnings: Vec::new(),
            tracing_id: None,
            stream,
            encoder: Encoder::new(Direction::Request, Version::V4),
            decoder: Decoder::new(Direction::Response, Limits::default()),
            input: BytesMut::new(),
            next_stream: 0,
        }
    }

    /// Sends bytes unchanged.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Queues a request and returns its stream number.
    pub fn queue(&mut self, request: &Request<'_>) -> i16 {
        self.next_stream = (self.next_stream + 1) % 32_000;
        self.encoder.request(self.next_stream, request).expect("fits");
        self.next_stream
    }

    /// Sends the queued requests.
    pub fn flush(&mut self) {
        let bytes = self.encoder.finish().split();
        self.send_raw(&bytes);
    }

    /// Returns the next response, or `None` if the server closed the connection.
    pub fn receive(&mut self) -> Option<(i16, Answer)> {
        loop {
            if let Some(envelope) =
                self.decoder.decode(&mut self.input).expect("the server speaks the protocol")
            {
                let prelude = envelope.prelude().expect("a prelude");
                (self.warnings, self.tracing_id) = (prelude.warnings, prelude.tracing_id);
                return Some((envelope.stream, Answer::of(envelope.response().expect("a response"))));
            }
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Sends a request and returns its answer.
    pub fn ask(&mut self, request: &Request<'_>) -> Answer {
        let sent = self.queue(request);
        self.flush();
        let (stream, answer) = self.receive().expect("an answer");
        assert_eq!(stream, sent, "{answer:?}");
        answer
    }

    /// Sends a request that asks for a trace, and returns its answer.
    pub fn ask_traced(&mut self, request: &Request<'_>) -> Answer {
        self.next_stream = (self.next_stream + 1) % 32_000;
        let prelude = Prelude { tracing: true, ..Prelude::default() };
        self.encoder.request_with(self.next_stream, request, &prelude).expect("fits");
        self.flush();
        self.receive().expect("an answer").1
    }

    /// Sends STARTUP and sets the framing after it.
    pub fn startup(&mut self, version: Version, compression: Compression) -> Answer {
        self.encoder.set_version(version);
        let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "test")];
        options.extend(compression.name().map(|name| ("COMPRESSION", name)));
        let answer = self.ask(&Request::Startup(options));
        if matches!(answer, Answer::Authenticate(_) | Answer::Ready) {
            let framing = Framing::after_startup(version, compression).expect("a supported combination");
            self.encoder.set_framing(framing);
            self.decoder.set_framing(framing);
        }
        answer
    }

    pub fn log_in(&mut self, name: &str, password: &str) -> Answer {
        let token = format!("\0{name}\0{password}");
        self.ask(&Request::AuthResponse(Some(token.as_bytes())))
    }

    pub fn query(&mut self, text: &str) -> Answer {
        self.ask(&Request::Query(Query { text, params: QueryParams::default() }))
    }

    /// Runs a query. Panics if the answer is an error.
    pub fn run(&mut self, text: &str) -> Answer {
        let answer = self.query(text);
        assert!(!matches!(answer, Answer::Error(_)), "{text}: {answer:?}");
        answer
    }

    pub fn prepare(&mut self, text: &str) -> (Vec<u8>, Vec<u8>) {
        match self.ask(&Request::Prepare(Prepare { text, keyspace: None })) {
            Answer::Prepared { id, result_id } => (id, result_id),
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// Encodes the values of a request.
pub fn values(of: &[&[u8]]) -> ValuesBuf {
    let mut buffer = ValuesBuf::new();
    of.iter().for_each(|value| buffer.push(Value::Bytes(value)).expect("fits"));
    buffer
}

/// Asserts that no task poll since the server started spent more work units than the limit.
pub fn assert_short_polls(server: &TestServer) {
    // A poll is counted when it ends. Run one more to make sure that the last one is counted.
    server.lanes.block_on(0, Group::CONTROL, || async {});
    let units_max = server.lanes.most_units(0);
    assert!(units_max <= lanes::UNITS_MAX, "{units_max} work units without a yield");
    assert!(units_max > 0, "work is counted");
}
