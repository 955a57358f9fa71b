//! Division of the nodes' windows among the cores and the levels of this front, ten times a second.
//!
//! ```text
//!   core 0 ── requests in flight and waiting ─▶ ┌──────────┐ ─▶ places, weights, limits ──▶ core 0
//!   core 1 ── by node and level ──────────────▶ │ Division │ ─────────────────────────────▶ core 1
//!                                               └──────────┘  core 0 divides (sched::Parts)
//! ```
//!
//! A core's place in the ratio of shares follows the requests: a level whose requests are all on
//! one core has its whole weight there.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lanes::Group;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sched::cluster::{PartSpec, Parts};
use sched::control::{NodeSample, NodeWindow};
use sched::{NodeSpec, NodeUse, SHARES_MAX, SHARES_MIN};
use workload::{Catalog, LevelEntry};

use crate::part::{CorePart, Entitlement, LevelPart, LevelReport, NodeReport, PPM, WINDOW_BOUNDS, part_spec};
use crate::reach::Nodes;
use crate::topology::{ClusterNode, Topology};

/// Thousandths in a place.
const MILLI: u64 = 1000;

/// Use of a node on all cores of this front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeUsage {
    /// Address of the node.
    pub address: SocketAddr,
    /// Requests in flight at the node, at most.
    pub window: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Levels with requests since the start, by name.
    pub levels: Vec<LevelUsage>,
}

/// Use of a node by a level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelUsage {
    /// Name of the level.
    pub level: Arc<str>,
    /// Its use.
    pub used: NodeUse,
}

/// State of all cores.
#[derive(Default)]
pub(crate) struct Windows(Mutex<State>);

#[derive(Default)]
struct State {
    /// Use of the nodes, by core.
    reports: Vec<FxHashMap<SocketAddr, NodeReport>>,
    /// Parts of the nodes, by core.
    parts: Vec<FxHashMap<SocketAddr, CorePart>>,
    /// Answers of the nodes since the last division, for the limiter.
    samples: FxHashMap<SocketAddr, NodeSample>,
    /// Windows in force.
    windows: FxHashMap<SocketAddr, u32>,
}

impl Windows {
    /// Publishes the use of the nodes on this core, and returns its parts. `division`: that of core
    /// 0, which divides.
    pub(crate) fn exchange(
        &self,
        nodes: &Nodes,
        interval_ns: u64,
        division: Option<(&mut Division, &Catalog)>,
    ) -> FxHashMap<SocketAddr, CorePart> {
        let (core, cores) = (lanes::current_core(), lanes::cores());
        let report = nodes.nodes.iter().map(|node| (node.address, node.report())).collect();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.reports.resize_with(cores, FxHashMap::default);
        state.parts.resize_with(cores, FxHashMap::default);
        state.reports[core] = report;
        for node in &nodes.nodes {
            node.give_sample(&mut state.samples, interval_ns);
        }
        if let Some((division, catalog)) = division {
            let State { reports, parts, samples, windows } = &mut *state;
            *windows = division.windows(&nodes.topology, samples);
            *parts = division.divide(windows, catalog, reports);
        }
        state.parts[core].clone()
    }

    /// Returns the use of the nodes on all cores, in the order of their addresses.
    pub(crate) fn usage(&self, catalog: &Catalog) -> Vec<NodeUsage> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut nodes: BTreeMap<SocketAddr, FxHashMap<Group, NodeUse>> = BTreeMap::new();
        for (node, report) in state.reports.iter().flatten() {
            let levels = nodes.entry(*node).or_default();
            report.levels.iter().for_each(|level| levels.entry(level.group).or_default().add(level.used));
        }
        let windows = state.windows.clone();
        drop(state);
        let usage = |(address, levels): (SocketAddr, FxHashMap<Group, NodeUse>)| {
            let level = |entry: &Arc<LevelEntry>| {
                let used = levels.get(&entry.level.group()).copied();
                // A node without requests shows, too.
                let used = used.or_else(|| (entry.level.group() == Group::DEFAULT).then(NodeUse::default));
                Some(LevelUsage { level: entry.level.name().clone(), used: used? })
            };
            let in_flight = levels.values().map(|used| used.in_flight).sum();
            let window = windows.get(&address).copied().unwrap_or(0);
            NodeUsage { address, window, in_flight, levels: catalog.entries().filter_map(level).collect() }
        };
        nodes.into_iter().map(usage).collect()
    }
}

