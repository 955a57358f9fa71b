//! A table file's blocks one after the other, past the block cache: many of them in one read, and the next read begun while these are worked
//! on. A scan by columns finds what earlier ones read (scan_cache.rs); a merge, or a scan by partitions, neither looks there nor leaves anything.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use crate::error::StorageError;
use crate::table::IndexEntry;
use crate::table::file::TableFile;
use crate::table::part::Block;
use crate::table::scan_cache::{Chunk, ScanCache};
use crate::world::BoxFuture;

/// Bytes read at a time, once it is clear that many are wanted: enough that the cost of a request does not matter, few enough that
/// two of them for each file do not either.
const READ: u64 = 1 << 20;

/// The first read asks for about so much, and each that follows for twice as much: who wants only a few rows has only these read.
const FIRST_READ: u64 = 64 << 10;

/// From reads of this size on the next one is begun ahead.
const AHEAD_FROM: u64 = 4 * FIRST_READ;

/// Reads blocks in ascending order.
pub(crate) struct ReadAhead {
    pub(crate) file: Arc<TableFile>,
    cache: Option<Arc<ScanCache>>,
    /// Blocks that begin behind this token are not read ahead.
    last: i64,
    chunk: Chunk,
    next: Option<Reading>,
    /// About how much the next read asks for.
    bytes: u64,
}

struct Reading {
    blocks: Range<usize>,
    state: State,
}

enum State {
    /// It was there.
    Kept(Bytes),
    UnderWay(BoxFuture<io::Result<Bytes>>),
    Read(io::Result<Bytes>),
}

impl std::fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadAhead").field("file", &self.file.id).field("blocks", &self.chunk.0).finish()
    }
}

impl ReadAhead {
    /// For one who reads up to the token `last`.
    pub(crate) fn new(file: Arc<TableFile>, last: i64, cache: Option<Arc<ScanCache>>) -> ReadAhead {
        ReadAhead { file, cache, last, chunk: (0..0, Bytes::new()), next: None, bytes: FIRST_READ }
    }

    /// A block of the index.
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
            State::Kept(bytes) => Ok(bytes),
            State::Read(read) => self.keep(&reading.blocks, read),
            State::UnderWay(read) => {
                let read = read.await;
                self.keep(&reading.blocks, read)
            }
        };
        let bytes = read.map_err(|error| self.file.unread(error))?;
        self.chunk = (reading.blocks, bytes);
        let end = self.chunk.0.end;
        let wanted = self.file.index.get(end).is_some_and(|entry| entry.start.token <= self.last);
        if wanted && self.bytes >= AHEAD_FROM {
            let mut next = self.begin(end);
            if let State::UnderWay(read) = &mut next.state {
                // Looking at it once sets it going.
                let looked = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                if let Poll::Ready(read) = looked {
                    next.state = State::Read(read);
                }
            }
            self.next = Some(next);
        }
        Ok(())
    }

    /// Keeps what was read for the scans that follow. Not the little that who looks for a few tokens has read: longer reads would
    /// end where it begins.
    fn keep(&self, blocks: &Range<usize>, read: io::Result<Bytes>) -> io::Result<Bytes> {
        if let (Some(cache), Ok(bytes)) = (&self.cache, &read)
            && (self.last >= self.file.tokens().1 || bytes.len() as u64 >= AHEAD_FROM)
        {
            cache.keep(self.file.id, (blocks.clone(), bytes.clone()));
        }
        read
    }

    /// Forgets what was kept of the file, which is not what it should be: the disk may have it better.
    pub(crate) fn forget(&self) {
        self.cache.iter().for_each(|cache| cache.forget(self.file.id));
    }

    /// Finds this block and some that follow, or begins to read them.
    fn begin(&mut self, from: usize) -> Reading {
        let mut end_max = self.file.index.len();
        match self.cache.as_ref().map(|cache| cache.find(self.file.id, from)) {
            Some(Ok((blocks, bytes))) => return Reading { blocks, state: State::Kept(bytes) },
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
        Reading { blocks: from..from + more + 1, state: State::UnderWay(read) }
    }
}
