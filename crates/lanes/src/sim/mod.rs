//! A simulated disk, for tests: in memory, deterministic by its seed, with every way of failing that a real one has. It has the
//! operations of [`crate::disk`], needs no lanes, and uses neither clock nor real files.
//!
//! 1. An operation comes *under way* when its future is first polled, waits a few turns (polls), and then takes effect:
//!    one *step*, numbered from 1. Operations under way at the same time overtake each other.
//! 2. A write is seen at once and *durable* when its file was synced after it; a new, renamed or removed name when its
//!    folder was. A sync covers what had been done when it came under way. Writes to files opened with `dsync` are durable when
//!    they return.
//! 3. At a crash ([`Disk::crash`], or at a chosen step: [`Disk::crash_at`]) every change that was not durable is kept or lost by
//!    itself, the writes also sector by sector, with those under way among them. So any order in which a
//!    cache may have been written back can come out, but for names that build upon each other.
//! 4. [`Fault`]s make chosen operations fail or stall. Space is bounded ([`Disk::set_capacity`]). Bits flip on demand.
//!
//! Where a test fails, [`Disk::record`] tells the last steps. Deliberately absent: permissions, and anything about time.

mod fault;
mod inode;
mod names;
mod random;
mod state;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::disk::BLOCK;
pub use crate::disk::OpenOptions;
pub use fault::{Effect, Fault, Kind};
pub use random::Random;
use state::{Answer, Request, State};

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// An empty disk without bounds or faults. All that is left to chance comes from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State::new(seed))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed elsewhere may still want to print the record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self, request: Request) -> io::Result<Answer> {
        let life = self.state().life;
        Running { disk: self.clone(), life, request: Some(request), ticket: None }.await
    }

    /// As [`crate::disk::open`].
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, or a fault.
    pub async fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        let life = self.state().life;
        match self.request(Request::Open { path: path.into(), options }).await? {
            Answer::Opened(inode) => {
                let handle = Handle { disk: self.clone(), life, inode };
                Ok(File { handle: Arc::new(handle), options })
            }
            other => unreachable!("not an answer to this: {other:?}"),
        }
    }

    /// As [`crate::disk::create_dir_all`].
    ///
    /// # Errors
    /// A file is in the way, or a fault.
    pub async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.request(Request::MakeFolder { path: path.into() }).await.map(drop)
    }

    /// As [`crate::disk::remove_file`].
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.request(Request::Remove { path: path.into() }).await.map(drop)
    }

    /// As [`crate::disk::remove_dir`].
    ///
    /// # Errors
    /// `NotFound`, `DirectoryNotEmpty`, or a fault.
    pub async fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.request(Request::RemoveFolder { path: path.into() }).await.map(drop)
    }

    /// As [`crate::disk::rename`], of files only.
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.request(Request::Rename { from: from.into(), to: to.into() }).await.map(drop)
    }

    /// As [`crate::disk::hard_link`].
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, or a fault.
    pub async fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.request(Request::Link { from: from.into(), to: to.into() }).await.map(drop)
    }

    /// As [`crate::disk::list_dir`].
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.request(Request::List { path: path.into() }).await? {
            Answer::Names(names) => Ok(names),
            other => unreachable!("not an answer to this: {other:?}"),
        }
    }

    /// As [`crate::disk::sync_dir`].
    ///
    /// # Errors
    /// `NotFound`, or a fault; which of the changes are durable is unknown then.
    pub async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.request(Request::SyncFolder { path: path.into() }).await.map(drop)
    }

    /// As [`crate::disk::lock_file`]; the lock is gone when the answer is, or the machine goes down.
    ///
    /// # Errors
    /// `WouldBlock` while it is held, or a fault.
    pub async fn lock_file(&self, path: &Path) -> io::Result<Lock> {
        let life = self.state().life;
        self.request(Request::Lock { path: path.into() }).await?;
        Ok(Lock { disk: self.clone(), life, path: path.into() })
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// The machine goes down in the midst of this step (the next, if it is past): see [`Disk::is_down`].
    pub fn crash_at(&self, step: u64) {
        self.state().crash_at = Some(step);
    }

    /// Whether the machine has gone down at the step chosen: nothing is answered until [`Disk::crash`] starts it again.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state().down
    }

    /// The machine goes down, if it has not yet, and starts again. What was opened before never answers any more; the tasks that
    /// used it should be dropped.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Adds a rule.
    pub fn fault(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all rules; what was stalled goes on.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.resume();
    }

    /// All files together take at most so many bytes; what exceeds it already stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Bytes that all files together take.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Changes a bit that is stored.
    ///
    /// # Panics
    /// There is no such file or byte.
    pub fn flip(&self, path: &Path, offset: u64, bit: u32) {
        let mut state = self.state();
        let inode = state.names.file(path).expect("a file to damage");
        let inode = state.inodes.get_mut(&inode).expect("a named file exists");
        inode.now[offset as usize] ^= 1 << bit;
        if let Some(byte) = inode.durable.get_mut(offset as usize) {
            *byte ^= 1 << bit;
        }
    }

    /// Changes a bit somewhere in the files whose path contains a text, each byte as likely as any other. Answers with the place.
    pub fn flip_somewhere(&self, in_path: &str) -> Option<(PathBuf, u64)> {
        let mut files = self.files();
        files.retain(|path| path.to_string_lossy().contains(in_path));
        let bytes: u64 = files.iter().map(|path| self.size(path)).sum();
        let mut at = self.state().random.below(bytes.max(1));
        for path in files {
            let size = self.size(&path);
            if at < size {
                let bit = self.state().random.below(8) as u32;
                self.flip(&path, at, bit);
                return Some((path, at));
            }
            at -= size;
        }
        None
    }

    /// The files there are, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state();
        let files = state.names.now.iter().filter(|(_, node)| matches!(node, names::Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// The bytes of a file; 0 if there is none.
    #[must_use]
    pub fn size(&self, path: &Path) -> u64 {
        let state = self.state();
        state.names.file(path).map_or(0, |inode| state.inodes[&inode].now.len() as u64)
    }

    /// The last steps, one a line.
    #[must_use]
    pub fn record(&self) -> String {
        self.state().record()
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    life: u64,
    inode: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.close(self.inode);
        }
    }
}

