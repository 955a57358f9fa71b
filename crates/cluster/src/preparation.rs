//! Preparing the statements of one core at a node that comes up (`coming_up.rs`): in the name of a
//! role with sessions that has used them on this core, because the node checks the role's rights,
//! and beside the window. At most one login is in flight for it, so that those of requests go on.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lanes::Group;
use rustc_hash::FxHashSet;

use crate::Refusal;
use crate::again::{Preparing, keyspace_to_prepare};
use crate::coming_up::PREPARED_WITHIN;
use crate::prepared::UsedPlan;
use crate::shared::Shared;

/// PREPAREs in flight, at most, over all cores; at least one on each.
const IN_FLIGHT_MAX: usize = 32;

/// Preparations of one core at a node. Dropping them counts the core as done.
pub(crate) struct Preparation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) preparing: Rc<Preparing>,
    pub(crate) node: SocketAddr,
    /// Number of the time that the node has come up.
    pub(crate) count: u64,
    /// Statements of this core, the most used ones first.
    pub(crate) used: Rc<[UsedPlan]>,
}

impl Preparation {
    /// Starts to prepare.
    pub(crate) fn start(self) {
        let preparing = async move {
            // PREPAREs that are still in flight then go on.
            let _ = lanes::time::timeout(PREPARED_WITHIN, self.run()).await;
        };
        lanes::spawn(Group::CONTROL, preparing).detach();
    }

    async fn run(&self) {
        let at_once = (IN_FLIGHT_MAX / lanes::cores()).max(1);
        let mut own = self.used.iter();
        // Connections that were refused, by role, version and keyspace.
        let mut refused = FxHashSet::default();
        loop {
            let taken = self.shared.windows.take_statements(self.node, self.count, &mut own, at_once);
            if taken.is_empty() {
                return;
            }
            let mut in_flight = Vec::with_capacity(taken.len());
            for UsedPlan { plan, role, version } in taken {
                let Some(role) = role.upgrade().filter(|role| !role.is_ended()) else { continue };
                let keyspace = keyspace_to_prepare(plan, *version);
                let key = (Rc::as_ptr(&role), *version, keyspace.clone());
                if refused.contains(&key) {
                    continue;
                }
                match role.connection(self.node, *version, keyspace.as_ref()).await {
                    Ok(_) => in_flight.push(self.preparing.start(&role, *version, self.node, plan)),
                    Err(Refusal::Unreachable(_)) => return,
                    Err(_) => drop(refused.insert(key)),
                }
            }
            for prepared in in_flight {
                let _ = prepared.await;
            }
            lanes::yield_now().await;
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.shared.windows.core_done(self.node, self.count);
    }
}
