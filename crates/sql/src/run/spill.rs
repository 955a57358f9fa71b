//! Spill files of statements whose operators are refused memory. They are in the data folder's
//! `spill`, and read and written through the disk's fair queue in the statement's group. The
//! folder is emptied when the server starts.
//!
//! Operators write synchronously, in the middle of a computation on a heavy lane. Waiting there
//! would block all other tasks on that lane. Therefore written data is kept in memory, charged to
//! the statement, until a task has written it to the disk:
//!
//! ```text
//!   operator ──write──▶ chunks in memory ──task──▶ file
//!                            │                      │
//!   operator ◀──read_stream──┴──────────────────────┘   what is not on the disk yet is read from memory
//! ```
//!
//! The scans that feed the operators wait while too much data is in flight
//! ([`Spills::backpressure`]).

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use lanes::Group;
use lanes::disk::{self, File, OpenOptions};
use tokio::sync::Notify;
use workload::Account;

use crate::run::memory::StatementMemory;

/// Unit of reads and writes, bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Data of a statement in flight to the disk from which on its scans wait, bytes.
const IN_FLIGHT_BYTES_MAX: u64 = 8 << 20;

/// Disk space for the spill files of all statements.
#[derive(Debug)]
pub(crate) struct SpillSpace {
    folder: PathBuf,
    max_bytes: u64,
    used_bytes: AtomicU64,
    files: AtomicU64,
}

impl SpillSpace {
    /// Creates and empties `folder`. It may hold `max_bytes`, by default a quarter of the disk's
    /// free space.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) async fn open(folder: &Path, max_bytes: Option<u64>) -> io::Result<Arc<SpillSpace>> {
        disk::create_dir_all(folder).await?;
        for name in disk::list_dir(folder).await? {
            disk::remove_file(&folder.join(name)).await?;
        }
        let max_bytes = match max_bytes {
            Some(max) => max,
            None => disk::space(folder).await?.0 / 4,
        };
        let (used_bytes, files) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(SpillSpace { folder: folder.to_owned(), max_bytes, used_bytes, files }))
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let more = |used: u64| Some(used + bytes).filter(|after| *after <= self.max_bytes);
        if self.used_bytes.fetch_update(SeqCst, SeqCst, more).is_ok() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "spilled data of running queries has reached the limit of {} MiB: read less data at a time, or \
                 raise --spill-limit",
                self.max_bytes >> 20
            ),
        ))
    }
}

/// Spilled data of one statement.
#[derive(Debug)]
pub(crate) struct Spills {
    space: Arc<SpillSpace>,
    account: Arc<Account>,
    /// Bytes in flight to the disk.
    in_flight: AtomicU64,
    /// Notified when fewer bytes are in flight.
    freed: Notify,
    written: AtomicU64,
}

impl Spills {
    pub(crate) fn new(space: Arc<SpillSpace>, account: Arc<Account>) -> Arc<Spills> {
        let (in_flight, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Spills { space, account, in_flight, freed: Notify::new(), written })
    }

    /// Waits until less than the limit is in flight.
    pub(crate) async fn backpressure(&self) {
        while self.in_flight.load(SeqCst) >= IN_FLIGHT_BYTES_MAX {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.in_flight.load(SeqCst) < IN_FLIGHT_BYTES_MAX {
                return;
            }
            freed.await;
        }
    }

    /// Returns the bytes spilled so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    fn begin(&self, bytes: u64) {
        self.account.grow(bytes);
        self.in_flight.fetch_add(bytes, SeqCst);
        self.written.fetch_add(bytes, Relaxed);
    }

    fn end(&self, bytes: u64) {
        self.account.shrink(bytes);
        self.in_flight.fetch_sub(bytes, SeqCst);
        self.freed.notify_waiters();
    }
}

/// Creates spill files for DataFusion.
pub(crate) struct Files {
    pub(crate) spills: Arc<Spills>,
    /// Decides whether the statement may spill.
    pub(crate) memory: Arc<StatementMemory>,
}

impl TempFileFactory for Files {
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        if !self.memory.spills() {
            return Err(self.memory.may_not_spill());
        }
        let (spills, group) = (self.spills.clone(), lanes::current_group());
        let number = spills.space.files.fetch_add(1, Relaxed);
        let path = spills.space.folder.join(format!("{number}.arrow"));
        let file = SharedFile { spills, path, group, state: Mutex::default(), more: Notify::new() };
        Ok(Arc::new(Handle(Arc::new(file))))
    }
}

struct Handle(Arc<SharedFile>);

/// A spill file.
struct SharedFile {
    spills: Arc<Spills>,
    path: PathBuf,
    group: Group,
    state: Mutex<SpillState>,
    /// Notified when there is more to read, or the file has failed.
    more: Notify,
}

#[derive(Default)]
struct SpillState {
    /// Chunks not on the disk yet, in order, each with its offset in the file.
    chunks: VecDeque<(u64, Bytes)>,
    /// Data after the chunks.
    tail: BytesMut,
    /// Length of the file including the tail, bytes.
    len: u64,
    file: Option<File>,
    is_writing: bool,
    finished: bool,
    failed: Option<String>,
}

/// Next step of a reader.
enum Next {
    Bytes(Bytes),
    /// Read this many bytes from the file.
    Read(File, usize),
    Wait,
    End,
}

