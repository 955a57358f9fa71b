//! Partitions that a scan by columns takes row by row, one batch at a time.
//!
//! A partition may have many more rows than a batch. The scan remembers its position in the
//! partition and continues there with the next batch:
//!
//! 1. Small partitions are merged whole, from the loaded blocks.
//! 2. A partition that spans [`WHOLE_BLOCKS`] blocks of a file or more is merged by stretches of
//!    rows. A stream of its own (`merge.rs`) reads one block of each file at a time, and the scan's
//!    sources skip the partition.
//! 3. A full batch may end within a partition. Its loaded rows then wait for the next batch. They
//!    also wait when the scan yields after many rows.
//!
//! So the memory of a scan does not depend on the size of partitions.

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::ScanFrom;
use crate::model::partition::Partition;
use crate::model::view::PartitionView;
use crate::read::merge::{MergeStream, Piece};
use crate::scan::batch_scan::BatchScan;
use crate::scan::file_source::{FileSource, Position};

/// A partition with at least this number of further blocks in a file is merged by stretches.
/// Smaller ones are merged whole, so that their blocks are read once and not twice.
pub(crate) const WHOLE_BLOCKS: usize = 4;

/// Partitions of one row that take about as long as `ROWS_BETWEEN_YIELDS` rows.
const PARTITIONS_A_YIELD: u32 = 128;

/// A partition with rows that no batch has yet.
#[derive(Debug)]
pub(crate) struct Pending {
    place: Position,
    /// The current stretch, and the row behind which to continue in it.
    view: PartitionView,
    after: Option<Bytes>,
    /// The first stretch, which has the static cells.
    head: PartitionView,
    /// True if one of its rows was appended.
    any: bool,
    /// The stream of the following stretches, if there are any.
    stream: Option<MergeStream>,
}

impl BatchScan {
    /// Appends a partition's rows, or as many as fill the batch.
    pub(crate) fn take_view(&mut self, place: &Position, partition: Partition) {
        let view = PartitionView::new(partition, self.snapshot.now_s);
        let mut any = false;
        let Some(after) = self.gather.append_rows(place, &view, &view, None, &mut any) else {
            self.gather.append_statics(place, &view, any);
            return;
        };
        let head = view.clone();
        let after = Some(after);
        self.pending = Some(Pending { place: place.clone(), view, after, head, any, stream: None });
    }

    /// Returns true if a partition spans many blocks of a file that is at it.
    fn is_wide(&self, place: &Position) -> Result<bool, StorageError> {
        for file in self.files.iter().filter(|file| file.is_loaded()) {
            if file.blocks_behind(place) >= WHOLE_BLOCKS && file.place()?.as_ref() == Some(place) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges the partition at this position from all sources that have it, and appends its rows.
    pub(crate) async fn merge(&mut self, place: Position) -> Result<(), StorageError> {
        self.since_yield.1 += 1;
        if self.is_wide(&place)? {
            return self.merge_wide(place).await;
        }
        let mut merged = None;
        let mut add = |partition: Partition| {
            merged = Some(match merged.take() {
                None => partition,
                Some(other) => partition.merge(other),
            });
        };
        self.memory.iter_mut().filter_map(|source| source.take(&place)).for_each(&mut add);
        // A source may stand on a partition that its shard does not own, until `window` skips it.
        for file in self.files.iter_mut().filter(|file| file.is_loaded() && file.file.entry.owns(place.0)) {
            if file.place()?.as_ref() == Some(&place) {
                add(file.partition().await?);
            }
        }
        if let Some(merged) = merged {
            self.take_view(&place, merged);
        }
        Ok(())
    }

    /// Merges a partition like [`BatchScan::merge`], by stretches.
    async fn merge_wide(&mut self, place: Position) -> Result<(), StorageError> {
        let (memory, files) = (self.snapshot.memory.clone(), &self.snapshot.files);
        let mut stream = MergeStream::new(memory, files, ScanFrom::Token(place.0), place.0);
        self.memory.iter_mut().for_each(|source| drop(source.take(&place)));
        for file in &mut self.files {
            if file.is_loaded() && file.place()?.as_ref() == Some(&place) {
                file.skip_partition(&place).await?;
            }
        }
        // Other keys with this token may come first.
        while let Some(piece) = stream.next_piece().await? {
            if piece.key == place.1 {
                return self.begin_wide(place, piece, stream).await;
            }
            stream.skip_rest();
        }
        Ok(())
    }

    async fn begin_wide(
        &mut self,
        place: Position,
        piece: Piece,
        stream: MergeStream,
    ) -> Result<(), StorageError> {
        let view = PartitionView::new(piece.partition, self.snapshot.now_s);
        let (head, stream) = (view.clone(), (!piece.last).then_some(stream));
        self.pending = Some(Pending { place, view, after: None, head, any: false, stream });
        self.resume_pending().await
    }

    /// Appends rows of the pending partition until the batch is full or the partition ends.
    pub(crate) async fn resume_pending(&mut self) -> Result<(), StorageError> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        loop {
            let Pending { place, view, after, head, any, .. } = &mut pending;
            let stopped = self.gather.append_rows(place, view, head, after.take(), any);
            if stopped.is_some() {
                pending.after = stopped;
                if self.gather.is_full() {
                    self.pending = Some(pending);
                    return Ok(());
                }
                self.since_yield.1 += PARTITIONS_A_YIELD;
                self.yield_if_due().await;
                continue;
            }
            let next = match &mut pending.stream {
                Some(stream) => stream.next_piece().await?,
                None => None,
            };
            let Some(piece) = next else {
                self.gather.append_statics(&pending.place, &pending.head, pending.any);
                return Ok(());
            };
            pending.view = PartitionView::new(piece.partition, self.snapshot.now_s);
            if piece.last {
                pending.stream = None;
            }
            self.since_yield.0 += 1 + (self.files.len() + self.memory.len()) as u32;
            self.yield_if_due().await;
        }
    }

    /// Returns the number of rows held beside the batch, for tests.
    #[cfg(test)]
    pub(crate) fn rows_held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.view.stored().max(pending.head.stored()))
    }
}

impl FileSource {
    /// Returns the number of a partition's blocks behind the loaded one.
    fn blocks_behind(&self, (token, key): &Position) -> usize {
        (self.file.last_block_of(*token, key) + 1).saturating_sub(self.next_block)
    }
}
