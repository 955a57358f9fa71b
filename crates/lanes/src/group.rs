//! What a group is to those outside: a name for a workload, what it may have, and what it has had.

use std::sync::Arc;

/// A workload. Small, copied freely, and carried by every task, cross-core call and disk request. One that was dropped
/// (or never was) counts as [`Group::DEFAULT`].
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Group(pub(crate) u32);

impl Group {
    /// Parent of the service levels; holds no work itself.
    pub const USERS: Group = Group(0);
    /// Parent of the server's own work; holds no work itself.
    pub const SYSTEM: Group = Group(1);
    /// Control plane, and whatever has no group; under `SYSTEM`.
    pub const CONTROL: Group = Group(2);
    /// Commit log; under `SYSTEM`.
    pub const LOG: Group = Group(3);
    /// Memtable flush; under `SYSTEM`.
    pub const FLUSH: Group = Group(4);
    /// Compaction; under `SYSTEM`.
    pub const COMPACTION: Group = Group(5);
    /// The level of those who have no other; under `USERS`.
    pub const DEFAULT: Group = Group(6);
    /// Connections that have not authenticated yet; under `USERS`.
    pub const DRIVER: Group = Group(7);

    /// Groups every server has; the first made by [`crate::Lanes::create_group`] comes after them.
    pub(crate) const BUILT_IN: u32 = 8;
}

/// What a group may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// For reports; the first 48 bytes are kept.
    pub name: Arc<str>,
    /// Weight among its siblings, 1..=1000; what is outside is moved to the nearer end.
    pub shares: u32,
    /// How soon it wants to run after waking.
    pub class: sched::Class,
    /// Served before its siblings' shares count, on each core: in millionths of what they and it use there; 0 is none.
    pub cpu_min_ppm: u32,
    /// Most CPU it may use, in millionths of all cores of this server; none is no limit.
    pub cpu_limit_ppm: Option<u32>,
    /// Most disk traffic, in bytes a second, on all cores of this server together; none is no limit.
    pub io_limit: Option<u64>,
}

impl GroupSpec {
    /// A group with shares only.
    #[must_use]
    pub fn new(name: &str, shares: u32) -> GroupSpec {
        GroupSpec {
            name: name.into(),
            shares,
            class: sched::Class::Normal,
            cpu_min_ppm: 0,
            cpu_limit_ppm: None,
            io_limit: None,
        }
    }
}

/// What a group has had since it was made. Sums of relaxed counters: read while it works, they are not of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time on fast lanes, ns.
    pub cpu_fast_ns: u64,
    /// CPU time on heavy lanes, ns.
    pub cpu_heavy_ns: u64,
    /// Time it was ready to run and did not, ns; without what its CPU limit held it back.
    pub wait_ns: u64,
    /// Turns it got on fast lanes.
    pub dispatches: u64,
    /// Turns it got on heavy lanes.
    pub heavy_dispatches: u64,
    /// Bytes read.
    pub disk_read_bytes: u64,
    /// Read requests.
    pub disk_read_ops: u64,
    /// Bytes written.
    pub disk_write_bytes: u64,
    /// Write, sync and metadata requests.
    pub disk_write_ops: u64,
    /// Time its disk requests took from asking to completion, ns.
    pub disk_wait_ns: u64,
    /// The part of that before they were sent, ns: their turn, the disk's bucket, the group's own limit. What it grew by, over the
    /// time it took, is how many were queued on average; and the rest of `disk_wait_ns` likewise how many the disk had.
    pub disk_queue_ns: u64,
    /// Time of the disk they were charged, ns, as its maxima have it.
    pub disk_ns: u64,
    /// What a cache above the disk had when it was asked; see [`crate::disk::count_lookup`].
    pub cache_hits: u64,
    /// What it had not.
    pub cache_misses: u64,
    /// Time it was held back by its CPU limit, ns, summed over cores.
    pub throttled_ns: u64,
    /// Fast-lane pieces longer than 200 µs.
    pub stalls: u64,
}
