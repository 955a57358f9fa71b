//! Preparing known statements at nodes that have forgotten them, or never knew them. Requests that
//! need the same one at a node wait for one PREPARE: a node that restarts gets no storm of them.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use lanes::sync::oneshot;
use rustc_hash::{FxBuildHasher, FxHashMap};
use wire::{Prepare, Request, Version};

use crate::prepared::{RemotePlan, prepared_of};
use crate::role::Role;

/// A statement that is being prepared at a node.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    node: SocketAddr,
    id: Bytes,
    /// Answers of the versions have different columns.
    version: u8,
}

/// Statements that are being prepared from one core, with the requests that wait for each: at most
/// those in flight.
#[derive(Default)]
pub(crate) struct Preparing(RefCell<FxHashMap<Key, Vec<oneshot::Sender<Option<u64>>>>>);

impl Preparing {
    /// Prepares a statement at a node. Returns the hash of its columns. `None`: the node still does
    /// not know it.
    pub(crate) async fn prepare(
        self: &Rc<Self>,
        role: &Rc<Role>,
        version: Version,
        node: SocketAddr,
        plan: &Rc<RemotePlan>,
    ) -> Option<u64> {
        self.start(role, version, node, plan).await.ok().flatten()
    }

    /// Starts to prepare a statement at a node, unless that is in progress. The result is that of
    /// [`Preparing::prepare`].
    pub(crate) fn start(
        self: &Rc<Self>,
        role: &Rc<Role>,
        version: Version,
        node: SocketAddr,
        plan: &Rc<RemotePlan>,
    ) -> oneshot::Receiver<Option<u64>> {
        let (sender, receiver) = oneshot::channel();
        let key = Key { node, id: plan.id.clone(), version: version.number() };
        if self.join(key.clone(), sender) {
            // A task of its own, which goes on if the first request is cancelled: others wait.
            let preparing = OnePrepare { all: self.clone(), key };
            let (role, plan) = (role.clone(), plan.clone());
            let task = async move {
                let columns = prepare_at(&role, version, node, &plan).await;
                preparing.end(columns);
            };
            lanes::spawn(lanes::current_group(), task).detach();
        }
        receiver
    }

    /// Adds a request that waits. True: it is the first one.
    fn join(&self, key: Key, sender: oneshot::Sender<Option<u64>>) -> bool {
        let mut all = self.0.borrow_mut();
        let waiting = all.entry(key).or_default();
        waiting.push(sender);
        waiting.len() == 1
    }
}

/// A PREPARE in flight. Dropping it wakes the requests that wait for it.
struct OnePrepare {
    all: Rc<Preparing>,
    key: Key,
}

impl OnePrepare {
    fn end(&self, columns: Option<u64>) {
        let waiting = self.all.0.borrow_mut().remove(&self.key);
        for sender in waiting.into_iter().flatten() {
            let _ = sender.send(columns);
        }
    }
}

impl Drop for OnePrepare {
    fn drop(&mut self) {
        self.end(None);
    }
}

async fn prepare_at(role: &Rc<Role>, version: Version, node: SocketAddr, plan: &RemotePlan) -> Option<u64> {
    let keyspace = keyspace_to_prepare(plan, version);
    let connection = role.connection(node, version, keyspace.as_ref()).await.ok()?;
    let message = Prepare { text: &plan.text, keyspace: plan.given_keyspace.as_deref() };
    let answer = connection.ask(&Request::Prepare(message)).ok()?.await.ok()?.ok()?;
    // A node of another release may have another id, with which the request cannot be sent.
    let prepared = prepared_of(&answer).filter(|prepared| *prepared.id == *plan.id)?;
    Some(FxBuildHasher.hash_one(prepared.result.columns))
}

/// Returns the keyspace of the connection on which a statement is prepared.
pub(crate) fn keyspace_to_prepare(plan: &RemotePlan, version: Version) -> Option<Rc<str>> {
    // Protocol v4 has no keyspace in the message.
    let given = plan.given_keyspace.as_deref().filter(|_| version == Version::V4);
    given.or(plan.connection_keyspace.as_deref()).map(Rc::from)
}