/// Limiter of a node's window.
struct Limiter {
    window: NodeWindow,
    /// True if the node was up at the last tick.
    was_up: bool,
}

/// Division of windows, with the buffers that it needs.
#[derive(Default)]
pub(crate) struct Division {
    /// Window of every node. `None`: each has a limiter.
    fixed: Option<u32>,
    limiters: FxHashMap<SocketAddr, Limiter>,
    parts: Parts,
    specs: Vec<PartSpec>,
    demand: Vec<u32>,
}

impl Division {
    /// Creates a division of windows of a fixed size. `None`: limiters find them.
    pub(crate) fn new(fixed: Option<u32>) -> Division {
        Division { fixed, ..Division::default() }
    }

    /// Returns the windows of the nodes. Takes the answers since the last call.
    fn windows(
        &mut self,
        topology: &Topology,
        samples: &mut FxHashMap<SocketAddr, NodeSample>,
    ) -> FxHashMap<SocketAddr, u32> {
        let nodes = topology.nodes();
        if let Some(fixed) = self.fixed {
            return nodes.iter().map(|node| (node.address, fixed)).collect();
        }
        let known: FxHashSet<SocketAddr> = nodes.iter().map(|node| node.address).collect();
        samples.retain(|node, _| known.contains(node));
        self.limiters.retain(|node, _| known.contains(node));
        // Fronts find the moments of their drains by the time of the day.
        let now_ns = u64::try_from(lanes::time::unix_micros()).unwrap_or(0).saturating_mul(1000);
        let tick = |node: &ClusterNode| {
            let limiter = self.limiters.entry(node.address).or_insert_with(|| Limiter::new(node));
            if node.is_up && !limiter.was_up {
                *limiter = Limiter::new(node);
            }
            limiter.was_up = node.is_up;
            (node.address, limiter.window.tick(now_ns, samples.entry(node.address).or_default()))
        };
        nodes.iter().map(tick).collect()
    }

    /// Divides the window of each node. Returns the parts, by core.
    fn divide(
        &mut self,
        windows: &FxHashMap<SocketAddr, u32>,
        catalog: &Catalog,
        reports: &[FxHashMap<SocketAddr, NodeReport>],
    ) -> Vec<FxHashMap<SocketAddr, CorePart>> {
        let entries: Vec<&LevelEntry> = catalog.entries().map(|entry| &**entry).collect();
        let mut divided = vec![FxHashMap::default(); reports.len()];
        for (node, window) in windows {
            let of_node: Vec<Option<&NodeReport>> = reports.iter().map(|of_core| of_core.get(node)).collect();
            for (core, part) in self.divide_node(*window, &entries, &of_node).into_iter().enumerate() {
                divided[core].insert(*node, part);
            }
        }
        divided
    }

    fn divide_node(
        &mut self,
        window: u32,
        entries: &[&LevelEntry],
        reports: &[Option<&NodeReport>],
    ) -> Vec<CorePart> {
        let cores = reports.len();
        let demand_of = |level: &LevelReport| level.used.in_flight.saturating_add(level.used.queued);
        let mut demands: FxHashMap<Group, Vec<u32>> = FxHashMap::default();
        for (core, report) in reports.iter().enumerate() {
            for level in report.iter().flat_map(|report| &report.levels).filter(|level| demand_of(level) > 0)
            {
                demands.entry(level.group).or_insert_with(|| vec![0; cores])[core] = demand_of(level);
            }
        }
        let mut used = entries.to_vec();
        used.retain(|entry| demands.contains_key(&entry.level.group()));
        self.specs.clear();
        self.specs.extend(used.iter().map(|entry| part_spec(&entry.level, &entry.spec)));
        self.demand.clear();
        self.demand.extend(used.iter().flat_map(|entry| &demands[&entry.level.group()]));
        self.parts.divide(window, &self.specs, cores, &self.demand);
        (0..cores).map(|core| self.core_part(core, cores, window, &used)).collect()
    }

