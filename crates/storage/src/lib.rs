//! Storage engine with one [`Shard`] for each core: commit log, memtables, table files, compaction,
//! caches, recovery.
//!
//! Only the fast lane of its core uses a shard, so the crate needs no locks. It stores partitions,
//! rows and cells, and knows nothing of CQL, service levels or sockets. `docs/file-format.md`
//! describes the files.

mod background;
mod compaction;
mod env;
mod error;
mod event;
mod jobs;
mod log;
mod manifest;
mod memtable;
mod model;
mod on_lanes;
mod options;
mod read;
mod recovery;
mod scan;
mod shard;
mod signal;
mod state;
mod table;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use compaction::scrub::Scrubbed;
pub use env::LocalBoxFuture;
pub use error::StorageError;
pub use event::{Event, EventSink, FlushReason, Named, Recovery};
pub use jobs::tasks::{Compacted, HISTORY_MAX, Tally, Task, TaskGuard, TaskKind};
pub use manifest::layout::IGNORE_MSB;
pub use model::cells::Cells;
pub use model::encoded::{decode_mutations, encode_mutations};
pub use model::row::{Draft, EncodedRow, RowBuilder};
pub use model::view::{PartitionView, RowView, RowViews, StoredRow};
pub use model::{CellRef, CellValue, Change, Deletion, Expiry, Liveness, Mutation, TableId};
pub use options::{CommitMode, Compression, Groups, PaceOptions, StorageOptions, Strategy, TableOptions};
pub use read::before::{RowBefore, StaticsBefore};
pub use read::slice::{SLICE_BYTES, Sliced};
pub use read::{Pick, Read};
pub use recovery::check::{Checked, check};
pub use recovery::snapshot::{Cut, snapshot};
pub use scan::batch_request::{BatchRequest, ScanColumn};
pub use scan::batch_scan::{BatchScan, BatchSnapshot};
pub use scan::batches::ColumnType;
pub use scan::gather::Visited;
pub use scan::{Scan, ScanPiece};
pub use shard::Shard;
pub use shard::commit::{Acks, Commit};
pub use shard::repair::repair;
pub use state::batches::{BatchInFlight, BatchesInFlight};
pub use state::progress::WorkProgress;
pub use state::settings::DroppedCells;
pub use state::stats::Stats;
pub use table::columnar::bounds::ValueRange;
pub use table::columnar::layout::{ColumnEncoding, ColumnLayout};
pub use table::metrics::{LargePartition, SEARCHED_MAX, TableStats};
pub use table::part::Slice;
pub use table::size::TableSize;
