//! Commit log of one core, with group commit: records that arrive while a disk write is in flight
//! share the next one.
//!
//! One task writes, with at most one write in flight. So a batch starts only when the previous one
//! is durable, which the format relies on. Segments are zeroed once and reused when all their
//! records are flushed. The next segment is prepared with name and header while the current one
//! fills, so that no write waits for the sync of a folder. `files.rs` manages segments.
//!
//! A second after a batch, and at most once a second, the mark of the shard states that the batch
//! was durable (`manifest/mark.rs`). Damage to it, or its loss, is then not mistaken for a torn
//! write. A task of its own writes the mark, so that no batch waits for it.
//!
//! A failed write ends the log: waiting tasks get the error, and further writes are refused,
//! because the state of the disk after a failed sync is unknown. A full disk is different: the log
//! retries the same batch at the same position every second. Meanwhile new writes are refused and
//! the records of the batch wait.

pub(crate) mod bound;
pub(crate) mod files;
pub(crate) mod pending;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod segment;
pub(crate) mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::env::{BLOCK, Env, File, LocalBoxFuture, Work};
use crate::error::StorageError;
use crate::log::bound::LogBound;
use crate::log::pending::{Pending, PendingBatch, RECORD_HEADER, Record};
use crate::log::reserve::Reserve;
use crate::log::segment::{SegmentHeader, complete_batch, payload_of, start_batch};
use crate::log::turns::{Turn, Turns};
use crate::manifest::mark::Mark;
use crate::options::{CommitMode, StorageOptions};
use crate::signal::Signal;

/// Time between a batch and the mark that states that it is durable. It bounds the acknowledged
/// writes that an older copy of a segment could lose unnoticed, at one write of a block a second.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// Pending bytes above which a periodic log is written before its interval ends; a quarter of a
/// segment if that is less. It bounds the task poll that writes, and no caller depends on the
/// interval.
const GATHERED_BYTES: u64 = 256 << 10;
/// Bytes that are added to a checksum between two yields.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum size of a disk write in bytes, each of which is copied to aligned memory.
const WRITE_BYTES: usize = 1 << 20;
/// Number of waiters that are searched for a task that polls again. A task that is not found among
/// them waits twice and is woken twice.
const SAME_WAITERS: usize = 8;

/// Interval between attempts on a full disk.
pub(crate) const RETRY_FULL: Duration = Duration::from_secs(1);

/// A segment on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
    /// The last record in it. Set when the segment is full.
    pub(crate) last_record: u64,
}

/// Writes the number of a segment to the manifest, durably, before the first record is written to
/// it.
pub(crate) type Register = Box<dyn Fn(Rc<Log>, u64) -> LocalBoxFuture<Result<(), StorageError>>>;

/// The commit log of a shard.
pub(crate) struct Log {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: PathBuf,
    pub(crate) shard: u32,
    pub(crate) segment_bytes: u64,
    record_bytes_max: usize,
    pub(crate) segments_max: usize,
    /// Interval between writes. `None`: acknowledged means durable.
    every: Option<Duration>,
    pub(crate) register: Register,
    pub(crate) reserve: Rc<Reserve>,
    mark: Rc<Mark>,
    pub(crate) state: RefCell<LogState>,
    work: Signal,
    done: Signal,
    turns: Turns,
    pub(crate) prepared: Signal,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct LogState {
    pending: Pending,
    /// The last record number assigned, the last in a batch that was taken from the pending ones,
    /// and the last that is durable.
    last: u64,
    taken: u64,
    pub(crate) durable: u64,
    /// The last record that the mark states, or that a write of it tried to.
    marked: u64,
    /// Length of the log in bytes since it was opened, including live segments of earlier
    /// processes, and the length above which records wait.
    pub(crate) length: u64,
    limit: u64,
    /// Waiting tasks, ordered by the record they wait for.
    waiters: VecDeque<(u64, Waker)>,
    failed: Option<Arc<StorageError>>,
    /// The disk has no free space for the log, or for work that writes wait for. Cleared when it
    /// has.
    full: Option<Arc<StorageError>>,
    /// Reasons from outside the log to refuse writes, by number.
    refusals: BTreeMap<u64, Arc<StorageError>>,
    next_refusal: u64,
    closing: bool,
    /// Bytes in `pending` that wake the task of the log.
    wake_at: usize,
    pub(crate) active: Option<(Segment, u64)>,
    pub(crate) sealed: VecDeque<Segment>,
    /// The prepared segment that follows the active one.
    pub(crate) prepared_segment: Option<Segment>,
    /// The segment that is about to become active.
    pub(crate) activating: Option<u64>,
    pub(crate) preparing: bool,
    /// Segments to reuse under another number.
    pub(crate) free: Vec<Segment>,
    pub(crate) next_segment: u64,
    batches: u64,
}

/// Returns the path of a segment.
pub(crate) fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment:016x}.log"))
}

