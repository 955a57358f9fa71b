//! Scripted nodes with the table `ks.t`, and the engine in front of them.

use std::any::Any;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::BytesMut;
use cluster::{
    Catalog, ClusterEngine, Front, FrontOptions, PublishedTopology, Reader, Ring, SessionRoles, Shared,
    Topology,
};
use engine::scan::{BatchSource, TableScan};
use engine::{
    About, Acks, BatchKind, Engine, Error, Execution, Keyspace, ParsedTree, Plan, Registry, Schema,
    SchemaListener, Value, Viewer,
};
use lanes::net::TcpStream;
use lanes::{Group, Lanes};
use schema::{
    ClusteringOrder, ColumnDef, ColumnKind, CqlType, KeyspaceDef, TableDef, TableOptions, Token, token,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;
use wire::{
    ColumnSpec, Columns, Decoder, Direction, Encoder, Execute, Failure, FailureKind, Framing, Limits,
    Prelude, PreparedHead, Request, RowsHead, Version,
};
use workload::Levels;

/// A page that a node was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) node: usize,
    pub(crate) text: String,
    pub(crate) values: Vec<Vec<u8>>,
    pub(crate) rows: i32,
    /// Rows of the pages before.
    pub(crate) offset: usize,
}

impl Asked {
    /// Returns the range of tokens.
    pub(crate) fn range(&self) -> (Token, Token) {
        let token = |at: usize| Token::from_be_bytes(self.values[at][..].try_into().expect("a bigint"));
        (token(0), token(1))
    }
}

/// Answer of a node to a page.
pub(crate) enum Act {
    Rows,
    Fail(FailureKind),
    /// Closes the connection.
    Close,
    /// Does not know the statement, once.
    Forget,
    /// Returns rows whose column `v` is an `int`.
    Altered,
}

type Script = dyn Fn(&Asked, usize) -> Act + Send + Sync;

/// Nodes on core 0.
#[derive(Clone)]
pub(crate) struct Nodes {
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Number of PREPAREs.
    prepares: Arc<AtomicUsize>,
    /// Keys of the rows. The value of each is `v` and its key.
    keys: Arc<Vec<i64>>,
    script: Arc<Script>,
}

