//! The tables that drivers read first: `system.local` and `system.peers`.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, VirtualTable};
use schema::CqlType;

use crate::cells::{inet, int, text, uuid};
use crate::core::ServerShared;
use crate::fleet::Ring;
use crate::options::{CQL_VERSION, PARTITIONER};
use crate::sessions::Sessions;
use crate::{
    clients, guardrails, level_usage, memory, nodes, running, system_views, trace_tables, view_status,
};

/// Cassandra version announced to clients. Drivers choose the tables to read by it, and cqlsh then
/// leaves DESCRIBE to the server.
const RELEASE_VERSION: &str = "5.0.0";

/// A column's name, type and value.
type Cell = (&'static str, CqlType, Option<Bytes>);

fn set_of_text() -> CqlType {
    CqlType::Set(Box::new(CqlType::Text))
}

/// Adds the tables to a core's registry.
pub(crate) fn register(sessions: &Rc<Sessions>) {
    let core = &sessions.core;
    let registry = core.engine.registry();
    let cluster = core.front.as_ref().map(|front| front.shared().clone());
    registry.add(local(core.shared.clone(), Rc::downgrade(&core.engine), cluster.clone()));
    for (shape, rows) in [(peers(), Ring::peers as PeerRows), (peers_v2(), Ring::peers_v2)] {
        registry.add(peer_table(shape, rows, core.shared.clone(), cluster.clone()));
    }
    trace_tables::tables(core).into_iter().for_each(|table| registry.add(table));
    registry.add(clients::clients(sessions));
    registry.add_rows(clients::table(sessions));
    registry.add(level_usage::table(core));
    registry.add_rows(memory::table(sessions));
    registry.add(guardrails::table(core));
    registry.add(view_status::table(core));
    if let Some(front) = &core.front {
        registry.add(nodes::table(front));
    }
    system_views::register(sessions);
    running::register(sessions);
}

/// Findings about the data that this server shows as its own.
pub(crate) struct Shown {
    pub(crate) datacenter: Arc<str>,
    pub(crate) release_version: Arc<str>,
    pub(crate) schema_version: Option<uuid::Uuid>,
}

impl Shown {
    fn of_engine(engine: &Weak<dyn Engine>) -> Shown {
        let schema_version = engine.upgrade().map(|engine| engine.schema().version);
        Shown {
            datacenter: engine::DATACENTER.into(),
            release_version: RELEASE_VERSION.into(),
            schema_version,
        }
    }

    /// Drivers choose statements and tables by what the oldest node can do.
    fn of_cluster(cluster: &cluster::Shared) -> Shown {
        let topology = cluster.topology().snapshot();
        let release_version = topology.release_version().cloned();
        let any = || topology.nodes().iter().find_map(|node| node.schema_version);
        Shown {
            datacenter: topology.datacenter().clone(),
            release_version: release_version.unwrap_or_else(|| RELEASE_VERSION.into()),
            schema_version: topology.schema_version().or_else(any),
        }
    }
}

fn local(
    shared: Arc<ServerShared>,
    engine: Weak<dyn Engine>,
    cluster: Option<Arc<cluster::Shared>>,
) -> VirtualTable {
    let row = move || match &cluster {
        Some(cluster) => {
            let shown = Shown::of_cluster(cluster);
            let ring = Ring::new(&shared, cluster.fleet(), &shown, shared.advertised());
            local_row(&shared, &shown, ring.own_tokens())
        }
        None => {
            // One node owns the whole ring, which one token expresses.
            let token = i64::MIN.to_string();
            let tokens = schema::value::encode_list([token.as_bytes()].into_iter());
            local_row(&shared, &Shown::of_engine(&engine), tokens.into())
        }
    };
    let columns: Vec<(&str, CqlType)> = row().into_iter().map(|(name, ty, _)| (name, ty)).collect();
    VirtualTable::new("system", "local", 1, 0, &columns, move || {
        vec![row().into_iter().map(|(_, _, value)| value).collect()]
    })
}

/// Rows of other servers.
type PeerRows = fn(&Ring, &Shown) -> Vec<Vec<Option<Bytes>>>;

fn peer_table(
    (name, key, columns): Shape,
    rows: PeerRows,
    shared: Arc<ServerShared>,
    cluster: Option<Arc<cluster::Shared>>,
) -> VirtualTable {
    VirtualTable::new("system", name, 1, key - 1, &columns, move || {
        let Some(cluster) = &cluster else { return Vec::new() };
        let shown = Shown::of_cluster(cluster);
        rows(&Ring::new(&shared, cluster.fleet(), &shown, shared.advertised()), &shown)
    })
}

fn local_row(shared: &ServerShared, shown: &Shown, tokens: Bytes) -> Vec<Cell> {
    let config = &shared.config;
    let advertised = shared.advertised();
    let (ip, port) = (advertised.ip(), i32::from(advertised.port()));
    let generation = i32::try_from(shared.started_s).unwrap_or(i32::MAX);
    vec![
        ("key", CqlType::Text, text("local")),
        ("bootstrapped", CqlType::Text, text("COMPLETED")),
        ("broadcast_address", CqlType::Inet, inet(ip)),
        ("broadcast_port", CqlType::Int, int(port)),
        ("cluster_name", CqlType::Text, text(&config.cluster_name)),
        ("cql_version", CqlType::Text, text(CQL_VERSION)),
        ("data_center", CqlType::Text, text(&shown.datacenter)),
        ("gossip_generation", CqlType::Int, int(generation)),
        ("host_id", CqlType::Uuid, uuid(config.host_id)),
        ("listen_address", CqlType::Inet, inet(ip)),
        ("listen_port", CqlType::Int, int(port)),
        ("native_protocol_version", CqlType::Text, text("5")),
        ("partitioner", CqlType::Text, text(PARTITIONER)),
        ("rack", CqlType::Text, text(&config.rack)),
        ("release_version", CqlType::Text, text(&shown.release_version)),
        ("rpc_address", CqlType::Inet, inet(ip)),
        ("rpc_port", CqlType::Int, int(port)),
        ("schema_version", CqlType::Uuid, shown.schema_version.and_then(uuid)),
        ("tokens", set_of_text(), Some(tokens)),
        ("truncated_at", CqlType::Map(Box::new(CqlType::Uuid), Box::new(CqlType::Blob)), None),
    ]
}

/// A table's name, the number of its key columns, and its columns.
type Shape = (&'static str, usize, Vec<(&'static str, CqlType)>);

fn peers() -> Shape {
    use CqlType::{Inet, Text, Uuid};
    let columns = vec![
        ("peer", Inet),
        ("data_center", Text),
        ("host_id", Uuid),
        ("preferred_ip", Inet),
        ("rack", Text),
        ("release_version", Text),
        ("rpc_address", Inet),
        ("schema_version", Uuid),
        ("tokens", set_of_text()),
    ];
    ("peers", 1, columns)
}

fn peers_v2() -> Shape {
    use CqlType::{Inet, Int, Text, Uuid};
    let columns = vec![
        ("peer", Inet),
        ("peer_port", Int),
        ("data_center", Text),
        ("host_id", Uuid),
        ("native_address", Inet),
        ("native_port", Int),
        ("preferred_ip", Inet),
        ("preferred_port", Int),
        ("rack", Text),
        ("release_version", Text),
        ("schema_version", Uuid),
        ("tokens", set_of_text()),
    ];
    ("peers_v2", 2, columns)
}
