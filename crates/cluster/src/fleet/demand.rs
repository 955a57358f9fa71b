//! Demands of the fronts of a fleet on the nodes, for the division of windows: own use is averaged
//! and published every second, that of the others is read.
//!
//! The average decays by half a second. Without it, parts follow queues that the last parts made,
//! and swing (seen in simulation: `sched/tests/simulated_cluster`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::{Fleet, NodeDemand, Report};

/// Divisions between two reports: a second.
const REPORT_EVERY: u32 = 10;

/// Most cores of a front that count.
const CORES_MAX: usize = 1024;

/// Demands of a fleet, on core 0 of one front.
pub(crate) struct FleetDemand {
    fleet: Arc<Fleet>,
    others: Arc<Vec<(Uuid, Report)>>,
    /// Sums of the demand of each node, level and core, decayed.
    own: FxHashMap<SocketAddr, OwnDemand>,
    /// Divisions in the sums, decayed.
    weight: u64,
    divisions: u32,
}

/// Demand of the cores, by level.
type OwnDemand = BTreeMap<Arc<str>, Vec<u64>>;

/// Another front at a node.
#[derive(Clone, Copy)]
pub(crate) struct Other<'a> {
    /// Its cores.
    pub(crate) cores: usize,
    demand: Option<&'a NodeDemand>,
}

impl Other<'_> {
    /// Returns the demand of a level on its cores with any: core and number of requests.
    pub(crate) fn demand_of(&self, level: &str) -> &[(u16, u32)] {
        self.demand.and_then(|demand| demand.levels.get(level)).map_or(&[], |of_cores| of_cores)
    }
}

impl FleetDemand {
    pub(crate) fn new(fleet: Arc<Fleet>) -> FleetDemand {
        let others = fleet.others();
        FleetDemand { fleet, others, own: FxHashMap::default(), weight: 0, divisions: 0 }
    }

    /// Begins a round of divisions. True every second, at which the fronts exchange their windows
    /// ([`FleetDemand::publish`]).
    pub(crate) fn begin(&mut self) -> bool {
        self.others = self.fleet.others();
        let is_second = self.divisions == REPORT_EVERY;
        if is_second {
            self.divisions = 0;
        } else {
            self.weight += 1;
        }
        self.divisions += 1;
        is_second
    }

    /// Adds the demand of a level at a node on the cores of this front.
    pub(crate) fn add(&mut self, node: SocketAddr, level: &Arc<str>, of_cores: &[u32]) {
        let sums = self.own.entry(node).or_default().entry(level.clone()).or_default();
        sums.resize(of_cores.len(), 0);
        sums.iter_mut().zip(of_cores).for_each(|(sum, demand)| *sum += u64::from(*demand));
    }

    /// Returns the other fronts before and after this one, in the order of the fleet, for a node.
    pub(crate) fn others(&self, node: SocketAddr) -> [Vec<Other<'_>>; 2] {
        let at = self.others.partition_point(|(front, _)| *front < self.fleet.front());
        [Other::of(&self.others[..at], node), Other::of(&self.others[at..], node)]
    }

    /// Returns the median of the windows of a node that the fronts have published, with that of
    /// this one; of an even number, the lower one. `None`: no other front has published one.
    pub(crate) fn median(&self, node: SocketAddr, own: Option<u32>) -> Option<u32> {
        let of_other = |(_, report): &(Uuid, Report)| report.nodes.get(&node)?.window;
        let mut windows: Vec<u32> = self.others.iter().filter_map(of_other).collect();
        if windows.is_empty() {
            return None;
        }
        windows.extend(own);
        windows.sort_unstable();
        Some(windows[(windows.len() - 1) / 2])
    }

