//! The control plane: a thread of its own with a session of the driver, which finds the nodes of
//! the cluster and the replicas of each token, and publishes them to all cores.
//!
//! A check every second, and after [`Refresh::now`]:
//!
//! 1. One node is asked for all nodes (`nodes.rs`): addresses, versions, and the schema version.
//! 2. If nodes or versions changed, the driver reads tokens and keyspaces anew. It also does so on
//!    its own events, and every minute.
//! 3. Then the tables of the cluster are read as well (`schema_tables.rs`). What fails is tried
//!    again at the next check, and the last tables stay.
//! 4. Sizes of tables are read every five minutes, beside the checks (`sizes.rs`).
//! 5. A node is up if the driver has a connection to it. The driver opens one to each node, and
//!    closes it after two seconds of silence and two more without an answer.
//! 6. What differs from the last topology is published.
//!
//! A cluster that is away changes nothing but these marks: nodes and replicas stay as they were.
//!
//! Its CPU time is not charged to a group: 0.5 ms a second before one node (measured in November
//! 2026), and a search of the ring for each token and replication after a change.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use frontdoor::TlsClient;
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::Strategy;
use scylla::cluster::{ClusterState, Node};
use scylla::errors::{NewSessionError, TranslationError};
use scylla::frame::response::result::TableSpec;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use scylla::routing::Token;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::fleet::{CurrentSession, Fleet, FleetOptions, Member};
use crate::nodes::{AskError, SystemTables};
use crate::sizes::SizeReader;
use crate::tls::NodeTls;
use crate::topology::{ClusterNode, PublishedTopology, Ring, Topology};
use crate::{refused, schema_tables};

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Time between a wake-up and its check. The driver gets the same events from nodes, and opens or
/// tests its connections first. A storm of events causes at most 20 checks a second.
const CHECK_AFTER: Duration = Duration::from_millis(50);

/// Silence of a connection after which it is tested, and time limit of that test.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Time limit of a connection, and of each question for tokens and keyspaces.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the driver reads tokens and keyspaces without a reason: a token that was moved
/// changes neither the nodes nor the schema.
const READ_ALL_EVERY: Duration = Duration::from_secs(60);

/// The front's own role at the cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({})", self.user)
    }
}

impl Account {
    /// Returns the token of SASL PLAIN.
    #[must_use]
    pub fn token(&self) -> Bytes {
        format!("\0{}\0{}", self.user, self.password).into()
    }
}

/// Configuration of the control plane.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Nodes to ask first, at least one.
    pub contacts: Vec<SocketAddr>,
    /// The front's own role. `None`: the cluster wants no credentials.
    pub account: Option<Account>,
    /// The front's own datacenter. `None`: that of the first contact.
    pub datacenter: Option<String>,
    /// Encryption to nodes. `None`: plain text.
    pub tls: Option<Arc<NodeTls>>,
}

/// Event of the control plane, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// No node answers, or they refuse. The last topology stays. Reported once, with one sentence.
    Away(String),
    /// A node answers again.
    Back,
    /// The cluster keeps its roles on one node of several: while that one is down, logins fail.
    RolesInOneCopy,
    /// The tables of the fleet cannot be used: levels stay as they are, and cannot be changed.
    /// Reported once, with one sentence.
    FleetAway(String),
    /// The tables of the fleet can be used again.
    FleetBack,
}