/// State of the log that recovery found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The last record.
    pub(crate) last: u64,
    pub(crate) next_segment: u64,
    /// Bytes of segments with records that are not flushed.
    pub(crate) bytes: u64,
    /// Segments with records that are not flushed.
    pub(crate) sealed: Vec<Segment>,
    /// Segments to reuse.
    pub(crate) free: Vec<Segment>,
}

impl Log {
    /// Starts the log after the recovered records.
    pub(crate) fn start(
        env: Arc<dyn Env>,
        dir: PathBuf,
        options: &StorageOptions,
        recovered: Recovered,
        register: Register,
        reserve: Rc<Reserve>,
        mark: Rc<Mark>,
    ) -> Rc<Log> {
        let bound = LogBound::new(options);
        let every = match options.commit {
            CommitMode::Batch => None,
            CommitMode::Periodic { every } => Some(every),
        };
        let state = LogState {
            pending: Pending::new(),
            last: recovered.last,
            taken: recovered.last,
            durable: recovered.last,
            marked: recovered.last,
            length: recovered.bytes,
            limit: recovered.bytes.saturating_add(bound.refuse_at()),
            waiters: VecDeque::new(),
            failed: None,
            full: None,
            refusals: BTreeMap::new(),
            next_refusal: 0,
            closing: false,
            wake_at: 0,
            active: None,
            sealed: recovered.sealed.into(),
            prepared_segment: None,
            activating: None,
            preparing: false,
            free: recovered.free,
            next_segment: recovered.next_segment,
            batches: 0,
        };
        let state = RefCell::new(state);
        let (work, done, prepared) = Default::default();
        let log = Rc::new(Log {
            env,
            dir,
            shard: options.shard,
            segment_bytes: options.segment_bytes,
            record_bytes_max: options.record_bytes_max,
            segments_max: bound.segments_max(),
            every,
            register,
            reserve,
            mark,
            state,
            work,
            done,
            turns: Turns::default(),
            prepared,
        });
        log.env.spawn(Work::Log, Box::pin(log.clone().run()));
        log.env.spawn(Work::Log, Box::pin(log.clone().state_durable()));
        log
    }

