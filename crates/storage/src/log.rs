//! The commit log of one core: records gather while a disk write is in flight and share the next one.
//!
//! One task writes; it never has two writes in flight, so what the format relies on holds: a batch is begun only when
//! the one before is durable. Segments are zeroed once and then reused when everything in them has been flushed; the next
//! one is made ready, name and header included, while the one before fills, so that no write waits for a folder's sync.
//!
//! A failed write ends the log: everyone waiting is told, and further writes are refused, because what a failed sync left on
//! disk is unknown. A full disk does not: the same batch is tried again every second, at the same place, and meanwhile new
//! writes are refused and those in it wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::codec::put_u32;
use crate::error::StorageError;
use crate::segment::{BATCH_HEADER, BLOCK, SegmentHeader, encode_header, seal_batch};
use crate::signal::Signal;
use crate::world::{File, Mode, Work, World};

/// No record is larger, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 20;

/// A log that is written now and then is written sooner when this much waits, bytes, or a quarter of a segment: each piece is short for the
/// lane, and nobody waits for the time that is set.
const GATHERED_BYTES: u64 = 256 << 10;

/// How long a full disk is left alone before the next try.
pub(crate) const RETRY_FULL: Duration = Duration::from_secs(1);

/// A segment on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    /// The last record in it, once it is full.
    pub(crate) last_record: u64,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    world: Arc<dyn World>,
    dir: PathBuf,
    shard: u32,
    segment_bytes: u64,
    /// `None`: acknowledged means durable.
    every: Option<Duration>,
    state: RefCell<State>,
    work: Signal,
    done: Signal,
    prepared: Signal,
}

