//! Random trees, and a record of the CPU charged to each node.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unreachable_pub, reason = "shared by several test binaries")]

use std::cell::Cell;
use std::rc::Rc;

use proptest::test_runner::{Config, RngSeed};
use sched::{Budget, CHARGE_MIN_NS, Class, LAG_NS_MAX, NodeId, NodeSpec, SLICE_NS, Tree};
use testkit::Random;

/// Most CPU time that a group may have saved up, ns: its credit and its lag.
pub const SAVED_NS: u64 = SLICE_NS + LAG_NS_MAX as u64;

/// Returns a configuration with the same cases on every run. A failure prints the shrunk input.
pub fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x00fa_171a_9e00),
        ..Config::default()
    }
}

/// Budget that cores share. All of them run in one thread here.
#[derive(Clone, Default)]
pub struct Shared(Rc<Cell<u64>>);

impl Budget for Shared {
    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        self.0.replace(change(self.0.get()))
    }
}

impl Shared {
    pub fn paid_until_ns(&self) -> u64 {
        self.0.get()
    }

    pub fn set(&self, paid_until_ns: u64) {
        self.0.set(paid_until_ns);
    }
}

/// Returns a random specification, often at the ends of the range, where errors are likely.
pub fn spec(random: &mut Random) -> NodeSpec {
    let shares = match random.below(4) {
        0 => 1,
        1 => 1000,
        _ => random.within(1, 1001) as u32,
    };
    NodeSpec::new(shares, random.pick(&[Class::Latency, Class::Batch, Class::Normal]))
}

/// Returns a slice length over five decades, up to `longest`.
pub fn slice_ns(random: &mut Random, longest: u64) -> u64 {
    let scale = random.pick(&[1, 10, 100, 1_000, 10_000]);
    random.below((longest / scale).max(1) + 1)
}

/// Tree with a record of the values in the proved bounds. Index 0 is the root.
pub struct Recorded {
    pub tree: Tree,
    pub nodes: Vec<Record>,
}

pub struct Record {
    pub id: NodeId,
    pub parent: usize,
    pub spec: NodeSpec,
    pub leaf: bool,
    /// CPU charged to it and its descendants, ns.
    pub charged_ns: u64,
    /// Longest such charge, ns.
    pub longest_ns: u64,
    /// Slices of it and its descendants.
    pub picks: u64,
}

impl Recorded {
    pub fn new() -> Recorded {
        let spec = NodeSpec::new(1, Class::Normal);
        let root =
            Record { id: Tree::ROOT, parent: 0, spec, leaf: false, charged_ns: 0, longest_ns: 0, picks: 0 };
        Recorded { tree: Tree::new(), nodes: vec![root] }
    }

    /// Creates a random tree of `count` nodes, at most four deep.
    pub fn random(random: &mut Random, count: usize) -> Recorded {
        let mut recorded = Recorded::new();
        while recorded.nodes.len() <= count {
            let parent = random.within(0, recorded.nodes.len() as u64) as usize;
            if recorded.path(parent).count() < 4 {
                let spec = spec(random);
                recorded.add(parent, spec);
            }
        }
        recorded
    }

    pub fn add(&mut self, parent: usize, spec: NodeSpec) -> usize {
        let id = self.tree.add(self.nodes[parent].id, spec);
        self.nodes[parent].leaf = false;
        self.nodes.push(Record { id, parent, spec, leaf: true, charged_ns: 0, longest_ns: 0, picks: 0 });
        self.nodes.len() - 1
    }

    pub fn set(&mut self, at: usize, spec: NodeSpec) {
        self.tree.set(self.nodes[at].id, spec);
        self.nodes[at].spec = spec;
    }

    /// Returns the node and its ancestors, without the root.
    pub fn path(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(from), |&at| Some(self.nodes[at].parent)).take_while(|&at| at != 0)
    }

    pub fn leaves(&self) -> Vec<usize> {
        (1..self.nodes.len()).filter(|&at| self.nodes[at].leaf).collect()
    }

    /// Picks a leaf, runs it for `ns` and charges it. Returns the leaf.
    pub fn run(&mut self, ns: u64) -> Option<usize> {
        self.run_while(ns, |_| {})
    }

    /// Does the same as [`Recorded::run`], and calls `happens` while the leaf runs.
    pub fn run_while(&mut self, ns: u64, happens: impl FnOnce(&mut Recorded)) -> Option<usize> {
        let id = self.tree.pick()?;
        let leaf = self.nodes.iter().position(|node| node.id == id).expect("known");
        happens(self);
        self.tree.charge(id, ns);
        let charged = ns.max(CHARGE_MIN_NS);
        for at in self.path(leaf).collect::<Vec<_>>() {
            let node = &mut self.nodes[at];
            node.charged_ns += charged;
            node.longest_ns = node.longest_ns.max(charged);
            node.picks += 1;
        }
        Some(leaf)
    }

    /// Returns CPU time ÷ shares.
    pub fn served(&self, at: usize) -> f64 {
        self.nodes[at].charged_ns as f64 / f64::from(self.nodes[at].spec.shares)
    }

    /// Returns (longest slice + saved time) ÷ shares: the most by which a node's served time may
    /// differ from that of its siblings.
    pub fn reach(&self, at: usize, saved_ns: u64) -> f64 {
        (self.nodes[at].longest_ns + saved_ns) as f64 / f64::from(self.nodes[at].spec.shares)
    }
}
