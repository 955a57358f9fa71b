//! Nodes of the cluster and replicas of each token, as one immutable value. The control thread
//! publishes a new one after a change, and every core reads it without a lock.
//!
//! ```text
//!  tokens      -9…    -3…     4…     8…        the ring, in order
//!  placement   0 1 2  1 2 0   2 0 1  0 2 1     nodes, of one replication for all its keyspaces
//! ```
//!
//! Replicas are computed when the ring changes, so that a request costs one search of its keyspace
//! and one of its token. Replication belongs to a keyspace. Tables with tablets (ScyllaDB) and
//! keyspaces of another strategy have no replicas here: any node coordinates their requests.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use arc_swap::ArcSwap;
use rustc_hash::FxHashMap;
use schema::Token;
use uuid::Uuid;
use workload::{Alternative, Tag};

use crate::catalog::{Catalog, TableSizes};

/// Nodes of a topology, at most: an index has 16 bits. More are not used.
pub(crate) const NODES_MAX: usize = u16::MAX as usize;

/// Names of datacenters, racks or nodes in a message, at most.
const KNOWN_SHOWN_MAX: usize = 32;

/// Replicas in all placements of a ring, at most: 16 MiB. 1,000 nodes of 16 tokens with ten
/// replications of six replicas need 2 MiB. Keyspaces beyond have no replicas here.
const REPLICAS_MAX: usize = 8 << 20;

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterNode {
    /// Its id, the same after a change of the address.
    pub host_id: Uuid,
    /// Address at which it serves clients.
    pub address: SocketAddr,
    /// Its datacenter.
    pub datacenter: Arc<str>,
    /// Its rack.
    pub rack: Arc<str>,
    /// Version of its software. `None`: not known.
    pub release_version: Option<Arc<str>>,
    /// Version of the schema that it has reported. `None`: not known.
    pub schema_version: Option<Uuid>,
    /// True if the control thread has a connection to it.
    pub is_up: bool,
}

impl ClusterNode {
    /// Returns true for a node of an alternative of a tag.
    pub(crate) fn is_in(&self, nodes: &Alternative) -> bool {
        match nodes {
            Alternative::Datacenter(name) => *self.datacenter == **name,
            Alternative::Rack { datacenter, rack } => {
                *self.datacenter == **datacenter && *self.rack == **rack
            }
            Alternative::Nodes(addresses) => addresses.contains(&self.address.ip()),
        }
    }
}

/// Nodes of the cluster at one time.
#[derive(Clone, Debug)]
pub struct Topology {
    nodes: Vec<ClusterNode>,
    /// For each node, true if it is in the front's own datacenter.
    is_local: Vec<bool>,
    datacenter: Arc<str>,
    pub(crate) ring: Arc<Ring>,
    catalog: Arc<Catalog>,
    sizes: Arc<TableSizes>,
    version: u64,
}

impl Topology {
    /// Creates a topology. `ring` refers to nodes by their position. If no node is in `datacenter`,
    /// all nodes count as local.
    #[must_use]
    pub fn new(mut nodes: Vec<ClusterNode>, datacenter: Arc<str>, ring: Arc<Ring>) -> Topology {
        nodes.truncate(NODES_MAX);
        let none_matches = nodes.iter().all(|node| node.datacenter != datacenter);
        let is_local = nodes.iter().map(|node| none_matches || node.datacenter == datacenter).collect();
        let (catalog, sizes) = (Arc::default(), Arc::default());
        Topology { nodes, is_local, datacenter, ring, catalog, sizes, version: 0 }
    }

