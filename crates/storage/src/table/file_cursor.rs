//! A cursor over the partitions of a table file, for compactions, scans and scrubs.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::{MemtableEntry, ScanFrom};
use crate::model::codec::Malformed;
use crate::model::partition::Partition;
use crate::model::row::EncodedRow;
use crate::table::BlockStart;
use crate::table::file::TableFile;
use crate::table::part::{Block, BlockPart};
use crate::table::read_ahead::ReadAhead;

/// Reads a file's partitions in order, bypassing the cache.
#[derive(Debug)]
pub(crate) struct FileCursor {
    file: Arc<TableFile>,
    blocks: ReadAhead,
    from: ScanFrom,
    last: i64,
    next_block: usize,
    block: Option<(Block, usize)>,
    /// The partition that continues in the next block.
    begun: Option<(i64, Bytes)>,
}

impl FileCursor {
    pub(crate) fn new(file: Arc<TableFile>, from: ScanFrom, last: i64) -> FileCursor {
        // Blocks before the first owned token are not read.
        let from = match from {
            ScanFrom::Token(token) | ScanFrom::After(token, _) if token < file.entry.from => {
                ScanFrom::Token(file.entry.from)
            }
            from => from,
        };
        let next_block = match &from {
            ScanFrom::Token(token) => {
                file.block_at(&BlockStart { token: *token, key: Bytes::new(), clustering: None })
            }
            ScanFrom::After(token, key) => file.last_block_of(*token, key),
        };
        let blocks = ReadAhead::new(file.clone(), last, None);
        FileCursor { file, blocks, from, last, next_block, block: None, begun: None }
    }

    /// Returns the next part in file order.
    async fn part(&mut self) -> Result<Option<BlockPart>, StorageError> {
        loop {
            if let Some((block, at)) = &mut self.block
                && *at < block.parts
            {
                *at += 1;
                return BlockPart::new(block, *at - 1)
                    .map(Some)
                    .map_err(self.file.malformed(self.next_block - 1));
            }
            if self.next_block >= self.file.index.len() {
                return Ok(None);
            }
            self.block = Some((self.blocks.block(self.next_block).await?, 0));
            self.next_block += 1;
        }
    }

    /// Returns the error for a block that contradicts the block before.
    fn damaged(&self) -> StorageError {
        self.file.malformed(self.next_block - 1)(Malformed)
    }

    /// Returns the next partition, or its part in one block. If it continues, also the clustering
    /// of the last row so far.
    pub(crate) async fn next(&mut self) -> Result<Option<(MemtableEntry, Option<Bytes>)>, StorageError> {
        loop {
            let Some(part) = self.part().await? else { return Ok(None) };
            let (token, key) = part.place();
            if token > self.last {
                return Ok(None);
            }
            let wanted = match &self.from {
                ScanFrom::Token(from) => token >= *from,
                ScanFrom::After(from, after) => (token, key) > (*from, after),
            };
            if wanted && self.file.entry.owns(token) {
                let key = key.clone();
                return self.piece(token, key, part).await.map(Some);
            }
        }
    }

    /// Returns the next block's part of the current partition. Its rows must sort after `after`.
    pub(crate) async fn resume(
        &mut self,
        after: &[u8],
    ) -> Result<(MemtableEntry, Option<Bytes>), StorageError> {
        let (token, key) = self.begun.take().expect("a partition goes on");
        let part = self.part().await?.ok_or_else(|| self.file.malformed(self.next_block)(Malformed))?;
        if !part.continued() || part.place() != (token, &key) {
            return Err(self.damaged());
        }
        let (entry, more) = self.piece(token, key, part).await?;
        let first = match &entry.2 {
            Partition::Full(full) => full.rows.iter().next().map(EncodedRow::clustering),
            Partition::Single(row) => Some(row.clustering()),
        };
        if first.is_some_and(|first| first <= after) {
            return Err(self.damaged());
        }
        Ok((entry, more))
    }

    /// Skips the rest of the current partition: continues with the block in which it ends.
    pub(crate) fn skip(&mut self, token: i64, key: &Bytes) {
        self.begun = None;
        self.from = ScanFrom::After(token, key.clone());
        let last = self.file.last_block_of(token, key);
        if last >= self.next_block {
            (self.next_block, self.block) = (last, None);
        }
    }

    /// Decodes a part. Joins it with the following parts while it has no rows.
    async fn piece(
        &mut self,
        token: i64,
        key: Bytes,
        mut part: BlockPart,
    ) -> Result<(MemtableEntry, Option<Bytes>), StorageError> {
        let mut partition = part.partition().map_err(|Malformed| self.damaged())?;
        while part.more() {
            if let Partition::Full(full) = &partition
                && let Some(last) = full.rows.last()
            {
                let last = Bytes::copy_from_slice(last.clustering());
                self.begun = Some((token, key.clone()));
                return Ok(((token, key, partition), Some(last)));
            }
            part = self.part().await?.ok_or_else(|| self.file.malformed(self.next_block)(Malformed))?;
            if !part.continued() || part.place() != (token, &key) {
                return Err(self.damaged());
            }
            partition = partition.merge(part.partition().map_err(|Malformed| self.damaged())?);
        }
        Ok(((token, key, partition), None))
    }
}
