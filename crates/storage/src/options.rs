//! How a shard is set up.

use std::path::PathBuf;
use std::time::Duration;

use crate::event::Teller;

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

/// Which files of a table are merged, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strategy {
    /// Runs of similar size, as [`Strategy::SizeTiered`], of fixed-size fragments: a merge frees what it has read as it goes,
    /// so that its temporary space is a few fragments.
    #[default]
    Incremental,
    /// Runs of similar size; what was merged is freed when the merge ends, so that it may take the table's space again.
    SizeTiered,
    /// Runs ten times apart in size, of which a few small ones wait to be merged: least to read, most to write.
    Leveled,
    /// By the time of the newest cell: windows are merged once they are over, and never with each other.
    TimeWindow {
        /// The length of a window in seconds; 0 counts as 1.
        window_s: u32,
    },
}

/// How blocks of table files are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// Fast.
    #[default]
    Lz4,
    /// Smaller.
    Zstd,
}

/// What the owner of a table may choose for it; see [`crate::Shard::configure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOptions {
    /// Which files are merged, and when.
    pub strategy: Strategy,
    /// A run is cut into files of about this many bytes, 1 MiB at least (smaller ones are for tests).
    pub fragment_bytes: u64,
    /// As many runs of similar size are merged into one; 2 at least.
    pub min_threshold: u32,
    /// With [`Strategy::Incremental`]: all runs together are kept to at most so many per mille of the largest, by merging into it
    /// earlier than sizes alone would have it. From 1100 to 2000; none: sizes alone.
    pub space_amplification_goal: Option<u32>,
    /// Blocks of table files are closed at this many bytes before compression.
    pub block_bytes: usize,
    /// Tombstones younger than this many seconds are never forgotten.
    pub gc_grace_s: u32,
    /// How blocks are compressed.
    pub compression: Compression,
    /// A merge takes so many runs at most; `min_threshold` at least.
    pub max_threshold: u32,
    /// A run is compacted alone when more than this part of it is dead, in millionths.
    pub tombstone_threshold_ppm: u32,
    /// A run is not compacted alone for so many seconds after it was written; a minute at least.
    pub tombstone_interval_s: u32,
    /// Dead data counts towards the threshold even where other runs may have what it shadows.
    pub unchecked_tombstones: bool,
    /// Timestamps a second: what writers of the table date their cells in. For [`Strategy::TimeWindow`].
    pub timestamps_per_s: u64,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            strategy: Strategy::default(),
            fragment_bytes: 64 << 20,
            min_threshold: 4,
            space_amplification_goal: None,
            block_bytes: 64 << 10,
            gc_grace_s: 10 * 24 * 3600,
            compression: Compression::default(),
            max_threshold: 32,
            tombstone_threshold_ppm: 200_000,
            tombstone_interval_s: 24 * 3600,
            unchecked_tombstones: false,
            timestamps_per_s: 1_000_000,
        }
    }
}

impl TableOptions {
    pub(crate) fn in_bounds(self) -> TableOptions {
        TableOptions {
            fragment_bytes: self.fragment_bytes.max(1),
            min_threshold: self.min_threshold.clamp(2, 64),
            space_amplification_goal: self.space_amplification_goal.map(|goal| goal.clamp(1100, 2000)),
            block_bytes: self.block_bytes.clamp(1, 16 << 20),
            max_threshold: self.max_threshold.clamp(2, 64),
            timestamps_per_s: self.timestamps_per_s.clamp(1, 1_000_000_000),
            ..self
        }
    }
}

/// How flushes and merges are paced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaceOptions {
    /// Whether controllers decide. If not, flushes and merges go as fast as the fixed shares of their groups let them.
    pub controllers: bool,
    /// What merges weigh beside all users together, who weigh 1000; none: as their backlog asks for.
    pub compaction_shares: Option<u32>,
    /// The most of a saturated core that flushes and merges may have, in millionths; more only for a flush that writes wait for.
    pub quota_ppm: u32,
}

impl Default for PaceOptions {
    fn default() -> PaceOptions {
        PaceOptions { controllers: true, compaction_shares: None, quota_ppm: 500_000 }
    }
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
    /// The size of a log segment in bytes, a multiple of 4096. The log of a shard takes at most 13/4 memtables (or segments, if those
    /// are larger) and four segments.
    pub segment_bytes: u64,
    /// The largest record of the log, and so the largest mutation, in bytes. A segment that takes one is larger than others where it
    /// has to be.
    pub record_bytes_max: usize,
    /// Space on the disk that is kept for the time when it is full, in bytes: for dropping and truncating tables, and for a start.
    pub reserve_bytes: u64,
    /// Memory for decompressed blocks of table files, and, in what they leave, for what scans read, in bytes.
    pub cache_bytes: usize,
    /// How background work is paced.
    pub pace: PaceOptions,
    /// The options of tables that [`crate::Shard::configure`] was not called for.
    pub table: TableOptions,
    /// The groups that background work is charged to.
    pub groups: Groups,
    /// Who is told what should be in a log.
    pub teller: Teller,
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
            record_bytes_max: 16 << 20,
            reserve_bytes: 8 << 20,
            cache_bytes: 64 << 20,
            pace: PaceOptions::default(),
            table: TableOptions::default(),
            groups: Groups {
                log: lanes::Group::LOG,
                flush: lanes::Group::FLUSH,
                compaction: lanes::Group::COMPACTION,
            },
            teller: Teller::default(),
        }
    }

    /// Settings of one of `shards` shards in `dir`, with the sizes of [`Options::in_memory`].
    pub fn in_dir(dir: impl Into<PathBuf>, shard: u32, shards: u32) -> Options {
        Options { dir: Some(dir.into()), shard, shards, ..Options::in_memory() }
    }
}
