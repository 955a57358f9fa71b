//! The front of one core: its roles, and the nodes that they reach.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wire::{Envelope, Request, Version};

use crate::Refusal;
use crate::again::Preparing;
use crate::choice::{Candidates, ReplicaOrder};
use crate::coming_up::PREPARED_MAX;
use crate::connection::Reading;
use crate::logins::Logins;
use crate::open::open;
use crate::part::NodesUse;
use crate::preparation::Preparation;
use crate::prepared::{CorePlans, RemotePlan, UsedPlan};
use crate::reach::Nodes;
use crate::role::{Role, RoleLogin};
use crate::shared::Shared;
use crate::topology::CoreTopology;
use crate::windows::Division;

/// Time for which an equal password is accepted without asking the cluster: a storm of logins costs
/// the cluster one check.
const LOGIN_KEPT: Duration = Duration::from_secs(60);

/// Passwords of a role with sessions that are compared at a login, at most: the newest ones. Others
/// are asked of the cluster.
const TOKENS_MAX: usize = 8;

/// Time after which an unused connection is closed.
const UNUSED_MAX: Duration = Duration::from_secs(300);

/// Interval of the search for unused connections.
const CLOSE_EVERY: Duration = Duration::from_secs(30);

/// Interval of the divisions of the nodes' windows.
const DIVIDE_EVERY: Duration = Duration::from_millis(100);

/// Interval at which uses of prepared statements count half.
const AGE_PLANS_EVERY: Duration = Duration::from_secs(600);

/// The front of one core.
pub struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) plans: CorePlans,
    /// Statements that are being prepared again.
    pub(crate) preparing: Rc<Preparing>,
    /// Roles with sessions, by name: one for each password, the newest last.
    roles: RefCell<FxHashMap<Arc<str>, Vec<Weak<Role>>>>,
    topology: CoreTopology,
    /// Nodes of the last topology that this core has used.
    nodes: RefCell<Rc<Nodes>>,
    logins: Rc<Logins>,
    /// Number of the next request: among equally loaded nodes it takes the next one.
    turn: Cell<usize>,
}

impl Front {
    /// Opens the front of this core, on its fast lane. It closes unused connections until it is
    /// dropped.
    pub fn new(shared: Arc<Shared>) -> Rc<Front> {
        let topology = CoreTopology::new(shared.topology().clone());
        let nodes = Nodes::new(topology.current(), &[], shared.options.node_window);
        let front = Rc::new(Front {
            shared,
            plans: CorePlans::default(),
            preparing: Rc::default(),
            roles: RefCell::default(),
            topology,
            nodes: RefCell::new(Rc::new(nodes)),
            logins: Rc::default(),
            turn: Cell::new(lanes::current_core()),
        });
        front.repeat(AGE_PLANS_EVERY, async |front: &Front| front.plans.age());
        front.repeat(CLOSE_EVERY, async |front: &Front| front.close_unused());
        let node_window = front.shared.options.node_window;
        let fleet = front.shared.options.fleet.clone();
        let mut division = (lanes::current_core() == 0).then(|| Division::new(node_window, fleet));
        front.repeat(DIVIDE_EVERY, async move |front: &Front| front.divide(division.as_mut()).await);
        front
    }

    /// Does something now, and then at an interval, until the front is dropped.
    fn repeat(self: &Rc<Self>, every: Duration, mut work: impl AsyncFnMut(&Front) + 'static) {
        let weak = Rc::downgrade(self);
        let repeating = async move {
            while let Some(front) = weak.upgrade() {
                work(&front).await;
                drop(front);
                lanes::time::sleep(every).await;
            }
        };
        lanes::spawn(Group::CONTROL, repeating).detach();
    }

    /// Publishes the use of the nodes, and takes over this core's part of their windows, one node
    /// in a task poll. Prepares statements at those that have come up. `division`: that of core 0.
    async fn divide(&self, mut division: Option<&mut Division>) {
        let Shared { levels, windows, .. } = &*self.shared;
        let (catalog, nodes) = (levels.catalog(), self.nodes());
        if let Some(division) = &mut division {
            windows.begin(&nodes.topology, division);
        }
        let mut used: Option<Rc<[UsedPlan]>> = None;
        let mut uses = FxHashMap::default();
        let present: FxHashMap<_, _> =
            catalog.entries().map(|entry| (entry.level.group(), entry.clone())).collect();
        for (node, of) in nodes.nodes.iter().zip(nodes.topology.nodes()) {
            let division = division.as_deref_mut().map(|division| (division, &*catalog));
            let exchanged = windows.exchange(node, of, DIVIDE_EVERY.as_nanos() as u64, division);
            exchanged.part.iter().for_each(|part| node.apply(part, &present, &mut uses));
            let count = exchanged.came_up;
            if node.has_come_up(count) {
                let used = used.get_or_insert_with(|| self.plans.most_used(PREPARED_MAX)).clone();
                let (shared, preparing) = (self.shared.clone(), self.preparing.clone());
                Preparation { shared, preparing, node: node.address, count, used }.start();
            }
            lanes::yield_now().await;
        }
        for (group, NodesUse { occupancy_ns, places }) in uses {
            present[&group].level.set_node_use(lanes::current_core(), occupancy_ns, places);
        }
    }

    /// Returns the state that all cores share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns a prepared statement that a role uses, and counts the use. `None`: no client of this
    /// front has prepared it.
    pub fn plan(&self, id: &[u8], role: Option<&Rc<Role>>, version: Version) -> Option<Rc<RemotePlan>> {
        self.plans.get(&self.shared.plans, id, role, version)
    }

