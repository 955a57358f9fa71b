//! Part of a node's window that one core has, and its use.

use lanes::Group;
use rustc_hash::FxHashMap;
use sched::cluster::PartSpec;
use sched::control::WindowBounds;
use sched::{Class, NodeSpec, NodeUse, SHARES_MAX, SHARES_MIN};
use workload::{DRIVER_LEVEL, Level, LevelSpec};

/// Millionths in a whole.
pub(crate) const PPM: u64 = 1_000_000;

/// Bounds of windows that limiters find.
pub(crate) const WINDOW_BOUNDS: WindowBounds = WindowBounds { min: 4, max: 1024 };

/// Interval and length of probes, in which batch levels start no request, µs. They cost these
/// levels 3 % of the time.
const PROBE_EVERY_US: i64 = 10_000_000;
const PROBE_US: i64 = 300_000;

/// Returns true during a probe. All fronts find its moment by the time of the day, for all nodes:
/// requests to one node also wait for others.
pub(crate) fn is_probing(unix_us: i64) -> bool {
    unix_us.rem_euclid(PROBE_EVERY_US) < PROBE_US
}

/// Entitlement of a level at a node, on one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entitlement {
    /// Weight among the levels on this core.
    pub(crate) spec: NodeSpec,
    /// Most requests in flight.
    pub(crate) in_flight_max: u32,
    /// Places that the level has, or would have with more requests.
    pub(crate) places: u32,
}

/// Use of all nodes by a level on one core.
#[derive(Clone, Copy, Default)]
pub(crate) struct NodesUse {
    /// Time for which its requests held places so far, ns.
    pub(crate) occupancy_ns: u64,
    /// Its part of their windows: of those nodes that it has used.
    pub(crate) places: u32,
}

/// Use of a node on one core.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReport {
    pub(crate) levels: Vec<LevelReport>,
}

/// Use of a node by a level on one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelReport {
    pub(crate) group: Group,
    pub(crate) used: NodeUse,
}

/// Part of a node that one core has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CorePart {
    pub(crate) places: u32,
    /// Factor of the weights of levels that are not in `levels`.
    pub(crate) scale: u32,
    /// True during a probe: see [`sched::NodeQueue::set_probing`].
    pub(crate) is_probing: bool,
    /// Levels with requests on this core.
    pub(crate) levels: FxHashMap<Group, Entitlement>,
}

/// Returns the settings of a level for the division.
pub(crate) fn part_spec(level: &Level, spec: &LevelSpec) -> PartSpec {
    PartSpec {
        shares: level.shares_now(spec).clamp(SHARES_MIN, SHARES_MAX),
        min_ppm: spec.cpu_min_ppm,
        limit_ppm: spec.cpu_limit_ppm,
    }
}

/// Returns the class of a level at nodes. A driver that connects waits for its answers.
pub(crate) fn class_of(spec: &LevelSpec) -> Class {
    if *spec.name == *DRIVER_LEVEL { Class::Normal } else { spec.class() }
}

/// Returns the entitlement of a level without requests on a core, until the next division.
pub(crate) fn first_entitlement(level: &Level, spec: &LevelSpec, scale: u32, window: u32) -> Entitlement {
    let PartSpec { shares, min_ppm, limit_ppm } = part_spec(level, spec);
    let limit = limit_ppm.map(|ppm| (u64::from(window) * u64::from(ppm)).div_ceil(PPM) as u32);
    Entitlement {
        spec: NodeSpec {
            shares: (shares * scale).clamp(SHARES_MIN, SHARES_MAX),
            min_ppm,
            class: class_of(spec),
        },
        in_flight_max: limit.unwrap_or(u32::MAX).max(1),
        places: limit.map_or(window, |limit| limit.min(window)),
    }
}
