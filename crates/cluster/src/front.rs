//! The front of one core: chooses a node for each request, and repeats what was certainly not
//! executed.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use rustc_hash::FxHashMap;
use wire::{
    Envelope, Failure, FailureKind, Flags, Opcode, Prepare, Query, Request, Response, ResultKind, Version,
};

use workload::{Effective, Levels};

use crate::Refusal;
use crate::connection::NodeConnection;
use crate::logins::Logins;
use crate::node::{Load, Node};
use crate::open::{NodeFacts, open, probe};
use crate::prepared::{CorePlans, RemotePlan, SharedPlans, StatementClass};
use crate::role::Role;
use crate::windows::{Division, NodeUsage, Windows};

/// Time for which an equal password is accepted without asking the cluster: a storm of logins costs
/// the cluster one check.
const LOGIN_KEPT: Duration = Duration::from_secs(60);

/// Time after which an unused connection is closed.
const UNUSED_MAX: Duration = Duration::from_secs(300);

/// Interval of the search for unused connections.
const CLOSE_EVERY: Duration = Duration::from_secs(30);

/// Interval of the divisions of the nodes' windows.
const DIVIDE_EVERY: Duration = Duration::from_millis(100);

/// Time for which a change of the schema waits for the agreement of the nodes. The rest of the
/// default time limit is for the change.
const AGREE_WITHIN: Duration = Duration::from_secs(5);
/// Interval of the questions whether they agree.
const AGREE_EVERY: Duration = Duration::from_millis(50);
/// Question for the version of a node's schema. Equal answers are equal versions.
const SCHEMA_VERSION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

/// Statements of one request that are prepared again, at most: those of the longest BATCH that
/// drivers build. A node that forgets faster gets the rest from the driver.
const PREPARED_AGAIN_MAX: usize = 100;

/// Configuration of a front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontOptions {
    /// Nodes, at least one.
    pub contacts: Vec<SocketAddr>,
    /// Requests in flight at a node from all cores, at most.
    pub node_window: u32,
}

/// State that the fronts of all cores share.
pub struct Shared {
    options: FrontOptions,
    facts: NodeFacts,
    plans: SharedPlans,
    levels: Arc<Levels>,
    windows: Windows,
}

impl Shared {
    /// Asks the contacts, one after the other, how clients authenticate.
    ///
    /// # Errors
    /// One sentence for each contact: none answers.
    pub fn open(
        options: FrontOptions,
        levels: Arc<Levels>,
    ) -> lanes::LocalBoxFuture<'static, Result<Arc<Shared>, String>> {
        Box::pin(async move {
            let mut reasons = Vec::new();
            for &contact in &options.contacts {
                match probe(contact).await {
                    Ok(facts) => {
                        let (plans, windows) = (SharedPlans::default(), Windows::default());
                        return Ok(Arc::new(Shared { options, facts, plans, levels, windows }));
                    }
                    Err(Refusal::Unsent(reason)) => reasons.push(reason),
                    Err(other) => reasons.push(format!("the node {contact} refuses to start: {other}")),
                }
            }
            Err(reasons.join("; "))
        })
    }

    /// Returns the class of the authenticator. `None`: no credentials are needed.
    pub fn authenticator(&self) -> Option<&str> {
        self.facts.authenticator.as_deref()
    }

    /// Returns the use of the nodes on all cores, at most 100 ms old.
    pub fn usage(&self) -> Vec<NodeUsage> {
        self.windows.usage(self.options.node_window, &self.levels.catalog())
    }

    /// Returns the highest version of the protocol that nodes speak.
    pub fn version(&self) -> Version {
        self.facts.version
    }
}

/// A request to be passed on.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Level of the request.
    pub effective: Rc<Effective>,
    /// Time at which it is too late to be sent, ns of the monotonic clock.
    pub until_ns: u64,
    /// True for a statement that changes nothing: it is sent to another node if the connection is
    /// lost before the answer.
    pub is_read: bool,
    /// Protocol version of the client.
    pub version: Version,
    /// Keyspace of the client's session.
    pub keyspace: Option<Rc<str>>,
    /// QUERY, PREPARE, EXECUTE or BATCH.
    pub opcode: Opcode,
    /// Flags: tracing, custom payload.
    pub flags: Flags,
    /// Body.
    pub body: Bytes,
}

/// The front of one core.
pub struct Front {
    shared: Arc<Shared>,
    plans: CorePlans,
    roles: RefCell<FxHashMap<Arc<str>, Weak<Role>>>,
    nodes: Box<[Rc<Node>]>,
    logins: Rc<Logins>,
    /// Node of the next request, among equally loaded ones.
    next: Cell<usize>,
}

