//! A simulated disk and a busy executor: every file operation takes a turn, and a crash keeps what was synced and a random
//! part of what was not. One seed, one history.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use crate::world::{BoxFuture, File, LocalBoxFuture, Mode, Work, World};

/// A small generator (splitmix64), so that tests need no clock and no dependency.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Debug, Default)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct SimFile(Mutex<Contents>);

type Names = BTreeMap<PathBuf, Arc<SimFile>>;

/// The simulated world.
#[derive(Debug, Default)]
pub(crate) struct Sim {
    names: Mutex<(Names, Names)>,
    pub(crate) now_s: AtomicU32,
    salt: AtomicU64,
    /// Writes allowed before the disk is full; 0 for no limit.
    pub(crate) writes_left: AtomicU64,
}

thread_local! {
    static TASKS: RefCell<Vec<LocalBoxFuture<()>>> = const { RefCell::new(Vec::new()) };
}

/// Runs a future beside all spawned tasks.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut cx) {
            return answer;
        }
        step();
    }
    panic!("stuck");
}

/// Gives every task a turn.
pub(crate) fn step() {
    let mut cx = Context::from_waker(Waker::noop());
    let mut tasks = TASKS.with_borrow_mut(std::mem::take);
    tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
    TASKS.with_borrow_mut(|new| {
        tasks.append(new);
        *new = tasks;
    });
}

async fn turn() {
    let mut first = true;
    poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

impl Sim {
    /// The machine goes down: tasks are gone, and of what was not synced a random part.
    pub(crate) fn crash(&self, random: &mut Random) {
        TASKS.with_borrow_mut(Vec::clear);
        let (now, durable) = &mut *self.names.lock().unwrap();
        *now = durable.clone();
        for file in now.values() {
            let Contents { now, durable } = &mut *file.0.lock().unwrap();
            let common = now.len().min(durable.len());
            for sector in (0..common).step_by(512) {
                let range = sector..common.min(sector + 512);
                if now[range.clone()] != durable[range.clone()] && random.below(2) == 0 {
                    durable[range.clone()].copy_from_slice(&now[range]);
                }
            }
            now.clone_from(durable);
        }
    }

    /// Changes a byte on disk; for damage.
    pub(crate) fn flip(&self, path: &Path, at: usize) {
        let names = self.names.lock().unwrap();
        names.0[path].0.lock().unwrap().now[at] ^= 0x20;
    }

    pub(crate) fn size(&self, path: &Path) -> usize {
        self.names.lock().unwrap().0[path].0.lock().unwrap().now.len()
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.names.lock().unwrap().0.keys().cloned().collect()
    }
}

#[derive(Debug)]
struct Handle {
    file: Arc<SimFile>,
    full: bool,
}

fn put(contents: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset as usize..end].copy_from_slice(data);
}

impl File for Handle {
    fn read(&self, offset: u64, len: usize) -> BoxFuture<io::Result<Bytes>> {
        let file = self.file.clone();
        Box::pin(async move {
            turn().await;
            let contents = file.0.lock().unwrap();
            let range = offset as usize..offset as usize + len;
            contents.now.get(range).map(Bytes::copy_from_slice).ok_or(io::ErrorKind::UnexpectedEof.into())
        })
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<io::Result<()>> {
        let (file, full) = (self.file.clone(), self.full);
        Box::pin(async move {
            turn().await;
            if full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            put(&mut file.0.lock().unwrap().now, offset, &data);
            Ok(())
        })
    }

    fn write_durable(&self, offset: u64, blocks: &[u8]) -> BoxFuture<io::Result<()>> {
        assert!(
            offset.is_multiple_of(4096) && blocks.len().is_multiple_of(4096),
            "direct writes are of whole blocks"
        );
        let (file, data) = (self.file.clone(), blocks.to_vec());
        Box::pin(async move {
            put(&mut file.0.lock().unwrap().now, offset, &data);
            turn().await;
            turn().await;
            put(&mut file.0.lock().unwrap().durable, offset, &data);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move {
            turn().await;
            let mut contents = file.0.lock().unwrap();
            contents.now = vec![0; len as usize];
            contents.durable = vec![0; len as usize];
            Ok(())
        })
    }

    fn sync(&self) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move {
            turn().await;
            let Contents { now, durable } = &mut *file.0.lock().unwrap();
            durable.clone_from(now);
            Ok(())
        })
    }

    fn len(&self) -> BoxFuture<io::Result<u64>> {
        let len = self.file.0.lock().unwrap().now.len() as u64;
        Box::pin(async move { Ok(len) })
    }
}

impl World for Sim {
    fn open(&self, path: &Path, mode: Mode) -> BoxFuture<io::Result<Arc<dyn File>>> {
        let names = &mut self.names.lock().unwrap().0;
        if mode == Mode::Create || (mode == Mode::Log && !names.contains_key(path)) {
            names.insert(path.into(), Arc::default());
        }
        let full = mode == Mode::Create
            && self.writes_left.load(Ordering::Relaxed) > 0
            && self.writes_left.fetch_sub(1, Ordering::Relaxed) == 1;
        if full {
            self.writes_left.store(1, Ordering::Relaxed);
        }
        let file = names.get(path).cloned().map(|file| Arc::new(Handle { file, full }) as Arc<dyn File>);
        Box::pin(async move { file.ok_or(io::ErrorKind::NotFound.into()) })
    }

    fn list(&self, dir: &Path) -> BoxFuture<io::Result<Vec<String>>> {
        let names = self.names.lock().unwrap();
        let own = names.0.keys().filter(|path| path.parent() == Some(dir));
        let list = own.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        Box::pin(async move { Ok(list) })
    }

    fn create_dir_all(&self, _: &Path) -> BoxFuture<io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn remove(&self, path: &Path) -> BoxFuture<io::Result<()>> {
        let removed = self.names.lock().unwrap().0.remove(path);
        Box::pin(async move { removed.map(drop).ok_or(io::ErrorKind::NotFound.into()) })
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>> {
        let names = &mut self.names.lock().unwrap().0;
        let file = names.remove(from);
        file.clone().map(|file| names.insert(to.into(), file));
        Box::pin(async move { file.map(drop).ok_or(io::ErrorKind::NotFound.into()) })
    }

    fn sync_dir(&self, dir: &Path) -> BoxFuture<io::Result<()>> {
        let (now, durable) = &mut *self.names.lock().unwrap();
        durable.retain(|path, _| path.parent() != Some(dir));
        durable.extend(
            now.iter()
                .filter(|(path, _)| path.parent() == Some(dir))
                .map(|(path, f)| (path.clone(), f.clone())),
        );
        Box::pin(async { Ok(()) })
    }

    fn lock(&self, _: &Path) -> BoxFuture<io::Result<Box<dyn Debug>>> {
        Box::pin(async { Ok(Box::new(()) as Box<dyn Debug>) })
    }

    fn spawn(&self, _: Work, task: LocalBoxFuture<()>) {
        TASKS.with_borrow_mut(|tasks| tasks.push(task));
    }

    fn heavy(&self, _: Work, task: BoxFuture<Box<dyn Any + Send>>) -> LocalBoxFuture<Box<dyn Any + Send>> {
        task
    }

    fn heavy_yield(&self) -> BoxFuture<()> {
        Box::pin(turn())
    }

    fn sleep(&self, _: Duration) -> LocalBoxFuture<()> {
        Box::pin(turn())
    }

    fn now_s(&self) -> u32 {
        self.now_s.load(Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        Random(self.salt.fetch_add(1, Ordering::Relaxed)).next()
    }
}
