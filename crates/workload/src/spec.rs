//! Options of a service level, parsed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanes::GroupSpec;
use sched::Class;

use crate::{MemoryLimits, QueryLimit, SlotLimits, Tag};

/// Shares of a level that specifies none.
pub const SHARES_DEFAULT: u16 = 1000;

/// Name of the level of roles without any other.
pub const DEFAULT_LEVEL: &str = "default";
/// Name of the level of handshakes, authentication and the internal queries of drivers.
pub const DRIVER_LEVEL: &str = "driver";

/// Kind of workload of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadType {
    /// Users wait for answers. Runs first after a wake-up, and is refused early under overload.
    Interactive,
    /// Processes a backlog. Under overload its sockets are not read (backpressure), instead of
    /// refusing requests.
    Batch,
}

impl WorkloadType {
    /// Returns the name of the type in statements and listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WorkloadType::Interactive => "interactive",
            WorkloadType::Batch => "batch",
        }
    }

    /// Returns the type with this name in lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<WorkloadType> {
        [WorkloadType::Interactive, WorkloadType::Batch].into_iter().find(|one| one.name() == name)
    }
}

impl fmt::Display for WorkloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Latency target of a level, and the bounds of its shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyTarget {
    /// Target of the 99th percentile, in whole milliseconds. `None`: shares do not move.
    pub target: Option<Duration>,
    /// Lowest shares. `None`: the configured shares.
    pub shares_min: Option<u16>,
    /// Highest shares. `None`: the configured shares.
    pub shares_max: Option<u16>,
}

/// Options of a service level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelSpec {
    /// Name of the level.
    pub name: Arc<str>,
    /// Weight among the levels, 1 to 1000.
    pub shares: u16,
    /// Timeout of statements without their own, in whole milliseconds.
    pub timeout: Option<Duration>,
    /// Kind of workload.
    pub workload_type: Option<WorkloadType>,
    /// CPU guaranteed before shares count, in millionths of the CPU that levels use on a core. 0:
    /// none.
    pub cpu_min_ppm: u32,
    /// Upper bound of CPU use, in millionths of all cores of this server, 10,000 to 1,000,000.
    pub cpu_limit_ppm: Option<u32>,
    /// Latency target, with the bounds of the shares that it moves.
    pub latency: LatencyTarget,
    /// Upper bound of disk traffic over all cores, bytes per second.
    pub io_limit: Option<u64>,
    /// Limits of running and waiting statements.
    pub slots: SlotLimits,
    /// Limits of query memory.
    pub memory: MemoryLimits,
    /// True if queries may spill to disk before a request for memory is refused finally.
    pub spill: bool,
    /// Limits on the resources of one statement.
    pub query_limit: Option<QueryLimit>,
    /// Nodes of a cluster that coordinate the requests. `None`: those of the front's datacenter.
    pub tag: Option<Tag>,
}

impl LevelSpec {
    /// Creates a level without options.
    #[must_use]
    pub fn new(name: &str) -> LevelSpec {
        LevelSpec {
            name: name.into(),
            shares: SHARES_DEFAULT,
            timeout: None,
            workload_type: None,
            cpu_min_ppm: 0,
            cpu_limit_ppm: None,
            io_limit: None,
            latency: LatencyTarget::default(),
            slots: SlotLimits::NONE,
            memory: MemoryLimits::NONE,
            spill: true,
            query_limit: None,
            tag: None,
        }
    }

    /// Returns the fixed options of `default`.
    #[must_use]
    pub fn default_level() -> LevelSpec {
        LevelSpec::new(DEFAULT_LEVEL)
    }

    /// Returns the initial options of `driver`.
    #[must_use]
    pub fn driver_level() -> LevelSpec {
        LevelSpec { shares: 200, workload_type: Some(WorkloadType::Batch), ..LevelSpec::new(DRIVER_LEVEL) }
    }

    /// Returns the class of the level's group.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.workload_type {
            Some(WorkloadType::Interactive) => Class::Latency,
            Some(WorkloadType::Batch) => Class::Batch,
            None => Class::Normal,
        }
    }

    /// Returns the settings of the level's group in the lanes.
    #[must_use]
    pub fn group_spec(&self) -> GroupSpec {
        GroupSpec {
            class: self.class(),
            cpu_min_ppm: self.cpu_min_ppm,
            cpu_limit_ppm: self.cpu_limit_ppm,
            io_limit: self.io_limit,
            ..GroupSpec::new(&self.name, u32::from(self.shares))
        }
    }
}