    /// Publishes the demand of this front, and the windows that it has found.
    pub(crate) fn publish(&mut self, cores: usize, windows: FxHashMap<SocketAddr, u32>) {
        let weight = self.weight.max(1);
        let mean = |(core, sum): (u16, &u64)| (*sum > 0).then(|| (core, sum.div_ceil(weight) as u32));
        let of_level = |(level, sums): (&Arc<str>, &Vec<u64>)| {
            let of_cores: Vec<(u16, u32)> = (0..).zip(sums).filter_map(mean).collect();
            (!of_cores.is_empty()).then(|| (level.to_string(), of_cores))
        };
        let mut nodes: BTreeMap<SocketAddr, NodeDemand> = BTreeMap::new();
        for (node, levels) in &self.own {
            nodes.entry(*node).or_default().levels = levels.iter().filter_map(of_level).collect();
        }
        windows.into_iter().for_each(|(node, window)| nodes.entry(node).or_default().window = Some(window));
        let cores = u16::try_from(cores).unwrap_or(u16::MAX);
        self.fleet.report(|own| (own.cores, own.nodes) = (cores, nodes));
        // With the round of divisions that has begun.
        self.weight = self.weight / 2 + 1;
        self.own.retain(|_, levels| {
            levels.retain(|_, sums| {
                sums.iter_mut().for_each(|sum| *sum /= 2);
                sums.iter().any(|sum| *sum > 0)
            });
            !levels.is_empty()
        });
    }
}

impl<'a> Other<'a> {
    fn of(others: &'a [(Uuid, Report)], node: SocketAddr) -> Vec<Other<'a>> {
        let other = |(_, report): &'a (Uuid, Report)| Other {
            cores: usize::from(report.cores).clamp(1, CORES_MAX),
            demand: report.nodes.get(&node),
        };
        others.iter().map(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::FleetCatalog;

    fn node(number: u8) -> SocketAddr {
        ([10, 0, 0, number], 9042).into()
    }

    #[test]
    fn mean_demand_is_published_every_second_and_forgotten_later() {
        let (fleet, _) = Fleet::new(FleetCatalog::default());
        let mut demand = FleetDemand::new(fleet.clone());
        // Rounds of a second, until the first one of the next second.
        let mut second = |of_cores: [u32; 2]| {
            let mut rounds = 0;
            while !demand.begin() {
                rounds += 1;
                demand.add(node(1), &"web".into(), &of_cores);
            }
            demand.publish(2, FxHashMap::from_iter([(node(2), 7)]));
            demand.add(node(1), &"web".into(), &of_cores);
            let mut report = Report::default();
            fleet.report(|own| report = own.clone());
            assert_eq!((report.cores, report.nodes[&node(2)].window), (2, Some(7)));
            let of_node = report.nodes.get(&node(1));
            (rounds, of_node.and_then(|node| node.levels.get("web").cloned()).unwrap_or_default())
        };
        assert_eq!(second([8, 0]), (10, vec![(0, 8)]));
        assert_eq!(second([8, 0]), (9, vec![(0, 8)]));
        // One round of the second before is in the sums.
        assert_eq!(second([0, 3]), (9, vec![(0, 4), (1, 2)]));
        (0..8).for_each(|_| drop(second([0, 0])));
        assert_eq!(second([0, 0]), (9, vec![]));
    }

    #[test]
    fn window_is_the_lower_median_of_the_fronts() {
        let (fleet, _) = Fleet::new(FleetCatalog::default());
        let other = |number, window| {
            let demand = NodeDemand { window, ..NodeDemand::default() };
            let nodes = BTreeMap::from([(node(1), demand)]);
            (Uuid::from_u128(number), Report { nodes, ..Report::default() })
        };
        let others = vec![other(1, Some(40)), other(2, None), other(3, Some(10))];
        fleet.others.store(Arc::new(others));
        let demand = FleetDemand::new(fleet);
        assert_eq!(demand.median(node(1), Some(20)), Some(20));
        assert_eq!(demand.median(node(1), None), Some(10));
        assert_eq!(demand.median(node(2), Some(20)), None);
    }
}
