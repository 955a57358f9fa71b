//! Division of the nodes' windows among the cores and the levels of this front, ten times a second.
//!
//! ```text
//!   core 0 ── requests in flight and waiting ─▶ ┌──────────┐ ─▶ places, weights, limits ──▶ core 0
//!   core 1 ── by node and level ──────────────▶ │ Division │ ─────────────────────────────▶ core 1
//!                                               └──────────┘  core 0 divides (sched::Parts)
//! ```
//!
//! One node is divided in a task poll, and other tasks of the core run between two nodes.
//!
//! In a fleet, the cores of all fronts divide each window by the same rule. Every second they learn
//! what the others want, and take the median of the windows that limiters have found.
//!
//! A node that comes up has the least window while statements are prepared (`coming_up.rs`). Then a
//! window that is fixed doubles with each division, and a limiter starts anew.
//!
//! A core's place in the ratio of shares follows the requests: a level whose requests are all on
//! one core has its whole weight there.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lanes::Group;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sched::cluster::{PartSpec, Parts};
use sched::control::{NodeSample, NodeWindow, entitlement_ppm};
use sched::{NodeSpec, NodeUse, SHARES_MAX, SHARES_MIN};
use workload::{Catalog, LevelEntry};

use crate::coming_up::ComingUp;
use crate::fleet::{Fleet, FleetDemand, Other};
use crate::node::Node;
use crate::part::{
    CorePart, Entitlement, LevelReport, NodeReport, PPM, WINDOW_BOUNDS, class_of, is_probing, part_spec,
};
use crate::prepared::UsedPlan;
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

/// State of the nodes that all cores share.
#[derive(Default)]
pub(crate) struct Windows(Mutex<FxHashMap<SocketAddr, SharedNode>>);

#[derive(Default)]
struct SharedNode {
    /// Use of the node, by core.
    reports: Vec<Arc<NodeReport>>,
    /// Parts of its window, by core. `None`: it was not divided yet.
    parts: Vec<Option<Arc<CorePart>>>,
    /// Answers since the last division, for the limiter.
    sample: NodeSample,
    /// Window in force.
    window: u32,
    coming_up: ComingUp,
}

/// Result of an exchange, for one core.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Exchanged {
    /// Its part of the window. `None`: it was not divided yet.
    pub(crate) part: Option<Arc<CorePart>>,
    /// Number of times that the node has come up since the start.
    pub(crate) came_up: u64,
}

impl Windows {
    /// Publishes the use of a node on this core, and returns the core's part of its window. Core 0
    /// passes its `division`, and divides the window first, without the lock: other cores must not
    /// wait for that.
    pub(crate) fn exchange(
        &self,
        node: &Node,
        of: &ClusterNode,
        interval_ns: u64,
        division: Option<(&mut Division, &Catalog)>,
    ) -> Exchanged {
        let (core, cores) = (lanes::current_core(), lanes::cores());
        let report = Arc::new(node.report());
        let mut nodes = self.lock();
        let shared = nodes.entry(node.address).or_default();
        shared.reports.resize_with(cores, Arc::default);
        shared.parts.resize(cores, None);
        shared.reports[core] = report;
        node.give_sample(&mut shared.sample, interval_ns);
        let Some((division, catalog)) = division else {
            return Exchanged { part: shared.parts[core].clone(), came_up: shared.coming_up.count() };
        };
        division.sample.take(&mut shared.sample);
        division.watch(of, &mut shared.coming_up, cores);
        let (reports, came_up) = (shared.reports.clone(), shared.coming_up.count());
        drop(nodes);
        let window = division.window(of.address);
        let divided = division.divide(node.address, window, catalog, &reports);
        let parts: Vec<_> = divided.into_iter().map(|part| Some(Arc::new(part))).collect();
        let part = parts[core].clone();
        let mut nodes = self.lock();
        let shared = nodes.entry(node.address).or_default();
        (shared.window, shared.parts) = (window, parts);
        Exchanged { part, came_up }
    }

