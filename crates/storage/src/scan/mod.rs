//! A scan of a token range: partitions in (token, key) order, one stretch of rows at a time.
//!
//! The snapshot is taken when the scan starts and costs O(1). The scan does not see later writes.
//! Sources are read a few entries at a time, so that a scan that is dropped early has cost little.
//! Callers may yield between partitions. Blocks of files bypass the block cache, so that a scan
//! does not evict the blocks of point reads.

pub(crate) mod batch_request;
pub(crate) mod batch_scan;
#[cfg(test)]
pub(crate) mod batch_tests;
pub(crate) mod batches;
pub(crate) mod file_source;
pub(crate) mod gather;
pub(crate) mod memory_source;
pub(crate) mod wide;

use bytes::Bytes;

use crate::error::StorageError;
use crate::model::view::PartitionView;
use crate::read::merge::{MergeStream, Piece};

/// A scan in progress.
#[derive(Debug)]
pub struct Scan {
    stream: MergeStream,
    now_s: u32,
}

/// A partition, or a stretch of its rows.
#[derive(Debug)]
pub struct ScanPiece {
    /// The partition's token.
    pub token: i64,
    /// Its key.
    pub key: Bytes,
    /// Rows, alive or not. The first piece has the static cells too.
    pub view: PartitionView,
    /// True if the partition starts with it.
    pub first: bool,
    /// True if the partition ends with it.
    pub last: bool,
}

impl Scan {
    pub(crate) fn new(stream: MergeStream, now_s: u32) -> Scan {
        Scan { stream, now_s }
    }

    /// Returns the next partition, or the next stretch of the current one, which may have no live
    /// rows. Reads one block of each file and merges few rows of memtables. `None` ends the scan.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn next_piece(&mut self) -> Result<Option<ScanPiece>, StorageError> {
        let piece = self.stream.next_piece().await?;
        Ok(piece.map(|Piece { token, key, partition, first, last }| ScanPiece {
            token,
            key,
            view: PartitionView::new(partition, self.now_s),
            first,
            last,
        }))
    }

    /// Skips the rest of the current partition.
    pub fn skip_rest(&mut self) {
        self.stream.skip_rest();
    }

    /// Returns the token, key and contents of the next partition that is alive. Holds the whole
    /// partition in memory, so it is for small ones. `None` ends the scan.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn next(&mut self) -> Result<Option<(i64, Bytes, PartitionView)>, StorageError> {
        while let Some((token, key, partition)) = self.stream.next().await? {
            let view = PartitionView::new(partition, self.now_s);
            if !view.is_empty() {
                return Ok(Some((token, key, view)));
            }
        }
        Ok(None)
    }
}
