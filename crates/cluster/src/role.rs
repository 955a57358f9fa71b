//! A role of the cluster on one core: its credentials, and its connections to nodes.
//!
//! A role with two passwords is two of these: sessions never use connections that were opened with
//! another password. The older one is checked when a client logs in with the newer one.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use lanes::Group;
use lanes::sync::oneshot;
use rustc_hash::FxHashMap;
use subtle::ConstantTimeEq;
use wire::Version;

use crate::Refusal;
use crate::connection::{NodeConnection, Reading};
use crate::logins::Logins;
use crate::open::open;

/// Connections are kept by these: texts, types and ids then mean what they mean without a front.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ConnectionKey {
    node: SocketAddr,
    version: u8,
    keyspace: Option<Rc<str>>,
}

/// Outcome of opening a connection.
type Opened = Result<Rc<NodeConnection>, Refusal>;

/// A connection, or the requests that wait until it is open.
enum Kept {
    Opening(Vec<oneshot::Sender<Opened>>),
    Open(Rc<NodeConnection>),
}

/// A role with open sessions. Dropping it closes its connections.
pub struct Role {
    name: Arc<str>,
    /// SASL token of its sessions. `None`: the cluster wants no credentials.
    token: Option<Bytes>,
    /// Time of its last login that a node has checked, ns of the monotonic clock.
    checked_ns: Cell<u64>,
    kept: RefCell<FxHashMap<ConnectionKey, Kept>>,
    /// Time at which the cluster was last asked for its roles, ns of the monotonic clock; else 0.
    roles_asked_ns: Cell<u64>,
    /// Where its answers are read: in the group of the level of its last request.
    reading: Reading,
    /// Logins of this core.
    logins: Rc<Logins>,
    /// True once a node has refused the token that it keeps: its sessions end.
    is_ended: Cell<bool>,
    /// The same for sessions that have it on several cores.
    ends: RefCell<Vec<Arc<AtomicBool>>>,
}

/// Login of a role on one core, for the others.
#[derive(Clone)]
pub(crate) struct RoleLogin {
    pub(crate) name: Arc<str>,
    pub(crate) token: Option<Bytes>,
    pub(crate) group: Group,
    checked_ns: u64,
}

impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Role({})", self.name)
    }
}

impl Role {
    pub(crate) fn new(name: Arc<str>, token: Option<Bytes>, reading: Reading, logins: Rc<Logins>) -> Role {
        Role {
            name,
            token,
            checked_ns: Cell::new(lanes::time::monotonic_ns()),
            kept: RefCell::default(),
            roles_asked_ns: Cell::new(0),
            reading,
            logins,
            is_ended: Cell::new(false),
            ends: RefCell::default(),
        }
    }

    /// Creates the role on another core than the one where it has logged in.
    pub(crate) fn adopted(login: &RoleLogin, reading: Reading, logins: Rc<Logins>) -> Role {
        let role = Role::new(login.name.clone(), login.token.clone(), reading, logins);
        // Its password is not newer here than where it was checked.
        role.checked_ns.set(login.checked_ns);
        role
    }

    /// Returns its login, for other cores.
    pub(crate) fn login(&self) -> RoleLogin {
        let (name, token, checked_ns) = (self.name.clone(), self.token.clone(), self.checked_ns.get());
        RoleLogin { name, token, group: self.reading.group.get(), checked_ns }
    }

    /// Returns its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns true if the cluster did not answer for its roles within the last `ns`.
    pub fn has_to_ask_for_roles(&self, ns: u64) -> bool {
        let asked_ns = self.roles_asked_ns.get();
        asked_ns == 0 || lanes::time::monotonic_ns().saturating_sub(asked_ns) >= ns
    }

    /// Counts its roles as known from now on.
    pub fn asked_for_roles(&self) {
        self.roles_asked_ns.set(lanes::time::monotonic_ns());
    }

    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Reads its answers in this group from now on.
    pub(crate) fn set_group(&self, group: Group) {
        self.reading.group.set(group);
    }

