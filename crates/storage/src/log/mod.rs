//! The commit log of one core: records gather while a disk write is in flight and share the next one.
//!
//! One task writes; it never has two writes in flight, so what the format relies on holds: a batch is begun only when
//! the one before is durable. Segments are zeroed once and then reused when everything in them has been flushed; the next
//! one is made ready, name and header included, while the one before fills, so that no write waits for a folder's sync. Both are
//! the business of `log_files.rs`.
//!
//! A second after the last batch a note says that it was durable (point 5 of [`crate::log::segment`]): damage to it is then not
//! taken for a write that was cut off.
//!
//! A failed write ends the log: everyone waiting is told, and further writes are refused, because what a failed sync left on
//! disk is unknown. A full disk does not: the same batch is tried again every second, at the same place, and meanwhile new
//! writes are refused and those in it wait.

pub(crate) mod bound;
pub(crate) mod commit;
pub(crate) mod files;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod segment;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::StorageError;
use crate::log::bound::LogBound;
use crate::log::reserve::Reserve;
use crate::log::segment::{BATCH_HEADER, BLOCK, SegmentHeader, encode_note, seal_batch};
use crate::model::codec::put_u32;
use crate::options::{CommitMode, Options};
use crate::signal::Signal;
use crate::world::{File, LocalBoxFuture, Work, World};

/// Time without a record after which a note is written: one write more each time that a log falls idle.
const NOTE_AFTER: Duration = Duration::from_secs(1);

/// A log that is written now and then is written sooner when this much waits, bytes, or a quarter of a segment: each piece is short for the
/// lane, and nobody waits for the time that is set.
const GATHERED_BYTES: u64 = 256 << 10;
/// Waiters that are looked through for a task that asks again. One that is not found there waits twice, and is woken twice.
const SAME_WAITERS: usize = 8;

/// How long a full disk is left alone before the next try.
pub(crate) const RETRY_FULL: Duration = Duration::from_secs(1);

/// A segment on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
    /// The last record in it, once it is full.
    pub(crate) last_record: u64,
}

/// Names a segment in the manifest, durably, before the first record goes there.
pub(crate) type Register = Box<dyn Fn(u64) -> LocalBoxFuture<Result<(), StorageError>>>;

/// The log.
pub(crate) struct Log {
    pub(crate) world: Arc<dyn World>,
    pub(crate) dir: PathBuf,
    pub(crate) shard: u32,
    pub(crate) segment_bytes: u64,
    record_bytes_max: usize,
    pub(crate) segments_max: usize,
    /// `None`: acknowledged means durable.
    every: Option<Duration>,
    pub(crate) register: Register,
    pub(crate) reserve: Rc<Reserve>,
    pub(crate) state: RefCell<State>,
    work: Signal,
    done: Signal,
    pub(crate) prepared: Signal,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct State {
    /// Room for a batch header, then the records that wait.
    pending: Vec<u8>,
    pending_records: u32,
    spare: Vec<u8>,
    /// The number of the last record given out, and of the last that is durable.
    last: u64,
    pub(crate) durable: u64,
    /// The last record that a note covers.
    noted: u64,
    /// Bytes of log so far, of this life and live ones of earlier lives, and those above which records are refused.
    pub(crate) length: u64,
    limit: u64,
    /// By record.
    waiters: VecDeque<(u64, Waker)>,
    failed: Option<Arc<StorageError>>,
    /// The disk has no room for the log, or for something that writes wait for; over once there is.
    full: Option<Arc<StorageError>>,
    /// Causes from outside the log for which writes are refused until they are over, by number.
    refusals: BTreeMap<u64, Arc<StorageError>>,
    next_refusal: u64,
    closing: bool,
    /// So many bytes in `pending` wake the log's task.
    wake_at: usize,
    pub(crate) active: Option<(Segment, u64)>,
    pub(crate) sealed: VecDeque<Segment>,
    /// To follow the active one, and whether one is being made.
    pub(crate) ready: Option<Segment>,
    /// About to be the active one.
    pub(crate) becoming: Option<u64>,
    pub(crate) preparing: bool,
    /// To be used again, under another number.
    pub(crate) free: Vec<Segment>,
    pub(crate) next_segment: u64,
    batches: u64,
}

/// The name of a segment's file.
pub(crate) fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment:016x}.log"))
}

