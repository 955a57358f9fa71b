//! An open table file: its filter and index in memory, its blocks read on demand.
//!
//! [`Lookup`] is the way of one point read through a file. It asks for blocks by number and never waits itself,
//! so the same code serves the synchronous path, when the cache has every block, and the asynchronous one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::block::Block;
use crate::bloom;
use crate::codec::Malformed;
use crate::error::StorageError;
use crate::manifest::FileEntry;
use crate::memtable::{Entry, ScanFrom};
use crate::partition::Partition;
use crate::table::{self, BlockStart, FOOTER, IndexEntry, Unreadable};
use crate::world::{File, Mode, World};

/// A table file.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) id: u64,
    /// What the manifest says of it.
    pub(crate) entry: FileEntry,
    pub(crate) bytes: u64,
    pub(crate) path: PathBuf,
    file: Arc<dyn File>,
    filter: Bytes,
    index: Vec<IndexEntry>,
}

fn unreadable(path: &Path, why: Unreadable) -> StorageError {
    match why {
        Unreadable::Damaged(what) => StorageError::corrupt(path, what),
        Unreadable::Newer(found) => {
            StorageError::NewerFormat { path: path.into(), found, known: table::VERSION }
        }
    }
}

impl TableFile {
    pub(crate) async fn open(
        world: &dyn World,
        path: PathBuf,
        entry: FileEntry,
    ) -> Result<TableFile, StorageError> {
        let io = |error| StorageError::io("read the table file", &path, error);
        let file = world.open(&path, Mode::Read).await.map_err(io)?;
        let bytes = file.len().await.map_err(io)?;
        let footer_at = bytes
            .checked_sub(FOOTER as u64)
            .ok_or_else(|| StorageError::corrupt(&path, "it is too short for a table file"))?;
        let footer = file.read(footer_at, FOOTER).await.map_err(io)?;
        let footer = table::read_footer(&footer, bytes, entry.seal).map_err(|why| unreadable(&path, why))?;
        let filter = file.read(footer.filter.offset, footer.filter.bytes as usize).await.map_err(io)?;
        let index = file.read(footer.index.offset, footer.index.bytes as usize).await.map_err(io)?;
        for (section, bytes) in [(&footer.filter, &filter), (&footer.index, &index)] {
            table::check_section(section, entry.seal, bytes).map_err(|why| unreadable(&path, why))?;
        }
        let index = table::read_index(index)
            .map_err(|_| StorageError::corrupt(&path, "its index does not decode"))?;
        Ok(TableFile { id: entry.id, entry, bytes, path, file, filter, index })
    }

    /// Whether the file may hold a partition with this token, that counts here.
    #[inline]
    pub(crate) fn may_contain(&self, token: i64) -> bool {
        self.entry.owns(token) && bloom::may_contain(&self.filter, token)
    }

    /// Reads a block from disk.
    pub(crate) async fn read_block(&self, index: usize) -> Result<Arc<Block>, StorageError> {
        let entry = &self.index[index];
        let stored = self.file.read(entry.offset, entry.stored as usize).await;
        let stored = stored.map_err(|error| StorageError::io("read the table file", &self.path, error))?;
        let block =
            table::read_block(entry, self.entry.seal, stored).map_err(|why| unreadable(&self.path, why))?;
        Ok(Arc::new(block))
    }

    /// The last block that starts at or before this place.
    fn block_at(&self, place: &BlockStart) -> usize {
        self.index.partition_point(|entry| entry.start <= *place).saturating_sub(1)
    }

    fn malformed(&self, Malformed: Malformed) -> StorageError {
        StorageError::corrupt(&self.path, "a block does not decode")
    }
}

/// What a lookup needs next, or its end.
#[derive(Debug)]
pub(crate) enum Step {
    /// The block with this number.
    Need(usize),
    /// What the file knows of the partition or row, if anything.
    Done(Option<Partition>),
}

/// One point read in one file.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) file: Arc<TableFile>,
    token: i64,
    key: Bytes,
    /// Only this row, and what covers it.
    row: Option<Bytes>,
    next: usize,
    found: Option<Partition>,
}