    /// Returns true if a node has refused the token that was kept for its sessions. They end, and
    /// the next login is asked of the cluster.
    pub fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    /// Sets `flag` when a node refuses the token that is kept.
    pub(crate) fn on_end(&self, flag: &Arc<AtomicBool>) {
        flag.fetch_or(self.is_ended(), Relaxed);
        let mut ends = self.ends.borrow_mut();
        if ends.len() == ends.capacity() {
            // The amortized cost of a session is constant.
            ends.retain(|flag| Arc::strong_count(flag) > 1);
        }
        ends.push(flag.clone());
    }

    fn end(&self) {
        self.is_ended.set(true);
        self.ends.take().iter().for_each(|flag| flag.store(true, Relaxed));
    }

    /// Returns true if it has connections, or opens one.
    pub fn is_connected(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// Returns true if a node has accepted this token within the last `ns`.
    pub(crate) fn was_accepted(&self, token: &[u8], ns: u64) -> bool {
        let is_recent = lanes::time::monotonic_ns().saturating_sub(self.checked_ns.get()) < ns;
        is_recent && self.has_token(Some(token))
    }

    /// Returns true if its sessions have this token.
    pub(crate) fn has_token(&self, token: Option<&[u8]>) -> bool {
        match (&self.token, token) {
            (Some(own), Some(token)) => own.ct_eq(token).into(),
            (own, token) => own.is_none() && token.is_none(),
        }
    }

    /// Counts its token as accepted by a node now.
    pub(crate) fn accepted(&self) {
        self.checked_ns.set(lanes::time::monotonic_ns());
    }

    /// Keeps a connection that a login has opened.
    pub(crate) fn keep(&self, connection: Rc<NodeConnection>) {
        let key =
            ConnectionKey { node: connection.node, version: connection.version().number(), keyspace: None };
        let mut kept = self.kept.borrow_mut();
        let has_another = match kept.get(&key) {
            Some(Kept::Open(other)) => other.is_open(),
            Some(Kept::Opening(_)) => true,
            None => false,
        };
        if has_another {
            connection.close();
        } else {
            kept.insert(key, Kept::Open(connection));
        }
    }

    /// Returns an open connection. `None`: it has to be opened, or the role has ended.
    pub(crate) fn open_connection(
        &self,
        node: SocketAddr,
        version: Version,
        keyspace: Option<&Rc<str>>,
    ) -> Option<Rc<NodeConnection>> {
        if self.is_ended() {
            return None;
        }
        let key = ConnectionKey { node, version: version.number(), keyspace: keyspace.cloned() };
        match self.kept.borrow().get(&key)? {
            Kept::Open(connection) if connection.is_open() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Returns a connection, and opens it if there is none. Requests that need the same one wait
    /// for one opening.
    ///
    /// # Errors
    /// [`Refusal::Ended`] if a node refuses the token, otherwise those of [`open`].
    pub(crate) async fn connection(
        self: &Rc<Self>,
        node: SocketAddr,
        version: Version,
        keyspace: Option<&Rc<str>>,
    ) -> Result<Rc<NodeConnection>, Refusal> {
        if let Some(connection) = self.open_connection(node, version, keyspace) {
            return Ok(connection);
        }
        if self.is_ended() {
            return Err(Refusal::Ended);
        }
        let key = ConnectionKey { node, version: version.number(), keyspace: keyspace.cloned() };
        let (sender, receiver) = oneshot::channel();
        if self.waits_for(&key, sender) {
            // A task of its own, which goes on if the first request is cancelled: others wait for
            // it.
            let opening = Opening { role: self.clone(), key };
            lanes::spawn(lanes::current_group(), opening.run(version)).detach();
        }
        let ended = |_| Err(Refusal::Unsent(format!("no connection to the node {node} was opened")));
        receiver.await.unwrap_or_else(ended)
    }

    /// Adds a request that waits for a connection. Returns true if it is the first.
    fn waits_for(&self, key: &ConnectionKey, sender: oneshot::Sender<Opened>) -> bool {
        let mut kept = self.kept.borrow_mut();
        if let Some(Kept::Opening(waiting)) = kept.get_mut(key) {
            waiting.push(sender);
            return false;
        }
        kept.insert(key.clone(), Kept::Opening(vec![sender]));
        true
    }

    /// Opens a connection. A node that refuses the token ends the role.
    async fn open(&self, key: &ConnectionKey, version: Version) -> Opened {
        let place = self.logins.enter(key.node).await?;
        let keyspace = key.keyspace.as_deref();
        match open(key.node, version, self.token.as_ref(), keyspace, self.reading.clone()).await {
            Err(Refusal::Credentials(_)) => {
                self.end();
                Err(Refusal::Ended)
            }
            opened => opened.inspect(|connection| place.opened(connection)),
        }
    }

    /// Asks a node whether it still accepts the token, by opening a connection.
    pub(crate) async fn check(self: Rc<Self>, node: SocketAddr, version: Version) {
        let key = ConnectionKey { node, version: version.number(), keyspace: None };
        if let Ok(connection) = self.open(&key, version).await {
            self.accepted();
            self.keep(connection);
        }
    }

    /// Closes connections that were not used since `ns` of the monotonic clock, and removes those
    /// that were lost.
    pub(crate) fn close_unused(&self, since_ns: u64) {
        self.kept.borrow_mut().retain(|_, kept| match kept {
            Kept::Opening(_) => true,
            Kept::Open(connection) => {
                let is_used = connection.used_ns() >= since_ns || connection.in_flight() > 0;
                if !is_used {
                    connection.close();
                }
                connection.is_open()
            }
        });
    }
}

/// An opening in flight. If it does not end, its entry goes, and the requests that wait for it are
/// refused.
struct Opening {
    role: Rc<Role>,
    key: ConnectionKey,
}

impl Opening {
    async fn run(self, version: Version) {
        let opened = self.role.open(&self.key, version).await;
        let mut kept = self.role.kept.borrow_mut();
        let before = match &opened {
            Ok(connection) => kept.insert(self.key.clone(), Kept::Open(connection.clone())),
            Err(_) => kept.remove(&self.key),
        };
        drop(kept);
        if let Some(Kept::Opening(waiting)) = before {
            for sender in waiting {
                let _ = sender.send(opened.clone());
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut kept = self.role.kept.borrow_mut();
        if matches!(kept.get(&self.key), Some(Kept::Opening(_))) {
            kept.remove(&self.key);
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        for kept in self.kept.take().into_values() {
            if let Kept::Open(connection) = kept {
                connection.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::start_lanes;

    use super::*;

    #[test]
    fn opening_that_panics_or_is_dropped_refuses_the_requests_that_wait() {
        let lanes = start_lanes(1);
        lanes.block_on(0, lanes::Group::CONTROL, || async {
            let group = Rc::new(Cell::new(lanes::Group::CONTROL));
            let reading = Reading { group, memory: Arc::default(), tls: None };
            let role = Rc::new(Role::new("ann".into(), None, reading, Rc::default()));
            let node = ([127, 0, 0, 1], 9042).into();
            let key = ConnectionKey { node, version: 5, keyspace: None };
            for panics in [true, false] {
                let (sender, receiver) = oneshot::channel();
                assert!(role.waits_for(&key, sender));
                let opening = Opening { role: role.clone(), key: key.clone() };
                let task = async move {
                    let _opening = opening;
                    assert!(!panics, "this panic is part of the test");
                    std::future::pending::<()>().await;
                };
                match panics {
                    true => assert!(lanes::catch_panic(task).await.is_err()),
                    false => drop(lanes::spawn(lanes::Group::CONTROL, task).cancel().await),
                }
                assert!(receiver.await.is_err(), "no connection");
                assert!(role.kept.borrow().is_empty());
            }
        });
        lanes.shutdown();
    }
}