    /// Returns the topology with the tables of the cluster.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<Catalog>) -> Topology {
        Topology { catalog, ..self }
    }

    /// Returns the tables of the cluster. Empty: they were not read yet.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns the topology with the sizes of tables.
    #[must_use]
    pub(crate) fn with_sizes(self, sizes: Arc<TableSizes>) -> Topology {
        Topology { sizes, ..self }
    }

    /// Returns the estimated sizes of tables. Empty: not known.
    #[must_use]
    pub fn sizes(&self) -> &Arc<TableSizes> {
        &self.sizes
    }

    /// Creates a topology of live nodes of which only the addresses are known.
    #[must_use]
    pub fn of_addresses(addresses: &[SocketAddr]) -> Topology {
        let node = |(number, address): (u128, &SocketAddr)| ClusterNode {
            host_id: Uuid::from_u128(number),
            address: *address,
            datacenter: "datacenter1".into(),
            rack: "rack1".into(),
            release_version: None,
            schema_version: None,
            is_up: true,
        };
        Topology::new((0..).zip(addresses).map(node).collect(), "datacenter1".into(), Arc::default())
    }

    /// Returns the nodes, by host id. Their positions are the indexes of this topology.
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// Returns true if a node is in the front's own datacenter, or if no node is.
    #[must_use]
    pub fn is_local(&self, node: usize) -> bool {
        self.is_local[node]
    }

    /// Returns the front's own datacenter.
    #[must_use]
    pub fn datacenter(&self) -> &Arc<str> {
        &self.datacenter
    }

    /// Returns the index of the node with an address, if there is one.
    #[must_use]
    pub fn node_at(&self, address: SocketAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.address == address)
    }

    /// Returns the nodes with the data of a token, live or not, in the order of the ring. Empty:
    /// not known.
    #[must_use]
    pub fn replicas(&self, keyspace: &str, token: Token) -> &[u16] {
        self.ring.replicas(keyspace, token)
    }

    /// Returns the names of the keyspaces with replicas, in no order.
    pub fn keyspaces(&self) -> impl Iterator<Item = &str> {
        self.ring.keyspaces.keys().map(|name| &**name)
    }

    /// Returns true if a keyspace may have replicas in a datacenter. Judged by one token: with
    /// SimpleStrategy others may differ.
    #[must_use]
    pub fn may_hold(&self, keyspace: &str, datacenter: &str) -> bool {
        let replicas = self.replicas(keyspace, 0);
        let is_there = |node: &u16| *self.nodes[usize::from(*node)].datacenter == *datacenter;
        replicas.is_empty() || replicas.iter().any(is_there)
    }

    /// Checks that there are nodes for each alternative of a tag, live or not.
    ///
    /// # Errors
    /// One sentence with the names that are known.
    pub fn check_tag(&self, tag: &Tag) -> Result<(), String> {
        tag.alternatives().iter().try_for_each(|alternative| self.check_alternative(alternative))
    }

    fn check_alternative(&self, alternative: &Alternative) -> Result<(), String> {
        let (unknown, known) = match alternative {
            Alternative::Nodes(addresses) => {
                let is_known = |ip: &&IpAddr| self.nodes.iter().any(|node| node.address.ip() == **ip);
                let Some(unknown) = addresses.iter().find(|ip| !is_known(ip)) else { return Ok(()) };
                let known = self.nodes.iter().map(|node| format!("nodes:{}", node.address.ip()));
                (format!("nodes:{unknown}"), known.collect())
            }
            other if self.nodes.iter().any(|node| node.is_in(other)) => return Ok(()),
            Alternative::Datacenter(name) => {
                let known = self.nodes.iter().map(|node| format!("dc:{}", node.datacenter));
                (format!("dc:{name}"), known.collect())
            }
            Alternative::Rack { datacenter, rack } => {
                let known = self.nodes.iter().map(|node| format!("rack:{}/{}", node.datacenter, node.rack));
                (format!("rack:{datacenter}/{rack}"), known.collect())
            }
        };
        let mut known: Vec<String> = known;
        known.sort_unstable();
        known.dedup();
        let more = if known.len() > KNOWN_SHOWN_MAX { ", ..." } else { "" };
        known.truncate(KNOWN_SHOWN_MAX);
        let known = known.join(", ");
        Err(format!("'tag': the cluster has no '{unknown}': expected one of {known}{more}"))
    }

    /// Returns the version of the schema on which all live nodes agree. `None`: they do not agree
    /// now, or none is live.
    #[must_use]
    pub fn schema_version(&self) -> Option<Uuid> {
        let mut versions = self.nodes.iter().filter(|node| node.is_up).map(|node| node.schema_version);
        let first = versions.next()??;
        versions.all(|version| version == Some(first)).then_some(first)
    }

    /// Returns the lowest version of the nodes' software. `None`: no node has reported one.
    #[must_use]
    pub fn release_version(&self) -> Option<&Arc<str>> {
        let versions = self.nodes.iter().filter_map(|node| node.release_version.as_ref());
        versions.min_by(|one, other| by_release(one, other))
    }

    /// Returns the number of this topology: each published one has the next.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns true if both have equal nodes, the same ring, and the same catalog and sizes.
    pub(crate) fn is_same(&self, other: &Topology) -> bool {
        self.nodes == other.nodes
            && self.datacenter == other.datacenter
            && Arc::ptr_eq(&self.ring, &other.ring)
            && Arc::ptr_eq(&self.catalog, &other.catalog)
            && Arc::ptr_eq(&self.sizes, &other.sizes)
    }
}

