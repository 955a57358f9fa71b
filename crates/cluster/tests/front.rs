//! A front against scripted nodes, by the messages that they get.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cluster::{
    ClusterNode, Front, FrontOptions, NodeTls, NodeTlsFiles, Outgoing, OwnCertificate, PublishedTopology,
    Refusal, RemotePlan, ReplicaOrder, Ring, Role, Route, Shared, Topology,
};
use frontdoor::{ClientCertificates, Stream, Tls, TlsFiles};
use lanes::{Group, Task};
use sched::control::ClassId;
use testkit::start_lanes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{
    ChangeType, ColumnSpec, Columns, Decoder, Direction, Encoder, Envelope, Execute, Failure, FailureKind,
    Flags, Framing, Limits, Opcode, Prelude, Prepare, PreparedHead, Query, Request, Response, SchemaChange,
    SchemaTarget, Version,
};
use workload::{Effective, LevelSpec, Levels, Tag};

const TOKEN: &[u8] = b"\0ann\0secret";

/// Answer of a node to a statement.
enum Act {
    Void,
    SetKeyspace(&'static str),
    SchemaChange,
    Prepared(&'static [u8]),
    /// The same, with a bound partition key of the table `ks.t`.
    PreparedKey(&'static [u8]),
    Unprepared(&'static [u8]),
    /// Closes the connection.
    Close,
    /// Answers after a while.
    Later(Duration),
    /// Answers when the test says so.
    Hold,
    /// Does not answer.
    Never,
    /// Reads nothing any more, as a stopped process.
    Freeze,
    /// ERROR: the node is starting.
    Bootstrapping,
    /// ERROR: the node is overloaded, with this text.
    Overloaded(&'static str),
    /// ERROR of another kind, which passes.
    Truncate,
    /// Answers with a body of this length, bytes.
    Large(usize),
}

/// A node. It accepts every client that has its token, which is [`TOKEN`] at first.
#[derive(Clone)]
struct Node {
    address: SocketAddr,
    token: Rc<Cell<&'static [u8]>>,
    /// Messages that it got, by opcode and text.
    seen: Rc<RefCell<Vec<String>>>,
    /// Statements that wait for their answers, by connection and stream, and the number of those to
    /// be answered.
    held: Rc<RefCell<VecDeque<(usize, i16)>>>,
    to_answer: Rc<Cell<usize>>,
    /// Number of its open connections.
    open: Rc<Cell<usize>>,
    /// Number of the connection that this clone serves.
    connection: usize,
}

impl Node {
    /// Starts a node that does `script` with each statement; the argument is its text or id.
    fn start(script: impl Fn(&str) -> Act + Clone + 'static) -> Node {
        Node::start_at(([127, 0, 0, 1], 0).into(), None, script)
    }

    /// Starts a node at an address, with a certificate or in plain text.
    fn start_at(at: SocketAddr, tls: Option<Tls>, script: impl Fn(&str) -> Act + Clone + 'static) -> Node {
        let listener = lanes::net::listen(at, false).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (seen, held, to_answer, open) = Default::default();
        let token = Rc::new(Cell::new(TOKEN));
        let node = Node { address, token, seen, held, to_answer, open, connection: 0 };
        let mut own = node.clone();
        let accept = async move {
            while let Ok((stream, _)) = listener.accept().await {
                own.connection += 1;
                let (own, tls, script) = (own.clone(), tls.clone(), script.clone());
                let serve = async move {
                    let stream = match &tls {
                        Some(tls) => Stream::encrypted(stream, tls, ClientCertificates::Asked).await,
                        None => Ok(Stream::Plain(stream)),
                    };
                    if let Ok(stream) = stream {
                        let open = own.open.clone();
                        open.set(open.get() + 1);
                        own.serve(stream, script).await;
                        open.set(open.get() - 1);
                    }
                };
                lanes::spawn(Group::CONTROL, serve).detach();
            }
        };
        lanes::spawn(Group::CONTROL, accept).detach();
        node
    }

    async fn serve(self, mut stream: Stream, script: impl Fn(&str) -> Act) {
        let mut decoder = Decoder::new(Direction::Request, Limits::default());
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        let mut input = BytesMut::new();
        loop {
            loop {
                // A node without TLS gets a handshake in one test.
                let Ok(decoded) = decoder.decode(&mut input) else { return };
                let Some(envelope) = decoded else { break };
                if !self.answer(&envelope, &mut encoder, &mut decoder, &script).await {
                    return;
                }
                stream.write_all(encoder.finish()).await.expect("the front reads");
                encoder.finish().clear();
            }
            // Looks from time to time whether a held statement is to be answered.
            let read = lanes::time::timeout(Duration::from_millis(1), stream.read_buf(&mut input)).await;
            if read.is_ok_and(|read| read.unwrap_or(0) == 0) {
                return;
            }
            while self.to_answer.get() > 0
                && let Some((_, stream)) =
                    self.held.borrow_mut().pop_front_if(|held| held.0 == self.connection)
            {
                self.to_answer.set(self.to_answer.get() - 1);
                encoder.void(stream, &Prelude::default()).expect("short");
            }
            stream.write_all(encoder.finish()).await.expect("the front reads");
            encoder.finish().clear();
        }
    }

    async fn answer(
        &self,
        envelope: &Envelope,
        encoder: &mut Encoder,
        decoder: &mut Decoder,
        script: &impl Fn(&str) -> Act,
    ) -> bool {
        let (stream, none) = (envelope.stream, Prelude::default());
        let text = match envelope.request().expect("a well-formed body") {
            Request::Startup(_) => {
                encoder.authenticate(stream, "PasswordAuthenticator").expect("short");
                let framing =
                    Framing::after_startup(envelope.version, wire::Compression::None).expect("none");
                encoder.set_framing(framing);
                decoder.set_framing(framing);
                self.see("STARTUP");
                return true;
            }
            Request::AuthResponse(token) if token == Some(self.token.get()) => {
                self.see("AUTH_RESPONSE");
                encoder.auth_success(stream, None).expect("short");
                return true;
            }
            Request::AuthResponse(_) if matches!(script("wrong password"), Act::Never) => return true,
            Request::AuthResponse(_) => {
                let failure = Failure::new(FailureKind::Authentication, "wrong".to_owned());
                encoder.error(stream, &failure, &none).expect("short");
                return true;
            }
            Request::Options => {
                encoder.supported::<&str>(stream, &[]).expect("short");
                return true;
            }
            Request::Query(query) => format!("QUERY {}", query.text),
            Request::Prepare(prepare) => format!("PREPARE {}", prepare.text),
            Request::Execute(execute) => format!("EXECUTE {}", String::from_utf8_lossy(execute.id)),
            other => panic!("not expected: {other:?}"),
        };
        self.see(&text);
        match script(&text) {
            Act::Void => encoder.void(stream, &none).expect("short"),
            Act::SetKeyspace(keyspace) => encoder.set_keyspace(stream, keyspace, &none).expect("short"),
            Act::SchemaChange => {
                let change = SchemaChange {
                    change: ChangeType::Created,
                    target: SchemaTarget::Keyspace,
                    keyspace: "ks".to_owned(),
                };
                encoder.schema_change(stream, &change, &none).expect("short");
            }
            Act::Prepared(id) => {
                let columns = Columns::encode(Version::V5, &[]).expect("none");
                let head = PreparedHead {
                    id,
                    result_metadata_id: b"r",
                    bind: &columns,
                    partition_key_indexes: &[],
                    result: &columns,
                };
                encoder.prepared(stream, &head, &none).expect("short");
            }
            Act::PreparedKey(id) => {
                let key = [ColumnSpec::new("ks", "t", "k", &schema::CqlType::Int)];
                let bind = Columns::encode(Version::V5, &key).expect("one");
                let none_bound = Columns::encode(Version::V5, &[]).expect("none");
                let head = PreparedHead {
                    id,
                    result_metadata_id: b"r",
                    bind: &bind,
                    partition_key_indexes: &[0],
                    result: &none_bound,
                };
                encoder.prepared(stream, &head, &none).expect("short");
            }
            Act::Unprepared(id) => {
                let failure = Failure::new(FailureKind::Unprepared(id.to_vec()), "unknown".to_owned());
                encoder.error(stream, &failure, &none).expect("short");
            }
            Act::Hold => self.held.borrow_mut().push_back((self.connection, stream)),
            Act::Close => return false,
            Act::Never => {}
            Act::Freeze => std::future::pending().await,
            Act::Bootstrapping => {
                let failure = Failure::new(FailureKind::Bootstrapping, "starting".to_owned());
                encoder.error(stream, &failure, &none).expect("short");
            }
            Act::Overloaded(text) => {
                let failure = Failure::new(FailureKind::Overloaded, text.to_owned());
                encoder.error(stream, &failure, &none).expect("short");
            }
            Act::Truncate => {
                let failure = Failure::new(FailureKind::Truncate, "no".to_owned());
                encoder.error(stream, &failure, &none).expect("short");
            }
            Act::Large(bytes) => {
                let failure = Failure::new(FailureKind::Server, "x".repeat(60_000));
                let mut one = Encoder::new(Direction::Response, Version::V5);
                one.error(stream, &failure, &none).expect("short");
                let body = one.finish()[wire::HEADER_BYTES..].repeat(bytes / 60_000);
                encoder.relay(stream, Opcode::Result, Flags::default(), &body).expect("fits");
            }
            Act::Later(time) => {
                lanes::time::sleep(time).await;
                encoder.void(stream, &none).expect("short");
            }
        }
        true
    }

    fn see(&self, message: &str) {
        self.seen.borrow_mut().push(message.to_owned());
    }

    /// Answers the next of the held statements.
    async fn answer_next(&self) {
        self.to_answer.set(self.to_answer.get() + 1);
        self.wait(|node| node.to_answer.get() == 0).await;
    }

    /// Waits until something holds.
    async fn wait(&self, holds: impl Fn(&Node) -> bool) {
        for _ in 0..10_000 {
            if holds(self) {
                return;
            }
            lanes::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it does not hold within 10 s: {:?}", self.seen.borrow());
    }

    fn count(&self, message: &str) -> usize {
        self.seen.borrow().iter().filter(|seen| *seen == message).count()
    }
}

/// Runs a test on a fast lane.
fn on_lane<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
    on_lanes(1, test);
}

/// Runs a test on the fast lane of the first of several cores.
fn on_lanes<F: Future<Output = ()> + 'static>(cores: usize, test: impl FnOnce() -> F + Send + 'static) {
    let lanes = start_lanes(cores);
    lanes.block_on(0, Group::CONTROL, test);
    lanes.shutdown();
}

async fn front(nodes: &[SocketAddr]) -> Rc<Front> {
    front_with(nodes, 128, Levels::new(lanes::handle())).await
}

/// Opens a front with a window of each node, for these levels.
async fn front_with(nodes: &[SocketAddr], node_window: u32, levels: Arc<Levels>) -> Rc<Front> {
    front_of(Topology::of_addresses(nodes), node_window, levels).await
}

async fn front_of(topology: Topology, node_window: u32, levels: Arc<Levels>) -> Rc<Front> {
    let topology = Arc::new(PublishedTopology::new(topology));
    let options =
        FrontOptions { node_window: Some(node_window), account: None, refresh: None, fleet: None, tls: None };
    Front::new(Shared::open(options, levels, topology).await.expect("a node answers"))
}

/// Opens a front that verifies the certificates of nodes.
async fn front_with_tls(nodes: &[SocketAddr], tls: NodeTlsFiles) -> Result<Rc<Front>, String> {
    let tls = Some(NodeTls::from_files(tls)?);
    let topology = Arc::new(PublishedTopology::new(Topology::of_addresses(nodes)));
    let options = FrontOptions { node_window: Some(128), account: None, refresh: None, fleet: None, tls };
    Ok(Front::new(Shared::open(options, Levels::new(lanes::handle()), topology).await?))
}

fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls").join(name)
}

/// Returns the certificate of nodes, valid for 127.0.0.1. `client_required`: they request one.
fn node_certificate(client_required: bool) -> Option<Tls> {
    let (certificate, key) = (tls_file("certificate.pem"), tls_file("key.pem"));
    let client_ca = client_required.then(|| tls_file("client-ca.pem"));
    let files = TlsFiles { certificate, key, client_ca, client_required };
    Some(Tls::from_files(files).expect("valid"))
}

fn trust(authority: &str, own: Option<&str>) -> NodeTlsFiles {
    let own = own.map(|name| OwnCertificate {
        certificate: tls_file(&format!("{name}.pem")),
        key: tls_file(&format!("{name}-key.pem")),
    });
    NodeTlsFiles { authority: tls_file(authority), own, name: None }
}

/// Trusts the nodes' authority, with a name in all certificates.
fn trust_name(name: &str) -> NodeTlsFiles {
    NodeTlsFiles { name: Some(name.to_owned()), ..trust("certificate.pem", None) }
}

#[test]
fn requests_and_answers_are_encrypted() {
    on_lane(|| async {
        let answer = |_: &str| Act::Large(3 << 20);
        let node = Node::start_at(([127, 0, 0, 1], 0).into(), node_certificate(true), answer);
        let files = trust("certificate.pem", Some("client"));
        let front = front_with_tls(&[node.address], files).await.expect("a node answers");
        let role = log_in(&front).await;
        // Longer than one round of the socket.
        let text = format!("SELECT '{}'", "x".repeat(1 << 20));
        let answers = (0..4).map(|_| {
            let (front, role, request) = (front.clone(), role.clone(), query(&text, true, None));
            lanes::spawn(Group::CONTROL, async move { front.send(&role, &request).await })
        });
        for answer in answers.collect::<Vec<_>>() {
            assert!(answer.await.expect("an answer").body.len() > 3_000_000);
        }
        assert_eq!(node.seen.borrow().iter().filter(|seen| seen.contains("SELECT")).count(), 4);
    });
}

#[test]
fn node_without_a_valid_certificate_is_refused() {
    on_lane(|| async {
        let check = async |at: [u8; 4], tls, files, expected: &str| {
            let node = Node::start_at((at, 0).into(), tls, |_| Act::Void);
            let reason = front_with_tls(&[node.address], files).await.map(drop).expect_err(expected);
            assert!(
                reason.contains(expected) && reason.contains("(--cluster-ca, --cluster-tls-name)"),
                "{reason}"
            );
            assert!(node.seen.borrow().is_empty(), "nothing was sent");
        };
        let own = [127, 0, 0, 1];
        check(own, node_certificate(false), trust("other.pem", None), "invalid peer certificate").await;
        check([127, 0, 0, 2], node_certificate(false), trust("certificate.pem", None), "not valid for name")
            .await;
        check(own, None, trust("certificate.pem", None), "TLS handshake").await;
        // The certificate is valid for 127.0.0.1 and localhost.
        check(own, node_certificate(false), trust_name("db.example"), "not valid for name \"db.example\"")
            .await;
        let other_authority = NodeTlsFiles { authority: tls_file("other.pem"), ..trust_name("localhost") };
        check(own, node_certificate(false), other_authority, "invalid peer certificate").await;
    });
}

#[test]
fn one_name_in_certificates_is_checked_in_place_of_addresses() {
    on_lane(|| async {
        // The certificate is not valid for this address.
        let at = ([127, 0, 0, 2], 0).into();
        let node = Node::start_at(at, node_certificate(false), |_| Act::Void);
        let front = front_with_tls(&[node.address], trust_name("localhost")).await.expect("a node answers");
        let role = log_in(&front).await;
        front.send(&role, &query("SELECT", true, None)).await.expect("an answer");
    });
}

#[test]
fn bad_files_of_certificates_are_named() {
    let check = |files, expected: &str| {
        let reason = NodeTls::from_files(files).map(drop).expect_err(expected);
        assert!(reason.contains(expected), "{reason}");
    };
    check(trust("missing.pem", None), "missing.pem as certificate: there is no such file");
    check(trust("key.pem", None), "it has no certificate in PEM");
    check(trust("certificate.pem", Some("missing")), "missing.pem");
    let own = OwnCertificate { certificate: tls_file("client.pem"), key: tls_file("other-key.pem") };
    check(NodeTlsFiles { own: Some(own), ..trust("certificate.pem", None) }, "client.pem");
    check(trust_name("10.0.0.1"), "expected a host name, got `10.0.0.1`");
    check(trust_name("a name"), "expected a host name");
}

/// Returns the options of a level with a tag.
fn tagged(levels: &Levels, name: &str, tag: &str) -> Rc<Effective> {
    let tag = Some(Tag::parse(tag).expect("valid"));
    levels.create(LevelSpec { tag, ..LevelSpec::new(name) }).expect("a new level");
    Rc::new(Effective::of(levels.catalog().get(name).expect("created")))
}

#[test]
fn requests_of_a_tagged_level_go_to_its_nodes() {
    on_lane(|| async {
        let nodes: Vec<Node> = (0..3).map(|_| Node::start(|_| Act::Void)).collect();
        let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
        let mut members = Topology::of_addresses(&addresses).nodes().to_vec();
        members[1].datacenter = "b".into();
        (members[2].datacenter, members[2].rack) = ("b".into(), "r2".into());
        let topology = |members| Topology::new(members, "datacenter1".into(), Arc::default());
        let published = Arc::new(PublishedTopology::new(topology(members.clone())));
        let options =
            FrontOptions { node_window: Some(128), account: None, refresh: None, fleet: None, tls: None };
        let levels = Levels::new(lanes::handle());
        let shared = Shared::open(options, levels.clone(), published.clone()).await.expect("answers");
        let front = Front::new(shared);
        let role = log_in(&front).await;
        let far = tagged(&levels, "far", "dc:b");
        let fallback = tagged(&levels, "fallback", "rack:b/r2 > dc:datacenter1");
        let send = async |level: Option<&Rc<Effective>>| {
            let mut request = query("SELECT 1", true, None);
            level.iter().for_each(|level| request.effective = Rc::clone(level));
            front.send(&role, &request).await
        };
        let counts = || -> Vec<usize> {
            let statements =
                |node: &Node| node.seen.borrow().iter().filter(|seen| seen.contains("SELECT")).count();
            nodes.iter().map(statements).collect()
        };
        for _ in 0..4 {
            send(Some(&far)).await.expect("an answer");
        }
        let [own, first, second] = counts()[..] else { panic!("three nodes") };
        assert_eq!((own, first + second), (0, 4), "another datacenter than the front's");
        for _ in 0..4 {
            send(None).await.expect("an answer");
        }
        assert_eq!(counts(), [4, first, second], "levels without a tag stay in the own one");
        send(Some(&fallback)).await.expect("an answer");
        assert_eq!(counts(), [4, first, second + 1], "the first alternative is live");
        members[2].is_up = false;
        published.publish(topology(members.clone()));
        send(Some(&fallback)).await.expect("an answer");
        send(Some(&far)).await.expect("an answer");
        assert_eq!(counts(), [5, first + 1, second + 1]);
        members[1].is_up = false;
        published.publish(topology(members));
        let refusal = send(Some(&far)).await.map(drop).expect_err("no node is live");
        assert_eq!(refusal, Refusal::Unavailable("no node of the tag 'dc:b' is live".to_owned()));
        assert_eq!(counts(), [5, first + 1, second + 1], "nothing was sent");
    });
}

/// Creates a level with shares. Returns its options.
fn level(levels: &Levels, name: &str, shares: u16) -> Rc<Effective> {
    levels.create(LevelSpec { shares, ..LevelSpec::new(name) }).expect("a new level");
    Rc::new(Effective::of(levels.catalog().get(name).expect("created")))
}

async fn log_in(front: &Front) -> Rc<Role> {
    log_in_as(front, "ann").await
}

async fn log_in_as(front: &Front, name: &str) -> Rc<Role> {
    let token = Some(Bytes::from_static(TOKEN));
    front.log_in(Version::V5, name, token, Group::CONTROL).await.expect("the right token")
}

/// Returns a prepared statement, as for an EXECUTE of the role.
fn plan(front: &Front, role: &Rc<Role>, id: &[u8]) -> Option<Rc<RemotePlan>> {
    front.plan(id, Some(role), Version::V5)
}

/// Returns a request with the body that a client sends.
fn outgoing(request: &Request<'_>, is_read: bool, keyspace: Option<&str>) -> Outgoing {
    let mut encoder = Encoder::new(Direction::Request, Version::V5);
    encoder.request(0, request).expect("short");
    let message = encoder.finish().split().freeze();
    let body = message.slice(wire::HEADER_BYTES..);
    let keyspace = keyspace.map(Rc::from);
    let levels = Levels::new(lanes::handle());
    Outgoing {
        effective: Rc::new(Effective::of(levels.catalog().default_level())),
        until_ns: u64::MAX,
        route: None,
        class: ClassId::of_opcode(7),
        order: ReplicaOrder::LeastLoaded,
        was_sent: Cell::new(false),
        is_read,
        version: Version::V5,
        keyspace,
        opcode: request.opcode(),
        flags: Flags::default(),
        body,
    }
}

fn query(text: &str, is_read: bool, keyspace: Option<&str>) -> Outgoing {
    outgoing(&Request::Query(Query { text, ..Query::default() }), is_read, keyspace)
}

fn is_void(answer: &Envelope) -> bool {
    matches!(answer.response(), Ok(Response::Void))
}

#[test]
fn requests_of_a_role_share_a_connection_for_each_keyspace() {
    on_lane(|| async {
        let node =
            Node::start(|text| if text == "QUERY USE \"ks\"" { Act::SetKeyspace("ks") } else { Act::Void });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        for keyspace in [None, Some("ks"), None, Some("ks")] {
            let answer = front.send(&role, &query("SELECT 1", true, keyspace)).await.expect("an answer");
            assert!(is_void(&answer));
        }
        // The probe, the login, and the keyspace.
        assert_eq!(node.count("STARTUP"), 3, "{:?}", node.seen.borrow());
        assert_eq!(node.count("QUERY USE \"ks\""), 1);
        assert_eq!(node.count("QUERY SELECT 1"), 4);
    });
}

#[test]
fn equal_password_is_asked_once_and_a_wrong_one_is_answered_by_the_node() {
    on_lane(|| async {
        let node = Node::start(|_| Act::Void);
        let front = front(&[node.address]).await;
        let (first, second) = (log_in(&front).await, log_in(&front).await);
        assert!(Rc::ptr_eq(&first, &second));
        assert_eq!(node.count("AUTH_RESPONSE"), 1);
        let wrong = Some(Bytes::from_static(b"\0ann\0wrong"));
        let refused = front.log_in(Version::V5, "ann", wrong, Group::CONTROL).await;
        assert!(matches!(refused, Err(Refusal::Credentials(answer)) if answer.opcode == Opcode::Error));
    });
}

#[test]
fn old_password_ends_its_role_after_a_login_with_a_new_one() {
    on_lane(|| async {
        let node = Node::start(|_| Act::Void);
        let front = front(&[node.address]).await;
        let old = log_in(&front).await;
        node.token.set(b"\0ann\0new");
        let new = Some(Bytes::from_static(b"\0ann\0new"));
        let new = front.log_in(Version::V5, "ann", new, Group::CONTROL).await.expect("the new token");
        assert!(!Rc::ptr_eq(&old, &new), "they share no connection");
        node.wait(|_| old.is_ended()).await;
        assert_eq!(front.send(&old, &query("SELECT 1", true, Some("ks"))).await, Err(Refusal::Ended));
        assert!(is_void(&front.send(&new, &query("SELECT 2", true, None)).await.expect("it goes on")));
        assert!(front.kept_login("ann", TOKEN).is_none());
    });
}

#[test]
fn forgotten_statement_is_prepared_again_once() {
    on_lane(|| async {
        let forgets = Rc::new(RefCell::new(vec![true, false]));
        let node = Node::start(move |text| match text {
            "PREPARE SELECT a" => Act::Prepared(b"id"),
            // Forgotten before the first, and known to the second.
            "EXECUTE id" if forgets.borrow_mut().pop() == Some(true) => Act::Unprepared(b"id"),
            "EXECUTE never" => Act::Unprepared(b"never"),
            _ => Act::Void,
        });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let prepare = outgoing(&Request::Prepare(Prepare { text: "SELECT a", keyspace: None }), false, None);
        front.prepare(&role, &prepare, "SELECT a", None, false).await.expect("prepared");
        assert!(plan(&front, &role, b"id").is_some() && plan(&front, &role, b"never").is_none());
        let execute = |id| outgoing(&Request::Execute(Execute { id, ..Execute::default() }), true, None);
        for _ in 0..2 {
            assert!(is_void(&front.send(&role, &execute(b"id")).await.expect("an answer")));
        }
        assert_eq!((node.count("PREPARE SELECT a"), node.count("EXECUTE id")), (2, 3));
        let unknown = front.send(&role, &execute(b"never")).await.expect("the node's own error");
        assert_eq!((unknown.opcode, node.count("EXECUTE never")), (Opcode::Error, 1));
    });
}

#[test]
fn node_that_forgot_a_statement_is_sent_prepare_once_by_all_requests() {
    on_lane(|| async {
        let is_known = Rc::new(Cell::new(false));
        let knows = is_known.clone();
        let node = Node::start(move |text| match text {
            "PREPARE SELECT a" => {
                knows.set(true);
                Act::Prepared(b"id")
            }
            "EXECUTE id" if !knows.get() => Act::Unprepared(b"id"),
            _ => Act::Void,
        });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let prepare = outgoing(&Request::Prepare(Prepare { text: "SELECT a", keyspace: None }), false, None);
        front.prepare(&role, &prepare, "SELECT a", None, false).await.expect("prepared");
        is_known.set(false);
        let requests: Vec<Task<bool>> = (0..20)
            .map(|_| {
                let (front, role) = (front.clone(), role.clone());
                let execute = Execute { id: b"id", ..Execute::default() };
                let execute = outgoing(&Request::Execute(execute), true, None);
                lanes::spawn(Group::CONTROL, async move {
                    is_void(&front.send(&role, &execute).await.expect("an answer"))
                })
            })
            .collect();
        for request in requests {
            assert!(request.await);
        }
        assert_eq!((node.count("PREPARE SELECT a"), node.count("EXECUTE id")), (2, 40));
    });
}

#[test]
fn statement_that_one_node_knows_is_prepared_at_the_node_that_is_asked() {
    on_lane(|| async {
        let nodes = [(); 3].map(|()| {
            let is_known = Rc::new(RefCell::new(false));
            Node::start(move |text| match text {
                "PREPARE SELECT a" => {
                    *is_known.borrow_mut() = true;
                    Act::Prepared(b"id")
                }
                "EXECUTE id" if !*is_known.borrow() => Act::Unprepared(b"id"),
                _ => Act::Void,
            })
        });
        let front = front(&nodes.clone().map(|node| node.address)).await;
        let role = log_in(&front).await;
        let prepare = outgoing(&Request::Prepare(Prepare { text: "SELECT a", keyspace: None }), false, None);
        front.prepare(&role, &prepare, "SELECT a", None, false).await.expect("prepared");
        let execute = outgoing(&Request::Execute(Execute { id: b"id", ..Execute::default() }), true, None);
        for _ in 0..6 {
            assert!(is_void(&front.send(&role, &execute).await.expect("an answer")));
        }
        for node in &nodes {
            assert_eq!(node.count("PREPARE SELECT a"), 1, "each node is asked once");
        }
    });
}

#[test]
fn change_of_the_schema_is_answered_when_the_nodes_agree() {
    on_lane(|| async {
        const ASKED: &str = "QUERY SELECT schema_version FROM system.local WHERE key = 'local'";
        let script = |versions: &'static [&'static [u8]]| {
            let left = Rc::new(RefCell::new(versions.to_vec()));
            move |text: &str| match text {
                ASKED => match left.borrow_mut().pop() {
                    Some(old) => Act::Prepared(old),
                    None => Act::Void,
                },
                _ => Act::SchemaChange,
            }
        };
        let nodes = [Node::start(script(&[])), Node::start(script(&[b"older", b"oldest"]))];
        let front = front(&nodes.clone().map(|node| node.address)).await;
        let role = log_in(&front).await;
        front.send(&role, &query("CREATE KEYSPACE ks", false, None)).await.expect("an answer");
        // Twice with other versions, and once with the same.
        assert_eq!(nodes.map(|node| node.count(ASKED)), [3, 3]);
    });
}

#[test]
fn node_without_passwords_is_not_used_beside_one_with_passwords() {
    on_lane(|| async {
        let node = Node::start(|_| Act::Void);
        let front = front(&[node.address]).await;
        let refused = front.log_in(Version::V5, "ann", None, Group::CONTROL).await;
        assert!(matches!(refused, Err(Refusal::Unsent(reason)) if reason.contains("asks for a password")));
    });
}

#[test]
fn read_is_sent_once_more_after_a_lost_connection_and_a_write_is_not() {
    on_lane(|| async {
        let node = Node::start(|text| if text.ends_with('!') { Act::Close } else { Act::Void });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let lost = front.send(&role, &query("SELECT !", true, None)).await;
        assert!(matches!(lost, Err(Refusal::Lost(_))), "{lost:?}");
        let lost = front.send(&role, &query("INSERT !", false, None)).await;
        assert!(matches!(lost, Err(Refusal::Lost(_))), "{lost:?}");
        assert_eq!((node.count("QUERY SELECT !"), node.count("QUERY INSERT !")), (2, 1));
        assert!(is_void(&front.send(&role, &query("SELECT 1", true, None)).await.expect("a new connection")));
    });
}

#[test]
fn connection_whose_keyspace_a_statement_changed_is_not_used_again() {
    on_lane(|| async {
        let node =
            Node::start(|text| if text == "QUERY sneaky" { Act::SetKeyspace("other") } else { Act::Void });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        front.send(&role, &query("sneaky", false, None)).await.expect("an answer");
        let before = node.count("STARTUP");
        front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer");
        assert_eq!(node.count("STARTUP"), before + 1, "others must not use that keyspace");
    });
}

#[test]
fn answer_of_a_request_that_nobody_waits_for_reaches_no_other() {
    on_lane(|| async {
        let node = Node::start(|text| match text {
            "QUERY slow" => Act::Later(Duration::from_millis(50)),
            "QUERY prepared" => Act::Prepared(b"mine"),
            _ => Act::Void,
        });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let slow = query("slow", true, None);
        let late = lanes::time::timeout(Duration::from_millis(1), front.send(&role, &slow)).await;
        assert!(late.is_err(), "the answer takes longer");
        let answer = front.send(&role, &query("prepared", false, None)).await.expect("an answer");
        assert!(!is_void(&answer), "it is the second request's own");
    });
}

#[test]
fn next_node_is_asked_if_one_cannot_be_reached() {
    on_lane(|| async {
        let closed = lanes::net::listen(([127, 0, 0, 1], 0).into(), false).expect("a free port");
        let gone = closed.local_addr().expect("bound");
        drop(closed);
        let node = Node::start(|_| Act::Void);
        let front = front(&[gone, node.address]).await;
        let role = log_in(&front).await;
        for _ in 0..4 {
            assert!(is_void(&front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer")));
        }
        let topology = Arc::new(PublishedTopology::new(Topology::of_addresses(&[gone])));
        let options =
            FrontOptions { node_window: Some(1), account: None, refresh: None, fleet: None, tls: None };
        let nobody = Shared::open(options, Levels::new(lanes::handle()), topology).await;
        assert!(nobody.is_err_and(|reason| reason.contains(&gone.to_string())));
    });
}

/// Sends a query of a level in a task of its own.
fn spawn_query(front: &Rc<Front>, role: &Rc<Role>, level: &Rc<Effective>, text: &str) -> Task<bool> {
    let (front, role, effective) = (front.clone(), role.clone(), level.clone());
    let request = Outgoing { effective, ..query(text, true, None) };
    let sent = async move { front.send(&role, &request).await.is_ok() };
    lanes::spawn(Group::CONTROL, sent)
}

fn holding_node() -> Node {
    Node::start(|text| if text.starts_with("QUERY SELECT") { Act::Hold } else { Act::Void })
}

/// Starts a node that holds SELECTs, with a window of one request. Returns a front before it with
/// a level, and a role.
async fn one_place() -> (Node, Rc<Effective>, Rc<Front>, Rc<Role>) {
    let node = holding_node();
    let levels = Levels::new(lanes::handle());
    let level = level(&levels, "level", 100);
    let front = front_with(&[node.address], 1, levels).await;
    let role = log_in(&front).await;
    (node, level, front, role)
}

#[test]
fn requests_beyond_the_window_wait_and_go_by_shares() {
    on_lane(|| async {
        let node = holding_node();
        let levels = Levels::new(lanes::handle());
        let (large, small) = (level(&levels, "large", 300), level(&levels, "small", 100));
        let front = front_with(&[node.address], 4, levels).await;
        let role = log_in(&front).await;
        let tasks: Vec<_> = (0..40)
            .flat_map(|_| [(&small, "SELECT small"), (&large, "SELECT large")])
            .map(|(level, text)| spawn_query(&front, &role, level, text))
            .collect();
        for _ in 0..36 {
            node.wait(|node| node.held.borrow().len() >= 4).await;
            node.answer_next().await;
            assert!(node.held.borrow().len() <= 5, "one place for the other level beyond the window");
        }
        let (of_large, of_small) = (node.count("QUERY SELECT large"), node.count("QUERY SELECT small"));
        assert!((26..=34).contains(&of_large), "{of_large} : {of_small}, expected 30 : 10");
        drop(tasks);
    });
}

#[test]
fn cancelled_request_keeps_its_place_until_the_answer_and_a_waiting_one_leaves_the_line() {
    on_lane(|| async {
        let (node, level, front, role) = one_place().await;
        let sent = spawn_query(&front, &role, &level, "SELECT sent");
        node.wait(|node| node.count("QUERY SELECT sent") == 1).await;
        let waiting = spawn_query(&front, &role, &level, "SELECT waiting");
        let next = spawn_query(&front, &role, &level, "SELECT next");
        lanes::time::sleep(Duration::from_millis(5)).await;
        drop((sent, waiting));
        lanes::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(node.count("QUERY SELECT next"), 0, "the place is in use until the answer");
        node.answer_next().await;
        node.wait(|node| node.count("QUERY SELECT next") == 1).await;
        assert_eq!(node.count("QUERY SELECT waiting"), 0);
        drop(next);
    });
}

#[test]
fn request_that_would_wait_too_long_is_refused_at_once() {
    on_lane(|| async {
        let (node, level, front, role) = one_place().await;
        let tasks = [(); 3].map(|()| spawn_query(&front, &role, &level, "SELECT slow"));
        node.wait(|node| node.held.borrow().len() == 1).await;
        let until_ns = lanes::time::monotonic_ns();
        let late = Outgoing { effective: level.clone(), until_ns, ..query("SELECT late", true, None) };
        let refused = front.send(&role, &late).await;
        let expected = |text: &str| text.contains("'level'") && text.contains(&node.address.to_string());
        assert!(matches!(&refused, Err(Refusal::Unsent(text)) if expected(text)), "{refused:?}");
        drop(tasks);
    });
}

#[test]
fn node_has_eight_logins_in_flight_and_the_next_one_when_one_ends() {
    on_lane(|| async {
        let node = Node::start(|text| if text == "wrong password" { Act::Never } else { Act::Void });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let before = node.count("STARTUP");
        let log_in = |n: u8| {
            let (front, token) = (front.clone(), Bytes::from(format!("\0ann\0wrong {n}")));
            let logging_in =
                async move { front.log_in(Version::V5, "ann", Some(token), Group::CONTROL).await };
            lanes::spawn(Group::CONTROL, logging_in)
        };
        let mut logins: Vec<_> = (0..12).map(log_in).collect();
        let settle = || async {
            // Requests of others are answered meanwhile.
            for _ in 0..100 {
                front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer");
            }
            node.count("STARTUP") - before
        };
        assert_eq!(settle().await, 8);
        // One that waits leaves the line, and one in flight gives its place to the next.
        logins.pop().expect("twelve").cancel().await;
        logins.swap_remove(0).cancel().await;
        assert_eq!(settle().await, 9);
        drop(logins);
        front.use_keyspace(&role, Version::V5, "ks").await.expect("places are free");
    });
}

/// Returns a topology of nodes with a keyspace `ks`. Token 0 and those below it are on the first
/// node, all others on the second.
fn two_replicas(nodes: &[SocketAddr]) -> Topology {
    let mut ring = Ring::new(vec![0, i64::MAX]);
    let placement = ring.add_placement(|token, replicas| replicas.push(u16::from(token > 0)));
    ring.add_keyspace("ks", placement.expect("few"));
    let known = Topology::of_addresses(nodes).nodes().to_vec();
    Topology::new(known, "datacenter1".into(), Arc::new(ring))
}

#[test]
fn request_goes_to_a_replica_of_its_partition() {
    on_lane(|| async {
        let nodes = [(); 2].map(|()| {
            Node::start(|text| match text {
                "PREPARE SELECT a" => Act::PreparedKey(b"id"),
                _ => Act::Void,
            })
        });
        let topology = two_replicas(&nodes.clone().map(|node| node.address));
        let front = front_of(topology, 128, Levels::new(lanes::handle())).await;
        let role = log_in(&front).await;
        let prepare = outgoing(&Request::Prepare(Prepare { text: "SELECT a", keyspace: None }), false, None);
        front.prepare(&role, &prepare, "SELECT a", None, false).await.expect("prepared");
        let plan = plan(&front, &role, b"id").expect("prepared");
        let mut expected = [0, 0];
        for key in 0..40_i32 {
            let value = key.to_be_bytes();
            let mut values = wire::ValuesBuf::new();
            values.push(wire::Value::Bytes(&value)).expect("one");
            let execute =
                outgoing(&Request::Execute(Execute { id: b"id", ..Execute::default() }), true, None);
            let route = Route::of(&plan, &values.values());
            let token = route.as_ref().expect("the key is bound").token;
            expected[usize::from(token > 0)] += 1;
            front.send(&role, &Outgoing { route, ..execute }).await.expect("an answer");
        }
        assert_eq!(nodes.map(|node| node.count("EXECUTE id")), expected);
        assert!(expected.iter().all(|requests| *requests > 5), "both have some: {expected:?}");
    });
}

#[test]
fn node_that_is_down_is_not_asked() {
    on_lane(|| async {
        let nodes = [(); 2].map(|()| Node::start(|_| Act::Void));
        let mut known = Topology::of_addresses(&nodes.clone().map(|node| node.address)).nodes().to_vec();
        known[0] = ClusterNode { is_up: false, ..known[0].clone() };
        let topology = Topology::new(known, "datacenter1".into(), Arc::default());
        let front = front_of(topology, 128, Levels::new(lanes::handle())).await;
        let role = log_in(&front).await;
        for _ in 0..10 {
            front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer");
        }
        assert_eq!(nodes.map(|node| node.count("QUERY SELECT 1")), [0, 10]);
    });
}

#[test]
fn write_that_a_starting_node_refuses_goes_to_the_next_one_and_other_errors_pass() {
    on_lane(|| async {
        let starting = Node::start(|_| Act::Bootstrapping);
        let node = Node::start(|text| if text.ends_with("bad") { Act::Truncate } else { Act::Void });
        let front = front(&[starting.address, node.address]).await;
        let role = log_in(&front).await;
        for _ in 0..4 {
            let answer = front.send(&role, &query("INSERT good", false, None)).await.expect("an answer");
            assert!(is_void(&answer), "the other node takes it");
        }
        assert!(starting.count("QUERY INSERT good") > 0, "it was asked");
        let answer = front.send(&role, &query("INSERT bad", false, None)).await.expect("an answer");
        assert_eq!((answer.opcode, node.count("QUERY INSERT bad")), (Opcode::Error, 1));
    });
}

/// A rolling restart of Cassandra 5.0 showed clients an error for each request in flight.
#[test]
fn write_that_a_stopping_node_refuses_goes_to_the_next_one() {
    on_lane(|| async {
        let stopping = Node::start(|_| Act::Overloaded("Server is shutting down"));
        let node = Node::start(|_| Act::Void);
        let front = front(&[stopping.address, node.address]).await;
        let role = log_in(&front).await;
        for _ in 0..4 {
            let answer = front.send(&role, &query("INSERT 1", false, None)).await.expect("an answer");
            assert!(is_void(&answer), "the other node takes it");
        }
        assert_eq!((stopping.count("QUERY INSERT 1"), node.count("QUERY INSERT 1")), (1, 4), "avoided");
    });
}

#[test]
fn overload_of_a_node_passes() {
    on_lane(|| async {
        let nodes = [(); 2].map(|()| Node::start(|_| Act::Overloaded("Too many in flight hints")));
        let front = front(&nodes.clone().map(|node| node.address)).await;
        let role = log_in(&front).await;
        let answer = front.send(&role, &query("INSERT 1", false, None)).await.expect("an answer");
        assert_eq!(answer.opcode, Opcode::Error);
        assert_eq!(nodes.iter().map(|node| node.count("QUERY INSERT 1")).sum::<usize>(), 1);
    });
}

/// Alone, it has the last word.
#[test]
fn refusal_of_the_only_node_that_stops_passes() {
    on_lane(|| async {
        let node = Node::start(|_| Act::Overloaded("Server is shutting down"));
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let answer = front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer");
        assert_eq!((answer.opcode, node.count("QUERY SELECT 1")), (Opcode::Error, 1));
    });
}

#[test]
fn read_of_a_silent_node_is_sent_to_the_next_one() {
    on_lane(|| async {
        let silent = Node::start(|text| if text == "QUERY SELECT 1" { Act::Freeze } else { Act::Void });
        let node = Node::start(|_| Act::Void);
        let front = front(&[silent.address, node.address]).await;
        let role = log_in(&front).await;
        // Each is asked first at one node or the other.
        for _ in 0..2 {
            let answer = front.send(&role, &query("SELECT 1", true, None)).await.expect("an answer");
            assert!(is_void(&answer));
        }
        assert_eq!((silent.count("QUERY SELECT 1"), node.count("QUERY SELECT 1")), (1, 2));
        let write = front.send(&role, &query("INSERT 1", false, None)).await;
        assert!(write.is_ok() || matches!(write, Err(Refusal::Unsent(_))), "not lost: {write:?}");
    });
}

#[test]
fn requests_wait_for_a_node_that_reads_slowly() {
    on_lane(|| async {
        let node = Node::start(|text| match text {
            "QUERY slow" => Act::Later(Duration::from_millis(200)),
            _ => Act::Void,
        });
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let long = format!("INSERT {}", "x".repeat(700_000));
        let send = |text: String| {
            let (front, role) = (front.clone(), role.clone());
            let sent = async move { front.send(&role, &query(&text, false, None)).await };
            lanes::spawn(Group::CONTROL, sent)
        };
        let slow = send("slow".to_owned());
        node.wait(|node| node.count("QUERY slow") == 1).await;
        let tasks: Vec<_> = (0..20).map(|_| send(long.clone())).collect();
        for task in tasks.into_iter().chain([slow]) {
            assert!(is_void(&task.await.expect("an answer")));
        }
    });
}

#[test]
fn large_answers_are_refused_beyond_their_memory_and_the_connection_goes_on() {
    on_lane(|| async {
        let node = Node::start(|text| match text {
            "QUERY large" => Act::Large(600_000),
            "QUERY larger" => Act::Large(1_200_000),
            _ => Act::Void,
        });
        let front = front(&[node.address]).await;
        front.shared().set_answer_bytes_max(1_000_000);
        let role = log_in(&front).await;
        let send = |text: &'static str| {
            let (front, role) = (front.clone(), role.clone());
            lanes::spawn(Group::CONTROL, async move { front.send(&role, &query(text, true, None)).await })
        };
        let [larger, small] = ["larger", "small"].map(send);
        let larger = larger.await;
        assert!(
            matches!(&larger, Err(Refusal::NoMemory(text)) if text.contains("1000000 bytes")),
            "the answer is larger than the memory: {larger:?}"
        );
        assert!(is_void(&small.await.expect("an answer")));
        let first = send("large").await.expect("it fits");
        assert!(first.body.len() > 590_000);
        assert!(matches!(send("large").await, Err(Refusal::NoMemory(_))), "the first one is still in use");
        drop(first);
        send("large").await.expect("it fits again");
        assert_eq!(node.count("STARTUP"), 2, "the probe, and one connection");
    });
}

/// Connections of one of 16 cores to a node, at most: these divide 512.
const OF_16_CORES: usize = 512 / 16;

#[test]
fn connections_of_all_roles_to_a_node_are_bounded() {
    on_lanes(16, || async {
        let node = Node::start(|_| Act::Void);
        let front = front(&[node.address]).await;
        let roles = [log_in_as(&front, "ann").await, log_in_as(&front, "bob").await];
        let keyspaces: Vec<String> = (0..2 * OF_16_CORES).map(|n| format!("ks{n}")).collect();
        let open = async |role: usize, keyspace: &str| {
            let before = node.count("STARTUP");
            front.use_keyspace(&roles[role], Version::V5, keyspace).await.expect("opened");
            node.count("STARTUP") - before
        };
        for keyspace in &keyspaces {
            assert_eq!([open(0, keyspace).await, open(1, keyspace).await], [1, 1]);
        }
        node.wait(|node| node.open.get() == OF_16_CORES).await;
        for keyspace in &keyspaces[keyspaces.len() - OF_16_CORES / 2..] {
            let opened = [open(0, keyspace).await, open(1, keyspace).await];
            assert_eq!(opened, [0, 0], "the last ones stay, whichever role used them");
        }
        assert_eq!(open(1, &keyspaces[0]).await, 1, "the first ones were closed");
        node.wait(|node| node.open.get() == OF_16_CORES).await;
    });
}

#[test]
fn connection_with_a_request_in_flight_is_not_closed_for_another() {
    on_lanes(16, || async {
        let node = holding_node();
        let front = front(&[node.address]).await;
        let role = log_in(&front).await;
        let send = |n: usize| {
            let (front, role, keyspace) = (front.clone(), role.clone(), format!("ks{n}"));
            let sent = async move { front.send(&role, &query("SELECT 1", true, Some(&keyspace))).await };
            lanes::spawn(Group::CONTROL, sent)
        };
        let in_flight: Vec<_> = (0..OF_16_CORES).map(send).collect();
        node.wait(|node| node.held.borrow().len() == OF_16_CORES).await;
        assert_eq!(node.open.get(), OF_16_CORES, "that of the login was closed");
        let (next, late) = (send(OF_16_CORES), send(OF_16_CORES + 1));
        lanes::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(node.held.borrow().len(), OF_16_CORES, "they wait");
        node.answer_next().await;
        node.wait(|node| node.held.borrow().len() == OF_16_CORES).await;
        let refused = late.await;
        let expected = |text: &str| text.contains("all 32 connections") && text.contains("in flight");
        assert!(matches!(&refused, Err(Refusal::Unsent(text)) if expected(text)), "{refused:?}");
        for _ in 0..OF_16_CORES {
            node.answer_next().await;
        }
        for sent in in_flight.into_iter().chain([next]) {
            assert!(is_void(&sent.await.expect("no connection was closed with a request in flight")));
        }
    });
}

/// A node that knows the statements that it was asked to prepare, and counts its answers
/// UNPREPARED. The id of a statement is its text. `holds`: true while it holds the PREPAREs.
#[derive(Clone, Default)]
struct Memory {
    known: Rc<RefCell<BTreeSet<String>>>,
    unprepared: Rc<Cell<usize>>,
    holds: Rc<Cell<bool>>,
}

impl Memory {
    fn node(&self) -> Node {
        let own = self.clone();
        Node::start(move |message| {
            let id = |text: &str| -> &'static [u8] { Box::leak(text.as_bytes().into()) };
            match message.split_once(' ') {
                Some(("PREPARE", _)) if own.holds.get() => Act::Hold,
                Some(("PREPARE", text)) => {
                    own.known.borrow_mut().insert(text.to_owned());
                    Act::Prepared(id(text))
                }
                Some(("EXECUTE", text)) if !own.known.borrow().contains(text) => {
                    own.unprepared.set(own.unprepared.get() + 1);
                    Act::Unprepared(id(text))
                }
                _ => Act::Void,
            }
        })
    }
}

/// Two nodes, of which the second is down, and a front before them.
struct OneDown {
    memories: [Memory; 2],
    nodes: [Node; 2],
    front: Rc<Front>,
    role: Rc<Role>,
}

impl OneDown {
    async fn start() -> OneDown {
        let memories = [(); 2].map(|()| Memory::default());
        let nodes = memories.each_ref().map(Memory::node);
        let addresses = nodes.each_ref().map(|node| node.address);
        let front = front_of(marked(&addresses, false), 128, Levels::new(lanes::handle())).await;
        let role = log_in(&front).await;
        OneDown { memories, nodes, front, role }
    }

    /// Publishes that the second node is up, or down.
    fn mark(&self, is_up: bool) {
        let addresses = self.nodes.each_ref().map(|node| node.address);
        self.front.shared().topology().publish(marked(&addresses, is_up));
    }

    async fn prepare(&self, text: &str) {
        let prepare = outgoing(&Request::Prepare(Prepare { text, keyspace: None }), false, None);
        self.front.prepare(&self.role, &prepare, text, None, false).await.expect("prepared");
    }

    async fn execute(&self, text: &str) {
        let id = text.as_bytes();
        plan(&self.front, &self.role, id).expect("prepared");
        let execute = outgoing(&Request::Execute(Execute { id, ..Execute::default() }), true, None);
        assert!(is_void(&self.front.send(&self.role, &execute).await.expect("an answer")));
    }

    /// Returns the window of the second node.
    fn window(&self) -> u32 {
        let address = self.nodes[1].address;
        let usage = self.front.shared().usage();
        usage.iter().find(|node| node.address == address).map_or(0, |node| node.window)
    }
}

fn marked(nodes: &[SocketAddr], second_is_up: bool) -> Topology {
    let mut known = Topology::of_addresses(nodes).nodes().to_vec();
    known[1] = ClusterNode { is_up: second_is_up, ..known[1].clone() };
    Topology::new(known, "datacenter1".into(), Arc::default())
}

/// Statements that are prepared at a node that comes up, at most.
const PREPARED_MAX: usize = 1000;

#[test]
fn most_used_statements_are_prepared_at_a_node_that_comes_up() {
    on_lane(|| async {
        let cluster = OneDown::start().await;
        let used: Vec<String> = (0..PREPARED_MAX).map(|n| format!("SELECT used {n}")).collect();
        let rare: Vec<String> = (0..50).map(|n| format!("SELECT rare {n}")).collect();
        for text in rare.iter().chain(&used) {
            cluster.prepare(text).await;
            cluster.execute(text).await;
        }
        cluster.prepare("SELECT never").await;
        for text in &used {
            cluster.execute(text).await;
        }
        let [_, node] = &cluster.nodes;
        assert_eq!(node.count("STARTUP"), 0, "it is down");
        cluster.mark(true);
        let [_, memory] = &cluster.memories;
        node.wait(|_| memory.known.borrow().len() >= PREPARED_MAX).await;
        node.wait(|_| cluster.window() == 128).await;
        assert_eq!(*memory.known.borrow(), used.iter().cloned().collect());
        assert_eq!(node.count("STARTUP"), 1, "all on one connection");
        for text in used.iter().chain(&used) {
            cluster.execute(text).await;
        }
        let served = node.seen.borrow().iter().filter(|seen| seen.starts_with("EXECUTE")).count();
        assert!(served >= PREPARED_MAX / 2, "{served}");
        assert_eq!(memory.unprepared.get(), 0);
    });
}

#[test]
fn statements_are_prepared_32_at_a_time_beside_requests_until_the_node_goes_down() {
    on_lane(|| async {
        let cluster = OneDown::start().await;
        let texts: Vec<String> = (0..100).map(|n| format!("SELECT {n}")).collect();
        for text in &texts {
            cluster.prepare(text).await;
            cluster.execute(text).await;
        }
        let ([_, node], [_, memory]) = (&cluster.nodes, &cluster.memories);
        memory.holds.set(true);
        cluster.mark(true);
        let in_flight = |count: usize| node.wait(move |node| node.held.borrow().len() == count);
        in_flight(32).await;
        // More than the load that the small window of the node allows for at the other one.
        let effective = Rc::new(Effective::of(Levels::new(lanes::handle()).catalog().default_level()));
        let send = |_| spawn_query(&cluster.front, &cluster.role, &effective, "SELECT 1");
        let requests: Vec<_> = (0..100).map(send).collect();
        for request in requests {
            assert!(request.await);
        }
        assert!(node.count("QUERY SELECT 1") > 0, "requests go on");
        lanes::time::sleep(Duration::from_millis(250)).await;
        assert_eq!((node.held.borrow().len(), cluster.window()), (32, 4), "the window waits");
        for _ in 0..32 {
            node.answer_next().await;
        }
        in_flight(32).await;
        cluster.mark(false);
        lanes::time::sleep(Duration::from_millis(250)).await;
        for _ in 0..32 {
            node.answer_next().await;
        }
        lanes::time::sleep(Duration::from_millis(50)).await;
        let prepares = || node.seen.borrow().iter().filter(|seen| seen.starts_with("PREPARE")).count();
        assert_eq!((node.held.borrow().len(), prepares()), (0, 64), "it went down");
        // It comes up again, and forgot them.
        memory.holds.set(false);
        cluster.mark(true);
        node.wait(|_| memory.known.borrow().len() == texts.len()).await;
        node.wait(|_| cluster.window() == 128).await;
    });
}
