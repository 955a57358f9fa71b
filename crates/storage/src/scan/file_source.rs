//! A run as a source of a scan by columns: the blocks of its fragments in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::model::codec::Malformed;
use crate::model::partition::Partition;
use crate::scan::batch_request::BatchRequest;
use crate::table::BlockStart;
use crate::table::file::TableFile;
use crate::table::part::{self, Block, BlockPart};
use crate::table::read_ahead::ReadAhead;
use crate::table::scan_cache::ScanCache;

/// A position in the order of a scan: token and key.
pub(crate) type Position = (i64, Bytes);

/// Returns the block in which the owned tokens from `first` on start. Blocks before it are not
/// read.
fn start_of(file: &TableFile, first: i64) -> usize {
    let token = first.max(file.entry.from);
    file.block_at(&BlockStart { token, key: Bytes::new(), clustering: None })
}

/// Reads the blocks of a run's fragments in order, bypassing the block cache.
#[derive(Debug)]
pub(crate) struct FileSource {
    /// The fragment being read.
    pub(crate) file: Arc<TableFile>,
    /// The fragments after it.
    rest: VecDeque<Arc<TableFile>>,
    /// The next block to load.
    pub(crate) next_block: usize,
    /// The loaded block, and its next part.
    pub(crate) block: Option<(Block, usize)>,
    /// True if the loaded block can be copied by column where no other source has its partitions:
    /// it is plain ([`part::is_plain`]), and no other shard owns a part of the file.
    pub(crate) plain: bool,
    /// True if rows of the loaded block may satisfy the conditions. Computed on demand.
    matches: Option<bool>,
    blocks: ReadAhead,
    first: i64,
    last: i64,
    cache: Option<Arc<ScanCache>>,
}

impl FileSource {
    /// Opens the fragments of a run, if there are any, at the token `first`. Blocks behind `last`
    /// are not read ahead. Chunks of earlier scans are looked up in `cache` and new ones kept
    /// there.
    pub(crate) fn new(
        mut files: VecDeque<Arc<TableFile>>,
        first: i64,
        last: i64,
        cache: Option<Arc<ScanCache>>,
    ) -> Option<FileSource> {
        let file = files.pop_front()?;
        let next_block = start_of(&file, first);
        let blocks = ReadAhead::new(file.clone(), last, cache.clone());
        Some(FileSource {
            file,
            rest: files,
            next_block,
            block: None,
            plain: false,
            matches: None,
            blocks,
            first,
            last,
            cache,
        })
    }

    /// Moves to the next fragment at the end of one.
    pub(crate) fn advance_fragment(&mut self) {
        while !self.is_loaded() && self.next_block >= self.file.index.len() {
            let Some(next) = self.rest.pop_front() else { return };
            self.next_block = start_of(&next, self.first);
            self.blocks = ReadAhead::new(next.clone(), self.last, self.cache.clone());
            (self.file, self.block, self.plain, self.matches) = (next, None, false, None);
        }
    }

    fn damaged(&self) -> StorageError {
        self.file.malformed(self.next_block.saturating_sub(1))(Malformed)
    }

    /// Loads the next block. Returns false at the end of the file.
    pub(crate) async fn load(&mut self) -> Result<bool, StorageError> {
        self.block = None;
        let index = self.next_block;
        if index >= self.file.index.len() {
            return Ok(false);
        }
        let block = self.blocks.block(index).await?;
        self.next_block += 1;
        let plain = part::is_plain(&block).map_err(|Malformed| self.damaged())?;
        self.matches = None;
        self.plain = plain && self.file.entry.owners.is_empty();
        self.block = Some((block, 0));
        Ok(true)
    }

    /// Returns the next token, or a lower bound of it. `None` at the end.
    pub(crate) fn token(&self) -> Result<Option<i64>, StorageError> {
        match self.block.as_ref().filter(|_| self.is_loaded()) {
            Some((_, part)) => self.token_of(*part).map(Some),
            None => Ok(self.file.index.get(self.next_block).map(|entry| entry.start.token)),
        }
    }