/// Compares versions such as `4.1.10` and `5.0-beta1` by their numbers.
fn by_release(one: &str, other: &str) -> Ordering {
    let number = |part: &str| part.parse::<u64>().unwrap_or(0);
    let numbers = |text: &str| text.split(|c: char| !c.is_ascii_digit()).map(number).collect::<Vec<u64>>();
    numbers(one).cmp(&numbers(other))
}

/// Tokens of the cluster, and the replicas of each.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Ring {
    /// Ascending.
    tokens: Vec<Token>,
    placements: Vec<Placement>,
    /// Placement of each keyspace.
    keyspaces: FxHashMap<Box<str>, usize>,
    /// Replicas in all placements.
    replicas: usize,
}

/// Replicas under one replication.
#[derive(PartialEq, Eq, Debug, Default)]
struct Placement {
    /// End of the replicas of each token, in `nodes`.
    ends: Vec<u32>,
    nodes: Vec<u16>,
}

impl Ring {
    /// Creates a ring without keyspaces.
    #[must_use]
    pub fn new(mut tokens: Vec<Token>) -> Ring {
        tokens.sort_unstable();
        tokens.dedup();
        Ring { tokens, ..Ring::default() }
    }

    /// Adds a replication: `replicas` appends the nodes of a token to a list, in the order of the
    /// ring. Returns its number for [`Ring::add_keyspace`]. `None`: the replicas of all would be
    /// more than 8 Mi.
    pub fn add_placement(&mut self, mut replicas: impl FnMut(Token, &mut Vec<u16>)) -> Option<usize> {
        let mut placement = Placement::default();
        for &token in &self.tokens {
            replicas(token, &mut placement.nodes);
            if self.replicas + placement.nodes.len() > REPLICAS_MAX {
                return None;
            }
            placement.ends.push(u32::try_from(placement.nodes.len()).expect("fewer than 2^32"));
        }
        self.replicas += placement.nodes.len();
        self.placements.push(placement);
        Some(self.placements.len() - 1)
    }

    /// Adds a keyspace with a replication of this ring.
    pub fn add_keyspace(&mut self, name: &str, placement: usize) {
        assert!(placement < self.placements.len(), "a number of this ring");
        self.keyspaces.insert(name.into(), placement);
    }

    /// Returns the tokens, ascending.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    fn replicas(&self, keyspace: &str, token: Token) -> &[u16] {
        let Some(&placement) = self.keyspaces.get(keyspace) else { return &[] };
        if self.tokens.is_empty() {
            return &[];
        }
        // A node has the tokens up to its own. Behind the last one the ring begins anew.
        let at = self.tokens.partition_point(|end| *end < token) % self.tokens.len();
        let Placement { ends, nodes } = &self.placements[placement];
        let start = if at == 0 { 0 } else { ends[at - 1] };
        &nodes[start as usize..ends[at] as usize]
    }
}

