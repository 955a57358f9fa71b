//! A scripted cluster: nodes that answer the questions of drivers for nodes and keyspaces, and send
//! events. Its state may be changed while it runs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use frontdoor::{ClientCertificates, Stream, Tls};
use lanes::net::{TcpListener, TcpStream};
use lanes::{Group, Lanes};
use schema::CqlType;
use schema::value::{encode_list, encode_map};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{
    ColumnSpec, Columns, Decoder, Direction, Encoder, Envelope, Event, Failure, FailureKind, Framing, Limits,
    Prelude, PreparedHead, Request, RowsHead, Version,
};

/// Interval at which a node looks for changes of the script.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A node, as the system tables show it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) id: u128,
    pub(crate) datacenter: &'static str,
    pub(crate) rack: &'static str,
    pub(crate) tokens: Vec<i64>,
    pub(crate) release: &'static str,
    pub(crate) schema: u128,
}

/// State of the cluster.
pub(crate) struct Script {
    pub(crate) members: Vec<Member>,
    /// Certificate of all nodes. `None`: plain text.
    pub(crate) tls: Option<Tls>,
    /// Name, and options of the replication.
    pub(crate) keyspaces: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
    /// Columns of tables: keyspace, table, name, kind, position, order, type.
    pub(crate) columns: Vec<[&'static str; 7]>,
    /// User types of the keyspace `both`: name, and names and types of fields.
    pub(crate) types: Vec<(&'static str, Vec<(&'static str, &'static str)>)>,
    /// Estimated sizes: node, keyspace and table, range of tokens, mean size and number of
    /// partitions.
    pub(crate) sizes: Vec<(u128, [&'static str; 4], [i64; 2])>,
    /// User and password. `None`: no authentication.
    pub(crate) login: Option<(&'static str, &'static str)>,
    /// Table that no role may read.
    pub(crate) forbidden: Option<&'static str>,
    /// False: there is no `peers_v2`, and no port in `local`.
    pub(crate) has_v2: bool,
    /// Nodes that close all connections.
    pub(crate) away: Vec<SocketAddr>,
    /// Events so far. Each registered connection gets those that follow.
    pub(crate) events: Vec<Event>,
    /// Texts that nodes were asked.
    pub(crate) asked: Vec<String>,
    /// Connections that have registered for events, by node.
    pub(crate) registered: Vec<SocketAddr>,
}

/// Nodes on one lane.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Mutex<Script>>);

impl Cluster {
    /// Starts the members at addresses of their own: all on one port, or all on one address.
    pub(crate) fn start(lanes: &Lanes, members: Vec<Member>, one_port: bool) -> Cluster {
        let script = Script {
            members,
            tls: None,
            keyspaces: Vec::new(),
            columns: Vec::new(),
            types: Vec::new(),
            sizes: Vec::new(),
            login: None,
            forbidden: None,
            has_v2: true,
            away: Vec::new(),
            events: Vec::new(),
            asked: Vec::new(),
            registered: Vec::new(),
        };
        let cluster = Cluster(Arc::new(Mutex::new(script)));
        let own = cluster.clone();
        lanes.block_on(0, Group::CONTROL, move || async move { own.listen(one_port) });
        cluster
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no panic")
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.script().members.iter().map(|member| member.address).collect()
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        self.script().asked.iter().filter(|asked| asked.contains(text)).count()
    }

    fn listen(&self, one_port: bool) {
        let count = self.script().members.len();
        // A port that is free at the first address may be taken at the next.
        let listeners = loop {
            let mut listeners: Vec<TcpListener> = Vec::new();
            let mut port = 0;
            for n in 0..count {
                let host = if one_port { n as u8 + 1 } else { 1 };
                let Ok(listener) = lanes::net::listen(([127, 0, 0, host], port).into(), false) else { break };
                port = if one_port { listener.local_addr().expect("bound").port() } else { 0 };
                listeners.push(listener);
            }
            if listeners.len() == count {
                break listeners;
            }
        };
        for (member, listener) in listeners.into_iter().enumerate() {
            let address = listener.local_addr().expect("bound");
            self.script().members[member].address = address;
            let own = self.clone();
            let accept = async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (own, id) = (own.clone(), own.script().members[member].id);
                    lanes::spawn(Group::CONTROL, async move { own.serve(stream, address, id).await })
                        .detach();
                }
            };
            lanes::spawn(Group::CONTROL, accept).detach();
        }
    }

    async fn serve(self, tcp: TcpStream, address: SocketAddr, id: u128) {
        let tls = self.script().tls.clone();
        let mut stream = match tls {
            Some(tls) => match Stream::encrypted(tcp, &tls, ClientCertificates::Asked).await {
                Ok(stream) => stream,
                Err(_) => return,
            },
            None => Stream::Plain(tcp),
        };
        let mut decoder = Decoder::new(Direction::Request, Limits::default());
        let mut encoder: Option<Encoder> = None;
        let mut input = BytesMut::new();
        let mut sent_events = None;
        loop {
            if self.script().away.contains(&address) {
                return;
            }
            while let Some(envelope) = decoder.decode(&mut input).expect("a well-formed frame") {
                let encoder =
                    encoder.get_or_insert_with(|| Encoder::new(Direction::Response, envelope.version));
                if matches!(envelope.request(), Ok(Request::Register(_))) {
                    let mut script = self.script();
                    script.registered.push(address);
                    sent_events = Some(script.events.len());
                }
                self.answer(&envelope, encoder, &mut decoder, id);
            }
            if let (Some(sent), Some(encoder)) = (&mut sent_events, &mut encoder) {
                let script = self.script();
                script.events[*sent..].iter().for_each(|event| encoder.event(event).expect("short"));
                *sent = script.events.len();
            }
            if let Some(encoder) = &mut encoder {
                if stream.write_all(encoder.finish()).await.is_err() {
                    return;
                }
                encoder.finish().clear();
            }
            let read = lanes::time::timeout(LOOK_EVERY, stream.read_buf(&mut input)).await;
            if let Ok(Ok(0) | Err(_)) = read {
                return;
            }
        }
    }

    fn answer(&self, envelope: &Envelope, encoder: &mut Encoder, decoder: &mut Decoder, id: u128) {
        let (stream, none) = (envelope.stream, Prelude::default());
        let login = self.script().login;
        match envelope.request().expect("a well-formed body") {
            Request::Options => {
                encoder.supported(stream, &[("CQL_VERSION", vec!["3.4.5"])]).expect("short");
            }
            Request::Startup(_) => {
                match login {
                    Some(_) => encoder.authenticate(stream, "PasswordAuthenticator").expect("short"),
                    None => encoder.ready(stream),
                }
                let framing =
                    Framing::after_startup(envelope.version, wire::Compression::None).expect("none");
                encoder.set_framing(framing);
                decoder.set_framing(framing);
            }
            Request::AuthResponse(token) => {
                let expected = login.map(|(user, password)| format!("\0{user}\0{password}").into_bytes());
                if token.map(<[u8]>::to_vec) == expected {
                    encoder.auth_success(stream, None).expect("short");
                } else {
                    let failure = Failure::new(FailureKind::Authentication, "wrong password".to_owned());
                    encoder.error(stream, &failure, &none).expect("short");
                }
            }
            Request::Register(_) => encoder.ready(stream),
            Request::Query(query) => self.select(query.text, stream, encoder, id, false),
            Request::Prepare(prepare) => self.select(prepare.text, stream, encoder, id, true),
            // The id of a statement is its text.
            Request::Execute(execute) => {
                let text = std::str::from_utf8(execute.id).expect("a text");
                self.select(text, stream, encoder, id, false);
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    /// Answers a SELECT, or its PREPARE. `id`: of the node that is asked.
    fn select(&self, text: &str, stream: i16, encoder: &mut Encoder, id: u128, prepares: bool) {
        let mut script = self.script();
        script.asked.push(text.to_owned());
        let none = Prelude::default();
        let rest = text.strip_prefix("SELECT ").expect("a SELECT");
        let (columns, rest) = rest.split_once(" FROM ").expect("a table");
        let table = rest.split(' ').next().expect("a table");
        if script.forbidden == Some(table) {
            let failure = Failure::new(FailureKind::Unauthorized, format!("no SELECT on {table}"));
            return encoder.error(stream, &failure, &none).expect("short");
        }
        let names: Vec<&str> = columns.split(", ").collect();
        let types: Option<Vec<CqlType>> = names.iter().map(|name| script.column(table, name)).collect();
        let Some(types) = types else {
            let failure = Failure::new(FailureKind::Invalid, format!("no such columns of {table}"));
            return encoder.error(stream, &failure, &none).expect("short");
        };
        let specs: Vec<ColumnSpec<'_>> =
            names.iter().zip(&types).map(|(name, ty)| ColumnSpec::new("system", "t", name, ty)).collect();
        let columns = Columns::encode(Version::V4, &specs).expect("short");
        if prepares {
            let head = PreparedHead {
                id: text.as_bytes(),
                result_metadata_id: b"r",
                bind: &Columns::default(),
                partition_key_indexes: &[],
                result: &columns,
            };
            return encoder.prepared(stream, &head, &none).expect("short");
        }
        let mut rows = encoder.rows(stream, &RowsHead::default(), &columns, &none);
        for row in script.rows(table, &names, id) {
            row.iter().for_each(|cell| rows.cell(cell.as_deref()));
        }
        rows.end().expect("short");
    }
}

impl Script {
    /// Returns the type of a column. `None`: there is no such table or column.
    fn column(&self, table: &str, name: &str) -> Option<CqlType> {
        let is_newer = table == "system.peers_v2" || name == "rpc_port";
        let is_known = !is_newer || self.has_v2;
        let text_set = || CqlType::Set(Box::new(CqlType::Text));
        let ty = match (table, name) {
            ("system.peers" | "system.local" | "system.peers_v2", name) => match name {
                "host_id" | "schema_version" => CqlType::Uuid,
                "rpc_address" | "native_address" => CqlType::Inet,
                "rpc_port" | "native_port" => CqlType::Int,
                "tokens" => text_set(),
                _ => CqlType::Text,
            },
            ("system.size_estimates", "mean_partition_size" | "partitions_count") => CqlType::BigInt,
            ("system.size_estimates", _) => CqlType::Text,
            ("system_schema.keyspaces", "replication") => {
                CqlType::Map(Box::new(CqlType::Text), Box::new(CqlType::Text))
            }
            ("system_schema.keyspaces", "durable_writes") => CqlType::Boolean,
            ("system_schema.tables" | "system_schema.views", "id") => CqlType::Uuid,
            ("system_schema.columns", "position") => CqlType::Int,
            ("system_schema.types", "field_names" | "field_types") => CqlType::List(Box::new(CqlType::Text)),
            (
                "system_schema.keyspaces"
                | "system_schema.tables"
                | "system_schema.views"
                | "system_schema.types"
                | "system_schema.columns",
                _,
            ) => CqlType::Text,
            _ => return None,
        };
        is_known.then_some(ty)
    }

    fn rows(&self, table: &str, names: &[&str], id: u128) -> Vec<Vec<Option<Vec<u8>>>> {
        let is_asked = |member: &&Member| match table {
            "system.local" => member.id == id,
            "system.peers" | "system.peers_v2" => member.id != id,
            _ => false,
        };
        let members = self.members.iter().filter(is_asked);
        let members = members.map(|member| names.iter().map(|name| Some(cell(member, name))).collect());
        let keyspaces = self.keyspaces.iter().filter(|_| table == "system_schema.keyspaces");
        let keyspaces = keyspaces.map(|(keyspace, options)| {
            let value = |name: &&str| match *name {
                "keyspace_name" => keyspace.as_bytes().to_vec(),
                "replication" => {
                    encode_map(options.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
                }
                "durable_writes" => vec![1],
                other => panic!("not expected: {other}"),
            };
            names.iter().map(|name| Some(value(name))).collect()
        });
        let sizes = self.sizes.iter().filter(|(node, ..)| table == "system.size_estimates" && *node == id);
        // In the order in which the control plane selects them.
        let sizes = sizes.map(|(_, names, numbers)| {
            let names = names.iter().map(|text| Some(text.as_bytes().to_vec()));
            names.chain(numbers.iter().map(|number| Some(number.to_be_bytes().to_vec()))).collect()
        });
        members.chain(keyspaces).chain(sizes).chain(self.definitions(table, names)).collect()
    }

    /// Returns the rows about tables and types.
    fn definitions(&self, table: &str, names: &[&str]) -> Vec<Vec<Option<Vec<u8>>>> {
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let column = |column: &[&'static str; 7]| {
            let cell = |name: &&str| match *name {
                "keyspace_name" => text(column[0]),
                "table_name" => text(column[1]),
                "column_name" => text(column[2]),
                "kind" => text(column[3]),
                "position" => Some(column[4].parse::<i32>().expect("a number").to_be_bytes().to_vec()),
                "clustering_order" => text(column[5]),
                "type" => text(column[6]),
                "id" => Some(vec![column[1].len() as u8; 16]),
                other => panic!("not expected: {other}"),
            };
            names.iter().map(cell).collect()
        };
        match table {
            "system_schema.columns" => self.columns.iter().map(column).collect(),
            "system_schema.tables" => {
                let firsts = self.columns.iter().filter(|column| column[3..5] == ["partition_key", "0"]);
                firsts.map(column).collect()
            }
            "system_schema.types" => {
                let list = |list: Vec<&str>| Some(encode_list(list.iter().map(|text| text.as_bytes())));
                let row = |(name, fields): &(&'static str, Vec<(&'static str, &'static str)>)| {
                    let (names, types) = fields.iter().copied().unzip();
                    vec![text("both"), text(name), list(names), list(types)]
                };
                self.types.iter().map(row).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn cell(member: &Member, name: &str) -> Vec<u8> {
    match name {
        "host_id" => member.id.to_be_bytes().to_vec(),
        "schema_version" => member.schema.to_be_bytes().to_vec(),
        "rpc_address" | "native_address" => match member.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        "rpc_port" | "native_port" => i32::from(member.address.port()).to_be_bytes().to_vec(),
        "data_center" => member.datacenter.as_bytes().to_vec(),
        "rack" => member.rack.as_bytes().to_vec(),
        "release_version" => member.release.as_bytes().to_vec(),
        "cluster_name" => b"scripted".to_vec(),
        "tokens" => {
            let tokens: Vec<String> = member.tokens.iter().map(i64::to_string).collect();
            encode_list(tokens.iter().map(|token| token.as_bytes()))
        }
        other => panic!("not expected: {other}"),
    }
}
