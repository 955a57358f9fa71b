//! Nodes of a topology on one core, and the search for one that can be reached.

use std::net::SocketAddr;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::Refusal;
use crate::choice::Candidates;
use crate::node::Node;
use crate::part::WINDOW_BOUNDS;
use crate::topology::{ClusterNode, Topology};

/// Nodes of a topology on one core.
pub(crate) struct Nodes {
    pub(crate) topology: Rc<Topology>,
    /// In the order of the topology.
    pub(crate) nodes: Vec<Rc<Node>>,
}

impl Nodes {
    /// Returns the nodes of a topology. Those of `before` stay, with their requests.
    pub(crate) fn new(topology: Rc<Topology>, before: &[Rc<Node>], node_window: Option<u32>) -> Nodes {
        let (window, is_limited) = (node_window.unwrap_or(WINDOW_BOUNDS.min), node_window.is_none());
        let known: FxHashMap<SocketAddr, &Rc<Node>> =
            before.iter().map(|node| (node.address, node)).collect();
        let node = |of: &ClusterNode| match known.get(&of.address) {
            Some(&node) => node.clone(),
            None => Rc::new(Node::new(of.address, window.div_ceil(lanes::cores() as u32), is_limited)),
        };
        let nodes = topology.nodes().iter().map(node).collect();
        Nodes { topology, nodes }
    }

    /// Returns the next candidate. After the last one, the first follows. `None`: there is no node.
    pub(crate) fn next(&self, candidates: &mut Candidates<'_>) -> Option<&Rc<Node>> {
        let next = self.untried(candidates).or_else(|| {
            candidates.restart();
            self.untried(candidates)
        });
        next.map(|at| &self.nodes[at])
    }

    fn untried(&self, candidates: &mut Candidates<'_>) -> Option<usize> {
        let now_ns = lanes::time::monotonic_ns();
        candidates.next(|at| self.nodes[at].load(now_ns))
    }

    /// Opens something at a node, or else at the next candidate that can be reached.
    ///
    /// # Errors
    /// That of the first node, if none can be reached.
    pub(crate) async fn reach<T, F: Future<Output = Result<T, Refusal>>>(
        &self,
        first: Option<&Rc<Node>>,
        candidates: &mut Candidates<'_>,
        mut open: impl FnMut(SocketAddr) -> F,
    ) -> Result<(Rc<Node>, T), Refusal> {
        let mut next = first;
        let mut reason = None;
        while let Some(node) = next {
            match open(node.address).await {
                Err(Refusal::Unreachable(text)) => {
                    node.avoid();
                    reason.get_or_insert(Refusal::Unsent(text));
                }
                Err(refusal @ Refusal::Unsent(_)) => {
                    reason.get_or_insert(refusal);
                }
                opened => return opened.map(|opened| (node.clone(), opened)),
            }
            next = self.untried(candidates).map(|at| &self.nodes[at]);
        }
        Err(reason.unwrap_or_else(no_node))
    }
}

/// Returns the refusal of a front without nodes.
pub(crate) fn no_node() -> Refusal {
    Refusal::Unsent("no node is known".to_owned())
}
