//! Numbers of the scheduler's rules, one field for each decision with alternatives. The doc comment
//! of a field names the value that switches its rule off, so that a simulation can compare the core
//! with and without it.

use crate::cap::LONG_LEASE_NS;
use crate::recently_active::RECENTLY_ACTIVE_NS;
use crate::virtual_time::{Class, LAG_NS_MAX};

/// Slice while no latency-class group waits, ns. A lane switch costs about 17 µs: 3.4 %.
pub const SLICE_NS: u64 = 500_000;
/// Slice while a latency-class group is waiting, and the time between polls while one may wake, ns.
/// It bounds a task poll of the fast lane.
pub const LATENCY_SLICE_NS: u64 = 50_000;

/// Numbers of the rules. Servers use [`Policy::DEFAULT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Length of a time slice, ns.
    pub slice_ns: u64,
    /// Length of a time slice while a latency-class leaf is eligible alongside others, ns. It is
    /// also the time between two polls while another leaf may want the core soon. `slice_ns`
    /// switches the rule off.
    pub latency_slice_ns: u64,
    /// CPU time that a waking leaf may have saved up, ns. 0: none.
    pub credit_ns: u64,
    /// Lag beyond the credit that a leaf repays at half price after it slept, ns. 0: none.
    pub lag_max_ns: u32,
    /// The leaf that has the core keeps it until its slice ends or a leaf wakes, over several
    /// polls. `false`: a slice ends with the next poll.
    pub keep_slices: bool,
    /// CPU time of others during which a leaf that went idle counts as active, ns. 0: none.
    pub recently_active_ns: u64,
    /// Polls take at most one part in `poll_part` of the core while heavy work has it. 0: no bound.
    pub poll_part: u64,
    /// The same for events of a level that lags behind the level that has the core.
    pub poll_part_lagging: u64,
    /// Cost of polls that is free after a while without any, ns.
    pub poll_free_ns: u64,
    /// Fast-lane time of a leaf, while it has heavy work too, after which the heavy work gets the
    /// core, ns. `u64::MAX`: never.
    pub fast_before_heavy_ns: u64,
    /// Longest lease of heavy work, ns.
    pub long_lease_ns: u64,
    /// Time with nearly no CPU for heavy work after which a lane counts as starved by another
    /// program, ns. `u64::MAX`: never.
    pub starved_ns: u64,
    /// Interval at which heavy work offers its CPU to other threads, ns. `u64::MAX`: never.
    pub offer_cpu_ns: u64,
    /// Longest time that answers are deferred, ns. 0: not at all.
    pub defer_ns: u64,
}

impl Policy {
    /// The rules in force.
    pub const DEFAULT: Policy = Policy {
        slice_ns: SLICE_NS,
        latency_slice_ns: LATENCY_SLICE_NS,
        credit_ns: SLICE_NS,
        lag_max_ns: LAG_NS_MAX,
        keep_slices: true,
        recently_active_ns: RECENTLY_ACTIVE_NS,
        poll_part: 10,
        // At 17 µs a poll this is one every 68 µs, a mean wait of 34 µs more: about the cost of
        // waking a core that sleeps.
        poll_part_lagging: 4,
        poll_free_ns: 1_000_000, // five polls or more in a row
        fast_before_heavy_ns: 4 * SLICE_NS,
        long_lease_ns: LONG_LEASE_NS,
        starved_ns: 50_000_000,
        offer_cpu_ns: 100_000,
        defer_ns: 100_000,
    };

    /// Returns the CPU time that a waking leaf of this class may have saved up, ns.
    #[must_use]
    pub const fn credit_ns(&self, class: Class) -> u64 {
        match class {
            Class::Latency | Class::Normal => self.credit_ns,
            Class::Batch => 0,
        }
    }

    /// Returns the most lag beyond the credit that a leaf of this class repays, ns.
    #[must_use]
    pub const fn lag_max_ns(&self, class: Class) -> u32 {
        match class {
            Class::Latency | Class::Normal => self.lag_max_ns,
            Class::Batch => 0,
        }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::DEFAULT
    }
}
