//! What a service level may have, as its options say it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lanes::GroupSpec;
use sched::Class;

use crate::{MemoryLimits, QueryLimit, SlotLimits};

/// The level of whoever has no other.
pub const DEFAULT_LEVEL: &str = "default";
/// The level of handshakes, authentication and the drivers' own queries.
pub const DRIVER_LEVEL: &str = "driver";

/// What a level's work is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadType {
    /// People wait for it: runs first after waking, and sheds early under overload.
    Interactive,
    /// Works through a backlog: held back rather than refused.
    Batch,
}

impl WorkloadType {
    /// Its name in statements and listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WorkloadType::Interactive => "interactive",
            WorkloadType::Batch => "batch",
        }
    }

    /// The workload type of that name, in lower case.
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

/// A service level's options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelSpec {
    /// Its name.
    pub name: Arc<str>,
    /// Weight among the levels, 1 to 1000.
    pub shares: u16,
    /// How long its statements may take, unless they say otherwise; whole milliseconds.
    pub timeout: Option<Duration>,
    /// What its work is like.
    pub workload_type: Option<WorkloadType>,
    /// Served before other levels' shares count, in millionths of what levels use on a core; 0 is none.
    pub cpu_min_ppm: u32,
    /// Most CPU it may use, in millionths of all cores of this server, 10,000 to 1,000,000.
    pub cpu_limit_ppm: Option<u32>,
    /// Most disk traffic, bytes a second, over all cores.
    pub io_limit: Option<u64>,
    /// How many of its statements run and wait.
    pub slots: SlotLimits,
    /// What memory its statements may have.
    pub memory: MemoryLimits,
    /// Whether its queries may spill to disk before they are refused memory for good.
    pub spill: bool,
    /// What becomes of its statements that go too far.
    pub query_limit: Option<QueryLimit>,
}

impl LevelSpec {
    /// A level with no option given.
    #[must_use]
    pub fn new(name: &str) -> LevelSpec {
        LevelSpec {
            name: name.into(),
            shares: 1000,
            timeout: None,
            workload_type: None,
            cpu_min_ppm: 0,
            cpu_limit_ppm: None,
            io_limit: None,
            slots: SlotLimits::NONE,
            memory: MemoryLimits::NONE,
            spill: true,
            query_limit: None,
        }
    }

    /// `default` as it always is.
    #[must_use]
    pub fn default_level() -> LevelSpec {
        LevelSpec::new(DEFAULT_LEVEL)
    }

    /// `driver` as it is unless it was altered.
    #[must_use]
    pub fn driver_level() -> LevelSpec {
        LevelSpec { shares: 200, workload_type: Some(WorkloadType::Batch), ..LevelSpec::new(DRIVER_LEVEL) }
    }

    /// What the lanes have to know of it.
    #[must_use]
    pub fn group_spec(&self) -> GroupSpec {
        let class = match self.workload_type {
            Some(WorkloadType::Interactive) => Class::Latency,
            Some(WorkloadType::Batch) => Class::Batch,
            None => Class::Normal,
        };
        GroupSpec {
            class,
            cpu_min_ppm: self.cpu_min_ppm,
            cpu_limit_ppm: self.cpu_limit_ppm,
            io_limit: self.io_limit,
            ..GroupSpec::new(&self.name, u32::from(self.shares))
        }
    }
}