    /// Takes over statements of this core for a node: see [`ComingUp::take`].
    pub(crate) fn take_statements<'a>(
        &self,
        node: SocketAddr,
        count: u64,
        own: &mut impl Iterator<Item = &'a UsedPlan>,
        max: usize,
    ) -> Vec<&'a UsedPlan> {
        let now_ns = lanes::time::monotonic_ns();
        let mut nodes = self.lock();
        nodes.get_mut(&node).map_or_else(Vec::new, |node| node.coming_up.take(count, own, max, now_ns))
    }

    /// Counts a core as done with the preparations at a node.
    pub(crate) fn core_done(&self, node: SocketAddr, count: u64) {
        self.lock().get_mut(&node).into_iter().for_each(|node| node.coming_up.core_done(count));
    }

    /// Begins a round of divisions. Forgets the nodes that have left the cluster.
    pub(crate) fn begin(&self, topology: &Topology, division: &mut Division) {
        let known: FxHashSet<SocketAddr> = topology.nodes().iter().map(|node| node.address).collect();
        self.lock().retain(|node, _| known.contains(node));
        division.states.retain(|node, _| known.contains(node));
        division.begin(topology);
    }

    /// Returns the use of the nodes on all cores, in the order of their addresses.
    pub(crate) fn usage(&self, catalog: &Catalog) -> Vec<NodeUsage> {
        let nodes = self.lock();
        let copied =
            |(address, node): (&SocketAddr, &SharedNode)| (*address, node.window, node.reports.clone());
        let mut nodes: Vec<_> = nodes.iter().map(copied).collect();
        nodes.sort_unstable_by_key(|(address, ..)| *address);
        let usage = |(address, window, reports): (SocketAddr, u32, Vec<Arc<NodeReport>>)| {
            let mut levels: FxHashMap<Group, NodeUse> = FxHashMap::default();
            for level in reports.iter().flat_map(|report| &report.levels) {
                levels.entry(level.group).or_default().add(level.used);
            }
            let level = |entry: &Arc<LevelEntry>| {
                let used = levels.get(&entry.level.group()).copied();
                // A node without requests shows, too.
                let used = used.or_else(|| (entry.level.group() == Group::DEFAULT).then(NodeUse::default));
                Some(LevelUsage { level: entry.level.name().clone(), used: used? })
            };
            let in_flight = levels.values().map(|used| used.in_flight).sum();
            NodeUsage { address, window, in_flight, levels: catalog.entries().filter_map(level).collect() }
        };
        nodes.into_iter().map(usage).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<SocketAddr, SharedNode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Window of a node.
enum Window {
    /// Present size of a fixed one, which it has not reached after the node came up.
    Fixed(u32),
    Limited(NodeWindow),
}

/// A node between two divisions.
struct NodeState {
    window: Window,
    /// True if the node was up at the last division.
    was_up: bool,
    /// True while statements are prepared at it. Its window then stays at the least.
    is_preparing: bool,
}

/// Division of windows, with the buffers that it needs.
#[derive(Default)]
pub(crate) struct Division {
    /// Window of every node. `None`: each has a limiter.
    fixed: Option<u32>,
    states: FxHashMap<SocketAddr, NodeState>,
    /// True once the nodes of the start are known. Those that follow come up.
    has_begun: bool,
    /// Answers of the node whose window is divided.
    sample: NodeSample,
    parts: Parts,
    specs: Vec<PartSpec>,
    demand: Vec<u32>,
    /// The fleet, whose fronts divide each window. `None`: this front stands alone.
    fleet: Option<FleetDemand>,
}

/// Takers of a window: the cores of all fronts.
struct Takers {
    /// Number of the first one of this front.
    first: usize,
    count: usize,
}

impl Division {
    /// Creates a division of windows of a fixed size. `None`: limiters find them.
    pub(crate) fn new(fixed: Option<u32>, fleet: Option<Arc<Fleet>>) -> Division {
        Division { fixed, fleet: fleet.map(FleetDemand::new), ..Division::default() }
    }

    /// Begins a round of divisions. Every second, exchanges windows and demands with the fleet.
    fn begin(&mut self, topology: &Topology) {
        if !std::mem::replace(&mut self.has_begun, true) {
            for node in topology.nodes() {
                let window = Window::new(self.fixed, node.address);
                let state = NodeState { window, was_up: node.is_up, is_preparing: false };
                self.states.insert(node.address, state);
            }
        }
        let Division { fleet: Some(fleet), states, .. } = self else { return };
        if !fleet.begin() {
            return;
        }
        let mut windows = FxHashMap::default();
        for (node, state) in states {
            let Window::Limited(window) = &mut state.window else { continue };
            if state.is_preparing {
                continue;
            }
            let own = window.publish();
            windows.extend(own.map(|own| (*node, own)));
            if let Some(median) = fleet.median(*node, own) {
                window.adopt(median);
            }
        }
        fleet.publish(lanes::cores(), windows);
    }

    /// Begins or ends preparations at a node that comes up or goes down.
    fn watch(&mut self, node: &ClusterNode, coming_up: &mut ComingUp, cores: usize) {
        let now_ns = lanes::time::monotonic_ns();
        let least = || Window::new(self.fixed.map(|fixed| fixed.min(WINDOW_BOUNDS.min)), node.address);
        let new = || NodeState { window: least(), was_up: false, is_preparing: false };
        let state = self.states.entry(node.address).or_insert_with(new);
        match (node.is_up, std::mem::replace(&mut state.was_up, node.is_up)) {
            (true, false) => {
                state.window = least();
                coming_up.begin(cores, now_ns);
            }
            (true, true) => {}
            (false, _) => coming_up.end(),
        }
        state.is_preparing = coming_up.is_preparing(now_ns);
    }

    /// Returns the window of a node. Takes the answers since its last call.
    fn window(&mut self, node: SocketAddr) -> u32 {
        let state = self.states.get_mut(&node).expect("a node is watched before");
        match &mut state.window {
            Window::Fixed(window) if state.is_preparing => *window,
            Window::Fixed(window) => {
                let next = window.saturating_mul(2).min(self.fixed.unwrap_or(*window));
                std::mem::replace(window, next)
            }
            Window::Limited(window) if state.is_preparing => {
                self.sample.clear();
                window.window()
            }
            Window::Limited(window) => {
                // Fronts find the moments of their drains by the time of the day.
                let now_ns = u64::try_from(lanes::time::unix_micros()).unwrap_or(0).saturating_mul(1000);
                window.tick(now_ns, &mut self.sample)
            }
        }
    }

    /// Divides the window of a node. Returns the parts, by core.
    fn divide(
        &mut self,
        node: SocketAddr,
        window: u32,
        catalog: &Catalog,
        reports: &[Arc<NodeReport>],
    ) -> Vec<CorePart> {
        let cores = reports.len();
        let demand_of = |level: &LevelReport| level.used.in_flight.saturating_add(level.used.queued);
        let mut demands: FxHashMap<Group, Vec<u32>> = FxHashMap::default();
        for (core, report) in reports.iter().enumerate() {
            for level in report.levels.iter().filter(|level| demand_of(level) > 0) {
                demands.entry(level.group).or_insert_with(|| vec![0; cores])[core] = demand_of(level);
            }
        }
        let [before, after] = self.fleet.as_ref().map(|fleet| fleet.others(node)).unwrap_or_default();
        let count = |others: &[Other<'_>]| others.iter().map(|other| other.cores).sum::<usize>();
        let takers = Takers { first: count(&before), count: count(&before) + cores + count(&after) };
        let (mut used, mut own) = (Vec::new(), Vec::new());
        self.specs.clear();
        self.demand.clear();
        for entry in catalog.entries() {
            let of_cores = demands.remove(&entry.level.group());
            let is_wanted = |other: &Other<'_>| !other.demand_of(entry.level.name()).is_empty();
            if of_cores.is_none() && !before.iter().chain(&after).any(is_wanted) {
                continue;
            }
            let row = self.demand.len();
            self.demand.resize(row + takers.count, 0);
            let demand = &mut self.demand[row..];
            add_others(demand, &before, entry.level.name());
            add_others(&mut demand[takers.first + cores..], &after, entry.level.name());
            of_cores.iter().for_each(|own| demand[takers.first..][..cores].copy_from_slice(own));
            self.specs.push(part_spec(&entry.level, &entry.spec));
            own.extend(of_cores.map(|of_cores| (entry.level.name().clone(), of_cores)));
            used.push(&**entry);
        }
        self.parts.divide(window, &self.specs, takers.count, &self.demand);
        if let Some(fleet) = &mut self.fleet {
            for (level, mut of_cores) in own {
                of_cores.iter_mut().for_each(|demand| *demand = (*demand).min(window));
                fleet.add(node, &level, &of_cores);
            }
        }
        (0..cores).map(|core| self.core_part(takers.first + core, takers.count, window, &used)).collect()
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
        let mut levels = FxHashMap::default();
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
                    class: class_of(&entry.spec),
                },
                in_flight_max: limit.map_or(u32::MAX, |limit| limit.div_ceil(MILLI).max(1) as u32),
                // With the places that no other level claims.
                places: (self.parts.part_milli(level, core) + self.parts.spare_milli(core)).div_ceil(MILLI)
                    as u32,
            };
            levels.insert(entry.level.group(), entitlement);
        }
        entitle(&mut levels, places);
        let is_probing = is_probing(lanes::time::unix_micros());
        CorePart { places, scale, is_probing, levels }
    }
}