    /// Returns the size of the largest record in bytes.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Returns the length of the log in bytes. Its live part is what was added since the last
    /// flushed memtable was frozen.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        let state = self.state.borrow();
        state.length + state.pending.bytes() as u64
    }

    /// Sets the length above which records wait. It never decreases.
    pub(crate) fn set_limit(&self, length: u64) {
        {
            let limit = &mut self.state.borrow_mut().limit;
            *limit = length.max(*limit);
        }
        self.call_waiting();
    }

    /// Returns the pending bytes from which on records wait. One record more is pending at most.
    fn waits_max(&self) -> u64 {
        self.segment_bytes.max(self.record_bytes_max as u64)
    }

    /// Appends a record, which `put` writes to the buffer, and returns its number. On error nothing
    /// is appended. A writer that finds no room may wait for its [`Log::turn`]. A vital record is
    /// taken also while writes are refused for lack of free space outside the log.
    pub(crate) fn append(
        &self,
        is_vital: bool,
        turn: Option<&Turn<'_>>,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, StorageError> {
        let state = &mut *self.state.borrow_mut();
        state.check_open(is_vital)?;
        let free = self.free_bytes(state, is_vital);
        let takes = |bytes| {
            lanes::count_copied(bytes);
            self.check_room(bytes, turn, free)
        };
        state.pending.add(put, takes)?;
        Ok(self.appended(state))
    }

    /// Appends an encoded record, as [`Log::append`] does. Takes it unless it is refused.
    pub(crate) fn append_record(
        &self,
        is_vital: bool,
        turn: Option<&Turn<'_>>,
        record: &mut Record,
    ) -> Result<u64, StorageError> {
        let state = &mut *self.state.borrow_mut();
        state.check_open(is_vital)?;
        let free = self.free_bytes(state, is_vital);
        self.check_room(record.len(), turn, free)?;
        state.pending.add_record(std::mem::take(record));
        Ok(self.appended(state))
    }

    /// Returns the free bytes. A vital record may use a segment more, as nothing may be flushed
    /// before it is written.
    fn free_bytes(&self, state: &LogState, is_vital: bool) -> usize {
        state.free_bytes(self.waits_max(), if is_vital { self.segment_bytes } else { 0 })
    }

    fn check_room(&self, bytes: usize, turn: Option<&Turn<'_>>, free: usize) -> Result<(), StorageError> {
        let limit = self.record_bytes_max();
        let is_behind = turn.is_none() && self.turns.has_waiting();
        match () {
            () if bytes > limit => Err(StorageError::TooLarge { bytes, limit }),
            () if is_behind || free == 0 => Err(StorageError::Overloaded { bytes: bytes + RECORD_HEADER }),
            () => Ok(()),
        }
    }

    /// Numbers the record that was added.
    fn appended(&self, state: &mut LogState) -> u64 {
        state.last += 1;
        if state.pending.bytes() >= state.wake_at {
            state.wake_at = usize::MAX;
            self.work.wake();
        }
        state.last
    }

    /// Polls for a record and returns the last acknowledged one; otherwise registers the task. On a
    /// full disk the record waits for free space, and the caller gets an error unless
    /// `waits_while_full`.
    pub(crate) fn poll_durable(
        &self,
        record: u64,
        waits_while_full: bool,
        cx: &Context<'_>,
    ) -> Poll<Result<u64, StorageError>> {
        let state = &mut *self.state.borrow_mut();
        if record <= state.durable {
            return Poll::Ready(Ok(state.durable));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(StorageError::clone(error)));
        }
        if let Some(because) = state.full.as_ref().filter(|_| !waits_while_full) {
            return Poll::Ready(Err(StorageError::LogFull { because: because.clone() }));
        }
        // Periodic mode acknowledges before the disk write, up to a bound.
        if self.every.is_some() && state.pending.bytes() as u64 <= self.segment_bytes / 2 {
            return Poll::Ready(Ok(state.last));
        }
        // Most tasks wait for the newest record. Several may wait for the same one. A task that
        // polls again is among the last of them.
        let at = state.waiters.partition_point(|(other, _)| *other <= record);
        let mut last = state.waiters.range(..at).rev().take(SAME_WAITERS);
        if !last.any(|(other, waker)| *other == record && waker.will_wake(cx.waker())) {
            state.waiters.insert(at, (record, cx.waker().clone()));
        }
        Poll::Pending
    }

    /// Returns the last record number assigned.
    pub(crate) fn last_record(&self) -> u64 {
        self.state.borrow().last
    }

    /// Returns the number of disk writes.
    pub(crate) fn batches(&self) -> u64 {
        self.state.borrow().batches
    }

    /// Returns the reason why writes are refused, if they are.
    pub(crate) fn failure(&self) -> Option<Arc<StorageError>> {
        self.state.borrow().refused()
    }

    /// Creates a reason to refuse writes, beside others: see [`Refusal`].
    pub(crate) fn refusal(self: &Rc<Self>) -> Refusal {
        let state = &mut *self.state.borrow_mut();
        state.next_refusal += 1;
        Refusal { log: self.clone(), number: state.next_refusal }
    }

    /// Refuses further writes, because of an error outside the log.
    pub(crate) fn fail(&self, error: Arc<StorageError>) {
        {
            let state = &mut *self.state.borrow_mut();
            state.failed.get_or_insert(error);
            state.waiters.drain(..).for_each(|(_, waker)| waker.wake());
        }
        self.work.wake();
        self.done.wake();
        self.call_waiting();
    }

    /// Waits until all appended records are durable.
    pub(crate) async fn sync(&self) -> Result<(), StorageError> {
        let last = self.last_record();
        self.done
            .wait(|| {
                let state = self.state.borrow();
                match &state.failed {
                    _ if state.durable >= last => Some(Ok(())),
                    Some(error) => Some(Err(StorageError::clone(error))),
                    None => None,
                }
            })
            .await
    }

    /// Refuses further writes and waits for the appended records.
    pub(crate) async fn close(&self) -> Result<(), StorageError> {
        self.state.borrow_mut().closing = true;
        self.work.wake();
        self.done.wake();
        self.call_waiting();
        self.sync().await
    }

    async fn run(self: Rc<Log>) {
        while self.has_batch().await {
            if let Some(every) = self.every {
                self.gather(every).await;
            }
            if let Err(error) = self.write_batch().await {
                self.fail(Arc::new(error));
                return;
            }
        }
    }

    /// Waits for pending records. Returns false at shutdown or failure.
    async fn has_batch(&self) -> bool {
        poll_fn(|cx| {
            let state = &mut *self.state.borrow_mut();
            match () {
                () if state.failed.is_some() => return Poll::Ready(false),
                () if state.pending.has_records() => return Poll::Ready(true),
                () if state.closing => return Poll::Ready(false),
                () => state.wake_at = 0,
            }
            self.work.register(cx);
            Poll::Pending
        })
        .await
    }

    /// States in the mark which records are durable, see [`MARK_AFTER`]. The log does not depend on
    /// it: if the write fails, a later one states the same.
    async fn state_durable(self: Rc<Log>) {
        loop {
            let next = || {
                let state = self.state.borrow();
                let ended = state.closing || state.failed.is_some();
                (ended || state.marked < state.durable).then_some(!ended)
            };
            if !self.done.wait(next).await {
                return;
            }
            self.env.sleep(MARK_AFTER).await;
            let durable = {
                let state = &mut *self.state.borrow_mut();
                // An orderly stop states the end of the log with the last edit of the manifest, and
                // another process may have the folder afterwards.
                if state.closing {
                    return;
                }
                state.marked = state.durable;
                state.durable
            };
            let _ = self.mark.state_durable(durable).await;
        }
    }

    /// Waits for more records, at most for `every`, or until there are many.
    async fn gather(&self, every: Duration) {
        let mut time = self.env.sleep(every);
        let enough = GATHERED_BYTES.min(self.segment_bytes / 4) as usize;
        poll_fn(|cx| {
            let is_time = time.as_mut().poll(cx).is_ready();
            let state = &mut *self.state.borrow_mut();
            if is_time || state.closing || state.failed.is_some() || state.pending.bytes() >= enough {
                return Poll::Ready(());
            }
            state.wake_at = enough;
            self.work.register(cx);
            Poll::Pending
        })
        .await;
    }

    async fn write_batch(self: &Rc<Log>) -> Result<(), StorageError> {
        // Records keep arriving while a segment is prepared.
        while !self.fits() {
            self.retry_while_full(async || self.rotate().await).await?;
        }
        let (batch, last, segment, at) = {
            let state = &mut *self.state.borrow_mut();
            let batch = state.pending.take();
            state.taken += u64::from(batch.records);
            state.length += batch.bytes.len().next_multiple_of(BLOCK) as u64;
            let (segment, at) = state.active.clone().expect("it fits the active segment");
            (batch, state.taken, segment, at)
        };
        let batch = self.sealed(batch, &segment.header, last).await;
        self.call_waiting();
        let io = |error| StorageError::io("write the commit log", &segment.path, error);
        let write = async || {
            // A crash in between leaves a torn batch.
            for (piece, blocks) in batch.chunks(WRITE_BYTES).enumerate() {
                let at = at + (piece * WRITE_BYTES) as u64;
                segment.file.write_durable(at, blocks).await.map_err(io)?;
            }
            Ok(())
        };
        self.retry_while_full(write).await?;
        self.written(batch, last);
        Ok(())
    }

    /// Completes a batch that ends with the record `last`.
    async fn sealed(&self, batch: PendingBatch, header: &SegmentHeader, last: u64) -> Vec<u8> {
        let PendingBatch { mut bytes, records } = batch;
        let mut crc = start_batch(&mut bytes, header, last + 1 - u64::from(records), records);
        for piece in payload_of(&bytes).chunks(PIECE_BYTES) {
            crc = crc32c::crc32c_append(crc, piece);
            if let Some(yield_now) = self.env.spend(lanes::units_of_copy(piece.len())) {
                yield_now.await;
            }
        }
        complete_batch(&mut bytes, header, crc);
        bytes
    }

    /// Retries `attempt` while the disk is full, until the log closes.
    pub(crate) async fn retry_while_full<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        loop {
            match attempt().await {
                Err(error) if error.is_full() => {
                    let given_up = {
                        let state = &mut *self.state.borrow_mut();
                        state.full = Some(Arc::new(error.clone()));
                        // Tasks that wait nevertheless register again.
                        state.waiters.drain(..).for_each(|(_, waker)| waker.wake());
                        state.closing || state.failed.is_some()
                    };
                    self.call_waiting();
                    if given_up {
                        return Err(error);
                    }
                    self.env.sleep(RETRY_FULL).await;
                }
                result => {
                    self.state.borrow_mut().full = None;
                    return result;
                }
            }
        }
    }

    fn fits(&self) -> bool {
        let state = self.state.borrow();
        let needed = state.pending.next_bytes().next_multiple_of(BLOCK) as u64;
        // The last block is reserved for the note that names the next segment.
        state.active.as_ref().is_some_and(|(segment, at)| at + needed + BLOCK as u64 <= segment.bytes)
    }

    fn written(&self, batch: Vec<u8>, last: u64) {
        let state = &mut *self.state.borrow_mut();
        let (_, end) = state.active.as_mut().expect("written to");
        *end += batch.len() as u64;
        state.durable = last;
        state.batches += 1;
        state.pending.recycle(batch);
        while state.waiters.front().is_some_and(|(record, _)| *record <= last) {
            let (_, waker) = state.waiters.pop_front().expect("checked above");
            waker.wake();
        }
        self.done.wake();
    }
}

