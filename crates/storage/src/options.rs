//! How a shard is set up.

use std::path::PathBuf;
use std::time::Duration;

/// When a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// When it is on disk. Writers that arrive while one disk write is in flight share the next.
    Batch,
    /// At once; the log is written at least this often, and a crash may lose what came since.
    Periodic {
        /// The longest time an acknowledged write stays in memory only.
        every: Duration,
    },
}

/// The groups that background work is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// Writing the commit log.
    pub log: lanes::Group,
    /// Writing memtables to table files.
    pub flush: lanes::Group,
    /// Merging table files.
    pub compaction: lanes::Group,
}

/// The settings of one shard.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder, shared by all shards of a server; `None` keeps everything in memory, nothing durable.
    pub dir: Option<PathBuf>,
    /// This shard's number, below `shards`.
    pub shard: u32,
    /// The number of shards the data is split over: one for each core.
    pub shards: u32,
    /// When a write counts as done.
    pub commit: CommitMode,
    /// A memtable of this many bytes is flushed. Up to three of them exist at once.
    pub memtable_bytes_max: usize,
    /// The size of a log segment in bytes, a multiple of 4096.
    pub segment_bytes: u64,
    /// Memory for decompressed blocks of table files, in bytes.
    pub cache_bytes: usize,
    /// Blocks of table files are closed at this many bytes before compression.
    pub block_bytes: usize,
    /// Tombstones younger than this many seconds are never forgotten.
    pub gc_grace_s: u32,
    /// The groups that background work is charged to.
    pub groups: Groups,
}

impl Options {
    /// Settings of the only shard of a store that lives in memory.
    pub fn in_memory() -> Options {
        Options {
            dir: None,
            shard: 0,
            shards: 1,
            commit: CommitMode::Batch,
            memtable_bytes_max: 256 << 20,
            segment_bytes: 32 << 20,
            cache_bytes: 64 << 20,
            block_bytes: 64 << 10,
            gc_grace_s: 10 * 24 * 3600,
            groups: Groups {
                log: lanes::Group::LOG,
                flush: lanes::Group::FLUSH,
                compaction: lanes::Group::COMPACTION,
            },
        }
    }

    /// Settings of one of `shards` shards in `dir`, with the sizes of [`Options::in_memory`].
    pub fn in_dir(dir: impl Into<PathBuf>, shard: u32, shards: u32) -> Options {
        Options { dir: Some(dir.into()), shard, shards, ..Options::in_memory() }
    }
}
