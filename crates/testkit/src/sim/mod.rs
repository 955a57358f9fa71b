//! Simulated disk for tests: in memory, deterministic by its seed, with every failure that a real
//! one has. It has the operations of [`lanes::disk`], needs no lanes, and uses neither clock nor
//! real files.
//!
//! 1. An operation is *in flight* from the first poll of its future, waits a few polls, and then
//!    takes effect: one *step*, numbered from 1. Operations in flight at the same time overtake
//!    each other.
//! 2. A write is visible at once, and *durable* when its file was synced after it. A new, renamed
//!    or removed name is durable when its folder was synced. A sync covers the changes made before
//!    it was in flight. Writes to files opened with `dsync` are durable when they return.
//! 3. At a crash ([`Disk::crash`], or at a chosen step: [`Disk::crash_at`]) every change that is
//!    not durable is kept or lost independently, writes also sector by sector, including those in
//!    flight. So a cache may have been written back in any order, except that names which build
//!    upon each other stay in order.
//! 4. [`Fault`]s make chosen operations fail or stall. Space is bounded ([`Disk::set_capacity`]).
//!    Bits flip on request.
//!
//! When a test fails, [`Disk::record`] returns the last steps. Permissions and time are
//! deliberately absent.

mod fault;
mod inode;
mod names;
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

pub use fault::{Effect, Fault, FaultKind};
use lanes::disk::BLOCK;
pub use lanes::disk::OpenOptions;
use state::{DiskAnswer, DiskState, Request};

/// Simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<DiskState>>);

