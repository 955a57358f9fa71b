//! Options of a shard and of its tables.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::event::EventSink;
use crate::state::batches::BatchesInFlight;

/// Condition for acknowledging a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// The write is on disk. Writers that arrive while a disk write is in flight share the next
    /// one.
    Batch,
    /// At once. The log is written at this interval, and a crash may lose the writes since then.
    Periodic {
        /// Longest time that an acknowledged write may be in memory only.
        every: Duration,
    },
}

/// Groups that background work is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// Writing the commit log.
    pub log: lanes::Group,
    /// Writing memtables to table files.
    pub flush: lanes::Group,
    /// Compacting table files.
    pub compaction: lanes::Group,
}

/// Selection of the files to compact, and the condition for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strategy {
    /// Runs of similar size, as [`Strategy::SizeTiered`], in fragments of fixed size. A compaction
    /// frees its inputs as it proceeds, so that its temporary space is a few fragments.
    #[default]
    Incremental,
    /// Runs of similar size. Inputs are freed at the end of a compaction, which may temporarily
    /// double the space of the table.
    SizeTiered,
    /// Runs ten times apart in size, and a few small ones that wait for compaction. Reads search
    /// the fewest runs, and compaction writes the most.
    Leveled,
    /// Windows by the time of the newest cell. A window is compacted once it is over, and never
    /// together with another.
    TimeWindow {
        /// Window length in seconds; 0 counts as 1.
        window_s: u32,
    },
}

/// Compression of the blocks of table files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4: faster.
    #[default]
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

/// Options of a table, see [`crate::Shard::configure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOptions {
    /// The compaction strategy.
    pub strategy: Strategy,
    /// Approximate size of a fragment of a run in bytes, at least 1 MiB. Tests use smaller ones.
    pub fragment_bytes: u64,
    /// Number of runs of similar size that a compaction needs, at least 2.
    pub min_threshold: u32,
    /// For [`Strategy::Incremental`]: largest size of all runs together, in thousandths of the
    /// largest run. A compaction includes the largest run early to keep to it. From 1100 to 2000.
    /// `None`: sizes alone decide.
    pub space_amplification_goal: Option<u32>,
    /// Size at which a block of a table file ends, in bytes before compression.
    pub block_bytes: usize,
    /// Tombstones are kept for at least this many seconds.
    pub gc_grace_s: u32,
    /// Compression of blocks.
    pub compression: Compression,
    /// Maximum number of runs in a compaction, at least `min_threshold`.
    pub max_threshold: u32,
    /// A run is compacted alone when more than this part of it is dead, in millionths.
    pub tombstone_threshold_ppm: u32,
    /// Minimum age of a run in seconds before it is compacted alone, at least 60.
    pub tombstone_interval_s: u32,
    /// Counts dead data towards the threshold even if other runs may contain data that it shadows.
    pub unchecked_tombstones: bool,
    /// Units of a write timestamp in a second, as writers of the table use them. For
    /// [`Strategy::TimeWindow`].
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
    /// Returns a time in units of the table's timestamps.
    pub(crate) fn timestamp_at(&self, time_s: u32) -> i64 {
        let time = i128::from(time_s) * i128::from(self.timestamps_per_s);
        i64::try_from(time).unwrap_or(i64::MAX)
    }

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

/// Pacing of flushes and compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaceOptions {
    /// Enables the controllers. Without them, flushes and compactions run at the fixed shares of
    /// their groups.
    pub controllers: bool,
    /// Weight of compactions, where all users together weigh 1000. `None`: the controllers derive
    /// it from the backlog.
    pub compaction_shares: Option<u32>,
    /// Maximum part of a saturated core for flushes and compactions, in millionths. Only a flush
    /// that writes wait for may exceed it.
    pub quota_ppm: u32,
}

impl Default for PaceOptions {
    fn default() -> PaceOptions {
        PaceOptions { controllers: true, compaction_shares: None, quota_ppm: 500_000 }
    }
}

/// The settings of one shard.
#[derive(Clone, Debug)]
pub struct StorageOptions {
    /// Data folder, shared by all shards of a server. `None` keeps everything in memory, and
    /// nothing is durable.
    pub dir: Option<PathBuf>,
    /// Number of this shard, below `shards`.
    pub shard: u32,
    /// Number of shards that the data is split over: one for each core.
    pub shards: u32,
    /// Condition for acknowledging a write.
    pub commit: CommitMode,
    /// Size at which a memtable is flushed, in bytes. Up to three memtables exist at once.
    pub memtable_bytes_max: usize,
    /// Size of a log segment in bytes, a multiple of 4096. The log of a shard occupies at most 13/4
    /// memtables (or segments, if those are larger) and four segments.
    pub segment_bytes: u64,
    /// Largest record of the log, and thus the largest mutation, in bytes. A segment is larger than
    /// `segment_bytes` where a record requires it.
    pub record_bytes_max: usize,
    /// Bytes of a row beyond which no elements of collections are added to it. Versions of the row
    /// that other versions overwrite count until a compaction merges them.
    pub row_bytes_max: usize,
    /// Disk space reserved for a full disk, in bytes. It is used for dropping and truncating
    /// tables, and for a start.
    pub reserve_bytes: u64,
    /// Memory in bytes for decompressed blocks of table files. Stored columns of scans use what
    /// blocks leave free.
    pub cache_bytes: usize,
    /// Pacing of background work.
    pub pace: PaceOptions,
    /// Options of tables without a call of [`crate::Shard::configure`].
    pub table: TableOptions,
    /// Groups that background work is charged to.
    pub groups: Groups,
    /// Writes over several shards that are in flight. All shards of a machine share one value.
    pub batches: Arc<BatchesInFlight>,
    /// Receiver of events.
    pub event_sink: EventSink,
}

/// Largest row that a reader builds, in units of [`StorageOptions::row_bytes_max`]. Files of an
/// earlier start may have more of a row than is known, and columns that are no collections do not
/// count.
const READ_UNITS: usize = 4;
/// The same for compactions, which read all columns.
const COMPACTION_UNITS: usize = 16;

impl StorageOptions {
    /// Returns the largest row in bytes that readers build.
    pub(crate) fn read_row_bytes_max(&self) -> usize {
        self.row_bytes_max.saturating_mul(READ_UNITS)
    }

    /// Returns the largest row in bytes that compactions build.
    pub(crate) fn compacted_row_bytes_max(&self) -> usize {
        self.row_bytes_max.saturating_mul(COMPACTION_UNITS)
    }

    /// Returns the options of a single shard that keeps everything in memory.
    pub fn in_memory() -> StorageOptions {
        StorageOptions {
            dir: None,
            shard: 0,
            shards: 1,
            commit: CommitMode::Batch,
            memtable_bytes_max: 256 << 20,
            segment_bytes: 32 << 20,
            record_bytes_max: 16 << 20,
            row_bytes_max: 16 << 20,
            reserve_bytes: 8 << 20,
            cache_bytes: 64 << 20,
            pace: PaceOptions::default(),
            table: TableOptions::default(),
            groups: Groups {
                log: lanes::Group::LOG,
                flush: lanes::Group::FLUSH,
                compaction: lanes::Group::COMPACTION,
            },
            batches: Arc::default(),
            event_sink: EventSink::default(),
        }
    }

    /// Returns the options of one of `shards` shards in `dir`, with the sizes of
    /// [`StorageOptions::in_memory`].
    pub fn in_dir(dir: impl Into<PathBuf>, shard: u32, shards: u32) -> StorageOptions {
        StorageOptions { dir: Some(dir.into()), shard, shards, ..StorageOptions::in_memory() }
    }
}