/// The control thread. Dropping it stops the thread, and waits for its end.
#[derive(Debug)]
pub struct Control {
    topology: Arc<PublishedTopology>,
    fleet: Option<Arc<Fleet>>,
    refresh: Refresh,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// Handle that asks for a check at once.
#[derive(Clone, Debug)]
pub struct Refresh(Arc<Notify>);

impl Refresh {
    /// Asks for a check, such as after an event of a node. It begins 50 ms later, and calls until
    /// then cause one.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

impl Control {
    /// Starts the thread, and waits for the first topology: not on a lane. `report` is called on
    /// the thread. `fleet`: this front as a member of its fleet. `None`: it stands alone, and its
    /// levels end with it.
    ///
    /// # Errors
    /// One sentence with the remedy: no contact answers, the role is refused or may not read the
    /// system tables, no node is in the datacenter, or the tables of the fleet cannot be opened.
    pub fn start(
        options: ControlOptions,
        fleet: Option<FleetOptions>,
        report: impl FnMut(Notice) + Send + 'static,
    ) -> Result<Control, String> {
        let (stop, refresh) = (Arc::new(Notify::new()), Refresh(Arc::new(Notify::new())));
        let (sender, first) = mpsc::sync_channel(1);
        let (stopped, asked) = (stop.clone(), refresh.clone());
        let body = move || {
            // The driver computes replicas on a thread of this runtime.
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().max_blocking_threads(1).build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(run(options, fleet, &asked, &stopped, &sender, report));
        };
        let thread = spawn(body).map_err(|error| format!("the control thread cannot start: {error}"))?;
        // It sends the first topology or an error. Otherwise it has ended.
        let ended = |_| Err("the control thread has no runtime".to_owned());
        match first.recv().unwrap_or_else(ended) {
            Ok(Started { topology, fleet }) => {
                Ok(Control { topology, fleet, refresh, stop, thread: Some(thread) })
            }
            Err(sentence) => {
                let _ = thread.join();
                Err(sentence)
            }
        }
    }

    /// Returns the topology, which the thread replaces after changes.
    #[must_use]
    pub fn topology(&self) -> &Arc<PublishedTopology> {
        &self.topology
    }

    /// Returns the fleet, unless this front stands alone.
    #[must_use]
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    /// Returns a handle that asks for a check.
    #[must_use]
    pub fn refresh(&self) -> &Refresh {
        &self.refresh
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the log: the front goes on with the last topology.
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the driver needs a multi-purpose runtime, which lanes are not"
)]
fn spawn(body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("control".to_owned()).spawn(body)
}

/// Result of a start.
struct Started {
    topology: Arc<PublishedTopology>,
    fleet: Option<Arc<Fleet>>,
}

/// Body of the thread: sends the first topology or an error, then publishes changes, until it is
/// stopped.
async fn run(
    options: ControlOptions,
    fleet: Option<FleetOptions>,
    refresh: &Refresh,
    stop: &Notify,
    first: &mpsc::SyncSender<Result<Started, String>>,
    report: impl FnMut(Notice),
) {
    let opened = async {
        let (watch, topology) = Watch::open(options).await?;
        let member = match fleet {
            Some(fleet) => Some(watch.join(fleet).await?),
            None => None,
        };
        Ok((watch, topology, member))
    };
    let opened = tokio::select! {
        biased;
        () = stop.notified() => return,
        opened = opened => opened,
    };
    let (watch, published, member) = match opened {
        Ok((watch, topology, member)) => (watch, Arc::new(PublishedTopology::new(topology)), member),
        Err(sentence) => {
            let _ = first.send(Err(sentence));
            return;
        }
    };
    let fleet = member.as_ref().map(|member| member.fleet().clone());
    let _ = first.send(Ok(Started { topology: published.clone(), fleet }));
    let report = RefCell::new(report);
    let notice = |notice| report.borrow_mut()(notice);
    let of_fleet = |done: Result<(), String>| notice(done.err().map_or(Notice::FleetBack, Notice::FleetAway));
    let sizes = watch.sizes.clone();
    let work = async {
        let watching = async { tokio::join!(watch.run(refresh, &published, notice), sizes.run()) };
        match &member {
            Some(member) => {
                tokio::join!(watching, member.run(of_fleet));
            }
            None => {
                watching.await;
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => {}
        () = work => {}
    }
    if let Some(member) = &member {
        member.leave().await;
    }
}

/// Addresses of nodes at which the driver would not look: it takes the first contact's port for
/// that of all nodes.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<HashMap<Uuid, SocketAddr>>>);

impl Addresses {
    /// Stores the addresses. Returns true if the driver has connected to others.
    fn learn(&self, nodes: &[ClusterNode], port: u16) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.clone();
        known.retain(|id, _| nodes.iter().any(|node| node.host_id == *id));
        for node in nodes {
            if node.address.port() != port || known.contains_key(&node.host_id) {
                known.insert(node.host_id, node.address);
            }
        }
        known.iter().any(|(id, address)| before.get(id) != Some(address))
    }
}

#[async_trait::async_trait]
impl AddressTranslator for Addresses {
    async fn translate_address(&self, peer: &UntranslatedPeer) -> Result<SocketAddr, TranslationError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.get(&peer.host_id()).copied().unwrap_or(peer.untranslated_address()))
    }
}

/// State of the thread between checks.
struct Watch {
    options: ControlOptions,
    addresses: Addresses,
    session: CurrentSession,
    /// Encryption of the session's connections.
    tls: Option<Arc<TlsClient>>,
    tables: SystemTables,
    datacenter: Arc<str>,
    /// Nodes as they were last read. Their marks are as old.
    nodes: Vec<ClusterNode>,
    ring: Arc<Ring>,
    /// State of the driver, and nodes, from which `ring` was made.
    ring_of: Option<(Arc<ClusterState>, Vec<Uuid>)>,
    /// True if the driver has to connect anew: it may be connected to another node at an address.
    is_moved: bool,
    /// True if the driver has to read tokens and keyspaces anew.
    is_stale: bool,
    /// True if the tables have to be read anew.
    is_catalog_stale: bool,
    /// Tables of the cluster, and their sizes.
    sizes: Rc<SizeReader>,
}

impl Watch {
    /// Publishes changes of the topology.
    async fn run(mut self, refresh: &Refresh, published: &PublishedTopology, report: impl Fn(Notice)) {
        if self.keeps_roles_in_one_copy() {
            report(Notice::RolesInOneCopy);
        }
        let mut is_away = false;
        loop {
            let _ = tokio::time::timeout(CHECK_EVERY - CHECK_AFTER, refresh.0.notified()).await;
            tokio::time::sleep(CHECK_AFTER).await;
            let checked = match self.check().await {
                Ok(()) => self.read_catalog().await,
                failed => failed,
            };
            if is_away != checked.is_err() {
                is_away = checked.is_err();
                report(checked.err().map_or(Notice::Back, Notice::Away));
            }
            let topology = self.topology();
            if !topology.is_same(&published.snapshot()) {
                published.publish(topology);
            }
        }
    }