/// Raises the places of each level to those that would be due to it with more requests: a level
/// with few of them gets places as it needs them.
fn entitle(levels: &mut FxHashMap<Group, Entitlement>, places: u32) {
    let sum =
        |of: fn(&NodeSpec) -> u32| levels.values().map(|level| of(&level.spec)).fold(0, u32::saturating_add);
    let (shares, min_ppm) = (sum(|spec| spec.shares), sum(|spec| spec.min_ppm));
    for level in levels.values_mut() {
        let due_ppm = entitlement_ppm(level.spec.shares, shares, level.spec.min_ppm, min_ppm, None);
        let due = (u64::from(places) * u64::from(due_ppm)).div_ceil(PPM) as u32;
        level.places = level.places.max(due).min(level.in_flight_max).max(1);
    }
}

/// Adds the demands of other fronts to a level's row, which begins with them.
fn add_others(mut row: &mut [u32], others: &[Other<'_>], level: &str) {
    for other in others {
        let (of_other, rest) = row.split_at_mut(other.cores);
        for &(core, demand) in other.demand_of(level) {
            if let Some(place) = of_other.get_mut(usize::from(core)) {
                *place = demand;
            }
        }
        row = rest;
    }
}

impl Window {
    /// Creates a window of a fixed size, or one with a limiter.
    fn new(fixed: Option<u32>, node: SocketAddr) -> Window {
        let limited = || Window::Limited(NodeWindow::new(WINDOW_BOUNDS, FxBuildHasher.hash_one(node)));
        fixed.map_or_else(limited, Window::Fixed)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use sched::control::ClassId;
    use wire::{Decoder, Direction, Encoder, Envelope, Failure, FailureKind, Limits, Prelude, Version};
    use workload::{Effective, LevelSpec};

    use super::*;

    fn report(levels: &[(Group, u32)]) -> NodeReport {
        let level = |&(group, queued)| LevelReport { group, used: NodeUse { queued, ..NodeUse::default() } };
        NodeReport { levels: levels.iter().map(level).collect() }
    }

    /// Divides a window of 100 places on two cores. Returns the parts of the cores, and the groups
    /// of the levels.
    fn parts(levels: &[(&str, u16)], demand: [&[u32]; 2]) -> (Vec<CorePart>, Vec<Group>) {
        let lanes = testkit::start_lanes(1);
        let all = workload::Levels::new(lanes.clone());
        for &(name, shares) in levels {
            all.create(LevelSpec { shares, ..LevelSpec::new(name) }).expect("a new level");
        }
        let catalog = all.catalog();
        let groups: Vec<Group> =
            levels.iter().map(|(name, _)| catalog.get(name).expect("created").level.group()).collect();
        let reports = demand.map(|demand| {
            let levels: Vec<_> = groups.iter().copied().zip(demand.iter().copied()).collect();
            Arc::new(report(&levels))
        });
        let node = ([127, 0, 0, 1], 9042).into();
        (Division::default().divide(node, 100, &catalog, &reports), groups)
    }

    /// Divides as [`parts`]. Returns the places of each core, with its weight of each level.
    fn divide(levels: &[(&str, u16)], demand: [&[u32]; 2]) -> Vec<(u32, Vec<u32>)> {
        let (parts, groups) = parts(levels, demand);
        let of_core = |part: &CorePart| {
            let weight = |group: &Group| part.levels.get(group).map_or(0, |level| level.spec.shares);
            (part.places, groups.iter().map(weight).collect())
        };
        parts.iter().map(of_core).collect()
    }

    #[test]
    fn weights_follow_the_cores_of_the_requests() {
        // All requests of the first level are on core 0, those of the second on both.
        let parts = divide(&[("a", 800), ("b", 200)], [&[500, 500], &[0, 500]]);
        assert_eq!(parts, [(90, vec![800, 100]), (10, vec![0, 200])]);
    }

    #[test]
    fn level_has_what_no_other_claims_or_what_is_due_to_it() {
        let places = |demand: [u32; 2]| {
            let (parts, groups) = parts(&[("a", 900), ("b", 100)], [&demand, &[0, 0]]);
            groups.iter().map(|group| parts[0].levels[group].places).collect::<Vec<_>>()
        };
        assert_eq!(places([1, 500]), [90, 99], "the first has few requests");
        assert_eq!(places([500, 500]), [90, 10]);
        assert_eq!(places([1, 1]), [50, 50], "spare places are spread over both cores");
    }

    #[test]
    fn places_without_demand_are_spread_over_the_cores() {
        let parts = divide(&[("a", 1), ("b", 4)], [&[10, 0], &[0, 10]]);
        assert_eq!(parts, [(50, vec![250, 0]), (50, vec![0, 1000])]);
    }

    #[test]
    fn node_is_divided_by_core_0_and_forgotten_when_it_leaves() {
        let lanes = testkit::start_lanes(1);
        let catalog = workload::Levels::new(lanes.clone()).catalog();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let topology = Topology::of_addresses(&[([127, 0, 0, 1], 9042).into()]);
            let of = &topology.nodes()[0];
            let node = Node::new(of.address, 1, false);
            let (windows, mut division) = (Windows::default(), Division::new(Some(8), None));
            windows.begin(&topology, &mut division);
            assert_eq!(windows.exchange(&node, of, 1, None).part, None, "not divided yet");
            let divided = windows.exchange(&node, of, 1, Some((&mut division, &catalog))).part;
            assert_eq!(divided.as_ref().map(|part| part.places), Some(8));
            assert_eq!(windows.exchange(&node, of, 1, None).part, divided);
            let shown = windows.usage(&catalog);
            assert_eq!((shown.len(), shown[0].window, shown[0].levels.len()), (1, 8, 1));
            windows.begin(&Topology::of_addresses(&[]), &mut division);
            assert!(windows.usage(&catalog).is_empty());
        });
        lanes.shutdown();
    }

    #[test]
    fn fixed_window_of_a_node_that_comes_up_doubles_after_the_preparations() {
        let lanes = testkit::start_lanes(2);
        let catalog = workload::Levels::new(lanes.clone()).catalog();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let all = Topology::of_addresses(&[1, 2].map(|host| ([127, 0, 0, host], 9042).into()));
            let [old, new] = [0, 1].map(|node| all.nodes()[node].clone());
            let first = Topology::new(vec![old.clone()], "datacenter1".into(), Arc::default());
            let (windows, mut division) = (Windows::default(), Division::new(Some(24), None));
            windows.begin(&first, &mut division);
            let mut window = |of: &ClusterNode| {
                let node = Node::new(of.address, 1, false);
                let came_up = windows.exchange(&node, of, 1, Some((&mut division, &catalog))).came_up;
                let usage = windows.usage(&catalog);
                let shown = usage.iter().find(|node| node.address == of.address).expect("divided");
                (came_up, shown.window)
            };
            let down = ClusterNode { is_up: false, ..old.clone() };
            assert_eq!([&old, &down].map(&mut window), [(0, 24); 2], "as at the start");
            for (node, count) in [(&old, 1), (&new, 1)] {
                assert_eq!([node, node].map(&mut window), [(count, 4); 2], "two cores prepare");
                windows.core_done(node.address, count);
                assert_eq!(window(node), (count, 4), "another core prepares");
                windows.core_done(node.address, count);
                let grown = [node; 4].map(&mut window).map(|(_, window)| window);
                assert_eq!(grown, [4, 8, 16, 24]);
            }
            assert_eq!([&old, &down, &old, &down].map(&mut window), [(1, 24), (1, 24), (2, 4), (2, 4)]);
            windows.core_done(old.address, 1);
            assert_eq!(window(&down), (2, 8), "it went down: nothing is prepared");
        });
        lanes.shutdown();
    }

    fn answer(encode: impl FnOnce(&mut Encoder)) -> Envelope {
        let mut encoder = Encoder::new(Direction::Response, Version::V5);
        encode(&mut encoder);
        let mut bytes = encoder.finish().split();
        let mut decoder = Decoder::new(Direction::Response, Limits::default());
        decoder.decode(&mut bytes).expect("well-formed").expect("complete")
    }

    /// A node behind a queue that is never empty. It serves some requests at once, each in 1 ms;
    /// the others wait in it. Its times are given, so that the test does not depend on a clock.
    struct Simulated {
        node: Rc<Node>,
        of: ClusterNode,
        windows: Windows,
        division: Division,
        catalog: Arc<Catalog>,
    }

    impl Simulated {
        /// Fills the window, counts answers of a tick, and divides.
        async fn tick(&mut self, serves: u32, last: Option<&Envelope>) {
            let Simulated { node, of, windows, division, catalog } = self;
            let effective = Effective::of(catalog.default_level());
            let mut places = Vec::new();
            for _ in 0..node.load().part {
                let place = node.place(&effective, ClassId::of_opcode(7), u64::MAX).await;
                places.push(place.expect("a free place"));
            }
            let void = answer(|encoder| encoder.void(0, &Prelude::default()).expect("short"));
            let took_ns = 1_000_000 * u64::from(node.load().part.max(serves)) / u64::from(serves);
            for place in places.iter().cycle().take(256) {
                place.written(1);
                place.count(&void, 1 + took_ns);
            }
            last.into_iter().for_each(|last| places[0].count(last, 0));
            // An interval of no time: the window was the limit if it was used up at all.
            let part = windows.exchange(node, of, 0, Some((division, catalog))).part.expect("divided");
            drop(places);
            node.apply(&part, &FxHashMap::default(), &mut FxHashMap::default());
        }

        async fn settle(&mut self, serves: u32) -> u32 {
            for _ in 0..300 {
                self.tick(serves, None).await;
            }
            self.window()
        }

        /// Returns the window without the effect of a drain, whose time is that of the day.
        fn window(&self) -> u32 {
            let Window::Limited(window) = &self.division.states[&self.of.address].window else {
                panic!("no window is fixed")
            };
            window.window()
        }
    }

    #[test]
    fn limiter_follows_the_answers_of_a_node() {
        let lanes = testkit::start_lanes(1);
        let catalog = workload::Levels::new(lanes.clone()).catalog();
        lanes.block_on(0, Group::CONTROL, move || async move {
            let topology = Topology::of_addresses(&[([127, 0, 0, 1], 9042).into()]);
            let of = topology.nodes()[0].clone();
            let node = Rc::new(Node::new(of.address, WINDOW_BOUNDS.min, true));
            let (windows, mut division) = (Windows::default(), Division::new(None, None));
            windows.begin(&topology, &mut division);
            let mut node = Simulated { node, of, windows, division, catalog };
            let found = node.settle(16).await;
            assert!((14..=32).contains(&found), "{found} for a node that serves 16 at once");
            let faster = node.settle(64).await;
            assert!((56..=112).contains(&faster), "{faster} for a node that serves 64 at once");
            let failure = Failure::new(FailureKind::Overloaded, "too much".to_owned());
            let overloaded =
                answer(|encoder| encoder.error(0, &failure, &Prelude::default()).expect("short"));
            let before = node.window();
            node.tick(64, Some(&overloaded)).await;
            let after = node.window();
            assert!(after.abs_diff(before * 7 / 10) <= 1, "{before}, then {after}");
            for is_up in [false, true, true] {
                node.of.is_up = is_up;
                node.tick(64, None).await;
            }
            assert_eq!(node.window(), WINDOW_BOUNDS.min, "statements are prepared");
            node.windows.core_done(node.of.address, 1);
            let again = node.settle(64).await;
            assert!((56..=112).contains(&again), "{again} once they are");
        });
        lanes.shutdown();
    }
}
