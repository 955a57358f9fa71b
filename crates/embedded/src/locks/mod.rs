//! Locks of statements on one core.

pub(crate) mod keyed;
mod partitions;

use keyed::KeyedLock;
use partitions::PartitionLocks;

/// Locks of one core.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) partitions: PartitionLocks,
    /// Locks of the groups that build the rows of a virtual table. A group runs one such read at a
    /// time, because each read holds all rows in memory.
    pub(crate) virtual_reads: KeyedLock<lanes::Group>,
}