/// What recovery found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The last record there is.
    pub(crate) last: u64,
    pub(crate) next_segment: u64,
    /// Bytes of segments that hold records which are not flushed yet.
    pub(crate) bytes: u64,
    /// Segments with records that are not flushed yet.
    pub(crate) sealed: Vec<Segment>,
    /// Segments to be used again.
    pub(crate) free: Vec<Segment>,
}

impl Log {
    /// Starts the log behind what was recovered.
    pub(crate) fn start(
        world: Arc<dyn World>,
        dir: PathBuf,
        options: &Options,
        recovered: Recovered,
        (register, reserve): (Register, Rc<Reserve>),
    ) -> Rc<Log> {
        let bound = LogBound::new(options);
        let every = match options.commit {
            CommitMode::Batch => None,
            CommitMode::Periodic { every } => Some(every),
        };
        let state = State {
            pending: vec![0; BATCH_HEADER],
            pending_records: 0,
            spare: Vec::new(),
            last: recovered.last,
            durable: recovered.last,
            noted: recovered.last,
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
            ready: None,
            becoming: None,
            preparing: false,
            free: recovered.free,
            next_segment: recovered.next_segment,
            batches: 0,
        };
        let state = RefCell::new(state);
        let (work, done, prepared) = Default::default();
        let log = Rc::new(Log {
            world,
            dir,
            shard: options.shard,
            segment_bytes: options.segment_bytes,
            record_bytes_max: options.record_bytes_max,
            segments_max: bound.segments_max(),
            every,
            register,
            reserve,
            state,
            work,
            done,
            prepared,
        });
        log.world.spawn(Work::Log, Box::pin(log.clone().run()));
        log
    }