impl SpillState {
    fn next(&self, at: u64) -> Result<Next> {
        if let Some(failed) = &self.failed {
            return Err(exec_datafusion_err!("cannot read data that a query spilled: {failed}"));
        }
        if at == self.len {
            return Ok(if self.finished { Next::End } else { Next::Wait });
        }
        let tail = self.len - self.tail.len() as u64;
        if at >= tail {
            return Ok(Next::Bytes(Bytes::copy_from_slice(&self.tail[(at - tail) as usize..])));
        }
        let first = self.chunks.front().map_or(tail, |(place, _)| *place);
        if at < first {
            let len = (first - at).min(CHUNK_BYTES as u64) as usize;
            return Ok(self.file.clone().map_or(Next::Wait, |file| Next::Read(file, len)));
        }
        let holds = |(place, bytes): &&(u64, Bytes)| (*place..*place + bytes.len() as u64).contains(&at);
        let (place, bytes) = self.chunks.iter().find(holds).expect("chunks go up to the tail");
        Ok(Next::Bytes(bytes.slice((at - place) as usize..)))
    }
}

impl SharedFile {
    fn state(&self) -> MutexGuard<'_, SpillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the tail for the disk.
    fn send(self: &Arc<Self>, state: &mut SpillState) -> io::Result<()> {
        if state.tail.is_empty() {
            return Ok(());
        }
        self.spills.space.take(state.tail.len() as u64)?;
        let bytes = state.tail.split().freeze();
        self.spills.begin(bytes.len() as u64);
        let place = state.len - bytes.len() as u64;
        state.chunks.push_back((place, bytes));
        if !std::mem::replace(&mut state.is_writing, true) {
            lanes::heavy(self.group, write_out(Arc::downgrade(self))).detach();
        }
        Ok(())
    }

    /// Writes the first chunk. Returns false if there is none or the write failed.
    async fn write_one(&self) -> bool {
        let (file, chunk) = {
            let mut state = self.state();
            let chunk = state.chunks.front().cloned();
            state.is_writing = chunk.is_some();
            (state.file.clone(), chunk)
        };
        let Some((place, bytes)) = chunk else { return false };
        let len = bytes.len() as u64;
        let written = async {
            let file = match file {
                Some(file) => file,
                None => {
                    let options =
                        OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
                    let file = disk::open(&self.path, options).await?;
                    self.state().file.insert(file).clone()
                }
            };
            file.write_at(place, bytes).await
        };
        let written: io::Result<()> = written.await;
        let mut state = self.state();
        match written {
            Ok(()) => {
                state.chunks.pop_front();
                self.spills.end(len);
                true
            }
            Err(error) => {
                state.failed = Some(error.to_string());
                state.is_writing = false;
                self.discard(&mut state);
                drop(state);
                self.more.notify_waiters();
                false
            }
        }
    }

    fn discard(&self, state: &mut SpillState) {
        let left: u64 = state.chunks.drain(..).map(|(_, bytes)| bytes.len() as u64).sum();
        self.spills.end(left);
    }
}

/// Writes all chunks. Holds no reference between them, so that a file without readers and writers
/// is dropped.
async fn write_out(file: Weak<SharedFile>) {
    while let Some(file) = file.upgrade() {
        if !file.write_one().await {
            return;
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let mut state = std::mem::take(&mut *self.state());
        self.discard(&mut state);
        let sent = state.len - state.tail.len() as u64;
        let spills = self.spills.clone();
        let is_there = state.file.is_some() || state.is_writing;
        drop(state);
        if !is_there || !lanes::on_lane() {
            spills.space.used_bytes.fetch_sub(sent, SeqCst);
            return;
        }
        let removal = async move {
            // The file may not exist, or the disk may fail: the next start empties the folder.
            let _ = disk::remove_paced(&path).await;
            spills.space.used_bytes.fetch_sub(sent, SeqCst);
        };
        lanes::heavy(self.group, removal).detach();
    }
}

impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedFile").field(&self.path).finish()
    }
}

impl SpillFile for Handle {
    fn size(&self) -> Option<u64> {
        Some(self.0.state().len)
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let from = (self.0.clone(), 0_u64);
        Ok(Box::pin(futures::stream::try_unfold(from, |(file, at)| async move {
            let bytes = loop {
                let mut more = pin!(file.more.notified());
                more.as_mut().enable();
                let next = file.state().next(at)?;
                match next {
                    Next::Bytes(bytes) => break bytes,
                    Next::Read(handle, len) => break handle.read_at(at, len).await?,
                    Next::Wait => more.await,
                    Next::End => return Ok(None),
                }
            };
            let at = at + bytes.len() as u64;
            Ok(Some((bytes, (file, at))))
        })))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer(self.0.clone())))
    }
}

struct Writer(Arc<SharedFile>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if let Some(failed) = &state.failed {
            return Err(io::Error::other(format!("cannot spill more data of a query: {failed}")));
        }
        if state.tail.capacity() == 0 {
            state.tail.reserve(CHUNK_BYTES);
        }
        let len = bytes.len().min(CHUNK_BYTES - state.tail.len());
        state.tail.extend_from_slice(&bytes[..len]);
        state.len += len as u64;
        if state.tail.len() == CHUNK_BYTES {
            self.0.send(&mut state)?;
        }
        Ok(len)
    }

    /// Makes written data readable.
    fn flush(&mut self) -> io::Result<()> {
        self.0.more.notify_waiters();
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        let mut state = self.0.state();
        state.finished = true;
        self.0.send(&mut state)?;
        drop(state);
        self.0.more.notify_waiters();
        Ok(())
    }
}