    /// Returns the token below which all partitions are loaded, given that one is.
    pub(crate) fn end(&self) -> Result<i128, StorageError> {
        if let Some(entry) = self.file.index.get(self.next_block) {
            return Ok(i128::from(entry.start.token));
        }
        // No further, because the next fragment may start right behind and is not loaded yet.
        let Some((block, _)) = &self.block else { return Ok(i128::MAX) };
        let last = part::token(block, block.parts - 1).map_err(|Malformed| self.damaged())?;
        Ok(i128::from(last) + 1)
    }

    /// Returns the loaded parts below `end`.
    pub(crate) fn parts_below(&self, end: i128) -> Result<Range<usize>, StorageError> {
        let Some((block, part)) = self.block.as_ref() else { return Ok(0..0) };
        let (mut low, mut high) = (*part, block.parts);
        while low < high {
            let middle = low + (high - low) / 2;
            let token = part::token(block, middle).map_err(|Malformed| self.damaged())?;
            if i128::from(token) < end { low = middle + 1 } else { high = middle }
        }
        Ok(*part..low)
    }

    /// Returns the token of a part of the loaded block.
    pub(crate) fn token_of(&self, part: usize) -> Result<i64, StorageError> {
        let (block, _) = self.block.as_ref().expect("a block is at hand");
        part::token(block, part).map_err(|Malformed| self.damaged())
    }

    /// Returns true if rows of the loaded block may satisfy the request's conditions. Cached until
    /// [`FileSource::forget`].
    pub(crate) fn may_match(&mut self, request: &BatchRequest) -> Result<bool, StorageError> {
        if self.matches.is_none() {
            let index = self.next_block - 1;
            let matches = request.may_match(&self.file.index[index].zone_map);
            self.matches = Some(matches.map_err(self.file.malformed(index))?);
        }
        Ok(self.matches == Some(true))
    }

    /// Removes cached chunks of the file after an error, so that the next scan reads the disk
    /// again.
    pub(crate) fn forget_cached(&self) {
        self.blocks.forget();
    }

    /// Forgets the cached answer of `may_match` after a change of the conditions.
    pub(crate) fn forget(&mut self) {
        self.matches = None;
    }

    /// Returns the position of the next partition, or a lower bound of it if the next block is not
    /// loaded. `None` at the end.
    pub(crate) fn place(&self) -> Result<Option<Position>, StorageError> {
        if let Some((block, part)) = &self.block
            && *part < block.parts
        {
            let part = BlockPart::new(block, *part).map_err(|Malformed| self.damaged())?;
            let (token, key) = part.place();
            return Ok(Some((token, key.clone())));
        }
        let entry = self.file.index.get(self.next_block);
        Ok(entry.map(|entry| (entry.start.token, entry.start.key.clone())))
    }

    /// Returns true if the next partition is loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.block.as_ref().is_some_and(|(block, part)| *part < block.parts)
    }

    /// Skips partitions before the scan's start, and those that this shard does not own.
    pub(crate) fn skip(&mut self) -> Result<(), StorageError> {
        let Some((block, part)) = &mut self.block else { return Ok(()) };
        while *part < block.parts {
            let token = part::token(block, *part).map_err(self.file.malformed(self.next_block - 1))?;
            if token >= self.first.max(self.file.entry.from) && self.file.entry.owns(token) {
                break;
            }
            *part += 1;
        }
        Ok(())
    }

    /// Skips a partition without reading the blocks within it.
    pub(crate) async fn skip_partition(&mut self, (token, key): &Position) -> Result<(), StorageError> {
        let last = self.file.last_block_of(*token, key);
        if last >= self.next_block {
            self.next_block = last;
            self.load().await?;
        }
        let Some((block, part)) = &mut self.block else { return Ok(()) };
        while *part < block.parts {
            let at = BlockPart::new(block, *part).map_err(self.file.malformed(self.next_block - 1))?;
            if at.place() > (*token, key) {
                break;
            }
            *part += 1;
        }
        Ok(())
    }

    fn take_part(&mut self) -> Result<BlockPart, StorageError> {
        let (block, part) = self.block.as_mut().expect("a part is at hand");
        *part += 1;
        let at = *part - 1;
        BlockPart::new(block, at).map_err(self.file.malformed(self.next_block - 1))
    }

    /// Takes the whole next partition, whose first part is loaded.
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