impl Nodes {
    /// Starts nodes with rows of the keys from 0. `script` returns the answer to a page; its second
    /// argument is the number of pages before.
    pub(crate) fn start(
        lanes: &Lanes,
        count: usize,
        rows: i64,
        script: impl Fn(&Asked, usize) -> Act + Send + Sync + 'static,
    ) -> Nodes {
        let mut keys: Vec<i64> = (0..rows).collect();
        keys.sort_unstable_by_key(|key| token_of(*key));
        let nodes = Nodes {
            addresses: Arc::default(),
            asked: Arc::default(),
            prepares: Arc::default(),
            keys: Arc::new(keys),
            script: Arc::new(script),
        };
        let own = nodes.clone();
        lanes.block_on(0, Group::CONTROL, move || async move {
            for node in 0..count {
                let listener = lanes::net::listen(([127, 0, 0, 1], 0).into(), false).expect("a free port");
                own.addresses.lock().expect("no panic").push(listener.local_addr().expect("bound"));
                let own = own.clone();
                let accept = async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        let own = own.clone();
                        lanes::spawn(Group::CONTROL, async move { own.serve(stream, node).await }).detach();
                    }
                };
                lanes::spawn(Group::CONTROL, accept).detach();
            }
        });
        nodes
    }

    pub(crate) fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().expect("no panic")
    }

    pub(crate) fn prepares(&self) -> usize {
        self.prepares.load(Relaxed)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().expect("no panic").clone()
    }

    async fn serve(self, mut stream: TcpStream, node: usize) {
        let mut decoder = Decoder::new(Direction::Request, Limits::default());
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        let mut input = BytesMut::new();
        let mut prepared = HashSet::new();
        loop {
            while let Some(envelope) = decoder.decode(&mut input).expect("a well-formed frame") {
                let (stream, none) = (envelope.stream, Prelude::default());
                match envelope.request().expect("a well-formed body") {
                    Request::Startup(_) => {
                        encoder.ready(stream);
                        let framing =
                            Framing::after_startup(envelope.version, wire::Compression::None).expect("none");
                        encoder.set_framing(framing);
                        decoder.set_framing(framing);
                    }
                    Request::Options => encoder.supported::<&str>(stream, &[]).expect("short"),
                    Request::Prepare(prepare) => {
                        self.prepares.fetch_add(1, Relaxed);
                        prepared.insert(prepare.text.to_owned());
                        let head = PreparedHead {
                            id: prepare.text.as_bytes(),
                            result_metadata_id: b"r",
                            bind: &markers(prepare.text),
                            partition_key_indexes: &[],
                            result: &columns(prepare.text, false),
                        };
                        encoder.prepared(stream, &head, &none).expect("short");
                    }
                    Request::Execute(execute) => {
                        if !self.execute(&execute, node, stream, &mut encoder, &mut prepared) {
                            return;
                        }
                    }
                    other => panic!("not expected: {other:?}"),
                }
            }
            stream.write_all(encoder.finish()).await.expect("the front reads");
            encoder.finish().clear();
            if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    /// Answers a page. Returns false to close the connection.
    fn execute(
        &self,
        execute: &Execute<'_>,
        node: usize,
        stream: i16,
        encoder: &mut Encoder,
        prepared: &mut HashSet<String>,
    ) -> bool {
        let none = Prelude::default();
        let text = std::str::from_utf8(execute.id).expect("a text").to_owned();
        let fail = |encoder: &mut Encoder, kind| {
            encoder.error(stream, &Failure::new(kind, "scripted"), &none).expect("short");
            true
        };
        if !prepared.contains(&text) {
            return fail(encoder, FailureKind::Unprepared(execute.id.to_vec()));
        }
        let params = &execute.params;
        assert_eq!(params.consistency, wire::Consistency::LocalOne);
        let value = |value| match value {
            wire::Value::Bytes(bytes) => bytes.to_vec(),
            other => panic!("not expected: {other:?}"),
        };
        let offset = params
            .paging_state
            .map_or(0, |state| u64::from_be_bytes(state.try_into().expect("its own state")) as usize);
        let asked = Asked {
            node,
            text: text.clone(),
            values: params.values.iter().map(value).collect(),
            rows: params.page_size.expect("pages"),
            offset,
        };
        let before = self.asked().len();
        self.asked().push(asked.clone());
        let is_altered = match (self.script)(&asked, before) {
            Act::Rows => false,
            Act::Altered => true,
            Act::Fail(kind) => return fail(encoder, kind),
            Act::Close => return false,
            Act::Forget => {
                prepared.remove(&text);
                return fail(encoder, FailureKind::Unprepared(execute.id.to_vec()));
            }
        };
        let found = self.found(&asked);
        let end = found.len().min(offset + asked.rows as usize);
        let state = (end as u64).to_be_bytes();
        let paging_state = (end < found.len()).then_some(&state[..]);
        let columns = columns(&text, is_altered);
        let head = RowsHead { paging_state, ..RowsHead::default() };
        let mut rows = encoder.rows(stream, &head, &columns, &none);
        for key in &found[offset..end] {
            for name in selected(&text) {
                match name {
                    "k" => rows.cell(Some(&key.to_be_bytes())),
                    "c" => rows.cell(Some(&0_i32.to_be_bytes())),
                    _ if is_altered => rows.cell(Some(&[0; 4])),
                    _ => rows.cell(Some(format!("v{key}").as_bytes())),
                }
            }
        }
        rows.end().expect("short");
        true
    }

    fn found(&self, asked: &Asked) -> Vec<i64> {
        if asked.text.contains("token(") {
            let (after, to) = asked.range();
            return self
                .keys
                .iter()
                .copied()
                .filter(|key| (after + 1..=to).contains(&token_of(*key)))
                .collect();
        }
        let wanted = i64::from_be_bytes(asked.values[0][..].try_into().expect("a bigint"));
        self.keys.iter().copied().filter(|key| *key == wanted).collect()
    }

    /// Opens the engine of this core, with a session. Node n has the data of ring token n, and the
    /// next node has a copy.
    pub(crate) async fn engine(&self, ring: &[Token]) -> Session {
        let addresses = self.addresses();
        let (tokens, count) = (ring.to_vec(), addresses.len());
        let mut ring = Ring::new(ring.to_vec());
        let placement = ring.add_placement(|token, nodes| {
            let at = tokens.iter().position(|own| *own == token).expect("its own");
            nodes.extend([(at % count) as u16, ((at + 1) % count) as u16]);
        });
        ring.add_keyspace("ks", placement.expect("few"));
        let nodes = Topology::of_addresses(&addresses).nodes().to_vec();
        let topology = Topology::new(nodes, "datacenter1".into(), Arc::new(ring));
        let topology = topology.with_catalog(Arc::new(Catalog::new(schema())));
        let options =
            FrontOptions { node_window: Some(128), account: None, refresh: None, fleet: None, tls: None };
        let topology = Arc::new(PublishedTopology::new(topology));
        let shared =
            Shared::open(options, Levels::new(lanes::handle()), topology).await.expect("a node answers");
        let front = Front::new(shared);
        let role = front.log_in(Version::V5, "ann", None, Group::CONTROL).await.expect("no password");
        let roles = SessionRoles::open(role, || None).await;
        let viewer = Arc::new(Ann(Reader { roles, consistency: wire::Consistency::LocalOne }));
        Session { engine: ClusterEngine::new(Rc::new(Local::default()), front), viewer }
    }
}

pub(crate) fn token_of(key: i64) -> Token {
    token::token(&key.to_be_bytes())
}

/// Returns the selected columns of a text.
fn selected(text: &str) -> Vec<&str> {
    let list = text.strip_prefix("SELECT ").and_then(|rest| rest.split_once(" FROM ")).expect("a SELECT").0;
    list.split(", ").map(|name| name.trim_matches('"')).collect()
}

fn columns(text: &str, is_altered: bool) -> Columns {
    let spec = |name: &'static str, ty: &'static CqlType| ColumnSpec::new("ks", "t", name, ty);
    let specs: Vec<ColumnSpec<'_>> = selected(text)
        .into_iter()
        .map(|name| match name {
            "k" => spec("k", &CqlType::BigInt),
            "c" => spec("c", &CqlType::Int),
            _ if is_altered => spec("v", &CqlType::Int),
            _ => spec("v", &CqlType::Text),
        })
        .collect();
    Columns::encode(Version::V5, &specs).expect("short")
}

/// Returns the markers of a text: tokens or the key, then clustering columns.
fn markers(text: &str) -> Columns {
    let bigints = if text.contains("token(") { 2 } else { 1 };
    let marker = |at| {
        let ty: &'static CqlType = if at < bigints { &CqlType::BigInt } else { &CqlType::Int };
        ColumnSpec::new("ks", "t", "m", ty)
    };
    let markers: Vec<ColumnSpec<'_>> = (0..text.matches('?').count()).map(marker).collect();
    Columns::encode(Version::V5, &markers).expect("short")
}

fn schema() -> Schema {
    let column = |id, name: &str, ty, kind| ColumnDef { id, name: name.into(), ty, kind };
    let def = TableDef {
        id: Uuid::from_u128(1),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: vec![
            column(0, "k", CqlType::BigInt, ColumnKind::PartitionKey(0)),
            column(1, "c", CqlType::Int, ColumnKind::Clustering(0, ClusteringOrder::Asc)),
            column(2, "v", CqlType::Text, ColumnKind::Regular),
        ],
        next_column_id: 3,
        options: TableOptions::default(),
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
    };
    let keyspace = KeyspaceDef { name: "ks".into(), replication: Default::default(), durable_writes: true };
    let tables = [("t".to_owned(), Arc::new(def))].into();
    let keyspace = Keyspace { def: keyspace, tables, types: Default::default() };
    Schema { version: Uuid::from_u128(7), keyspaces: [("ks".to_owned(), Arc::new(keyspace))].into() }
}

/// An engine, and the viewer of a session that has logged in at the nodes.
pub(crate) struct Session {
    pub(crate) engine: Rc<dyn Engine>,
    pub(crate) viewer: Arc<dyn Viewer>,
}

#[derive(Debug)]
struct Ann(Reader);

impl Viewer for Ann {
    fn sees(&self, _about: About<'_>) -> bool {
        true
    }

    fn reader(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0)
    }
}

