//! Storage of one server, one [`Shard`] a core: commit log, memtables, table files, compaction, cache, recovery.
//!
//! A shard lives on a fast lane and is used by that lane only, so nothing here takes a lock. It knows partitions,
//! rows and cells, and nothing of CQL, levels or sockets.

mod error;
mod memtable;
mod model;
mod options;
mod partition;
mod ranges;
mod reconcile;
mod scan;
mod shard;
mod view;

pub use error::StorageError;
pub use model::{Cell, CellValue, Change, Deletion, Expiry, Liveness, Mutation, TableId};
pub use options::{CommitMode, Options};
pub use scan::Scan;
pub use shard::{Commit, LocalBoxFuture, Read, Shard, Stats};
pub use view::{PartitionView, RowView, Rows};
