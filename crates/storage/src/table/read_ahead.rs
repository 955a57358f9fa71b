//! Reads a table file's blocks in order, bypassing the block cache. One read covers many blocks,
//! and the next read starts while the caller processes the last one.
//!
//! A scan by columns shares reads with other scans through [`ScanCache`]. A compaction, or a scan
//! by partitions, passes no cache: it neither finds nor leaves chunks there.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use crate::env::BoxFuture;
use crate::error::StorageError;
use crate::table::IndexEntry;
use crate::table::file::TableFile;
use crate::table::part::Block;
use crate::table::scan_cache::{Chunk, ScanCache};

/// The size of a full read. Large enough that the cost of a request does not matter. Small enough
/// that two buffers of it for each file do not matter either.
const READ: u64 = 1 << 20;

/// The size of the first read. Each following read is twice as large, so that a reader of few rows
/// reads little.
const FIRST_READ: u64 = 64 << 10;

/// Reads of at least this size start the next read ahead.
const AHEAD_FROM: u64 = 4 * FIRST_READ;

/// Reads blocks in ascending order.
pub(crate) struct ReadAhead {
    pub(crate) file: Arc<TableFile>,
    cache: Option<Arc<ScanCache>>,
    /// Blocks that start behind this token are not read ahead.
    last: i64,
    chunk: Chunk,
    next: Option<Reading>,
    /// The size of the next read, about.
    bytes: u64,
}

struct Reading {
    blocks: Range<usize>,
    state: ReadState,
}

enum ReadState {
    /// Found in the scan cache.
    Cached(Bytes),
    InFlight(BoxFuture<io::Result<Bytes>>),
    Read(io::Result<Bytes>),
}

impl std::fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadAhead").field("file", &self.file.id).field("blocks", &self.chunk.0).finish()
    }
}

impl ReadAhead {
    /// Creates a reader of blocks up to the token `last`.
    pub(crate) fn new(file: Arc<TableFile>, last: i64, cache: Option<Arc<ScanCache>>) -> ReadAhead {
        ReadAhead { file, cache, last, chunk: (0..0, Bytes::new()), next: None, bytes: FIRST_READ }
    }

    /// Returns the block with this number in the index.
    pub(crate) async fn block(&mut self, index: usize) -> Result<Block, StorageError> {
        if !self.chunk.0.contains(&index) {
            self.fetch(index).await?;
        }
        let entry = &self.file.index[index];
        let start = (entry.offset - self.file.index[self.chunk.0.start].offset) as usize;
        let end = start + entry.stored as usize;
        if end > self.chunk.1.len() {
            return Err(self.file.malformed(index)(crate::model::codec::Malformed));
        }
        self.file.open_block(index, self.chunk.1.slice(start..end))
    }

    async fn fetch(&mut self, index: usize) -> Result<(), StorageError> {
        let reading = match self.next.take().filter(|next| next.blocks.contains(&index)) {
            Some(reading) => reading,
            None => self.begin(index),
        };
        let read = match reading.state {
            ReadState::Cached(bytes) => Ok(bytes),
            ReadState::Read(read) => self.cache_chunk(&reading.blocks, read),
            ReadState::InFlight(read) => {
                let read = read.await;
                self.cache_chunk(&reading.blocks, read)
            }
        };
        let bytes = read.map_err(|error| self.file.unread(error))?;
        self.chunk = (reading.blocks, bytes);
        let end = self.chunk.0.end;
        let wanted = self.file.index.get(end).is_some_and(|entry| entry.start.token <= self.last);
        if wanted && self.bytes >= AHEAD_FROM {
            let mut next = self.begin(end);
            if let ReadState::InFlight(read) = &mut next.state {
                // The first poll submits the request.
                let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                if let Poll::Ready(read) = polled {
                    next.state = ReadState::Read(read);
                }
            }
            self.next = Some(next);
        }
        Ok(())
    }

    /// Caches a read for later scans. Leaves out short reads of a scan that ends early: they would
    /// split the long reads of later scans.
    fn cache_chunk(&self, blocks: &Range<usize>, read: io::Result<Bytes>) -> io::Result<Bytes> {
        if let (Some(cache), Ok(bytes)) = (&self.cache, &read)
            && (self.last >= self.file.tokens().1 || bytes.len() as u64 >= AHEAD_FROM)
        {
            cache.keep(self.file.id, (blocks.clone(), bytes.clone()));
        }
        read
    }

    /// Removes cached chunks of the file after a failed check: the disk may have the correct bytes.
    pub(crate) fn forget(&self) {
        self.cache.iter().for_each(|cache| cache.forget(self.file.id));
    }

    /// Finds a chunk that starts with this block, or starts to read one.
    fn begin(&mut self, from: usize) -> Reading {
        let mut end_max = self.file.index.len();
        match self.cache.as_ref().map(|cache| cache.find(self.file.id, from)) {
            Some(Ok((blocks, bytes))) => return Reading { blocks, state: ReadState::Cached(bytes) },
            Some(Err(next)) => end_max = next.unwrap_or(end_max),
            None => {}
        }
        let first = &self.file.index[from];
        let fits = |entry: &IndexEntry| {
            let end = entry.offset.saturating_add(u64::from(entry.stored));
            entry.offset >= first.offset && end - first.offset <= self.bytes && entry.start.token <= self.last
        };
        let more = self.file.index[from + 1..end_max].iter().take_while(|entry| fits(entry)).count();
        let last = &self.file.index[from + more];
        let bytes = (last.offset - first.offset) as usize + last.stored as usize;
        let read = self.file.begin_read(first.offset, bytes);
        self.bytes = (self.bytes * 2).min(READ);
        Reading { blocks: from..from + more + 1, state: ReadState::InFlight(read) }
    }
}