/// Returns a scan of all columns.
pub(crate) fn whole() -> TableScan {
    TableScan {
        keyspace: "ks".into(),
        table: "t".into(),
        columns: vec![0, 1, 2],
        tokens: Token::MIN..=Token::MAX,
        filters: Vec::new(),
        limit: None,
        batch_rows: 8192,
        scale: 6,
        bypass_cache: false,
        expected: None,
    }
}

/// Starts a scan.
pub(crate) fn start(session: &Session, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
    session.engine.table_snapshot_for("ks", "t", Some(&session.viewer))?.scan(scan)
}

/// Returns the keys of a scan on this core, sorted, after a check of their values.
pub(crate) async fn keys(session: &Session, scan: &TableScan) -> Result<Vec<i64>, Error> {
    use arrow_array::cast::AsArray;
    let mut source = start(session, scan)?;
    let read = async move {
        let mut keys = Vec::new();
        while let Some(batch) = source.next().await? {
            assert!(batch.num_rows() > 0);
            let (own, values) =
                (batch.column(0).as_primitive::<arrow_array::types::Int64Type>(), batch.column(2));
            for (key, value) in own.values().iter().zip(values.as_string::<i32>().iter()) {
                assert_eq!(value, Some(&*format!("v{key}")));
                keys.push(*key);
            }
        }
        assert_eq!(source.progress(), 1.0);
        keys.sort_unstable();
        Ok(keys)
    };
    lanes::heavy(Group::CONTROL, read).await
}

/// An engine without tables.
#[derive(Default)]
struct Local(Registry);

impl Engine for Local {
    fn prepare(&self, _: Arc<ParsedTree>, _: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        unreachable!("scans only")
    }

    fn on_schema_change(&self, _: SchemaListener) {}

    fn execute(&self, _: &Rc<dyn Plan>, _: &engine::Request<'_>) -> Execution {
        unreachable!("scans only")
    }

    fn execute_batch(
        &self,
        _: BatchKind,
        _: &[(Rc<dyn Plan>, &[Value<'_>])],
        _: &engine::Request<'_>,
    ) -> Execution {
        unreachable!("scans only")
    }

    fn acks(&self) -> Box<dyn Acks> {
        unreachable!("scans only")
    }

    fn schema(&self) -> Arc<Schema> {
        thread_local!(static EMPTY: Arc<Schema> = Arc::default());
        EMPTY.with(Arc::clone)
    }

    fn registry(&self) -> &Registry {
        &self.0
    }
}