/// The current topology, for all cores.
#[derive(Debug)]
pub struct PublishedTopology {
    current: ArcSwap<Topology>,
    version: AtomicU64,
}

impl PublishedTopology {
    /// Publishes the first topology.
    #[must_use]
    pub fn new(mut first: Topology) -> PublishedTopology {
        first.version = 1;
        PublishedTopology { current: ArcSwap::from_pointee(first), version: AtomicU64::new(1) }
    }

    /// Returns the number of the current topology. Costs one atomic load.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Returns the current topology.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Topology> {
        self.current.load_full()
    }

    /// Replaces the topology. One thread publishes.
    pub fn publish(&self, mut topology: Topology) {
        topology.version = self.version() + 1;
        let version = topology.version;
        self.current.store(Arc::new(topology));
        self.version.store(version, Release);
    }
}

/// The topology as one core has last seen it: its own copy, so that requests write to no memory
/// that cores share.
#[derive(Debug)]
pub(crate) struct CoreTopology {
    published: Arc<PublishedTopology>,
    seen: RefCell<Rc<Topology>>,
}

impl CoreTopology {
    /// Creates the view of this core.
    #[must_use]
    pub(crate) fn new(published: Arc<PublishedTopology>) -> CoreTopology {
        let seen = RefCell::new(Rc::new(Topology::clone(&published.snapshot())));
        CoreTopology { published, seen }
    }