#[derive(Debug)]
struct State {
    /// Room for a batch header, then the records that wait.
    pending: Vec<u8>,
    pending_records: u32,
    spare: Vec<u8>,
    /// The number of the last record given out, and of the last that is durable.
    last: u64,
    durable: u64,
    /// By record.
    waiters: VecDeque<(u64, Waker)>,
    failed: Option<Arc<StorageError>>,
    /// The disk has no room for the log, or for something that writes wait for; over once there is.
    full: Option<Arc<StorageError>>,
    full_elsewhere: Option<Arc<StorageError>>,
    closing: bool,
    /// So many bytes in `pending` wake the log's task.
    wake_at: usize,
    active: Option<(Segment, u64)>,
    sealed: VecDeque<Segment>,
    /// To follow the active one, and whether one is being made.
    ready: Option<Segment>,
    preparing: bool,
    /// To be used again, under another number.
    free: Vec<Segment>,
    next_segment: u64,
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
        shard: u32,
        segment_bytes: u64,
        every: Option<Duration>,
        recovered: Recovered,
    ) -> Rc<Log> {
        let state = State {
            pending: vec![0; BATCH_HEADER],
            pending_records: 0,
            spare: Vec::new(),
            last: recovered.last,
            durable: recovered.last,
            waiters: VecDeque::new(),
            failed: None,
            full: None,
            full_elsewhere: None,
            closing: false,
            wake_at: 0,
            active: None,
            sealed: recovered.sealed.into(),
            ready: None,
            preparing: false,
            free: recovered.free,
            next_segment: recovered.next_segment,
            batches: 0,
        };
        let state = RefCell::new(state);
        let (work, done, prepared) = Default::default();
        let log = Rc::new(Log { world, dir, shard, segment_bytes, every, state, work, done, prepared });
        log.world.spawn(Work::Log, Box::pin(log.clone().run()));
        log
    }

    /// The largest record that fits, in bytes.
    pub(crate) fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX.min(self.segment_bytes as usize / 2)
    }

    /// Adds a record, which `put` appends; returns its number. Nothing is written if this fails.
    pub(crate) fn append(&self, put: impl FnOnce(&mut Vec<u8>)) -> Result<u64, StorageError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(because) = state.refused() {
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
        let room = self.segment_bytes as usize - 2 * BLOCK;
        if bytes > limit || state.pending.len() > room {
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

    /// Whether a record counts as written: the last that does; registers the task otherwise.
    pub(crate) fn poll_durable(&self, record: u64, cx: &Context<'_>) -> Poll<Result<u64, StorageError>> {
        let state = &mut *self.state.borrow_mut();
        if record <= state.durable {
            return Poll::Ready(Ok(state.durable));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(StorageError::clone(error)));
        }
        // Acknowledged ahead of the disk, but not without bound.
        if self.every.is_some() && state.pending.len() as u64 <= self.segment_bytes / 2 {
            return Poll::Ready(Ok(state.last));
        }
        // Most wait for a record behind all others.
        let at = state.waiters.partition_point(|(other, _)| *other < record);
        match state.waiters.get_mut(at) {
            Some((other, waker)) if *other == record => waker.clone_from(cx.waker()),
            _ => state.waiters.insert(at, (record, cx.waker().clone())),
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

    /// Segments in use and free.
    pub(crate) fn segments(&self) -> (usize, usize) {
        let state = self.state.borrow();
        let in_use = state.sealed.len() + usize::from(state.active.is_some());
        (in_use, state.free.len() + usize::from(state.ready.is_some()))
    }

    /// Why writes are refused, if they are.
    pub(crate) fn failure(&self) -> Option<Arc<StorageError>> {
        self.state.borrow().refused()
    }

    /// Refuses writes while the disk has no room for what they wait for, which is said from outside the log.
    pub(crate) fn set_full(&self, because: Option<Arc<StorageError>>) {
        self.state.borrow_mut().full_elsewhere = because;
    }

    /// Refuses further writes, for a reason from outside the log.
    pub(crate) fn fail(&self, error: Arc<StorageError>) {
        let state = &mut *self.state.borrow_mut();
        state.failed.get_or_insert(error);
        state.waiters.drain(..).for_each(|(_, waker)| waker.wake());
        self.work.wake();
        self.done.wake();
    }

    /// Records up to this one are in table files: their segments may be used again.
    pub(crate) fn release(&self, flushed: u64) {
        let state = &mut *self.state.borrow_mut();
        while state.sealed.front().is_some_and(|segment| segment.last_record <= flushed) {
            let segment = state.sealed.pop_front().expect("looked at above");
            state.free.push(segment);
        }
    }

    /// The segments with records above this one, each with its bytes that are durable.
    pub(crate) fn tail(&self, flushed: u64) -> Vec<(PathBuf, u64)> {
        let state = self.state.borrow();
        let sealed = state.sealed.iter().filter(|segment| segment.last_record > flushed);
        let sealed = sealed.map(|segment| (segment.path.clone(), self.segment_bytes));
        let active = state.active.iter().map(|(segment, end)| (segment.path.clone(), *end));
        sealed.chain(active).collect()
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
        loop {
            let more = self
                .work
                .wait(|| {
                    let mut state = self.state.borrow_mut();
                    match () {
                        () if state.failed.is_some() => Some(false),
                        () if state.pending_records > 0 => Some(true),
                        () if state.closing => Some(false),
                        () => {
                            state.wake_at = 0;
                            None
                        }
                    }
                })
                .await;
            if !more {
                return;
            }
            if let Some(every) = self.every {
                self.gather(every).await;
            }
            if let Err(error) = self.write_batch().await {
                self.fail(Arc::new(error));
                return;
            }
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
        // Records go on arriving while a segment is made ready; whatever waits fits an empty one (see `append`).
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
        let io = |error| StorageError::io("write the commit log", &segment.path, error);
        self.with_room(async || segment.file.write_durable(at, &batch).await.map_err(io)).await?;
        self.written(batch, last);
        Ok(())
    }

    /// Tries until it succeeds, or fails for another reason than a full disk, or nobody wants it any more.
    async fn with_room<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        loop {
            match attempt().await {
                Err(error) if error.is_full() => {
                    let given_up = {
                        let state = &mut *self.state.borrow_mut();
                        state.full = Some(Arc::new(error.clone()));
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
        state.active.as_ref().is_some_and(|(_, at)| at + needed <= self.segment_bytes)
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

    /// Has a segment to write to before the first record comes, so that a disk that cannot have a log says so at once.
    pub(crate) async fn make_ready(self: &Rc<Self>) -> Result<(), StorageError> {
        self.rotate().await
    }

    /// Makes an empty segment the active one, and has the next one made ready.
    async fn rotate(self: &Rc<Log>) -> Result<(), StorageError> {
        {
            let state = &mut *self.state.borrow_mut();
            if let Some((mut segment, _)) = state.active.take() {
                segment.last_record = state.durable;
                state.sealed.push_back(segment);
            }
        }
        self.prepared.wait(|| (!self.state.borrow().preparing).then_some(())).await;
        let ready = self.state.borrow_mut().ready.take();
        let segment = match ready {
            Some(segment) => segment,
            None => self.make().await?,
        };
        let state = &mut *self.state.borrow_mut();
        state.active = Some((segment, BLOCK as u64));
        state.preparing = true;
        let log = self.clone();
        self.world.spawn(Work::Flush, Box::pin(async move { log.prepare().await }));
        Ok(())
    }

    /// Makes the next segment ready. Failing here is no news: the log tries again, and reports, when it needs it.
    async fn prepare(self: Rc<Log>) {
        let made = self.make().await;
        {
            let state = &mut *self.state.borrow_mut();
            state.preparing = false;
            state.ready = made.ok();
        }
        self.prepared.wake();
    }

    /// An empty segment, out of one whose records are all flushed if there is any.
    async fn make(&self) -> Result<Segment, StorageError> {
        let (free, id) = {
            let state = &mut *self.state.borrow_mut();
            let id = state.next_segment;
            state.next_segment += 1;
            (state.free.pop(), id)
        };
        match free {
            Some(old) => self.reuse(old, id).await,
            None => self.create(id).await,
        }
    }

    fn header(&self, segment: u64) -> SegmentHeader {
        SegmentHeader { shard: self.shard, segment, salt: self.world.random() as u32 }
    }

    async fn create(&self, id: u64) -> Result<Segment, StorageError> {
        let path = segment_path(&self.dir, id);
        let header = self.header(id);
        let make = async {
            let file = self.world.open(&path, Mode::Log).await?;
            file.allocate(self.segment_bytes).await?;
            file.write_durable(0, &encode_header(&header)).await?;
            file.sync().await?;
            self.world.sync_dir(&self.dir).await?;
            Ok(file)
        };
        match make.await {
            Ok(file) => Ok(Segment { file, path, header, last_record: 0 }),
            Err(error) => {
                // What there is of it is in no one's way, but for the room it takes.
                let _ = self.world.remove(&path).await;
                Err(StorageError::io("create a log segment", &path, error))
            }
        }
    }

    async fn reuse(&self, old: Segment, id: u64) -> Result<Segment, StorageError> {
        let path = segment_path(&self.dir, id);
        let header = self.header(id);
        let io = |error| StorageError::io("reuse a log segment", &path, error);
        if let Err(error) = self.world.rename(&old.path, &path).await {
            self.state.borrow_mut().free.push(old);
            return Err(io(error));
        }
        // If this fails, the name of the segment after a crash is unknown: it is not touched again before a restart.
        self.world.sync_dir(&self.dir).await.map_err(io)?;
        if let Err(error) = old.file.write_durable(0, &encode_header(&header)).await {
            self.state.borrow_mut().free.push(Segment { path: path.clone(), ..old });
            return Err(io(error));
        }
        Ok(Segment { file: old.file, path, header, last_record: 0 })
    }
}

impl State {
    fn refused(&self) -> Option<Arc<StorageError>> {
        self.failed.as_ref().or(self.full.as_ref()).or(self.full_elsewhere.as_ref()).cloned()
    }
}
