//! A scan of a token range: partitions in (token, key) order, a piece of each at a time.
//!
//! The snapshot is taken when the scan starts and costs O(1): later writes are not seen. Sources are read a few
//! entries at a time, so a scan that is dropped early has cost little, and callers may yield between partitions.
//! Blocks of files are read past the cache, so that a scan does not push out what point reads use.

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
    /// Rows, alive or not; in the first piece the static cells too.
    pub view: PartitionView,
    /// The partition begins with it.
    pub first: bool,
    /// The partition ends with it.
    pub last: bool,
}

impl Scan {
    pub(crate) fn new(stream: MergeStream, now_s: u32) -> Scan {
        Scan { stream, now_s }
    }

    /// The next partition, or the next stretch of the one that the last piece was of. It may have
    /// nothing that is alive. A piece takes a block of each file, and merges few rows of memtables;
    /// `None` ends the scan.
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

    /// Leaves out the rest of the partition that the last piece was of.
    pub fn skip_rest(&mut self) {
        self.stream.skip_rest();
    }

    /// The next partition that has anything alive, whole: its token, key and contents. Takes the
    /// memory of the partition, so that it is for small ones. `None` ends the scan.
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