impl Front {
    /// Opens the front of this core, on its fast lane. It closes unused connections until it is
    /// dropped.
    pub fn new(shared: Arc<Shared>) -> Rc<Front> {
        let window = shared.options.node_window.div_ceil(lanes::cores() as u32);
        let nodes = shared.options.contacts.iter();
        let nodes = nodes.map(|contact| Rc::new(Node::new(*contact, window))).collect();
        let front = Rc::new(Front {
            shared,
            plans: CorePlans::default(),
            roles: RefCell::default(),
            nodes,
            logins: Rc::default(),
            next: Cell::new(lanes::current_core()),
        });
        let weak = Rc::downgrade(&front);
        let close = async move {
            while let Some(front) = weak.upgrade() {
                front.close_unused();
                drop(front);
                lanes::time::sleep(CLOSE_EVERY).await;
            }
        };
        lanes::spawn(Group::CONTROL, close).detach();
        let weak = Rc::downgrade(&front);
        let divide = async move {
            let mut division = Division::default();
            while let Some(front) = weak.upgrade() {
                front.divide(&mut division);
                drop(front);
                lanes::time::sleep(DIVIDE_EVERY).await;
            }
        };
        lanes::spawn(Group::CONTROL, divide).detach();
        front
    }

    /// Publishes the use of the nodes, and takes over this core's part of their windows.
    fn divide(&self, division: &mut Division) {
        let Shared { options, levels, windows, .. } = &*self.shared;
        let catalog = levels.catalog();
        let report = self.nodes.iter().map(|node| (node.address, node.report())).collect();
        let parts = windows.exchange(lanes::current_core(), lanes::cores(), report, |reports| {
            division.divide(options.node_window, &catalog, reports)
        });
        let present = catalog.entries().map(|entry| (entry.level.group(), entry.clone())).collect();
        for node in &self.nodes {
            if let Some(part) = parts.get(&node.address) {
                node.apply(part, &present);
            }
        }
    }

    /// Returns the state that all cores share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns a prepared statement. `None`: no client of this front has prepared it.
    pub fn plan(&self, id: &[u8]) -> Option<Arc<RemotePlan>> {
        self.plans.get(&self.shared.plans, id)
    }

    /// Returns the role of a client whose SASL token a node has accepted lately. `None`: the
    /// cluster has to be asked.
    pub fn kept_login(&self, name: &str, token: &[u8]) -> Option<Rc<Role>> {
        self.role(name).filter(|role| role.was_accepted(token, LOGIN_KEPT.as_nanos() as u64))
    }

    /// Returns a role with sessions that go on.
    fn role(&self, name: &str) -> Option<Rc<Role>> {
        self.roles.borrow().get(name).and_then(Weak::upgrade).filter(|role| !role.is_ended())
    }

    /// Logs a client in at the cluster, with its SASL token. `name`: the role in the token.
    /// `group`: that of the role's level, in which answers are read.
    ///
    /// # Errors
    /// [`Refusal::Credentials`] or [`Refusal::Answered`] with the node's own ERROR, or
    /// [`Refusal::Unsent`].
    pub async fn log_in(
        &self,
        version: Version,
        name: &str,
        token: Option<Bytes>,
        group: Group,
    ) -> Result<Rc<Role>, Refusal> {
        let token = token.as_ref();
        let logging_in = self.on_some_node(|node| self.log_in_at(node, version, name, token, group));
        logging_in.await.map(|(_, role)| role)
    }

    /// Logs a client in at a node, in its turn.
    async fn log_in_at(
        &self,
        node: SocketAddr,
        version: Version,
        name: &str,
        token: Option<&Bytes>,
        group: Group,
    ) -> Result<Rc<Role>, Refusal> {
        let _place = self.logins.enter(node).await?;
        // A node may have accepted an equal password during the wait.
        if let Some(role) = token.and_then(|token| self.kept_login(name, token)) {
            return Ok(role);
        }
        let group = self.role(name).map_or_else(|| Rc::new(Cell::new(group)), |role| role.group());
        let connection = open(node, version, token, None, group.clone()).await?;
        // Another login of the role may have finished meanwhile.
        let role = self.role(name).unwrap_or_else(|| {
            let role = Rc::new(Role::new(name.into(), token.cloned(), group, self.logins.clone()));
            self.roles.borrow_mut().insert(role.name().clone(), Rc::downgrade(&role));
            role
        });
        if let Some(token) = token {
            role.accepted(token.clone());
        }
        role.keep(connection);
        Ok(role)
    }

