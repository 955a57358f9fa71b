//! Interface to files, lanes, time and randomness. The rest of this crate uses nothing else, so
//! that the same code runs on `lanes` and, in tests, on a simulated disk that loses what was not
//! synced.

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

/// Alignment of direct writes, in bytes.
pub(crate) const BLOCK: usize = 4096;

/// A boxed future that either lane may poll.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A boxed future of the fast lane.
pub type LocalBoxFuture<T> = lanes::LocalBoxFuture<'static, T>;

/// Kind of work, which decides the group to charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Log,
    Flush,
    Compaction,
    /// A compaction on request, charged to the group of the caller.
    Requested(lanes::Group),
    /// The controllers that pace the other work.
    Control,
}

/// Way of opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// An existing file, for reading.
    Read,
    /// A new or truncated file, written through the page cache.
    Create,
    /// An existing file, updated through the page cache.
    Update,
    /// As [`Mode::Read`], with direct I/O if the file system supports it: table files have a cache
    /// of their own.
    ReadTable,
    /// As [`Mode::Create`], with direct I/O if the file system supports it. Write-back of the
    /// kernel would ignore shares and write everything at once. Writes are whole blocks of a
    /// megabyte, except the last.
    CreateTable,
    /// A log segment, created if missing. Direct writes are durable when they return, if the file
    /// system supports it.
    Log,
}

/// An open file.
pub(crate) trait File: Send + Sync + Debug {
    /// Reads exactly `len` bytes.
    fn read(&self, offset: u64, len: usize) -> BoxFuture<io::Result<Bytes>>;
    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<io::Result<()>>;
    /// Writes whole blocks of 4096 bytes and makes them durable. For files opened as [`Mode::Log`].
    fn write_durable(&self, offset: u64, blocks: &[u8]) -> BoxFuture<io::Result<()>>;
    /// Extends the file to at least `len` bytes, allocated and zeroed.
    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>>;
    fn sync(&self) -> BoxFuture<io::Result<()>>;
    fn len(&self) -> BoxFuture<io::Result<u64>>;
}

/// Time that a kind of work used since the start, ns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct UsedTime {
    /// CPU time on both lanes of this core.
    pub(crate) cpu_ns: u64,
    /// Disk time, as a part of this core's share of the disk.
    pub(crate) disk_ns: u64,
}

/// Disk, lanes, clock and randomness of a shard.
pub(crate) trait Env: Send + Sync + Debug {
    fn open(&self, path: &Path, mode: Mode) -> BoxFuture<io::Result<Arc<dyn File>>>;
    fn list(&self, dir: &Path) -> BoxFuture<io::Result<Vec<String>>>;
    fn create_dir_all(&self, dir: &Path) -> BoxFuture<io::Result<()>>;
    fn remove(&self, path: &Path) -> BoxFuture<io::Result<()>>;
    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>>;
    /// Creates a hard link.
    fn link(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> BoxFuture<io::Result<()>>;
    fn sync_dir(&self, dir: &Path) -> BoxFuture<io::Result<()>>;
    /// Takes an exclusive lock, held until the result is dropped. Fails with `WouldBlock` if
    /// another process has it.
    fn lock(&self, path: &Path) -> BoxFuture<io::Result<Box<dyn Debug>>>;
    /// Runs a task on the fast lane of this core.
    fn spawn(&self, work: Work, task: LocalBoxFuture<()>);
    /// Runs a task on the heavy lane of this core; see [`run_heavy`].
    fn heavy(&self, work: Work, task: BoxFuture<Box<dyn Any + Send>>) -> LocalBoxFuture<Box<dyn Any + Send>>;
    /// Returns a yield. Heavy tasks await one at least every millisecond, long tasks of the fast
    /// lane every 50 µs.
    fn heavy_yield(&self) -> BoxFuture<()>;
    /// Counts work units of the running task ([`lanes::spend`]). `Some` is a yield that the task
    /// must await.
    fn spend(&self, units: u32) -> Option<BoxFuture<()>>;
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()>;
    /// Sleeps; for heavy tasks.
    fn heavy_sleep(&self, duration: Duration) -> BoxFuture<()>;
    /// Returns monotonic time in ns.
    fn now_ns(&self) -> u64;
    /// Returns the time that this kind of work used on this core.
    fn used_time(&self, work: Work) -> UsedTime;
    /// Returns the group of the running task.
    fn group(&self) -> lanes::Group;
    /// Returns the shares of that group.
    fn shares(&self) -> u32;
    /// Divides this core between background work and users.
    fn set_shares(&self, division: Division);
    /// Returns the table files that several shards may have open.
    fn shared_files(&self) -> &SharedFiles;
    /// Returns the number of files that this process may have open at once.
    fn open_files_max(&self) -> u64;
    /// Returns seconds since the Unix epoch.
    fn now_s(&self) -> u32;
    fn random(&self) -> u64;
}

/// Runs a task on the heavy lane of this core and returns its result.
pub(crate) async fn run_heavy<T: Send + 'static>(
    env: &dyn Env,
    work: Work,
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    let result = env.heavy(work, Box::pin(async { Box::new(task.await) as Box<dyn Any + Send> })).await;
    *result.downcast().expect("the task's own result")
}