    /// Opens the tables of the fleet.
    ///
    /// # Errors
    /// One sentence with the remedy.
    async fn join(&self, fleet: FleetOptions) -> Result<Member, String> {
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        self.nodes.iter().for_each(|node| *nodes.entry(&node.datacenter).or_default() += 1);
        Member::open(fleet, self.session.clone(), self.user(), &nodes, self.datacenter.clone()).await
    }

    /// Connects, and reads the first topology.
    ///
    /// # Errors
    /// Those of [`Control::start`].
    async fn open(options: ControlOptions) -> Result<(Watch, Topology), String> {
        let addresses = Addresses::default();
        let tls = current(&options);
        let session = connect(&options, &addresses, tls.as_deref()).await?;
        let session = CurrentSession::new(RefCell::new(Arc::new(session)));
        let sizes = Rc::new(SizeReader::new(session.clone()));
        let mut watch = Watch {
            options,
            addresses,
            session,
            tls,
            tables: SystemTables::default(),
            datacenter: Arc::default(),
            nodes: Vec::new(),
            ring: Arc::default(),
            ring_of: None,
            is_moved: false,
            is_stale: false,
            is_catalog_stale: true,
            sizes,
        };
        watch.check().await?;
        // Clients of CQL do without.
        let _ = watch.read_catalog().await;
        watch.datacenter = watch.own_datacenter()?;
        let topology = watch.topology();
        Ok((watch, topology))
    }

    /// Reads nodes, tokens and keyspaces, as far as they changed.
    ///
    /// # Errors
    /// One sentence. What could not be read stays as it was.
    async fn check(&mut self) -> Result<(), String> {
        let tls = current(&self.options);
        if tls.as_ref().map(Arc::as_ptr) != self.tls.as_ref().map(Arc::as_ptr) {
            // The files were read again.
            self.reconnect(tls).await?;
        }
        let nodes = self.read_nodes().await?;
        self.is_moved |= self.addresses.learn(&nodes, self.port());
        if self.is_moved {
            // The driver may be connected to another node at that address.
            self.reconnect(self.tls.clone()).await?;
            self.is_moved = false;
        }
        let facts = |nodes: &[ClusterNode]| -> Vec<(Uuid, Option<Uuid>)> {
            nodes.iter().map(|node| (node.host_id, node.schema_version)).collect()
        };
        // At the start the driver has just read everything, or made up nodes because it could not.
        let is_first = self.nodes.is_empty();
        let is_unknown = |node: &ClusterNode| {
            self.session().get_cluster_state().get_node_by_host_id(node.host_id).is_none()
        };
        self.is_stale |=
            if is_first { nodes.iter().any(is_unknown) } else { facts(&nodes) != facts(&self.nodes) };
        self.nodes = nodes;
        if self.is_stale {
            let read = self.session().refresh_metadata().await;
            read.map_err(|error| refused::unread(&error, self.user()))?;
            self.is_stale = false;
            self.is_catalog_stale = true;
        }
        Ok(())
    }

