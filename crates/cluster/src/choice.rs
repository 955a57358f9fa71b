//! Choice of the node for a request, and of the next one if that fails. Pure: the caller gives the
//! topology and the load of each node on its core.
//!
//! The first group with a node that was not tried yet decides:
//!
//! 1. live replicas of the token in the front's own datacenter,
//! 2. all live nodes there,
//! 3. nodes there that are down: the topology may be a second old.
//!
//! Nodes of other datacenters are never asked: at them, LOCAL_QUORUM and the like mean other
//! replicas. If no node is in the configured datacenter, all count as there.
//!
//! A level with a tag names its nodes instead, in any datacenter. The first of its alternatives
//! with a live node that was not tried decides, by steps 1 and 2 among its nodes. There is no step
//! 3: the client gets Unavailable.
//!
//! Within a group the node with the least load is taken. Conditional writes and SERIAL reads take
//! the replicas of the first group in the order of the ring instead: their rounds of Paxos then
//! meet at one coordinator, and do not outbid each other.

use schema::Token;
use workload::{Alternative, Tag};

use crate::topology::Topology;

/// Nodes that one request tries, at most.
pub(crate) const ATTEMPTS_MAX: usize = 16;

/// Order of the replicas of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaOrder {
    /// Least load first.
    LeastLoaded,
    /// Order of the ring: conditional writes, SERIAL and LOCAL_SERIAL reads.
    Ring,
}

/// Requests of one core at one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeLoad {
    /// Requests without an answer.
    pub(crate) in_flight: u32,
    /// Requests that wait on the core.
    pub(crate) queued: u32,
    /// The core's part of the node's window, requests. 0 counts as 1.
    pub(crate) part: u32,
    /// True if this core could not reach the node a moment ago: it counts as down.
    pub(crate) is_avoided: bool,
}

impl NodeLoad {
    /// Returns true if one more request would load this node less than another:
    /// `(in flight + queued + 1) ÷ part`, compared without division.
    fn is_below(&self, other: &NodeLoad) -> bool {
        let requests =
            |load: &NodeLoad| u64::from(load.in_flight.saturating_add(load.queued).saturating_add(1));
        let part = |load: &NodeLoad| u64::from(load.part.max(1));
        requests(self) * part(other) < requests(other) * part(self)
    }
}

/// Candidates of one request, best first. Each is chosen when it is asked for, by the loads of that
/// moment.
#[derive(Clone, Debug)]
pub(crate) struct Candidates<'a> {
    topology: &'a Topology,
    replicas: &'a [u16],
    /// Nodes of the level. `None`: those of the front's own datacenter.
    tag: Option<&'a Tag>,
    order: ReplicaOrder,
    /// Number that differs from request to request: equal loads then take turns.
    turn: usize,
    tried: [u16; ATTEMPTS_MAX],
    attempts: usize,
}

