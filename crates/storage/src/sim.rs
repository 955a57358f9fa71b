//! Simulated [`Env`] of tests: the simulated disk of `lanes`, a clock that tests set, and an
//! executor that polls all tasks round-robin. A seed determines the history.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use sched::control::Division;
use testkit::Random;
use testkit::sim::{self, Disk, OpenOptions};

use crate::env::{BoxFuture, Env, File, LocalBoxFuture, Mode, UsedTime, Work};
use crate::table::shared::SharedFiles;

/// Simulated time of one poll of a sleeping task. A sleep takes at most [`SLEEP_POLLS_MAX`] polls.
const POLL_TIME: Duration = Duration::from_millis(10);
const SLEEP_POLLS_MAX: u128 = 20;

/// Work units after which a task yields.
const UNITS_PER_POLL: u32 = 16;

/// Rounds over all tasks after which a test counts as stuck.
const ROUNDS_MAX: u32 = 1_000_000;

/// Simulated disk, clock and executor.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) disk: Disk,
    pub(crate) now_s: AtomicU32,
    now_ns: AtomicU64,
    spent: AtomicU32,
    random: Mutex<Random>,
    pub(crate) shared: SharedFiles,
    /// Number of files that may be open at once.
    pub(crate) open_files_max: AtomicU64,
    /// Number of table files that may still be opened before the process has no descriptor left.
    pub(crate) table_opens_left: AtomicU64,
    /// The file system does not support synchronous writes: log segments are written and then
    /// synced.
    sync_each: bool,
    /// Group of the writers.
    pub(crate) writer: Mutex<lanes::Group>,
}

thread_local! {
    static TASKS: RefCell<Vec<LocalBoxFuture<()>>> = const { RefCell::new(Vec::new()) };
    /// Polls of background tasks until one of them panics. `u64::MAX`: none does.
    static POLLS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Rounds over all tasks between the panic of a background task and the end of its process.
const ROUNDS_AFTER_PANIC: u32 = 20;

/// Makes a background task panic after `polls` polls. The others continue until the process has
/// ended, see [`has_panicked`].
pub(crate) fn panic_after(polls: u64) {
    POLLS_LEFT.set(polls.min(u64::MAX - 1));
}

/// Returns true once the panic that [`panic_after`] requested has happened.
pub(crate) fn has_panicked() -> bool {
    POLLS_LEFT.get() == 0
}

/// Runs a future beside all spawned tasks. Returns `None` if the machine goes down or the process
/// ends first.
pub(crate) fn run<T>(sim: &Sim, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    let mut left = ROUNDS_AFTER_PANIC;
    for _ in 0..ROUNDS_MAX {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut cx) {
            return Some(answer);
        }
        left -= u32::from(has_panicked());
        if sim.disk.is_down() || left == 0 {
            return None;
        }
        step();
    }
    panic!("stuck; the disk's last steps:\n{}", sim.disk.record());
}

/// Runs a future beside all spawned tasks, on a machine that does not go down.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    run(&Sim::default(), future).expect("no machine went down")
}

/// Polls every task once.
pub(crate) fn step() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut tasks = TASKS.with_borrow_mut(std::mem::take);
    tasks.retain_mut(|task| {
        let is_pending = task.as_mut().poll(&mut cx).is_pending();
        let left = POLLS_LEFT.get();
        if is_pending && left > 0 && left < u64::MAX {
            POLLS_LEFT.set(left - 1);
        }
        is_pending && left != 1
    });
    TASKS.with_borrow_mut(|new| {
        tasks.append(new);
        *new = tasks;
    });
}

/// Ends the process: drops all tasks where they are. The disk completes the requests that it has
/// started.
pub(crate) fn drop_tasks() {
    POLLS_LEFT.set(u64::MAX);
    // A dropped task may spawn another one to complete its work.
    loop {
        let tasks = TASKS.with_borrow_mut(std::mem::take);
        if tasks.is_empty() {
            return;
        }
        drop(tasks);
    }
}

async fn polls(count: u128) {
    let mut left = count;
    let sleep = poll_fn(|_| match left {
        0 => Poll::Ready(()),
        _ => {
            left -= 1;
            Poll::Pending
        }
    });
    sleep.await;
}

impl Default for Sim {
    fn default() -> Sim {
        Sim::new(0)
    }
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Sim {
        let random = Mutex::new(Random::new(!seed));
        let (now_s, now_ns, spent) = Default::default();
        let shared = SharedFiles::default();
        let open_files_max = AtomicU64::new(u64::MAX);
        let table_opens_left = AtomicU64::new(u64::MAX);
        let (disk, sync_each) = (Disk::new(seed), seed % 4 == 3);
        let writer = Mutex::new(lanes::Group::DEFAULT);
        Sim {
            disk,
            now_s,
            now_ns,
            spent,
            random,
            shared,
            open_files_max,
            table_opens_left,
            sync_each,
            writer,
        }
    }

    /// Takes the machine down: tasks are gone, and a random part of the data that was not durable.
    pub(crate) fn crash(&self) {
        self.disk.crash();
        self.shared.clear();
        drop_tasks();
    }
}

#[derive(Debug)]
struct Handle {
    file: sim::File,
    sync_each: bool,
}