    /// Replaces the session of the service account.
    async fn reconnect(&mut self, tls: Option<Arc<TlsClient>>) -> Result<(), String> {
        let session = connect(&self.options, &self.addresses, tls.as_deref()).await?;
        *self.session.borrow_mut() = Arc::new(session);
        self.tls = tls;
        Ok(())
    }

    /// Reads the tables of the cluster, if the schema has changed.
    ///
    /// # Errors
    /// One sentence. The tables stay as they were.
    async fn read_catalog(&mut self) -> Result<(), String> {
        if !self.is_catalog_stale {
            return Ok(());
        }
        let session = self.session();
        let state = session.get_cluster_state();
        let node = state.get_nodes_info().iter().find(|node| node.is_connected());
        let node = node.ok_or_else(|| "no node of the cluster can be reached".to_owned())?;
        let known = self.nodes.iter().find(|known| known.host_id == node.host_id);
        let version = known.and_then(|known| known.schema_version).unwrap_or_default();
        self.sizes.set_catalog(schema_tables::catalog(&session, node, version).await?);
        self.is_catalog_stale = false;
        Ok(())
    }

    /// Asks the nodes, one after the other, for all nodes.
    async fn read_nodes(&self) -> Result<Vec<ClusterNode>, String> {
        let state = self.session().get_cluster_state();
        let mut reason = "no node of the cluster can be reached".to_owned();
        let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
        for node in nodes.take(ASKED_MAX) {
            match self.tables.nodes(&self.session(), node, self.port()).await {
                Ok(nodes) => return Ok(nodes),
                Err(AskError::Forbidden(text)) => {
                    return Err(refused::forbidden(&text, "system", self.user()));
                }
                Err(AskError::Failed(text)) => reason = text,
            }
        }
        Err(reason)
    }

    fn session(&self) -> Arc<Session> {
        self.session.borrow().clone()
    }

    /// Returns the topology of now.
    fn topology(&mut self) -> Topology {
        let state = self.session().get_cluster_state();
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            let known = state.get_node_by_host_id(node.host_id);
            node.is_up = known.is_some_and(|node| node.is_connected());
        }
        let ids: Vec<Uuid> = nodes.iter().map(|node| node.host_id).collect();
        let is_current =
            self.ring_of.as_ref().is_some_and(|(of, nodes)| Arc::ptr_eq(of, &state) && *nodes == ids);
        if !is_current {
            let ring = ring(&state, &ids);
            if ring != *self.ring {
                self.ring = Arc::new(ring);
            }
            self.ring_of = Some((state, ids));
        }
        Topology::new(nodes, self.datacenter.clone(), self.ring.clone())
            .with_catalog(self.sizes.catalog())
            .with_sizes(self.sizes.sizes())
    }

    /// Returns the datacenter of the options, or that of the first contact.
    fn own_datacenter(&self) -> Result<Arc<str>, String> {
        let mut names: Vec<&str> = self.nodes.iter().map(|node| &*node.datacenter).collect();
        names.sort_unstable();
        names.dedup();
        if let Some(own) = &self.options.datacenter {
            return match names.contains(&&**own) {
                true => Ok(own.as_str().into()),
                false => Err(format!(
                    "expected a datacenter of the cluster ({}), got `{own}` (--datacenter)",
                    names.join(", ")
                )),
            };
        }
        let contact = self.options.contacts[0];
        let first = self.nodes.iter().find(|node| node.address == contact);
        match (first, &names[..]) {
            (Some(node), _) => Ok(node.datacenter.clone()),
            (None, [only]) => Ok((*only).into()),
            (None, _) => Err(format!(
                "the datacenter of {contact} is not known, because no node serves clients at that address: \
                 choose one of {} (--datacenter)",
                names.join(", ")
            )),
        }
    }

