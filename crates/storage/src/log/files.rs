//! Segments of a log: those in use, the next one, and free ones.
//!
//! A segment passes through these states. A restart reads it in states 2 and 3:
//!
//! 1. Prepared: allocated, zeroed, its header durable.
//! 2. Active: the manifest names it if it is the first of this process, otherwise a note in the
//!    previous segment does.
//! 3. Sealed: full. It stays until all of its records are in table files and the manifest no longer
//!    names it.
//! 4. Free: to be reused as a prepared one. Free segments beyond the bound are removed.

use std::path::PathBuf;
use std::rc::Rc;

use crate::env::{BLOCK, Mode, Work};
use crate::error::StorageError;
use crate::log::segment::{SegmentHeader, encode_header, encode_note};
use crate::log::{Log, Segment, segment_path};

/// Size of a segment on a full disk, in bytes. Dropping a table needs a few of its blocks.
const SEGMENT_BYTES_SMALL: u64 = 256 << 10;

impl Log {
    /// Creates a segment before the first record arrives, so that a disk that cannot store a log is
    /// reported at once.
    pub(crate) async fn create_first_segment(self: &Rc<Self>) -> Result<(), StorageError> {
        self.rotate().await
    }

    /// Returns the number of segments in use and of free ones.
    pub(crate) fn segments(&self) -> (usize, usize) {
        let state = self.state.borrow();
        let in_use = state.sealed.len() + usize::from(state.active.is_some());
        (in_use, state.free.len() + usize::from(state.prepared_segment.is_some()))
    }

    /// Returns the numbers of the segments that may contain records above `flushed`, in ascending
    /// order, and the last durable record.
    pub(crate) fn live(&self, flushed: u64) -> (Vec<u64>, u64) {
        let state = self.state.borrow();
        let sealed = state.sealed.iter().filter(|segment| segment.last_record > flushed);
        let active = state.active.iter().map(|(segment, _)| segment);
        let live = sealed.chain(active).map(|segment| segment.header.segment);
        // The first segment of this process, while the manifest is being written.
        let activating = state.activating.filter(|_| state.active.is_none());
        let live = live.chain(activating).collect();
        (live, state.durable)
    }

    /// Returns the segments with records above `flushed`, each with the header that fits its
    /// durable bytes.
    pub(crate) fn tail(&self, flushed: u64) -> Vec<(PathBuf, SegmentHeader)> {
        let state = self.state.borrow();
        let part =
            |segment: &Segment, bytes| (segment.path.clone(), SegmentHeader { bytes, ..segment.header });
        let sealed = state.sealed.iter().filter(|segment| segment.last_record > flushed);
        let sealed = sealed.map(|segment| part(segment, segment.bytes));
        let active = state.active.iter().map(|(segment, end)| part(segment, *end));
        sealed.chain(active).collect()
    }

    /// Frees segments that the manifest no longer names and that precede the last one it names.
    /// Later segments are found through that one.
    pub(crate) fn release(&self, named: &[u64]) {
        let state = &mut *self.state.borrow_mut();
        let is_free =
            |segment: u64| !named.contains(&segment) && named.last().is_none_or(|last| segment < *last);
        while state.sealed.front().is_some_and(|segment| is_free(segment.header.segment)) {
            let segment = state.sealed.pop_front().expect("checked above");
            state.free.push(segment);
        }
    }

    /// Removes free segments that exceed `idle`. `None`: those that exceed the bound of the log.
    pub(crate) async fn trim(&self, idle: Option<usize>) {
        loop {
            let segment = {
                let (in_use, free) = self.segments();
                let free_max = idle.unwrap_or_else(|| self.segments_max.saturating_sub(in_use));
                let state = &mut *self.state.borrow_mut();
                let odd = state.free.iter().position(|segment| segment.bytes != self.segment_bytes);
                match odd.or_else(|| (free > free_max).then(|| state.free.len().checked_sub(1)).flatten()) {
                    Some(at) => state.free.swap_remove(at),
                    None => return,
                }
            };
            // A segment that cannot be removed occupies space until the next start.
            let _ = self.env.remove(&segment.path).await;
        }
    }