    /// Opens a connection of a role in a keyspace, so that a node judges it.
    ///
    /// # Errors
    /// [`Refusal::Answered`] with the node's own ERROR, or [`Refusal::Unsent`].
    pub async fn use_keyspace(
        &self,
        role: &Rc<Role>,
        version: Version,
        keyspace: &str,
    ) -> Result<(), Refusal> {
        let keyspace: Rc<str> = keyspace.into();
        self.connection(role, version, Some(&keyspace)).await.map(drop)
    }

    /// Passes a request on to a node, and returns its answer. A node that does not know a prepared
    /// statement is asked to prepare it, and gets the request again. A read whose connection is
    /// lost is sent once more.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn send(&self, role: &Rc<Role>, request: &Outgoing) -> Result<Envelope, Refusal> {
        role.set_group(request.effective.group());
        let mut prepared: Vec<Bytes> = Vec::new();
        let mut may_repeat = request.is_read;
        let mut attempts = self.nodes.len();
        // Connection of a node that has just prepared the statement.
        let mut known = None;
        loop {
            let (node, connection) = match known.take() {
                Some(known) => known,
                None => self.connection(role, request.version, request.keyspace.as_ref()).await?,
            };
            let place = node.place(&request.effective, request.until_ns).await?;
            let sent = match connection.send(request.opcode, request.flags, &request.body, place) {
                // The connection was lost since, or its node does not read.
                Err(_) if attempts > 1 => {
                    attempts -= 1;
                    continue;
                }
                sent => sent?,
            };
            let answer = match sent.await.unwrap_or(Err(Refusal::Lost(connection.node))) {
                Err(Refusal::Lost(_)) if std::mem::take(&mut may_repeat) => continue,
                answered => answered?,
            };
            if answer.result_kind() == Some(ResultKind::SchemaChange) {
                self.agree(role, request.version).await;
            }
            let Some(id) = unknown_id(&answer) else { return Ok(answer) };
            let is_new = !prepared.contains(&id) && prepared.len() < PREPARED_AGAIN_MAX;
            let Some(plan) = self.plan(&id).filter(|_| is_new) else { return Ok(answer) };
            if !self.prepare_again(role, request.version, connection.node, &plan).await {
                // The client prepares it, and then gets the reason.
                return Ok(answer);
            }
            prepared.push(id);
            known = Some((node, connection));
        }
    }

    /// Passes a PREPARE on, and remembers the statement.
    ///
    /// # Errors
    /// Those of [`Front::send`].
    pub async fn prepare(
        &self,
        role: &Rc<Role>,
        request: &Outgoing,
        text: &str,
        given_keyspace: Option<&str>,
    ) -> Result<Envelope, Refusal> {
        let answer = self.send(role, request).await?;
        if let Some(id) = prepared_id(&answer) {
            let plan = RemotePlan {
                id,
                text: text.into(),
                connection_keyspace: request.keyspace.as_deref().map(Into::into),
                given_keyspace: given_keyspace.map(Into::into),
                class: StatementClass::of(text).unwrap_or(StatementClass::Other),
            };
            self.plans.add(&self.shared.plans, Arc::new(plan));
        }
        Ok(answer)
    }

    /// Sends a message of the front itself, beside the window.
    pub(crate) async fn ask(
        &self,
        role: &Rc<Role>,
        version: Version,
        request: &Request<'_>,
    ) -> Result<Envelope, Refusal> {
        let (_, connection) = self.connection(role, version, None).await?;
        connection.ask(request)?.await.unwrap_or(Err(Refusal::Lost(connection.node)))
    }

    /// Returns the roles with open sessions on this core.
    pub fn roles(&self) -> Vec<Rc<Role>> {
        self.roles.borrow().values().filter_map(Weak::upgrade).collect()
    }

    /// Waits until all nodes that can be reached have the same schema, for at most
    /// [`AGREE_WITHIN`]. The next request of the client may go to another node, and drivers ask
    /// only the front whether nodes agree.
    async fn agree(&self, role: &Rc<Role>, version: Version) {
        let until_ns = lanes::time::monotonic_ns() + AGREE_WITHIN.as_nanos() as u64;
        while lanes::time::monotonic_ns() < until_ns {
            let mut versions: Vec<Envelope> = Vec::new();
            for node in &self.nodes {
                versions.extend(self.schema_version(role, version, node.address).await);
            }
            if versions.windows(2).all(|pair| pair[0].body == pair[1].body) {
                return;
            }
            lanes::time::sleep(AGREE_EVERY).await;
        }
    }

    /// Asks a node for the version of its schema. `None`: it does not answer.
    async fn schema_version(&self, role: &Rc<Role>, version: Version, node: SocketAddr) -> Option<Envelope> {
        let connection = role.connection(node, version, None).await.ok()?;
        let query = Query { text: SCHEMA_VERSION, ..Query::default() };
        let sent = connection.ask(&Request::Query(query)).ok()?;
        sent.await.ok()?.ok().filter(|answer| answer.opcode == Opcode::Result)
    }

    /// Prepares a known statement at a node that has forgotten it, or never knew it. Returns true
    /// if the node knows it now.
    async fn prepare_again(
        &self,
        role: &Rc<Role>,
        version: Version,
        node: SocketAddr,
        plan: &RemotePlan,
    ) -> bool {
        // Protocol v4 has no keyspace in the message.
        let given = plan.given_keyspace.as_deref();
        let of_connection = plan.connection_keyspace.as_deref();
        let keyspace = if version == Version::V4 { given.or(of_connection) } else { of_connection };
        let keyspace = keyspace.map(Rc::from);
        let Ok(connection) = role.connection(node, version, keyspace.as_ref()).await else { return false };
        let message = Prepare { text: &plan.text, keyspace: given };
        let Ok(sent) = connection.ask(&Request::Prepare(message)) else { return false };
        matches!(sent.await, Ok(Ok(answer)) if answer.opcode == Opcode::Result)
    }

    /// Returns a connection of the role to the least loaded node that can be reached.
    async fn connection(
        &self,
        role: &Rc<Role>,
        version: Version,
        keyspace: Option<&Rc<str>>,
    ) -> Result<(Rc<Node>, Rc<NodeConnection>), Refusal> {
        self.on_some_node(|node| role.connection(node, version, keyspace)).await
    }

    /// Opens something at the least loaded node that can be reached.
    async fn on_some_node<T, F: Future<Output = Result<T, Refusal>>>(
        &self,
        mut open: impl FnMut(SocketAddr) -> F,
    ) -> Result<(Rc<Node>, T), Refusal> {
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut reason = None;
        while let Some(node) = self.next_node(&tried) {
            match open(node.address).await {
                Err(Refusal::Unsent(text)) => {
                    node.avoid();
                    tried.push(node.address);
                    reason.get_or_insert(text);
                }
                opened => return opened.map(|opened| (node, opened)),
            }
        }
        Err(Refusal::Unsent(reason.unwrap_or_else(|| "no node is known".to_owned())))
    }

    /// Returns the least loaded node that was not tried. Nodes that could not be reached come last.
    fn next_node(&self, tried: &[SocketAddr]) -> Option<Rc<Node>> {
        let first = self.next.get();
        self.next.set((first + 1) % self.nodes.len());
        let now_ns = lanes::time::monotonic_ns();
        let mut best: Option<(bool, Load, &Rc<Node>)> = None;
        for node in self.nodes[first..].iter().chain(&self.nodes[..first]) {
            if tried.contains(&node.address) {
                continue;
            }
            let (is_avoided, load) = (node.is_avoided(now_ns), node.load());
            let is_better =
                best.is_none_or(|(best_is_avoided, best, _)| match (is_avoided, best_is_avoided) {
                    (false, true) => true,
                    (true, false) => false,
                    _ => load.is_less_than(best),
                });
            if is_better {
                best = Some((is_avoided, load, node));
            }
        }
        best.map(|(_, _, node)| node.clone())
    }

    fn close_unused(&self) {
        let since_ns = lanes::time::monotonic_ns().saturating_sub(UNUSED_MAX.as_nanos() as u64);
        self.roles.borrow_mut().retain(|_, role| {
            let role = role.upgrade();
            role.iter().for_each(|role| role.close_unused(since_ns));
            role.is_some()
        });
    }
}

/// Returns the id that a node does not know, if that is its answer.
fn unknown_id(answer: &Envelope) -> Option<Bytes> {
    if answer.opcode != Opcode::Error {
        return None;
    }
    match answer.response().ok()? {
        Response::Error(Failure { kind: FailureKind::Unprepared(id), .. }) => Some(id.into()),
        _ => None,
    }
}

/// Returns the id of a statement that a node has prepared.
fn prepared_id(answer: &Envelope) -> Option<Bytes> {
    if answer.result_kind() != Some(ResultKind::Prepared) {
        return None;
    }
    match answer.response().ok()? {
        Response::Prepared(prepared) => Some(Bytes::copy_from_slice(prepared.id)),
        _ => None,
    }
}