    /// Returns the current topology. The handle stays valid, and may then be old.
    pub(crate) fn current(&self) -> Rc<Topology> {
        let mut seen = self.seen.borrow_mut();
        if seen.version() != self.published.version() {
            *seen = Rc::new(Topology::clone(&self.published.snapshot()));
        }
        seen.clone()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a live node. `number` is its place in the order, and in its address.
    pub(crate) fn node(number: u8, datacenter: &str, rack: &str) -> ClusterNode {
        ClusterNode {
            host_id: Uuid::from_u128(number.into()),
            address: ([10, 0, 0, number], 9042).into(),
            datacenter: datacenter.into(),
            rack: rack.into(),
            release_version: None,
            schema_version: Some(Uuid::from_u128(1)),
            is_up: true,
        }
    }

    fn topology(nodes: Vec<ClusterNode>) -> Topology {
        Topology::new(nodes, "a".into(), Arc::default())
    }

    #[test]
    fn replicas_are_those_of_the_next_token_of_the_ring() {
        let mut ring = Ring::new(vec![20, -10, 0, 20]);
        let all = ring.add_placement(|token, nodes| nodes.extend([(token / 10 + 1) as u16, 9]));
        ring.add_keyspace("ks", all.expect("few"));
        // Node 0 at -10, 1 at 0, 3 at 20, each with node 9.
        let check = |token, expected: &[u16]| assert_eq!(ring.replicas("ks", token), expected, "{token}");
        check(Token::MIN, &[0, 9]);
        check(-10, &[0, 9]);
        check(-9, &[1, 9]);
        check(0, &[1, 9]);
        check(1, &[3, 9]);
        check(20, &[3, 9]);
        check(21, &[0, 9]);
        assert!(ring.replicas("other", 0).is_empty());
        assert!(Ring::default().replicas("ks", 0).is_empty());
    }

    #[test]
    fn unknown_names_of_a_tag_are_refused_with_the_known_ones() {
        let topology = topology(vec![node(1, "a", "r2"), node(2, "a", "r1"), node(3, "b", "r1")]);
        let check = |tag: &str, expected: Option<&str>| {
            let judged = topology.check_tag(&Tag::parse(tag).expect("valid"));
            let expected = expected.map(|text| format!("'tag': the cluster has no {text}"));
            assert_eq!(judged.err(), expected, "{tag}");
        };
        check("dc:b > rack:a/r2 > nodes:10.0.0.1,10.0.0.3", None);
        check("dc:b > dc:c", Some("'dc:c': expected one of dc:a, dc:b"));
        check("rack:b/r2", Some("'rack:b/r2': expected one of rack:a/r1, rack:a/r2, rack:b/r1"));
        let known = "nodes:10.0.0.1, nodes:10.0.0.2, nodes:10.0.0.3";
        check("nodes:10.0.0.1,10.0.0.9", Some(&format!("'nodes:10.0.0.9': expected one of {known}")));
    }

    #[test]
    fn keyspace_may_hold_what_its_replicas_show() {
        let mut ring = Ring::new(vec![0, 10]);
        let there = ring.add_placement(|_, nodes| nodes.push(1)).expect("few");
        ring.add_keyspace("ks", there);
        let nodes = vec![node(1, "a", "r"), node(2, "b", "r")];
        let topology = Topology::new(nodes, "a".into(), Arc::new(ring));
        let held = [("ks", "a"), ("ks", "b"), ("unknown", "a")];
        assert_eq!(held.map(|(keyspace, dc)| topology.may_hold(keyspace, dc)), [false, true, true]);
    }

    #[test]
    fn placements_are_bounded() {
        let mut ring = Ring::new(vec![1, 2]);
        let long = vec![0; REPLICAS_MAX / 2];
        assert_eq!(ring.add_placement(|_, nodes| nodes.extend_from_slice(&long)), Some(0));
        assert_eq!(ring.add_placement(|_, nodes| nodes.push(0)), None);
        let none = ring.add_placement(|_, _| {}).expect("nothing more");
        ring.add_keyspace("ks", none);
        assert!(ring.replicas("ks", 1).is_empty());
    }

    #[test]
    fn versions_are_the_agreed_and_the_lowest() {
        let mut nodes = vec![node(1, "a", "r"), node(2, "a", "r"), node(3, "b", "r")];
        for (node, release) in nodes.iter_mut().zip(["5.0.9", "4.1.10", "4.1.9-SNAPSHOT"]) {
            node.release_version = Some(release.into());
        }
        assert_eq!(topology(nodes.clone()).release_version().map(|text| &**text), Some("4.1.9-SNAPSHOT"));
        assert_eq!(topology(nodes.clone()).schema_version(), Some(Uuid::from_u128(1)));
        nodes[1].schema_version = Some(Uuid::from_u128(2));
        assert_eq!(topology(nodes.clone()).schema_version(), None);
        nodes[1].is_up = false;
        assert_eq!(topology(nodes.clone()).schema_version(), Some(Uuid::from_u128(1)), "it is down");
        nodes[0].schema_version = None;
        assert_eq!(topology(nodes).schema_version(), None);
    }

    #[test]
    fn all_nodes_are_local_if_none_is_in_the_datacenter() {
        let check = |datacenter: &str, expected: [bool; 2]| {
            let nodes = vec![node(1, "a", "r"), node(2, "b", "r")];
            let topology = Topology::new(nodes, datacenter.into(), Arc::default());
            assert_eq!([0, 1].map(|node| topology.is_local(node)), expected, "{datacenter}");
        };
        check("a", [true, false]);
        check("b", [false, true]);
        check("c", [true, true]);
    }

    #[test]
    fn core_sees_a_published_topology_and_keeps_handles_of_the_old_one() {
        let published = Arc::new(PublishedTopology::new(topology(vec![node(1, "a", "r")])));
        let core = CoreTopology::new(published.clone());
        let old = core.current();
        assert!(Rc::ptr_eq(&old, &core.current()), "nothing was published");
        published.publish(topology(vec![node(1, "a", "r"), node(2, "a", "r")]));
        let new = core.current();
        assert_eq!((old.nodes().len(), new.nodes().len()), (1, 2));
        assert_eq!((old.version(), new.version(), published.version()), (1, 2, 2));
    }
}
