//! A table file as a source of a scan: its blocks in order, many of them in one read, the next read begun while these are worked on.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use crate::codec::Malformed;
use crate::error::StorageError;
use crate::part::{Block, Part};
use crate::partition::Partition;
use crate::table::BlockStart;
use crate::table_file::TableFile;
use crate::world::BoxFuture;

/// Bytes read at a time: enough that the cost of a request does not matter, few enough that two of them for each file do not either.
const READ: u64 = 1 << 20;

/// A place in a scan's order.
pub(crate) type Place = (i64, Bytes);

struct Ahead {
    blocks: std::ops::Range<usize>,
    read: BoxFuture<io::Result<Bytes>>,
    done: Option<io::Result<Bytes>>,
}

/// Reads a file's blocks, past the cache.
pub(crate) struct FileSource {
    pub(crate) file: Arc<TableFile>,
    /// The block that comes next.
    pub(crate) next_block: usize,
    /// The block at hand and the part in it that comes next.
    pub(crate) block: Option<(Block, usize)>,
    chunk: (std::ops::Range<usize>, Bytes),
    ahead: Option<Ahead>,
    first: i64,
    last: i64,
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSource")
            .field("file", &self.file.id)
            .field("next_block", &self.next_block)
            .finish()
    }
}

impl FileSource {
    /// Everything from the first token on; nothing behind the last is read ahead.
    pub(crate) fn new(file: Arc<TableFile>, first: i64, last: i64) -> FileSource {
        let start = BlockStart { token: first, key: Bytes::new(), clustering: None };
        let next_block = file.block_at(&start);
        FileSource { file, next_block, block: None, chunk: (0..0, Bytes::new()), ahead: None, first, last }
    }

    fn damaged(&self) -> StorageError {
        self.file.malformed(self.next_block.saturating_sub(1))(Malformed)
    }

    /// The blocks from this one on that are read at once.
    fn stretch(&self, from: usize) -> std::ops::Range<usize> {
        let Some(first) = self.file.index.get(from) else { return from..from };
        let fits = |entry: &crate::table::IndexEntry| {
            let end = entry.offset.saturating_add(u64::from(entry.stored));
            entry.offset >= first.offset && end - first.offset <= READ && entry.start.token <= self.last
        };
        let more = self.file.index[from + 1..].iter().take_while(|entry| fits(entry)).count();
        from..from + 1 + more
    }

    fn begin(&self, blocks: std::ops::Range<usize>) -> Option<Ahead> {
        let (first, last) = (self.file.index.get(blocks.start)?, &self.file.index[blocks.end - 1]);
        let bytes = (last.offset - first.offset) as usize + last.stored as usize;
        Some(Ahead { read: self.file.begin_read(first.offset, bytes), blocks, done: None })
    }

    /// Reads the next block; false at the end of the file.
    pub(crate) async fn load(&mut self) -> Result<bool, StorageError> {
        self.block = None;
        let index = self.next_block;
        if index >= self.file.index.len() {
            return Ok(false);
        }
        if !self.chunk.0.contains(&index) {
            let ahead = match self.ahead.take().filter(|ahead| ahead.blocks.contains(&index)) {
                Some(ahead) => ahead,
                None => self.begin(self.stretch(index)).expect("the block is in the index"),
            };
            let read = match ahead.done {
                Some(read) => read,
                None => ahead.read.await,
            };
            let bytes =
                read.map_err(|error| StorageError::io("read the table file", &self.file.path, error))?;
            self.chunk = (ahead.blocks, bytes);
            let next = self.file.index.get(self.chunk.0.end).filter(|entry| entry.start.token <= self.last);
            self.ahead = next.and_then(|_| self.begin(self.stretch(self.chunk.0.end)));
            if let Some(ahead) = &mut self.ahead {
                // Looking at it once sets it going.
                poll_fn(|cx| {
                    if let Poll::Ready(read) = ahead.read.as_mut().poll(cx) {
                        ahead.done = Some(read);
                    }
                    Poll::Ready(())
                })
                .await;
            }
        }
        let entry = &self.file.index[index];
        let start = (entry.offset - self.file.index[self.chunk.0.start].offset) as usize;
        let end = start + entry.stored as usize;
        if end > self.chunk.1.len() {
            return Err(self.damaged());
        }
        let block = self.file.open_block(index, self.chunk.1.slice(start..end))?;
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
