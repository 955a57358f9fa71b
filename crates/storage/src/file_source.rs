//! A table file as a source of a scan: its blocks in order.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::Malformed;
use crate::error::StorageError;
use crate::part::{Block, Part};
use crate::partition::Partition;
use crate::read_ahead::ReadAhead;
use crate::table::BlockStart;
use crate::table_file::TableFile;

/// A place in a scan's order.
pub(crate) type Place = (i64, Bytes);

/// Reads a file's blocks, past the cache.
#[derive(Debug)]
pub(crate) struct FileSource {
    pub(crate) file: Arc<TableFile>,
    /// The block that comes next.
    pub(crate) next_block: usize,
    /// The block at hand and the part in it that comes next.
    pub(crate) block: Option<(Block, usize)>,
    blocks: ReadAhead,
    first: i64,
}

impl FileSource {
    /// Everything from the first token on; nothing behind the last is read ahead.
    pub(crate) fn new(file: Arc<TableFile>, first: i64, last: i64) -> FileSource {
        let start = BlockStart { token: first, key: Bytes::new(), clustering: None };
        let next_block = file.block_at(&start);
        let blocks = ReadAhead::new(file.clone(), last);
        FileSource { file, next_block, block: None, blocks, first }
    }

    fn damaged(&self) -> StorageError {
        self.file.malformed(self.next_block.saturating_sub(1))(Malformed)
    }

    /// Reads the next block; false at the end of the file.
    pub(crate) async fn load(&mut self) -> Result<bool, StorageError> {
        self.block = None;
        let index = self.next_block;
        if index >= self.file.index.len() {
            return Ok(false);
        }
        let block = self.blocks.block(index).await?;
        self.next_block += 1;
        self.block = Some((block, 0));
        Ok(true)
    }

    /// Where it is: the place of the next partition, or less than that where the next block has not been read. `None` at its end.
    pub(crate) fn place(&self) -> Result<Option<Place>, StorageError> {
        if let Some((block, part)) = &self.block
            && *part < block.parts()
        {
            let part = block.part(*part).map_err(|Malformed| self.damaged())?;
            let (token, key) = part.place();
            return Ok(Some((token, key.clone())));
        }
        let entry = self.file.index.get(self.next_block);
        Ok(entry.map(|entry| (entry.start.token, entry.start.key.clone())))
    }

    /// Whether the next partition is at hand.
    pub(crate) fn is_loaded(&self) -> bool {
        self.block.as_ref().is_some_and(|(block, part)| *part < block.parts())
    }

    /// Goes past partitions before the scan's start and those that do not count here; true if there were any.
    pub(crate) fn skip(&mut self) -> Result<bool, StorageError> {
        let before = self.block.as_ref().map(|(_, part)| *part);
        while let Some((block, part)) = &mut self.block
            && *part < block.parts()
        {
            let next = block.part(*part).map_err(self.file.malformed(self.next_block - 1))?;
            let (token, _) = next.place();
            if token >= self.first && self.file.entry.owns(token) {
                break;
            }
            *part += 1;
        }
        Ok(before != self.block.as_ref().map(|(_, part)| *part))
    }

    fn take_part(&mut self) -> Result<Part, StorageError> {
        let (block, part) = self.block.as_mut().expect("a part is at hand");
        *part += 1;
        let at = *part - 1;
        block.part(at).map_err(self.file.malformed(self.next_block - 1))
    }

    /// The whole next partition, which is at hand.
    pub(crate) async fn partition(&mut self) -> Result<Partition, StorageError> {
        let mut part = self.take_part()?;
        let (token, key) = (part.place().0, part.place().1.clone());
        let mut partition = part.partition().map_err(|Malformed| self.damaged())?;
        while part.more() {
            if !self.load().await? {
                return Err(self.damaged());
            }
            part = self.take_part()?;
            if !part.continued() || part.place() != (token, &key) {
                return Err(self.damaged());
            }
            partition = partition.merge(part.partition().map_err(|Malformed| self.damaged())?);
        }
        Ok(partition)
    }
}