impl Lookup {
    pub(crate) fn new(file: Arc<TableFile>, token: i64, key: Bytes, row: Option<Bytes>) -> Lookup {
        let next = file.block_at(&BlockStart { token, key: key.clone(), clustering: None });
        Lookup { file, token, key, row, next, found: None }
    }

    /// Goes on with the block asked for last, or with the first when none was.
    pub(crate) fn step(&mut self, block: Option<&Block>) -> Result<Step, StorageError> {
        let Some(block) = block else {
            return Ok(if self.file.index.is_empty() { Step::Done(None) } else { Step::Need(self.next) });
        };
        let part = block.find(self.token, &self.key).map_err(|m| self.file.malformed(m))?;
        let Some(part) = part else { return Ok(Step::Done(self.found.take())) };
        let piece = match &self.row {
            Some(row) => part.only(row),
            None => part.partition(),
        };
        let piece = piece.map_err(|m| self.file.malformed(m))?;
        self.found = Some(match self.found.take() {
            Some(found) => found.merge(piece),
            None => piece,
        });
        if !part.more {
            return Ok(Step::Done(self.found.take()));
        }
        let next = match &self.row {
            None => self.next + 1,
            Some(row) => {
                let (token, key, clustering) = (self.token, self.key.clone(), Some(row.clone()));
                let home = self.file.block_at(&BlockStart { token, key, clustering });
                if home <= self.next {
                    return Ok(Step::Done(self.found.take()));
                }
                home
            }
        };
        if next >= self.file.index.len() {
            return Err(self.file.malformed(Malformed));
        }
        self.next = next;
        Ok(Step::Need(next))
    }
}

/// Reads a file's partitions in order, a block at a time and past the cache.
#[derive(Debug)]
pub(crate) struct FileCursor {
    file: Arc<TableFile>,
    from: ScanFrom,
    last: i64,
    next_block: usize,
    block: Option<(Arc<Block>, usize)>,
}

impl FileCursor {
    pub(crate) fn new(file: Arc<TableFile>, from: ScanFrom, last: i64) -> FileCursor {
        let start = match &from {
            ScanFrom::Token(token) => BlockStart { token: *token, key: Bytes::new(), clustering: None },
            ScanFrom::After(token, key) => BlockStart { token: *token, key: key.clone(), clustering: None },
        };
        let next_block = file.block_at(&start);
        FileCursor { file, from, last, next_block, block: None }
    }

    /// The next part in file order; the flag says that the partition goes on.
    async fn part(&mut self) -> Result<Option<crate::block::Part>, StorageError> {
        loop {
            if let Some((block, at)) = &mut self.block
                && *at < block.parts()
            {
                *at += 1;
                return block.part(*at - 1).map(Some).map_err(|m| self.file.malformed(m));
            }
            if self.next_block >= self.file.index.len() {
                return Ok(None);
            }
            self.block = Some((self.file.read_block(self.next_block).await?, 0));
            self.next_block += 1;
        }
    }

    /// The next whole partition.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, StorageError> {
        loop {
            let Some(mut part) = self.part().await? else { return Ok(None) };
            if part.token > self.last {
                return Ok(None);
            }
            let wanted = match &self.from {
                ScanFrom::Token(token) => part.token >= *token,
                ScanFrom::After(token, key) => (part.token, &part.key) > (*token, key),
            };
            if !wanted || !self.file.entry.owns(part.token) {
                continue;
            }
            let (token, key) = (part.token, part.key.clone());
            let mut partition = part.partition().map_err(|m| self.file.malformed(m))?;
            while part.more {
                part = self.part().await?.ok_or_else(|| self.file.malformed(Malformed))?;
                if !part.continued || part.token != token || part.key != key {
                    return Err(self.file.malformed(Malformed));
                }
                partition = partition.merge(part.partition().map_err(|m| self.file.malformed(m))?);
            }
            return Ok(Some((token, key, partition)));
        }
    }
}
