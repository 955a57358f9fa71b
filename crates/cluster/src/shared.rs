//! State that the fronts of all cores share.

use std::sync::Arc;

use wire::Version;
use workload::Levels;

use crate::Refusal;
use crate::control::{Account, Refresh};
use crate::events::{Heard, follow_events};
use crate::fleet::Fleet;
use crate::memory::AnswerMemory;
use crate::open::{NodeFacts, probe};
use crate::prepared::SharedPlans;
use crate::tls::NodeTls;
use crate::topology::PublishedTopology;
use crate::windows::{NodeUsage, Windows};

/// Nodes that are asked for their authenticator at the start, at most.
const PROBED_MAX: usize = 16;

/// Configuration of a front.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// Requests in flight at a node from all cores, at most. `None`: a limiter finds it.
    pub node_window: Option<u32>,
    /// The front's own role. `None`: the cluster wants no credentials.
    pub account: Option<Account>,
    /// Handle of the control thread. `None`: nothing replaces the topology.
    pub refresh: Option<Refresh>,
    /// The fleet of this front. `None`: it stands alone.
    pub fleet: Option<Arc<Fleet>>,
    /// Encryption to nodes. `None`: plain text.
    pub tls: Option<Arc<NodeTls>>,
}

/// State that the fronts of all cores share.
pub struct Shared {
    pub(crate) options: FrontOptions,
    facts: NodeFacts,
    pub(crate) plans: SharedPlans,
    pub(crate) levels: Arc<Levels>,
    pub(crate) windows: Windows,
    pub(crate) memory: Arc<AnswerMemory>,
    topology: Arc<PublishedTopology>,
}

impl Shared {
    /// Asks the nodes, one after the other, how clients authenticate.
    ///
    /// # Errors
    /// One sentence for each node: none answers.
    pub fn open(
        options: FrontOptions,
        levels: Arc<Levels>,
        topology: Arc<PublishedTopology>,
    ) -> lanes::LocalBoxFuture<'static, Result<Arc<Shared>, String>> {
        Box::pin(async move {
            let mut reasons = Vec::new();
            for node in topology.snapshot().nodes().iter().take(PROBED_MAX) {
                match probe(node.address, options.tls.as_deref()).await {
                    Ok(facts) => {
                        return Ok(Arc::new(Shared {
                            options,
                            facts,
                            plans: SharedPlans::default(),
                            levels,
                            windows: Windows::default(),
                            memory: Arc::default(),
                            topology,
                        }));
                    }
                    Err(Refusal::Unsent(reason) | Refusal::Unreachable(reason)) => reasons.push(reason),
                    Err(other) => {
                        reasons.push(format!("the node {} refuses to start: {other}", node.address))
                    }
                }
            }
            Err(reasons.join("; "))
        })
    }

    /// Sets the most bytes of large answers, of all cores. Larger ones are refused, and joining the
    /// parts of one takes as much once more.
    pub fn set_answer_bytes_max(&self, bytes: u64) {
        self.memory.set_max(bytes);
    }

    /// Returns the class of the authenticator. `None`: no credentials are needed.
    pub fn authenticator(&self) -> Option<&str> {
        self.facts.authenticator.as_deref()
    }

    /// Returns the nodes of the cluster, which change.
    pub fn topology(&self) -> &Arc<PublishedTopology> {
        &self.topology
    }

    /// Returns the fleet. `None`: this front stands alone.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.options.fleet.as_ref()
    }

    /// Asks the control thread to look at the cluster now.
    pub fn refresh(&self) {
        self.options.refresh.iter().for_each(Refresh::now);
    }

    /// Follows the events of the cluster, on the fast lane of one core, until the future is
    /// dropped: see [`follow_events`].
    pub fn events(&self, hear: impl FnMut(Heard<'_>)) -> impl Future<Output = ()> {
        // A node without passwords takes none.
        let account = self.options.account.as_ref().filter(|_| self.authenticator().is_some());
        let token = account.map(Account::token);
        follow_events(self.topology.clone(), self.version(), token, self.options.tls.clone(), hear)
    }

    /// Returns the use of the nodes on all cores, at most 100 ms old.
    pub fn usage(&self) -> Vec<NodeUsage> {
        self.windows.usage(&self.levels.catalog())
    }

    /// Returns the highest version of the protocol that nodes speak.
    pub fn version(&self) -> Version {
        self.facts.version
    }
}