impl Disk {
    /// Creates an empty disk without bounds or faults. The seed decides all random choices.
    #[must_use]
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(DiskState::new(seed))))
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        // A test that has panicked may still print the record.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self, request: Request) -> io::Result<DiskAnswer> {
        let life = self.state().life;
        Running { disk: self.clone(), life, request: Some(request), ticket: None }.await
    }

    /// Opens a file, as [`lanes::disk::open`] does.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, or a fault.
    pub async fn open(&self, path: &Path, options: OpenOptions) -> io::Result<File> {
        let life = self.state().life;
        match self.request(Request::Open { path: path.into(), options }).await? {
            DiskAnswer::Opened(inode) => {
                let handle = Handle { disk: self.clone(), life, inode };
                Ok(File { handle: Arc::new(handle), options })
            }
            other => unreachable!("expected the answer of another request, got {other:?}"),
        }
    }

    /// Creates a folder and its parents, as [`lanes::disk::create_dir_all`] does.
    ///
    /// # Errors
    /// A file is in the way, or a fault.
    pub async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.request(Request::MakeFolder { path: path.into() }).await.map(drop)
    }

    /// Removes a file, as [`lanes::disk::remove_file`] does.
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.request(Request::Remove { path: path.into() }).await.map(drop)
    }

    /// Removes an empty folder, as [`lanes::disk::remove_dir`] does.
    ///
    /// # Errors
    /// `NotFound`, `DirectoryNotEmpty`, or a fault.
    pub async fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.request(Request::RemoveFolder { path: path.into() }).await.map(drop)
    }

    /// Renames a file, as [`lanes::disk::rename`] does. Not for folders.
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.request(Request::Rename { from: from.into(), to: to.into() }).await.map(drop)
    }

    /// Creates a second name for a file, as [`lanes::disk::hard_link`] does.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, or a fault.
    pub async fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.request(Request::Link { from: from.into(), to: to.into() }).await.map(drop)
    }

    /// Returns the names in a folder, as [`lanes::disk::list_dir`] does.
    ///
    /// # Errors
    /// `NotFound`, or a fault.
    pub async fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.request(Request::List { path: path.into() }).await? {
            DiskAnswer::Names(names) => Ok(names),
            other => unreachable!("expected the answer of another request, got {other:?}"),
        }
    }

    /// Makes a folder's entries durable, as [`lanes::disk::sync_dir`] does.
    ///
    /// # Errors
    /// `NotFound`, or a fault. After a fault it is unknown which changes are durable.
    pub async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.request(Request::SyncFolder { path: path.into() }).await.map(drop)
    }

    /// Takes the exclusive lock of a file, as [`lanes::disk::lock_file`] does, until the returned
    /// value is dropped or the machine crashes.
    ///
    /// # Errors
    /// `WouldBlock` while it is held, or a fault.
    pub async fn lock_file(&self, path: &Path) -> io::Result<Lock> {
        let life = self.state().life;
        self.request(Request::Lock { path: path.into() }).await?;
        Ok(Lock { disk: self.clone(), life, path: path.into() })
    }

    /// Returns the number of steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Crashes the machine during this step (or the next, if it is past): see [`Disk::is_down`].
    pub fn crash_at(&self, step: u64) {
        self.state().crash_at = Some(step);
    }

    /// Returns true if the machine has crashed at the chosen step. Nothing is answered until
    /// [`Disk::crash`] restarts it.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state().down
    }

    /// Crashes the machine, if it has not crashed yet, and restarts it. Handles opened before never
    /// answer any more. The tasks that used them should be dropped.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults. Stalled operations go on.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.resume();
    }

    /// Sets the most bytes that all files together may take. Excess bytes stay.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Returns the bytes that all files together take.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Flips a stored bit.
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

    /// Flips a random bit in the files whose path contains `in_path`, with the same probability for
    /// each byte. Returns the file and the offset of the byte.
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

    /// Returns the paths of all files, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state();
        let files = state.names.now.iter().filter(|(_, node)| matches!(node, names::Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the length of a file, bytes; 0 if there is none.
    #[must_use]
    pub fn size(&self, path: &Path) -> u64 {
        let state = self.state();
        state.names.file(path).map_or(0, |inode| state.inodes[&inode].now.len() as u64)
    }

    /// Returns the last steps, one a line.
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

/// Open file. Clones share it.
#[derive(Clone, Debug)]
pub struct File {
    handle: Arc<Handle>,
    options: OpenOptions,
}

impl File {
    async fn request(&self, request: impl FnOnce(u64) -> Request) -> io::Result<DiskAnswer> {
        let Handle { disk, life, inode } = &*self.handle;
        let request = Some(request(*inode));
        Running { disk: disk.clone(), life: *life, request, ticket: None }.await
    }

    /// Reads exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter, or a fault.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match self.request(|inode| Request::Read { inode, offset, len }).await? {
            DiskAnswer::Bytes(bytes) => Ok(bytes),
            other => unreachable!("expected the answer of another request, got {other:?}"),
        }
    }

    /// Writes all of `data` at `offset`, durably if the file was opened with `dsync`.
    ///
    /// # Errors
    /// `StorageFull`, after writing as much as there was space for, or a fault.
    ///
    /// # Panics
    /// The file is direct, and offset or length are not in whole blocks.
    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let whole = offset.is_multiple_of(BLOCK as u64) && data.len().is_multiple_of(BLOCK);
        assert!(whole || !self.options.direct, "direct writes are of whole blocks");
        let durable = self.options.dsync;
        self.request(|inode| Request::Write { inode, offset, data, durable }).await.map(drop)
    }

    /// Makes the file durable, as [`lanes::disk::File::sync_all`] does.
    ///
    /// # Errors
    /// A fault. Earlier writes may then be lost at the next crash, even if a second call succeeds.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.request(|inode| Request::Sync { inode }).await.map(drop)
    }

    /// Returns the length of the file, bytes.
    ///
    /// # Errors
    /// A fault.
    pub async fn len(&self) -> io::Result<u64> {
        match self.request(|inode| Request::Length { inode }).await? {
            DiskAnswer::Length(bytes) => Ok(bytes),
            other => unreachable!("expected the answer of another request, got {other:?}"),
        }
    }

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// A fault.
    pub async fn is_empty(&self) -> io::Result<bool> {
        self.len().await.map(|len| len == 0)
    }

    /// Makes the file `len` bytes of durable zeros, as [`lanes::disk::File::allocate`] does.
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

/// Held lock of a file.
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

/// Operation, from its request to its answer. Dropped while in flight, it takes effect all the
/// same, as with a real disk.
struct Running {
    disk: Disk,
    life: u64,
    /// The request until it is in flight.
    request: Option<Request>,
    ticket: Option<u64>,
}

impl Future for Running {
    type Output = io::Result<DiskAnswer>;

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
        match state.poll(ticket) {
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
            // No task waits for this answer. If it opened a file, the file stays open, which only
            // keeps its bytes.
            let _ = state.finish(ticket);
        }
    }
}