impl<'a> Candidates<'a> {
    /// Begins the choice for a request. `token`: keyspace and token of its partition, if known.
    /// `turn` selects among equal loads, and should differ from request to request.
    #[must_use]
    pub(crate) fn new(
        topology: &'a Topology,
        token: Option<(&str, Token)>,
        order: ReplicaOrder,
        turn: usize,
    ) -> Candidates<'a> {
        let replicas = token.map_or(&[][..], |(keyspace, token)| topology.replicas(keyspace, token));
        Candidates { topology, replicas, tag: None, order, turn, tried: [0; ATTEMPTS_MAX], attempts: 0 }
    }

    /// Selects among the nodes of a tag.
    #[must_use]
    pub(crate) fn within(self, tag: Option<&'a Tag>) -> Candidates<'a> {
        Candidates { tag, ..self }
    }

    /// Returns the tag among whose nodes it selects.
    pub(crate) fn tag(&self) -> Option<&'a Tag> {
        self.tag
    }

    /// Returns the index of the next node. `load` returns the load of a node. `None`: all nodes, or
    /// [`ATTEMPTS_MAX`] of them, were tried.
    pub(crate) fn next(&mut self, load: impl Fn(usize) -> NodeLoad) -> Option<usize> {
        if self.attempts == ATTEMPTS_MAX {
            return None;
        }
        let topology = self.topology;
        let is_local = |node: usize| topology.is_local(node);
        let chosen = match self.tag {
            None => self
                .live(is_local, &load)
                .or_else(|| self.least_loaded(|node| is_local(node).then(|| load(node)))),
            Some(tag) => {
                let live = |of: &Alternative| self.live(|node| topology.nodes()[node].is_in(of), &load);
                tag.alternatives().iter().find_map(live)
            }
        }?;
        self.tried[self.attempts] = u16::try_from(chosen).expect("an index has 16 bits");
        self.attempts += 1;
        Some(chosen)
    }

    /// Returns the best live node of those for which `is_near` is true: replicas come first.
    fn live(&self, is_near: impl Fn(usize) -> bool, load: impl Fn(usize) -> NodeLoad) -> Option<usize> {
        let near = |node: usize| {
            let load = (self.topology.nodes()[node].is_up && is_near(node)).then(|| load(node));
            load.filter(|load| !load.is_avoided)
        };
        self.best_replica(near).or_else(|| self.least_loaded(near))
    }

    /// Returns the index of the node that was chosen last.
    pub(crate) fn last(&self) -> Option<usize> {
        self.tried[..self.attempts].last().map(|node| usize::from(*node))
    }

    /// Lets all nodes be tried again.
    pub(crate) fn restart(&mut self) {
        self.attempts = 0;
    }

    /// Returns the best of the replicas for which `load` returns one.
    fn best_replica(&self, load: impl Fn(usize) -> Option<NodeLoad>) -> Option<usize> {
        let node_at = |at: usize| usize::from(self.replicas[at]);
        match self.order {
            ReplicaOrder::Ring => (0..self.replicas.len())
                .map(node_at)
                .find(|&node| self.is_untried(node) && load(node).is_some()),
            ReplicaOrder::LeastLoaded => self.least(self.turned(self.replicas.len()).map(node_at), load),
        }
    }

    fn least_loaded(&self, load: impl Fn(usize) -> Option<NodeLoad>) -> Option<usize> {
        self.least(self.turned(self.topology.nodes().len()), load)
    }

    /// Returns the first of the untried nodes with the least load. Those without one do not count.
    fn least(
        &self,
        nodes: impl Iterator<Item = usize>,
        load: impl Fn(usize) -> Option<NodeLoad>,
    ) -> Option<usize> {
        let loaded = nodes.filter(|&node| self.is_untried(node)).filter_map(|node| Some((node, load(node)?)));
        let less = |best: (usize, NodeLoad), next: (usize, NodeLoad)| {
            if next.1.is_below(&best.1) { next } else { best }
        };
        loaded.reduce(less).map(|(node, _)| node)
    }

    /// Returns all positions of a list, from that of the turn.
    fn turned(&self, len: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.turn % len.max(1);
        (first..len).chain(0..first)
    }

    fn is_untried(&self, node: usize) -> bool {
        !self.tried[..self.attempts].iter().any(|&tried| usize::from(tried) == node)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use testkit::Random;

    use super::*;
    use crate::topology::tests::node;
    use crate::topology::{ClusterNode, Ring};

    const IDLE: NodeLoad = NodeLoad { in_flight: 0, queued: 0, part: 8, is_avoided: false };

    /// Nodes per rack in a cluster of two datacenters with three racks each.
    const PER_RACK: usize = 2;

    /// Returns the nodes of datacenters `a` and `b`, and a ring with keyspaces `ks` (three replicas
    /// in each) and `remote` (three in b).
    fn cluster(random: &mut Random) -> (Vec<ClusterNode>, Ring) {
        let mut nodes = Vec::new();
        for (datacenter, rack) in ["a", "b"].into_iter().flat_map(|dc| [(dc, "1"), (dc, "2"), (dc, "3")]) {
            for _ in 0..PER_RACK {
                nodes.push(node(nodes.len() as u8 + 1, datacenter, rack));
            }
        }
        let owners: Vec<(Token, u16)> =
            (0..nodes.len() * 8).map(|n| (random.next_u64() as Token, (n % nodes.len()) as u16)).collect();
        let mut owners = owners;
        owners.sort_unstable();
        let mut ring = Ring::new(owners.iter().map(|(token, _)| *token).collect());
        let walk = |token: Token, datacenters: &[&str], out: &mut Vec<u16>| {
            let start = owners.partition_point(|(end, _)| *end < token);
            let mut racks: Vec<(&str, &str)> = Vec::new();
            for (_, owner) in owners[start..].iter().chain(&owners[..start]) {
                let node = &nodes[usize::from(*owner)];
                let rack = (&*node.datacenter, &*node.rack);
                if datacenters.contains(&rack.0) && !racks.contains(&rack) {
                    racks.push(rack);
                    out.push(*owner);
                }
            }
        };
        for (name, datacenters) in [("ks", &["a", "b"][..]), ("remote", &["b"])] {
            let placement = ring.add_placement(|token, out| walk(token, datacenters, out)).expect("few");
            ring.add_keyspace(name, placement);
        }
        (nodes, ring)
    }

    /// Returns all candidates by the plain rule: sorts each group as a whole.
    fn naive(
        topology: &Topology,
        replicas: &[u16],
        order: ReplicaOrder,
        turn: usize,
        loads: &[NodeLoad],
    ) -> Vec<usize> {
        let value = |node: &usize| {
            let load = &loads[*node];
            f64::from(load.in_flight + load.queued + 1) / f64::from(load.part.max(1))
        };
        let turned = |mut nodes: Vec<usize>| {
            let first = turn % nodes.len().max(1);
            nodes.rotate_left(first);
            nodes
        };
        let all = turned((0..topology.nodes().len()).collect());
        let mut own: Vec<usize> = replicas.iter().map(|node| usize::from(*node)).collect();
        if order == ReplicaOrder::LeastLoaded {
            own = turned(own);
        }
        let is_up = |node: &usize| topology.nodes()[*node].is_up;
        let is_near = |node: &usize| is_up(node) && topology.is_local(*node);
        let is_local = |node: &usize| topology.is_local(*node);
        let mut groups: [Vec<usize>; 3] = [
            own.into_iter().filter(is_near).collect(),
            all.iter().copied().filter(is_near).collect(),
            all.into_iter().filter(is_local).collect(),
        ];
        let mut chosen: Vec<usize> = Vec::new();
        for (number, group) in groups.iter_mut().enumerate() {
            if number > 0 || order == ReplicaOrder::LeastLoaded {
                group.sort_by(|one, other| value(one).total_cmp(&value(other)));
            }
            for node in group {
                if !chosen.contains(node) {
                    chosen.push(*node);
                }
            }
        }
        chosen.truncate(ATTEMPTS_MAX);
        chosen
    }

    fn chosen(mut candidates: Candidates<'_>, loads: &[NodeLoad]) -> Vec<usize> {
        std::iter::from_fn(|| candidates.next(|node| loads[node])).collect()
    }

    #[test]
    fn candidates_follow_the_plain_rule() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let (mut nodes, ring) = cluster(&mut random);
            nodes.iter_mut().for_each(|node| node.is_up = random.below(4) > 0);
            let topology = Topology::new(nodes, random.pick(&["a", "b", "c"]).into(), Arc::new(ring));
            // Powers of two: quotients are exact.
            let loads: Vec<NodeLoad> = (0..topology.nodes().len())
                .map(|_| NodeLoad {
                    in_flight: random.below(5) as u32,
                    queued: random.below(3) as u32,
                    part: random.pick(&[0, 1, 4, 8]),
                    is_avoided: false,
                })
                .collect();
            let order = random.pick(&[ReplicaOrder::LeastLoaded, ReplicaOrder::Ring]);
            let token = random.next_u64() as Token;
            let keyspace = random.pick(&["ks", "remote", "unknown"]);
            let turn = random.index(1_000);
            let candidates = Candidates::new(&topology, Some((keyspace, token)), order, turn);
            let expected = naive(&topology, topology.replicas(keyspace, token), order, turn, &loads);
            assert_eq!(chosen(candidates, &loads), expected, "seed {seed}");
        }
    }

    #[test]
    fn replicas_of_the_own_datacenter_come_first() {
        let (nodes, ring) = cluster(&mut Random::new(1));
        let topology = Topology::new(nodes, "a".into(), Arc::new(ring));
        let replicas = topology.replicas("ks", 7);
        assert_eq!(replicas.len(), 6);
        let own: Vec<usize> =
            replicas.iter().map(|node| usize::from(*node)).filter(|node| topology.is_local(*node)).collect();
        let idle = vec![IDLE; topology.nodes().len()];
        let ring_order = chosen(Candidates::new(&topology, Some(("ks", 7)), ReplicaOrder::Ring, 5), &idle);
        assert_eq!(ring_order[..3], own);
        assert!(ring_order[3..6].iter().all(|node| topology.is_local(*node)), "then others there");
        assert_eq!(ring_order.len(), 6, "those of other datacenters are not asked");
        let mut loads = idle;
        loads[own[0]].in_flight = 3;
        loads[own[1]].queued = 1;
        let by_load =
            chosen(Candidates::new(&topology, Some(("ks", 7)), ReplicaOrder::LeastLoaded, 5), &loads);
        assert_eq!(by_load[..3], [own[2], own[1], own[0]]);
    }

    #[test]
    fn tag_selects_the_first_alternative_with_a_live_node() {
        let (mut nodes, ring) = cluster(&mut Random::new(1));
        let check = |nodes: &[ClusterNode], avoided: &[usize], tag: &str, expected: &[usize]| {
            let topology = Topology::new(nodes.to_vec(), "a".into(), Arc::default());
            let tag = Tag::parse(tag).expect("valid");
            let mut candidates =
                Candidates::new(&topology, None, ReplicaOrder::LeastLoaded, 0).within(Some(&tag));
            let load = |node| NodeLoad { is_avoided: avoided.contains(&node), ..IDLE };
            let chosen: Vec<usize> = std::iter::from_fn(|| candidates.next(load)).collect();
            assert_eq!(chosen, expected, "{tag}");
        };
        check(&nodes, &[], "dc:b", &[6, 7, 8, 9, 10, 11]);
        check(&nodes, &[], "rack:b/2", &[8, 9]);
        check(&nodes, &[], "nodes:10.0.0.4,10.0.0.12", &[3, 11]);
        check(&nodes, &[], "rack:b/2 > rack:a/1", &[8, 9, 0, 1]);
        check(&nodes, &[8], "rack:b/2 > rack:a/1", &[9, 0, 1]);
        nodes[9].is_up = false;
        check(&nodes, &[8], "rack:b/2 > rack:a/1", &[0, 1]);
        check(&nodes, &[8], "rack:b/2", &[]);
        // Replicas of the tag come first.
        let topology = Topology::new(nodes, "a".into(), Arc::new(ring));
        let tag = Tag::parse("dc:b").expect("valid");
        let candidates = Candidates::new(&topology, Some(("ks", 7)), ReplicaOrder::Ring, 0);
        let chosen = chosen(candidates.within(Some(&tag)), &[IDLE; 12]);
        let replicas = topology.replicas("ks", 7).iter().map(|node| usize::from(*node));
        let there: Vec<usize> = replicas.filter(|node| *node > 5 && *node != 9).collect();
        assert_eq!(chosen[..there.len()], there);
        assert_eq!(chosen.len(), 5, "all live nodes of b");
    }

    #[test]
    fn part_of_the_window_weighs_the_load() {
        let load = |in_flight, queued, part| NodeLoad { in_flight, queued, part, is_avoided: false };
        assert!(load(7, 0, 32).is_below(&load(3, 0, 8)));
        assert!(!load(3, 0, 8).is_below(&load(3, 0, 8)));
        assert!(load(1, 1, 0).is_below(&load(2, 1, 1)));
        assert!(load(u32::MAX, 0, u32::MAX).is_below(&load(u32::MAX, u32::MAX, 1)));
    }

    #[test]
    fn equal_loads_take_turns() {
        let (nodes, ring) = cluster(&mut Random::new(1));
        let topology = Topology::new(nodes, "a".into(), Arc::new(ring));
        let first = |turn| {
            let mut candidates = Candidates::new(&topology, None, ReplicaOrder::LeastLoaded, turn);
            candidates.next(|_| IDLE).expect("a node")
        };
        let mut firsts: Vec<usize> = (0..6).map(first).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 1, 2, 3, 4, 5], "each node of the datacenter once");
    }

    #[test]
    fn attempts_are_bounded_and_an_empty_cluster_has_none() {
        let nodes = (0..40).map(|n| node(n, "a", "r")).collect();
        let many = Topology::new(nodes, "a".into(), Arc::default());
        let candidates = Candidates::new(&many, None, ReplicaOrder::LeastLoaded, 0);
        assert_eq!(chosen(candidates, &[IDLE; 40]).len(), ATTEMPTS_MAX);
        let none = Topology::new(Vec::new(), "a".into(), Arc::default());
        assert!(chosen(Candidates::new(&none, None, ReplicaOrder::Ring, 3), &[]).is_empty());
    }
}
