//! Options of a batcher.

/// Bounds of a batcher. `fairlane load usl` finds the concurrency at which a database still answers
/// in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of commands that run at once, at least 1. Twice that number of commands are
    /// held: those that run, and those that wait.
    pub commands_max: usize,
    /// Maximum number of slots that running commands read and write, counted before overwritten
    /// values are dropped. A command with more slots runs alone.
    pub iops_max: usize,
    /// Maximum number of reads and writes in flight, at least 1.
    pub iops_in_flight: usize,
    /// True: find the number of reads and writes in flight at which the throughput of the database
    /// stops rising in proportion, at most `iops_in_flight`. It takes some ten thousand operations.
    pub is_adaptive: bool,
    /// Number of further attempts after an operation has failed.
    pub retries: u32,
}

impl Default for Limits {
    /// 4,096 commands, 16,384 slots, 256 operations in flight without adaption, 3 retries.
    fn default() -> Limits {
        Limits { commands_max: 4096, iops_max: 16 << 10, iops_in_flight: 256, is_adaptive: false, retries: 3 }
    }
}

/// Way of running commands. All strategies have the result of running them in order.
#[derive(Clone, Copy, Debug)]
pub enum Strategy<S> {
    /// Each command waits for its own slots only, and a slot is written once for all commands that
    /// ran meanwhile.
    Pipelined,
    /// Batches of two phases: all reads, then all writes. A phase takes as long as the slowest of
    /// its operations. It is for comparison.
    Phases,
    /// At most `threads` commands at once, each partition in order. A command that uses several
    /// partitions waits for all of them. It is the usual way, for comparison.
    PerPartition {
        /// Maximum number of commands in flight, at least 1.
        threads: usize,
        /// Returns the partition of a slot.
        partition: fn(&S) -> u64,
    },
    /// One command after the other.
    Sequential,
}