impl File for Handle {
    fn read(&self, offset: u64, len: usize) -> BoxFuture<io::Result<Bytes>> {
        let file = self.file.clone();
        Box::pin(async move { file.read_at(offset, len).await })
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move { file.write_at(offset, data).await })
    }

    fn write_durable(&self, offset: u64, blocks: &[u8]) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        let sync_each = self.sync_each;
        let data = Bytes::copy_from_slice(blocks);
        Box::pin(async move {
            file.write_at(offset, data).await?;
            if sync_each { file.sync_all().await } else { Ok(()) }
        })
    }

    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move { file.allocate(len).await })
    }

    fn sync(&self) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move { file.sync_all().await })
    }

    fn len(&self) -> BoxFuture<io::Result<u64>> {
        let file = self.file.clone();
        Box::pin(async move { file.len().await })
    }
}

impl Env for Sim {
    fn open(&self, path: &Path, mode: Mode) -> BoxFuture<io::Result<Arc<dyn File>>> {
        let (disk, path) = (self.disk.clone(), path.to_owned());
        let plain = OpenOptions::default();
        let options = match mode {
            // The page cache loses more in a crash than a disk does, so it is simulated for all
            // files.
            Mode::Read | Mode::ReadTable => plain,
            Mode::Create | Mode::CreateTable => {
                OpenOptions { write: true, create: true, truncate: true, ..plain }
            }
            Mode::Update => OpenOptions { write: true, ..plain },
            Mode::Log => {
                OpenOptions { write: true, create: true, direct: true, dsync: !self.sync_each, ..plain }
            }
        };
        let one_less = |left: u64| left.checked_sub(1);
        let is_one_too_many = matches!(mode, Mode::ReadTable)
            && self.table_opens_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err();
        let sync_each = self.sync_each;
        Box::pin(async move {
            if is_one_too_many {
                /// Errno of Linux for too many open files.
                const EMFILE: i32 = 24;
                return Err(io::Error::from_raw_os_error(EMFILE));
            }
            let file = disk.open(&path, options).await?;
            Ok(Arc::new(Handle { file, sync_each }) as Arc<dyn File>)
        })
    }

    fn list(&self, dir: &Path) -> BoxFuture<io::Result<Vec<String>>> {
        let (disk, dir) = (self.disk.clone(), dir.to_owned());
        Box::pin(async move { disk.list_dir(&dir).await })
    }

    fn create_dir_all(&self, dir: &Path) -> BoxFuture<io::Result<()>> {
        let (disk, dir) = (self.disk.clone(), dir.to_owned());
        Box::pin(async move { disk.create_dir_all(&dir).await })
    }

    fn remove(&self, path: &Path) -> BoxFuture<io::Result<()>> {
        let (disk, path) = (self.disk.clone(), path.to_owned());
        Box::pin(async move { disk.remove_file(&path).await })
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>> {
        let disk = self.disk.clone();
        let from = from.to_owned();
        let to = to.to_owned();
        Box::pin(async move { disk.rename(&from, &to).await })
    }

    fn link(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>> {
        let disk = self.disk.clone();
        let from = from.to_owned();
        let to = to.to_owned();
        Box::pin(async move { disk.hard_link(&from, &to).await })
    }

    fn remove_dir(&self, path: &Path) -> BoxFuture<io::Result<()>> {
        let (disk, path) = (self.disk.clone(), path.to_owned());
        Box::pin(async move { disk.remove_dir(&path).await })
    }

    fn sync_dir(&self, dir: &Path) -> BoxFuture<io::Result<()>> {
        let (disk, dir) = (self.disk.clone(), dir.to_owned());
        Box::pin(async move { disk.sync_dir(&dir).await })
    }

    fn lock(&self, path: &Path) -> BoxFuture<io::Result<Box<dyn Debug>>> {
        let (disk, path) = (self.disk.clone(), path.to_owned());
        Box::pin(async move { Ok(Box::new(disk.lock_file(&path).await?) as Box<dyn Debug>) })
    }

    fn spawn(&self, _: Work, task: LocalBoxFuture<()>) {
        TASKS.with_borrow_mut(|tasks| tasks.push(task));
    }

    fn heavy(&self, _: Work, task: BoxFuture<Box<dyn Any + Send>>) -> LocalBoxFuture<Box<dyn Any + Send>> {
        task
    }

    fn heavy_yield(&self) -> BoxFuture<()> {
        Box::pin(polls(1))
    }

    /// Yields far more often than lanes do, so that crashes and other tasks interleave.
    fn spend(&self, units: u32) -> Option<BoxFuture<()>> {
        let before = self.spent.fetch_add(units, Ordering::Relaxed);
        let is_due = before / UNITS_PER_POLL != before.wrapping_add(units) / UNITS_PER_POLL;
        is_due.then(|| Box::pin(polls(1)) as BoxFuture<()>)
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()> {
        Box::pin(polls((duration.as_nanos() / POLL_TIME.as_nanos()).clamp(1, SLEEP_POLLS_MAX)))
    }

    fn heavy_sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(polls((duration.as_nanos() / POLL_TIME.as_nanos()).clamp(1, SLEEP_POLLS_MAX)))
    }

    fn now_ns(&self) -> u64 {
        // Each reading advances the clock.
        self.now_ns.fetch_add(100_000, Ordering::Relaxed)
    }

    fn used_time(&self, _: Work) -> UsedTime {
        UsedTime::default()
    }

    fn group(&self) -> lanes::Group {
        *self.writer.lock().expect("not poisoned")
    }

    fn shares(&self) -> u32 {
        1
    }

    fn set_shares(&self, _: Division) {}

    fn shared_files(&self) -> &SharedFiles {
        &self.shared
    }

    fn open_files_max(&self) -> u64 {
        self.open_files_max.load(Ordering::Relaxed)
    }

    fn now_s(&self) -> u32 {
        self.now_s.load(Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        self.random.lock().expect("not poisoned").next_u64()
    }
}