/// One reason from outside the log to refuse writes, such as a flush without free space. Each
/// reason ends independently of the others, at the latest when it is dropped.
pub(crate) struct Refusal {
    log: Rc<Log>,
    number: u64,
}

impl Refusal {
    /// Sets or clears the reason.
    pub(crate) fn set(&self, because: Option<Arc<StorageError>>) {
        {
            let refusals = &mut self.log.state.borrow_mut().refusals;
            match because {
                Some(because) => drop(refusals.insert(self.number, because)),
                None => drop(refusals.remove(&self.number)),
            }
        }
        self.log.call_waiting();
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        self.set(None);
    }
}

impl LogState {
    /// Returns the size that a segment needs for the next batch.
    pub(crate) fn needed_bytes(&self) -> u64 {
        (self.pending.next_bytes().next_multiple_of(BLOCK) + 2 * BLOCK) as u64
    }

    /// Returns the free bytes, with some above the limit. One record may exceed them.
    fn free_bytes(&self, waits_max: u64, above: u64) -> usize {
        let pending = self.pending.bytes() as u64;
        let of_batch = waits_max.saturating_sub(pending);
        let of_log = self.limit.saturating_add(above + 1).saturating_sub(self.length + pending);
        of_batch.min(of_log) as usize
    }

    /// Returns the bytes for which waiting writers are called.
    fn room(&self, waits_max: u64) -> usize {
        // If no record is accepted, none has to wait.
        let is_open = !self.closing && self.refused().is_none();
        if is_open { self.free_bytes(waits_max, 0) } else { usize::MAX }
    }

    /// Checks that a record may be appended.
    fn check_open(&self, is_vital: bool) -> Result<(), StorageError> {
        let refused = if is_vital { self.broken() } else { self.refused() };
        match refused {
            Some(because) => Err(StorageError::WritesRefused { because }),
            None if self.closing => Err(StorageError::Closed),
            None => Ok(()),
        }
    }

    fn refused(&self) -> Option<Arc<StorageError>> {
        self.broken().or_else(|| self.refusals.values().next().cloned())
    }

    /// Returns the reason why the log itself accepts no record.
    fn broken(&self) -> Option<Arc<StorageError>> {
        self.failed.as_ref().or(self.full.as_ref()).cloned()
    }
}