/// An open file. Clones share it.
#[derive(Clone, Debug)]
pub struct File {
    handle: Arc<Handle>,
    options: OpenOptions,
}

impl File {
    async fn request(&self, request: impl FnOnce(u64) -> Request) -> io::Result<Answer> {
        let Handle { disk, life, inode } = &*self.handle;
        let request = Some(request(*inode));
        Running { disk: disk.clone(), life: *life, request, ticket: None }.await
    }

    /// Exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter, or a fault.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match self.request(|inode| Request::Read { inode, offset, len }).await? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => unreachable!("not an answer to this: {other:?}"),
        }
    }

    /// Writes all of `data` at `offset`; durably, if the file was opened with `dsync`.
    ///
    /// # Errors
    /// `StorageFull`, with as much written as there was room for, or a fault.
    ///
    /// # Panics
    /// The file is direct, and offset or length are not in whole blocks.
    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let whole = offset.is_multiple_of(BLOCK as u64) && data.len().is_multiple_of(BLOCK);
        assert!(whole || !self.options.direct, "direct writes are of whole blocks");
        let durable = self.options.dsync;
        self.request(|inode| Request::Write { inode, offset, data, durable }).await.map(drop)
    }

    /// As [`crate::disk::File::sync_all`].
    ///
    /// # Errors
    /// A fault; what was written is then lost at the next crash, or not, whatever a second try says.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.request(|inode| Request::Sync { inode }).await.map(drop)
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// A fault.
    pub async fn len(&self) -> io::Result<u64> {
        match self.request(|inode| Request::Length { inode }).await? {
            Answer::Length(bytes) => Ok(bytes),
            other => unreachable!("not an answer to this: {other:?}"),
        }
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// A fault.
    pub async fn is_empty(&self) -> io::Result<bool> {
        self.len().await.map(|len| len == 0)
    }

    /// As [`crate::disk::File::allocate`]: `len` bytes of durable zeros.
    ///
    /// # Errors
    /// `StorageFull`, or a fault.
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        self.request(|inode| Request::Allocate { inode, len }).await.map(drop)
    }

    /// Sets the length.
    ///
    /// # Errors
    /// A fault.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        self.request(|inode| Request::Truncate { inode, len }).await.map(drop)
    }
}

/// A lock held.
#[derive(Debug)]
pub struct Lock {
    disk: Disk,
    life: u64,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.unlock(&self.path);
        }
    }
}

/// An operation, from asking to its answer. Dropped while under way, it takes effect all the same, as with a real disk.
struct Running {
    disk: Disk,
    life: u64,
    /// Until it comes under way.
    request: Option<Request>,
    ticket: Option<u64>,
}

impl Future for Running {
    type Output = io::Result<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let disk = self.disk.clone();
        let mut state = disk.state();
        if state.life != self.life || state.down {
            return Poll::Pending;
        }
        if let Some(request) = self.request.take() {
            self.ticket = Some(state.begin(request));
        }
        let Some(ticket) = self.ticket else { return Poll::Pending };
        match state.turn(ticket) {
            Some(result) => {
                self.ticket = None;
                Poll::Ready(result)
            }
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.disk.state();
        if state.life == self.life && !state.down {
            // An answer that nobody waits for; if it opened a file, that stays open, which only keeps its bytes.
            let _ = state.finish(ticket);
        }
    }
}
