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
    /// Returns the nodes of a topology. Those of `before` stay, with their requests. A node that
    /// comes up has the least window until the next division.
    pub(crate) fn new(topology: Rc<Topology>, before: &[Rc<Node>], node_window: Option<u32>) -> Nodes {
        let (window, is_limited) = (node_window.unwrap_or(WINDOW_BOUNDS.min), node_window.is_none());
        let of_core = |window: u32| window.div_ceil(lanes::cores() as u32);
        let (first, least) = (of_core(window), of_core(window.min(WINDOW_BOUNDS.min)));
        let known: FxHashMap<SocketAddr, &Rc<Node>> =
            before.iter().map(|node| (node.address, node)).collect();
        let node = |of: &ClusterNode| {
            let node = known.get(&of.address).map(|node| Rc::clone(node));
            let node = node.unwrap_or_else(|| {
                let window = if before.is_empty() { first } else { least };
                Rc::new(Node::new(of.address, window, is_limited))
            });
            node.mark(of.is_up, least);
            node
        };
        let nodes = topology.nodes().iter().map(node).collect();
        Nodes { topology, nodes }
    }

    /// Returns the next candidate. After the last one, the first follows.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: no node of the tag is live. [`Refusal::Unsent`]: there is no node.
    pub(crate) fn next(&self, candidates: &mut Candidates<'_>) -> Result<&Rc<Node>, Refusal> {
        let next = self.untried(candidates).or_else(|| {
            candidates.restart();
            self.untried(candidates)
        });
        next.ok_or_else(|| match candidates.tag() {
            Some(tag) => Refusal::Unavailable(format!("no node of the tag '{tag}' is live")),
            None => Refusal::Unsent("no node is known".to_owned()),
        })
    }

    fn untried(&self, candidates: &mut Candidates<'_>) -> Option<&Rc<Node>> {
        candidates.next(|at| self.nodes[at].load()).map(|at| &self.nodes[at])
    }

    /// Opens something at a node, or else at the next candidate that can be reached.
    ///
    /// # Errors
    /// The refusal of the first node, if none can be reached.
    pub(crate) async fn reach<T, F: Future<Output = Result<T, Refusal>>>(
        &self,
        first: &Rc<Node>,
        candidates: &mut Candidates<'_>,
        mut open: impl FnMut(SocketAddr) -> F,
    ) -> Result<(Rc<Node>, T), Refusal> {
        let (mut node, mut reason) = (first, None);
        loop {
            let refusal = match open(node.address).await {
                Ok(opened) => return Ok((node.clone(), opened)),
                Err(refusal) => node.judge(refusal),
            };
            if !matches!(refusal, Refusal::Unsent(_)) {
                return Err(refusal);
            }
            let reason = reason.get_or_insert(refusal);
            match self.untried(candidates) {
                Some(next) => node = next,
                None => return Err(reason.clone()),
            }
        }
    }
}
