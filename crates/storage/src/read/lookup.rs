//! The steps of one read in one file. A lookup requests blocks by number and never waits. So the
//! same code serves the synchronous path, when the cache has every block, and the asynchronous
//! path.

use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::model::codec::Malformed;
use crate::model::partition::Partition;
use crate::read::slice::{self, SLICE_BYTES};
use crate::table::BlockStart;
use crate::table::cache::Cache;
use crate::table::file::TableFile;
use crate::table::part::{self, Block, PartRequest, Slice};

/// A whole partition that is read may take this fraction (1/8) of the cache. A larger one is not
/// cached.
const PARTITION_PART: usize = 8;

/// One read in one file.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) file: Arc<TableFile>,
    token: i64,
    key: Bytes,
    request: PartRequest,
    next: Option<usize>,
    /// The block in which the partition starts.
    first: usize,
    /// The block in which the slice starts.
    home: usize,
    /// Rows that may still be taken for the slice.
    left: usize,
    /// Bytes of rows taken for the slice.
    bytes: usize,
    /// The file's data for the request so far.
    pub(crate) found: Option<Partition>,
    /// True if a row was decoded without some of its columns.
    pub(crate) partial: bool,
    /// The last row taken, if the file has more of the slice.
    pub(crate) frontier: Option<Bytes>,
}

impl Lookup {
    pub(crate) fn new(file: Arc<TableFile>, token: i64, key: Bytes, request: PartRequest) -> Lookup {
        let first = file.block_at(&BlockStart { token, key: key.clone(), clustering: None });
        let mut lookup = Lookup {
            next: (!file.index.is_empty()).then_some(first),
            file,
            token,
            key,
            first,
            home: first,
            left: 0,
            bytes: 0,
            found: None,
            partial: false,
            frontier: None,
            request,
        };
        if let PartRequest::Slice(slice) = &lookup.request {
            let home = lookup.home(slice);
            (lookup.left, lookup.home) = (slice.rows, home);
            if lookup.next.is_some() && home > first && lookup.file.index[home].plain {
                lookup.next = Some(home);
            }
        }
        lookup
    }

    /// Returns the block in which a slice starts.
    fn home(&self, slice: &Slice) -> usize {
        let bound = if slice.reversed { &slice.end } else { &slice.start };
        match bound {
            Bound::Included(row) | Bound::Excluded(row) => self.block_of(row).max(self.first),
            Bound::Unbounded if !slice.reversed => self.first,
            Bound::Unbounded => {
                let place = (self.token, &self.key);
                let behind =
                    self.file.index.partition_point(|entry| (entry.start.token, &entry.start.key) <= place);
                behind.saturating_sub(1).max(self.first)
            }
        }
    }

    fn block_of(&self, row: &Bytes) -> usize {
        let clustering = Some(row.clone());
        self.file.block_at(&BlockStart { token: self.token, key: self.key.clone(), clustering })
    }

    /// Returns the block to take next; `None` at the end.
    pub(crate) fn needs(&self) -> Option<usize> {
        self.next
    }

    /// Returns true if blocks of this read must not be cached: the request bypasses the cache, or
    /// they are more than `bytes_max` stored bytes of one partition, which would evict blocks of
    /// other reads.
    pub(crate) fn bypasses(&self, bytes_max: usize) -> bool {
        match &self.request {
            PartRequest::Slice(slice) => slice.bypass_cache,
            PartRequest::Row { bypass_cache, .. } => *bypass_cache,
            PartRequest::All => {
                let place = (self.token, &self.key);
                let continues = self.file.index[self.first..].iter().skip(1).take_while(|entry| {
                    (entry.start.token, &entry.start.key) == place && entry.start.clustering.is_some()
                });
                let sizes = continues.scan(0, |sum, entry| {
                    *sum += entry.stored as usize;
                    Some(*sum)
                });
                sizes.into_iter().any(|sum| sum > bytes_max)
            }
        }
    }

    /// Processes the block that was needed.
    pub(crate) fn take(&mut self, block: &Block) -> Result<(), StorageError> {
        let Some(index) = self.next.take() else { return Ok(()) };
        if let PartRequest::Slice(slice) = &self.request {
            let slice = slice.clone();
            return self.take_slice(block, index, &slice);
        }
        let piece =
            part::read(block, self.token, &self.key, &self.request).map_err(self.file.malformed(index))?;
        let Some(piece) = piece else { return Ok(()) };
        self.partial |= piece.partial;
        self.add(piece.partition);
        if !piece.more {
            return Ok(());
        }
        self.next = match &self.request {
            PartRequest::Row { clustering, .. } => {
                Some(self.block_of(clustering)).filter(|home| *home > index)
            }
            PartRequest::All | PartRequest::Slice(_) => Some(index + 1),
        };
        self.check_next()
    }

    /// Keeps a block that was taken in the cache, or drops those of its file if it is damaged.
    pub(crate) fn took(
        &self,
        cache: &RefCell<Cache>,
        index: usize,
        block: &Block,
        taken: Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let cache = &mut *cache.borrow_mut();
        match taken {
            // The disk may have the correct bytes.
            Err(_) => cache.forget(self.file.id, self.file.index.len()),
            // Its size depends on the columns that were decompressed.
            Ok(()) if !self.bypasses(cache.bytes_max() / PARTITION_PART) => {
                cache.keep(self.file.id, index, block);
            }
            Ok(()) => {}
        }
        taken
    }

    fn take_slice(&mut self, block: &Block, index: usize, slice: &Slice) -> Result<(), StorageError> {
        // The partition's head may be in an earlier block than the slice. That block is then read
        // first, for the head only.
        let head_only = index < self.home && self.found.is_none();
        let rows = if head_only { 0 } else { self.left };
        let given = slice::of_block(block, self.token, &self.key, slice, rows);
        let Some((given, more)) = given.map_err(self.file.malformed(index))? else { return Ok(()) };
        self.add(given.partition);
        if head_only {
            self.next = more.then_some(self.home);
            return self.check_next();
        }
        self.bytes += given.bytes;
        let is_full = self.bytes >= SLICE_BYTES;
        self.left = if is_full { 0 } else { self.left - given.rows.min(self.left) };
        let continues = !given.ended && if slice.reversed { index > self.first } else { more };
        if given.more || continues && self.left == 0 {
            self.frontier = given.last;
        } else if continues {
            self.next = Some(if slice.reversed { index - 1 } else { index + 1 });
        }
        self.check_next()
    }

    fn add(&mut self, partition: Partition) {
        self.found = Some(match self.found.take() {
            Some(found) => found.merge(partition),
            None => partition,
        });
    }

    fn check_next(&self) -> Result<(), StorageError> {
        match self.next {
            Some(next) if next >= self.file.index.len() => Err(self.file.malformed(next)(Malformed)),
            _ => Ok(()),
        }
    }
}
