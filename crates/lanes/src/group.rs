//! Public side of a group: a name for a workload, its specification, and its usage.

use std::sync::Arc;

/// Workload. Every task, cross-core call and disk request carries its group. A dropped or unknown
/// group counts as [`Group::DEFAULT`].
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Group(pub(crate) u32);

impl Group {
    /// Parent of the service levels; holds no work itself.
    pub const USERS: Group = Group(0);
    /// Parent of the server's own work; holds no work itself.
    pub const SYSTEM: Group = Group(1);
    /// Control plane, and all work without a group; under `SYSTEM`.
    pub const CONTROL: Group = Group(2);
    /// Commit log; under `SYSTEM`.
    pub const LOG: Group = Group(3);
    /// Memtable flush; under `SYSTEM`.
    pub const FLUSH: Group = Group(4);
    /// Compaction; under `SYSTEM`.
    pub const COMPACTION: Group = Group(5);
    /// Level of users without another one; under `USERS`.
    pub const DEFAULT: Group = Group(6);
    /// Connections that have not authenticated yet; under `USERS`.
    pub const DRIVER: Group = Group(7);
    /// Building of indexes; under `SYSTEM`.
    pub const INDEX: Group = Group(8);

    /// Number of groups that every server has. Groups created by [`crate::Lanes::create_group`]
    /// follow them.
    pub(crate) const BUILT_IN: u32 = 9;

    /// Returns true for the server's own work. All users share its tasks.
    pub(crate) fn is_of_server(self) -> bool {
        self.0 < Group::DEFAULT.0 || self == Group::INDEX
    }
}

/// Id that stands for no group, such as that of a free slot.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// Entitlement and limits of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Name for reports; the first 48 bytes are kept.
    pub name: Arc<str>,
    /// Weight among its siblings, clamped to 1..=1000.
    pub shares: u32,
    /// Class, which decides how soon it runs after waking.
    pub class: sched::Class,
    /// Minimum on each core, served before shares, in millionths of the CPU that it and its
    /// siblings use there; 0 is none.
    pub cpu_min_ppm: u32,
    /// CPU limit, in millionths of all cores of this server; `None`: no limit.
    pub cpu_limit_ppm: Option<u32>,
    /// I/O limit, in bytes a second on all cores of this server together; `None`: no limit.
    pub io_limit: Option<u64>,
}

impl GroupSpec {
    /// Returns a group with shares only.
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