    /// Makes a prepared segment the active one, and starts preparing the next.
    pub(crate) async fn rotate(self: &Rc<Log>) -> Result<(), StorageError> {
        self.prepared.wait(|| (!self.state.borrow().preparing).then_some(())).await;
        let prepared = self.state.borrow_mut().prepared_segment.take();
        let segment = match prepared {
            Some(segment) => segment,
            None => self.make().await?,
        };
        self.state.borrow_mut().activating = Some(segment.header.segment);
        if let Err(error) = self.record_next(segment.header.segment).await {
            // The note or edit may have reached the disk in spite of the error, so this segment
            // must be the next one.
            self.state.borrow_mut().prepared_segment = Some(segment);
            return Err(error);
        }
        let state = &mut *self.state.borrow_mut();
        if let Some((mut full, end)) = state.active.take() {
            full.last_record = state.durable;
            state.length += full.bytes - end;
            state.sealed.push_back(full);
        }
        state.length += BLOCK as u64;
        state.activating = None;
        state.active = Some((segment, BLOCK as u64));
        state.preparing = true;
        let log = self.clone();
        self.env.spawn(Work::Flush, Box::pin(async move { log.prepare().await }));
        Ok(())
    }

    /// Records durably that the log continues in segment `next`.
    async fn record_next(self: &Rc<Log>, next: u64) -> Result<(), StorageError> {
        let (active, durable) = {
            let state = self.state.borrow();
            (state.active.clone(), state.durable)
        };
        let Some((full, end)) = active else { return (self.register)(self.clone(), next).await };
        let note = encode_note(&full.header, durable, next);
        let written = full.file.write_durable(end, &note).await;
        written.map_err(|error| StorageError::io("write the commit log", &full.path, error))
    }

    /// Prepares the next segment. An error is ignored: the log retries when it needs the segment,
    /// and reports that error.
    async fn prepare(self: Rc<Log>) {
        let made = self.make().await;
        {
            let state = &mut *self.state.borrow_mut();
            state.preparing = false;
            state.prepared_segment = made.ok();
        }
        self.prepared.wake();
    }

    /// Returns an empty segment, a reused one if a free one has the right size.
    async fn make(&self) -> Result<Segment, StorageError> {
        let (free, id, bytes) = {
            let state = &mut *self.state.borrow_mut();
            let id = state.next_segment;
            state.next_segment += 1;
            let bytes = state.needed_bytes().max(self.segment_bytes);
            let free = state.free.iter().position(|segment| segment.bytes == bytes);
            (free.map(|at| state.free.swap_remove(at)), id, bytes)
        };
        if let Some(old) = free {
            return self.reuse(old, id).await;
        }
        let made = self.create(id, bytes).await;
        let is_full = made.as_ref().is_err_and(StorageError::is_full);
        let small = SEGMENT_BYTES_SMALL.max(self.state.borrow().needed_bytes()).min(bytes);
        if !is_full {
            return made;
        }
        // On a full disk, use a small segment.
        let made = self.create(id, small).await;
        match made {
            Err(error) if error.is_full() && self.reserve.release_space().await => {
                self.create(id, small).await
            }
            made => made,
        }
    }

    fn header(&self, segment: u64, bytes: u64) -> SegmentHeader {
        let durable = self.state.borrow().durable;
        SegmentHeader { shard: self.shard, segment, salt: self.env.random() as u32, durable, bytes }
    }

    async fn create(&self, id: u64, bytes: u64) -> Result<Segment, StorageError> {
        let path = segment_path(&self.dir, id);
        let header = self.header(id, bytes);
        let make = async {
            let file = self.env.open(&path, Mode::Log).await?;
            file.allocate(bytes).await?;
            file.write_durable(0, &encode_header(&header)).await?;
            file.sync().await?;
            self.env.sync_dir(&self.dir).await?;
            Ok(file)
        };
        match make.await {
            Ok(file) => Ok(Segment { file, path, header, bytes, last_record: 0 }),
            Err(error) => {
                // A partly created file does no harm except for its space.
                let _ = self.env.remove(&path).await;
                Err(StorageError::io("create a log segment", &path, error))
            }
        }
    }

    async fn reuse(&self, old: Segment, id: u64) -> Result<Segment, StorageError> {
        let path = segment_path(&self.dir, id);
        let header = self.header(id, old.bytes);
        let io = |error| StorageError::io("reuse a log segment", &path, error);
        if let Err(error) = self.env.rename(&old.path, &path).await {
            self.state.borrow_mut().free.push(old);
            return Err(io(error));
        }
        // If this fails, the name after a crash is unknown. The segment is not used again before a
        // restart.
        self.env.sync_dir(&self.dir).await.map_err(io)?;
        if let Err(error) = old.file.write_durable(0, &encode_header(&header)).await {
            self.state.borrow_mut().free.push(Segment { path: path.clone(), ..old });
            return Err(io(error));
        }
        Ok(Segment { file: old.file, path, header, bytes: old.bytes, last_record: 0 })
    }
}