    fn core_part(&self, core: usize, cores: usize, window: u32, used: &[&LevelEntry]) -> CorePart {
        let places = u32::try_from(self.parts.places(core)).unwrap_or(u32::MAX).max(1);
        let largest = self.specs.iter().map(|spec| spec.shares).max().unwrap_or(SHARES_MAX);
        let scale = (SHARES_MAX / largest).max(1);
        // Part of each level that this core has, in millionths.
        let fractions: Vec<u64> = (0..used.len())
            .map(|level| self.parts.part_milli(level, core) * PPM / self.parts.level_milli(level).max(1))
            .collect();
        let most = fractions.iter().copied().max().unwrap_or(0).max(1);
        let mut levels = Vec::new();
        for (level, entry) in used.iter().enumerate() {
            if self.demand[level * cores + core] == 0 {
                continue;
            }
            let spec = self.specs[level];
            let weight = u64::from(spec.shares * scale) * fractions[level] / most;
            let min_milli =
                u64::from(window) * u64::from(spec.min_ppm) * fractions[level] / (PPM * PPM / MILLI);
            let limit = self.parts.limit_milli(level, core);
            let entitlement = Entitlement {
                spec: NodeSpec {
                    shares: (weight as u32).clamp(SHARES_MIN, SHARES_MAX),
                    min_ppm: (min_milli * (PPM / MILLI) / u64::from(places)).min(PPM) as u32,
                    class: entry.spec.class(),
                },
                in_flight_max: limit.map_or(u32::MAX, |limit| limit.div_ceil(MILLI).max(1) as u32),
            };
            levels.push(LevelPart { group: entry.level.group(), entitlement });
        }
        CorePart { places, scale, levels }
    }
}

impl Limiter {
    fn new(node: &ClusterNode) -> Limiter {
        let offset_ns = FxBuildHasher.hash_one(node.address);
        Limiter { window: NodeWindow::new(WINDOW_BOUNDS, offset_ns), was_up: node.is_up }
    }
}

#[cfg(test)]
mod tests {
    use workload::LevelSpec;

    use super::*;

    fn report(levels: &[(Group, u32)]) -> NodeReport {
        let level = |&(group, queued)| LevelReport { group, used: NodeUse { queued, ..NodeUse::default() } };
        NodeReport { levels: levels.iter().map(level).collect() }
    }

    /// Divides a window of 100 places on two cores. Returns the places of each core, with its
    /// weight of each level.
    fn divide(levels: &[(&str, u16)], demand: [&[u32]; 2]) -> Vec<(u32, Vec<u32>)> {
        let lanes = testkit::start_lanes(1);
        let all = workload::Levels::new(lanes.clone());
        for &(name, shares) in levels {
            all.create(LevelSpec { shares, ..LevelSpec::new(name) }).expect("a new level");
        }
        let catalog = all.catalog();
        let groups: Vec<Group> =
            levels.iter().map(|(name, _)| catalog.get(name).expect("created").level.group()).collect();
        let node = SocketAddr::from(([127, 0, 0, 1], 9042));
        let reports = demand.map(|demand| {
            let levels: Vec<_> = groups.iter().copied().zip(demand.iter().copied()).collect();
            FxHashMap::from_iter([(node, report(&levels))])
        });
        let parts = Division::default().divide(&FxHashMap::from_iter([(node, 100)]), &catalog, &reports);
        let of_core = |part: &CorePart| {
            let weight = |group: &Group| {
                let level = part.levels.iter().find(|level| level.group == *group);
                level.map_or(0, |level| level.entitlement.spec.shares)
            };
            (part.places, groups.iter().map(weight).collect())
        };
        parts.iter().map(|of| of_core(&of[&node])).collect()
    }

    #[test]
    fn weights_follow_the_cores_of_the_requests() {
        // All requests of the first level are on core 0, those of the second on both.
        let parts = divide(&[("a", 800), ("b", 200)], [&[500, 500], &[0, 500]]);
        assert_eq!(parts, [(90, vec![800, 100]), (10, vec![0, 200])]);
    }

    #[test]
    fn places_without_demand_are_spread_over_the_cores() {
        let parts = divide(&[("a", 1), ("b", 4)], [&[10, 0], &[0, 10]]);
        assert_eq!(parts, [(50, vec![250, 0]), (50, vec![0, 1000])]);
    }
}