    fn keeps_roles_in_one_copy(&self) -> bool {
        let state = self.session().get_cluster_state();
        let strategy = state.get_keyspace("system_auth").map(|keyspace| &keyspace.strategy);
        let copies = match strategy {
            Some(Strategy::SimpleStrategy { replication_factor }) => *replication_factor,
            Some(Strategy::NetworkTopologyStrategy { datacenter_repfactors }) => {
                datacenter_repfactors.values().sum()
            }
            _ => return false,
        };
        copies == 1 && self.nodes.len() > 1
    }

    /// Returns the port of nodes that report none, and that the driver takes for all.
    fn port(&self) -> u16 {
        self.options.contacts[0].port()
    }

    fn user(&self) -> Option<&str> {
        self.options.account.as_ref().map(|account| &*account.user)
    }
}

/// Nodes that one check asks, at most: each may take two seconds to fail.
const ASKED_MAX: usize = 3;

/// Returns the present encryption to nodes.
fn current(options: &ControlOptions) -> Option<Arc<TlsClient>> {
    options.tls.as_ref().map(|tls| tls.current())
}

/// Opens a session of the service account: one connection to each node.
async fn connect(
    options: &ControlOptions,
    addresses: &Addresses,
    tls: Option<&TlsClient>,
) -> Result<Session, String> {
    let mut builder = SessionBuilder::new()
        .known_nodes_addr(&options.contacts)
        .tls_context(tls.cloned().map(TlsClient::into_config))
        .address_translator(Arc::new(addresses.clone()))
        .pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN))
        .disallow_shard_aware_port(true)
        .fetch_full_schema_metadata(false)
        .connection_timeout(DRIVER_TIMEOUT)
        .metadata_request_clientside_timeout(DRIVER_TIMEOUT)
        .cluster_metadata_refresh_interval(READ_ALL_EVERY)
        .periodic_metadata_fetch_mode(scylla::cluster::metadata::PeriodicFetchMode::FullMetadata)
        .keepalive_interval(SILENCE_MAX)
        .keepalive_timeout(SILENCE_MAX)
        .driver_config_reporting(false);
    if let Some(account) = &options.account {
        builder = builder.user(&account.user, &account.password);
    }
    let user = options.account.as_ref().map(|account| &*account.user);
    builder.build().await.map_err(|error: NewSessionError| refused::unopened(&error, user))
}

/// Computes the ring of a state of the driver. `ids`: nodes by index, ascending.
fn ring(state: &ClusterState, ids: &[Uuid]) -> Ring {
    let locator = state.replica_locator();
    let tokens = locator.ring().iter().map(|(token, _)| token.value()).collect();
    let mut ring = Ring::new(tokens);
    // Few replications are different. Equal ones share a placement.
    let mut placed: Vec<(&Strategy, Option<usize>)> = Vec::new();
    let index =
        |node: &Arc<Node>| Some(u16::try_from(ids.binary_search(&node.host_id).ok()?).expect("bounded"));
    for (name, keyspace) in state.keyspaces_iter() {
        let has_replicas = matches!(
            keyspace.strategy,
            Strategy::SimpleStrategy { .. } | Strategy::NetworkTopologyStrategy { .. }
        );
        if !has_replicas || keyspace.tablet_based {
            continue;
        }
        let known = placed.iter().find(|(strategy, _)| **strategy == keyspace.strategy);
        let placement = known.map(|(_, placement)| *placement).unwrap_or_else(|| {
            // The table matters to tablets only.
            let table = TableSpec::borrowed(name, "");
            let placement = ring.add_placement(|token, nodes| {
                let token = Token::new(token);
                let replicas = locator.replicas_for_token(token, &keyspace.strategy, None, &table);
                nodes
                    .extend(replicas.into_replicas_ordered().into_iter().filter_map(|(node, _)| index(node)));
            });
            placed.push((&keyspace.strategy, placement));
            placement
        });
        if let Some(placement) = placement {
            ring.add_keyspace(name, placement);
        }
    }
    ring
}
