//! Storage of one server, one [`Shard`] a core: commit log, memtables, table files, compaction, cache, recovery.
//!
//! A shard lives on a fast lane and is used by that lane only, so nothing here takes a lock. It knows partitions,
//! rows and cells, and nothing of CQL, levels or sockets. `docs/file-format.md` describes what is on disk.

mod apply;
mod batch_request;
mod batch_scan;
mod batches;
mod before;
mod block;
mod bloom;
mod cache;
mod check;
mod choose;
mod codec;
mod columnar;
mod commit;
mod compaction;
mod damage;
mod dropped;
mod edits;
mod encoded;
mod error;
mod event;
mod file_source;
mod flush;
mod gather;
mod layers;
mod layout;
mod log;
mod log_bound;
mod log_files;
mod lookup;
mod manifest;
mod memory_source;
mod memtable;
mod merge;
mod merge_job;
mod model;
mod on_lanes;
mod options;
mod pacing;
mod part;
mod partition;
mod purge;
mod ranges;
mod read;
mod read_ahead;
mod reconcile;
mod recover;
mod replay;
mod reserve;
mod reshard;
mod retry;
mod row;
mod scan;
mod scan_cache;
mod scrub;
mod segment;
mod shard;
mod shares;
mod signal;
mod slice;
mod snapshot;
mod statistics;
mod table;
mod table_file;
mod table_size;
mod table_v1;
mod token_map;
mod upkeep;
mod versions;
mod view;
mod world;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use batch_request::{BatchRequest, ScanColumn};
pub use batch_scan::{BatchScan, BatchSnapshot};
pub use batches::ColumnType;
pub use before::{RowBefore, StaticsBefore};
pub use check::{Checked, check};
pub use columnar::bounds::ValueRange;
pub use columnar::layout::{ColumnEncoding, ColumnLayout};
pub use commit::{Acks, Commit};
pub use encoded::{decode_mutations, encode_mutations};
pub use error::StorageError;
pub use event::{Event, Teller};
pub use layout::IGNORE_MSB;
pub use model::{CellRef, CellValue, Change, Deletion, Expiry, Liveness, Mutation, TableId};
pub use options::{CommitMode, Compression, Groups, Options, PaceOptions, Strategy, TableOptions};
pub use read::{Pick, Read};
pub use row::{Cells, Draft, Row, RowBuilder};
pub use scan::{Scan, ScanPiece};
pub use scrub::{ScrubProgress, Scrubbed};
pub use shard::{Shard, Stats};
pub use slice::{Slice, Sliced};
pub use snapshot::{Cut, snapshot};
pub use table_size::TableSize;
pub use view::{PartitionView, RowView, Rows};
pub use world::LocalBoxFuture;