    /// Returns the role of a client whose SASL token a node has accepted lately. `None`: the
    /// cluster has to be asked.
    pub fn kept_login(&self, name: &str, token: &[u8]) -> Option<Rc<Role>> {
        let kept_ns = LOGIN_KEPT.as_nanos() as u64;
        self.roles_named(name).into_iter().find(|role| role.was_accepted(token, kept_ns))
    }

    /// Returns the roles of a name with sessions that go on, by their passwords: the newest first.
    fn roles_named(&self, name: &str) -> SmallVec<[Rc<Role>; 1]> {
        let roles = self.roles.borrow();
        let roles = roles.get(name).into_iter().flatten().rev().filter_map(Weak::upgrade);
        roles.filter(|role| !role.is_ended()).take(TOKENS_MAX).collect()
    }

    fn role(&self, name: &str, token: Option<&Bytes>) -> Option<Rc<Role>> {
        let token = token.map(|token| &**token);
        self.roles_named(name).into_iter().find(|role| role.has_token(token))
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
        self.at_some_node(|node| self.log_in_at(node, version, name, token, group)).await
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
        let place = self.logins.enter(node).await?;
        // A node may have accepted an equal password during the wait.
        if let Some(role) = token.and_then(|token| self.kept_login(name, token)) {
            return Ok(role);
        }
        let Shared { memory, options, .. } = &*self.shared;
        let (memory, tls) = (memory.clone(), options.tls.clone());
        let new = || Reading { group: Rc::new(Cell::new(group)), memory, tls };
        let reading = self.role(name, token).map_or_else(new, |role| role.reading().clone());
        let connection = open(node, version, token, None, reading.clone()).await?;
        place.opened(&connection);
        // Another login of the role may have finished meanwhile.
        let role = self.role(name, token).unwrap_or_else(|| {
            // Its password may have been changed: sessions with the old one end.
            for other in self.roles_named(name) {
                lanes::spawn(Group::CONTROL, other.check(node, version)).detach();
            }
            let role = Rc::new(Role::new(name.into(), token.cloned(), reading, self.logins.clone()));
            self.add(&role);
            role
        });
        role.accepted();
        role.keep(connection);
        Ok(role)
    }

    /// Returns the role of a client that has logged in on another core.
    pub(crate) fn adopt(&self, login: &RoleLogin) -> Rc<Role> {
        self.role(&login.name, login.token.as_ref()).unwrap_or_else(|| {
            let Shared { memory, options, .. } = &*self.shared;
            let (memory, tls) = (memory.clone(), options.tls.clone());
            let reading = Reading { group: Rc::new(Cell::new(login.group)), memory, tls };
            let role = Rc::new(Role::adopted(login, reading, self.logins.clone()));
            self.add(&role);
            role
        })
    }

    fn add(&self, role: &Rc<Role>) {
        let mut roles = self.roles.borrow_mut();
        let named = roles.entry(role.name().clone()).or_default();
        if named.len() == named.capacity() {
            // The amortized cost of a login is constant.
            named.retain(|role| role.strong_count() > 0);
        }
        named.push(Rc::downgrade(role));
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
        self.at_some_node(|node| role.connection(node, version, Some(&keyspace))).await.map(drop)
    }

    /// Returns the nodes of the present topology.
    pub(crate) fn nodes(&self) -> Rc<Nodes> {
        let topology = self.topology.current();
        let mut nodes = self.nodes.borrow_mut();
        if nodes.topology.version() != topology.version() {
            *nodes = Rc::new(Nodes::new(topology, &nodes.nodes, self.shared.options.node_window));
        }
        nodes.clone()
    }

    /// Returns the number of the next request.
    pub(crate) fn turn(&self) -> usize {
        self.turn.replace(self.turn.get().wrapping_add(1))
    }

    /// Opens something at the least loaded node that can be reached.
    async fn at_some_node<T, F: Future<Output = Result<T, Refusal>>>(
        &self,
        open: impl FnMut(SocketAddr) -> F,
    ) -> Result<T, Refusal> {
        let nodes = self.nodes();
        let order = ReplicaOrder::LeastLoaded;
        let mut candidates = Candidates::new(&nodes.topology, None, order, self.turn());
        let first = nodes.next(&mut candidates)?;
        nodes.reach(first, &mut candidates, open).await.map(|(_, opened)| opened)
    }

    /// Sends a message of the front itself, beside the window.
    pub(crate) async fn ask(
        &self,
        role: &Rc<Role>,
        version: Version,
        request: &Request<'_>,
    ) -> Result<Envelope, Refusal> {
        let connection = self.at_some_node(|node| role.connection(node, version, None)).await?;
        connection.ask(request)?.await.unwrap_or(Err(Refusal::Lost(connection.node)))
    }

    /// Returns the roles with open sessions on this core.
    pub fn roles(&self) -> Vec<Rc<Role>> {
        self.roles.borrow().values().flatten().filter_map(Weak::upgrade).collect()
    }

    fn close_unused(&self) {
        let since_ns = lanes::time::monotonic_ns().saturating_sub(UNUSED_MAX.as_nanos() as u64);
        self.roles.borrow_mut().retain(|_, named| {
            named.retain(|role| {
                let role = role.upgrade();
                role.iter().for_each(|role| role.close_unused(since_ns));
                role.is_some()
            });
            !named.is_empty()
        });
        self.logins.forget_unused();
    }
}