    /// The largest record, in bytes.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Bytes of log so far. The live part is what was added since the last flushed memtable was frozen.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        let state = self.state.borrow();
        state.length + state.pending.len() as u64
    }

    /// Refuses records above this length. A limit is never taken back.
    pub(crate) fn set_limit(&self, length: u64) {
        let limit = &mut self.state.borrow_mut().limit;
        *limit = length.max(*limit);
    }

    /// Adds a record, which `put` appends; returns its number. Nothing is written if this fails.
    pub(crate) fn append(&self, put: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        self.append_if(State::refused, put)
    }

    /// As [`Log::append`], although there is no space for other things than the log.
    pub(crate) fn append_vital(&self, put: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        self.append_if(State::broken, put)
    }

    fn append_if(
        &self,
        refused: impl FnOnce(&State) -> Option<Arc<StorageError>>,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, StorageError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(because) = refused(state) {
            return Err(StorageError::WritesRefused { because });
        }
        if state.closing {
            return Err(StorageError::Closed);
        }
        let start = state.pending.len();
        put_u32(&mut state.pending, 0);
        put(&mut state.pending);
        let bytes = state.pending.len() - start - 4;
        let limit = self.record_bytes_max();
        // Of a segment and the largest record, the larger waits at most, and one record more.
        let waits_max = self.segment_bytes.max(limit as u64);
        let is_full = start as u64 >= waits_max || state.length + start as u64 > state.limit;
        if bytes > limit || is_full {
            state.pending.truncate(start);
            return Err(match bytes > limit {
                true => StorageError::TooLarge { bytes, limit },
                false => StorageError::Overloaded,
            });
        }
        state.pending[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
        state.pending_records += 1;
        state.last += 1;
        if state.pending.len() >= state.wake_at {
            state.wake_at = usize::MAX;
            self.work.wake();
        }
        Ok(state.last)
    }

    /// Whether a record counts as written: the last that does; registers the task otherwise. On a full disk a record
    /// waits until there is space; whoever is not `patient` is told that the disk is full.
    pub(crate) fn poll_durable(
        &self,
        record: u64,
        patient: bool,
        cx: &Context<'_>,
    ) -> Poll<Result<u64, StorageError>> {
        let state = &mut *self.state.borrow_mut();
        if record <= state.durable {
            return Poll::Ready(Ok(state.durable));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(StorageError::clone(error)));
        }
        if let Some(because) = state.full.as_ref().filter(|_| !patient) {
            return Poll::Ready(Err(StorageError::LogFull { because: because.clone() }));
        }
        // Acknowledged ahead of the disk, but not without bound.
        if self.every.is_some() && state.pending.len() as u64 <= self.segment_bytes / 2 {
            return Poll::Ready(Ok(state.last));
        }
        // Most wait for a record behind all others. Several tasks may wait for the same one; a task that asks again
        // is among the last of them.
        let at = state.waiters.partition_point(|(other, _)| *other <= record);
        let mut last = state.waiters.range(..at).rev().take(SAME_WAITERS);
        if !last.any(|(other, waker)| *other == record && waker.will_wake(cx.waker())) {
            state.waiters.insert(at, (record, cx.waker().clone()));
        }
        Poll::Pending
    }

    /// The number of the last record given out.
    pub(crate) fn last_record(&self) -> u64 {
        self.state.borrow().last
    }

    /// Disk writes so far.
    pub(crate) fn batches(&self) -> u64 {
        self.state.borrow().batches
    }

    /// Why writes are refused, if they are.
    pub(crate) fn failure(&self) -> Option<Arc<StorageError>> {
        self.state.borrow().refused()
    }

    /// A cause for which writes may be refused, beside others: see [`Refusal`].
    pub(crate) fn refusal(self: &Rc<Self>) -> Refusal {
        let state = &mut *self.state.borrow_mut();
        state.next_refusal += 1;
        Refusal { log: self.clone(), number: state.next_refusal }
    }

    /// Refuses further writes, for a reason from outside the log.
    pub(crate) fn fail(&self, error: Arc<StorageError>) {
        let state = &mut *self.state.borrow_mut();
        state.failed.get_or_insert(error);
        state.waiters.drain(..).for_each(|(_, waker)| waker.wake());
        self.work.wake();
        self.done.wake();
    }

    /// Waits until everything appended is durable.
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

    /// Refuses further writes and waits for what was appended.
    pub(crate) async fn close(&self) -> Result<(), StorageError> {
        self.state.borrow_mut().closing = true;
        self.work.wake();
        self.sync().await
    }

    async fn run(self: Rc<Log>) {
        while let Some(work) = self.next_work().await {
            let done = match work {
                Next::Batch => {
                    if let Some(every) = self.every {
                        self.gather(every).await;
                    }
                    self.write_batch().await
                }
                Next::Note => {
                    self.write_note().await;
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.fail(Arc::new(error));
                return;
            }
        }
    }

    /// Waits for something to write; `None` at the end.
    async fn next_work(&self) -> Option<Next> {
        let mut time = None;
        poll_fn(|cx| {
            let state = &mut *self.state.borrow_mut();
            match () {
                () if state.failed.is_some() => return Poll::Ready(None),
                () if state.pending_records > 0 => return Poll::Ready(Some(Next::Batch)),
                () if state.closing => return Poll::Ready(None),
                () => state.wake_at = 0,
            }
            if state.noted < state.durable {
                let time = time.get_or_insert_with(|| self.world.sleep(NOTE_AFTER));
                if time.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Some(Next::Note));
                }
            }
            self.work.register(cx);
            Poll::Pending
        })
        .await
    }

    /// Writes that all records are durable. The log does not depend on it: where it fails, or there is no free space in
    /// the segment, the next write attests the same, or shows what is wrong.
    async fn write_note(&self) {
        let place = {
            let state = &mut *self.state.borrow_mut();
            state.noted = state.durable;
            let place = state.active.clone();
            place
                .filter(|(segment, at)| at + 2 * BLOCK as u64 <= segment.bytes)
                .map(|(s, at)| (s, at, state.durable))
        };
        let Some((segment, at, durable)) = place else { return };
        let note = encode_note(&segment.header, durable, 0);
        if segment.file.write_durable(at, &note).await.is_ok() {
            let state = &mut *self.state.borrow_mut();
            let (_, end) = state.active.as_mut().expect("only this task changes it");
            *end += BLOCK as u64;
            state.length += BLOCK as u64;
        }
    }

    /// Waits for more records, for so long, or until there are many.
    async fn gather(&self, every: Duration) {
        let mut time = self.world.sleep(every);
        let enough = GATHERED_BYTES.min(self.segment_bytes / 4) as usize;
        poll_fn(|cx| {
            let is_time = time.as_mut().poll(cx).is_ready();
            let state = &mut *self.state.borrow_mut();
            if is_time || state.closing || state.failed.is_some() || state.pending.len() >= enough {
                return Poll::Ready(());
            }
            state.wake_at = enough;
            self.work.register(cx);
            Poll::Pending
        })
        .await;
    }

    async fn write_batch(self: &Rc<Log>) -> Result<(), StorageError> {
        // Records go on arriving while a segment is made ready.
        while !self.fits() {
            self.with_room(async || self.rotate().await).await?;
        }
        let (mut batch, records, last, segment, at) = {
            let state = &mut *self.state.borrow_mut();
            let mut next = std::mem::take(&mut state.spare);
            next.clear();
            next.resize(BATCH_HEADER, 0);
            let batch = std::mem::replace(&mut state.pending, next);
            let records = std::mem::take(&mut state.pending_records);
            let (segment, at) = state.active.clone().expect("it fits the active segment");
            (batch, records, state.last, segment, at)
        };
        seal_batch(&mut batch, &segment.header, last + 1 - u64::from(records), records);
        self.state.borrow_mut().length += batch.len() as u64;
        let io = |error| StorageError::io("write the commit log", &segment.path, error);
        self.with_room(async || segment.file.write_durable(at, &batch).await.map_err(io)).await?;
        self.written(batch, last);
        Ok(())
    }

    /// Tries until it succeeds, or fails for another reason than a full disk, or nobody wants it any more.
    pub(crate) async fn with_room<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        loop {
            match attempt().await {
                Err(error) if error.is_full() => {
                    let given_up = {
                        let state = &mut *self.state.borrow_mut();
                        state.full = Some(Arc::new(error.clone()));
                        // Those who are patient register again.
                        state.waiters.drain(..).for_each(|(_, waker)| waker.wake());
                        state.closing || state.failed.is_some()
                    };
                    if given_up {
                        return Err(error);
                    }
                    self.world.sleep(RETRY_FULL).await;
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
        let needed = state.pending.len().next_multiple_of(BLOCK) as u64;
        // The last block is for the note that names the next segment.
        state.active.as_ref().is_some_and(|(segment, at)| at + needed + BLOCK as u64 <= segment.bytes)
    }

    fn written(&self, batch: Vec<u8>, last: u64) {
        let state = &mut *self.state.borrow_mut();
        let (_, end) = state.active.as_mut().expect("written to");
        *end += batch.len() as u64;
        state.durable = last;
        state.batches += 1;
        if batch.capacity() <= 1 << 20 {
            state.spare = batch;
        }
        while state.waiters.front().is_some_and(|(record, _)| *record <= last) {
            let (_, waker) = state.waiters.pop_front().expect("looked at above");
            waker.wake();
        }
        self.done.wake();
    }
}

/// One cause from outside the log for which writes are refused while it lasts, such as a flush without space. It ends
/// alone: another one that is not over goes on refusing. Over at the latest when this is dropped.
pub(crate) struct Refusal {
    log: Rc<Log>,
    number: u64,
}

impl Refusal {
    /// Refuses writes, or ends that.
    pub(crate) fn set(&self, because: Option<Arc<StorageError>>) {
        let refusals = &mut self.log.state.borrow_mut().refusals;
        match because {
            Some(because) => drop(refusals.insert(self.number, because)),
            None => drop(refusals.remove(&self.number)),
        }
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// What the log writes next.
enum Next {
    Batch,
    Note,
}

impl State {
    /// Bytes of the segment that takes the records which wait.
    pub(crate) fn needed_bytes(&self) -> u64 {
        (self.pending.len().next_multiple_of(BLOCK) + 2 * BLOCK) as u64
    }

    fn refused(&self) -> Option<Arc<StorageError>> {
        self.broken().or_else(|| self.refusals.values().next().cloned())
    }

    /// Why the log itself takes nothing.
    fn broken(&self) -> Option<Arc<StorageError>> {
        self.failed.as_ref().or(self.full.as_ref()).cloned()
    }
}
