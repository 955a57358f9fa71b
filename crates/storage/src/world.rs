//! The door to the world: files, the two lanes, time. Everything else in this crate goes through it, so that
//! the same code runs on `lanes` and, in tests, on a simulated disk that forgets what was not synced.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sched::control::Division;

use crate::table::shared::SharedFiles;

/// A boxed future that either lane may poll.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A boxed future of the fast lane.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// On whose account work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Log,
    Flush,
    Compaction,
    /// Merging that was asked for, for a group.
    Asked(lanes::Group),
    /// Deciding about the others.
    Control,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// An existing file, to read.
    Read,
    /// A new or emptied file, to write through the page cache.
    Create,
    /// An existing file, to write into through the page cache.
    Update,
    /// As [`Mode::Read`] and [`Mode::Create`], past the page cache where the file system can: what is read is kept in a cache of our own, and what is
    /// written goes to the disk by shares, a megabyte at a time, not all at once as the kernel writes back. For table files, which
    /// are written in whole blocks but for their ends.
    ReadTable,
    /// See [`Mode::ReadTable`].
    CreateTable,
    /// A log segment, created if missing: direct writes that are durable when they return, where the disk allows.
    Log,
}

/// An open file.
pub(crate) trait File: Send + Sync + Debug {
    /// Exactly `len` bytes.
    fn read(&self, offset: u64, len: usize) -> BoxFuture<io::Result<Bytes>>;
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<io::Result<()>>;
    /// Writes whole blocks of 4096 bytes and makes them durable; for files opened as [`Mode::Log`].
    fn write_durable(&self, offset: u64, blocks: &[u8]) -> BoxFuture<io::Result<()>>;
    /// Makes the file at least this long, its space allocated and zeroed.
    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>>;
    fn sync(&self) -> BoxFuture<io::Result<()>>;
    fn len(&self) -> BoxFuture<io::Result<u64>>;
}

/// The world outside a shard.
pub(crate) trait World: Send + Sync + Debug {
    fn open(&self, path: &Path, mode: Mode) -> BoxFuture<io::Result<Arc<dyn File>>>;
    fn list(&self, dir: &Path) -> BoxFuture<io::Result<Vec<String>>>;
    fn create_dir_all(&self, dir: &Path) -> BoxFuture<io::Result<()>>;
    fn remove(&self, path: &Path) -> BoxFuture<io::Result<()>>;
    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>>;
    /// A second name for a file.
    fn link(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> BoxFuture<io::Result<()>>;
    fn sync_dir(&self, dir: &Path) -> BoxFuture<io::Result<()>>;
    /// Takes an exclusive lock for as long as the answer lives; `WouldBlock` when someone else has it.
    fn lock(&self, path: &Path) -> BoxFuture<io::Result<Box<dyn Debug>>>;
    /// Runs a task on this core's fast lane.
    fn spawn(&self, work: Work, task: LocalBoxFuture<()>);
    /// Runs a task on this core's heavy lane; see [`run_heavy`].
    fn heavy(&self, work: Work, task: BoxFuture<Box<dyn Any + Send>>) -> LocalBoxFuture<Box<dyn Any + Send>>;
    /// To be awaited by heavy tasks at least every millisecond, and by long ones of the fast lane every 50 µs.
    fn heavy_yield(&self) -> BoxFuture<()>;
    /// Counts work units of the running task ([`lanes::spend`]). `Some` is a yield that is due, to
    /// be awaited.
    fn spend(&self, units: u32) -> Option<BoxFuture<()>>;
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()>;
    /// For heavy tasks.
    fn heavy_sleep(&self, duration: Duration) -> BoxFuture<()>;
    /// Monotonic time.
    fn now_ns(&self) -> u64;
    /// CPU time used on this core's lanes, and time of this core's part of the disk, ns, by all of the kind.
    fn used_ns(&self, work: Work) -> (u64, u64);
    /// Divides this core between background work and users.
    fn set_shares(&self, division: Division);
    /// Files that may be open for several shards.
    fn shared_files(&self) -> &SharedFiles;
    /// Files that this process may have open at once.
    fn open_files_max(&self) -> u64;
    /// Seconds since the Unix epoch.
    fn now_s(&self) -> u32;
    fn random(&self) -> u64;
}

/// Runs a task on this core's heavy lane and waits for its result.
pub(crate) async fn run_heavy<T: Send + 'static>(
    world: &dyn World,
    work: Work,
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    let result = world.heavy(work, Box::pin(async { Box::new(task.await) as Box<dyn Any + Send> })).await;
    *result.downcast().expect("the task's own result")
}
