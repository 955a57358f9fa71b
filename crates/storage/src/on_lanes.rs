//! Implementation of [`Env`] on `lanes`.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use lanes::Group;
use lanes::disk::{self, AlignedBuf, OpenOptions};
use sched::control::Division;

use crate::env::{BoxFuture, Env, File, LocalBoxFuture, Mode, UsedTime, Work};
use crate::event::{Event, EventSink};
use crate::jobs::shares;
use crate::options::Groups;
use crate::table::shared::SharedFiles;

/// Runs a background task and reports a panic. Without the report the shard would stay half alive,
/// and its writers would wait forever.
async fn watched(event_sink: EventSink, work: Work, task: LocalBoxFuture<()>) {
    if lanes::catch_panic(task).await.is_err() {
        let task = match work {
            Work::Log => "log",
            Work::Flush => "flush",
            Work::Compaction | Work::Requested(_) => "compaction",
            Work::Control => "pacing",
        };
        event_sink.send(&Event::Panicked { task });
    }
}

/// The lanes of the current core, with the groups to charge.
#[derive(Clone, Debug)]
pub(crate) struct OnLanes {
    groups: Groups,
    event_sink: EventSink,
}

impl OnLanes {
    /// Charges work to `groups`. Reports a background task that panics to `event_sink`.
    pub(crate) fn new(groups: Groups, event_sink: EventSink) -> OnLanes {
        OnLanes { groups, event_sink }
    }

    fn group(&self, work: Work) -> lanes::Group {
        match work {
            Work::Log => self.groups.log,
            Work::Flush => self.groups.flush,
            Work::Compaction => self.groups.compaction,
            Work::Requested(group) => group,
            Work::Control => Group::CONTROL,
        }
    }
}

struct LanesFile {
    file: disk::File,
    /// Opened without O_DSYNC: each durable write is followed by a sync.
    sync_each: bool,
}

impl Debug for LanesFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LanesFile")
    }
}

impl File for LanesFile {
    fn read(&self, offset: u64, len: usize) -> BoxFuture<io::Result<Bytes>> {
        let file = self.file.clone();
        Box::pin(async move { file.read_at(offset, len).await })
    }

    fn write(&self, offset: u64, data: Bytes) -> BoxFuture<io::Result<()>> {
        let file = self.file.clone();
        Box::pin(async move { file.write_at(offset, data).await })
    }

    fn write_durable(&self, offset: u64, blocks: &[u8]) -> BoxFuture<io::Result<()>> {
        let (file, sync_each) = (self.file.clone(), self.sync_each);
        let buffer = AlignedBuf::copy_of(blocks);
        Box::pin(async move {
            file.write_aligned(offset, buffer).await?;
            if sync_each { file.sync_data().await } else { Ok(()) }
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

impl Env for OnLanes {
    fn open(&self, path: &Path, mode: Mode) -> BoxFuture<io::Result<Arc<dyn File>>> {
        let path = path.to_owned();
        Box::pin(async move {
            let plain = OpenOptions::default();
            let options = match mode {
                Mode::Read => plain,
                Mode::Create => OpenOptions { write: true, create: true, truncate: true, ..plain },
                Mode::Update => OpenOptions { write: true, ..plain },
                Mode::ReadTable => OpenOptions { direct: true, ..plain },
                Mode::CreateTable => {
                    OpenOptions { write: true, create: true, truncate: true, direct: true, ..plain }
                }
                Mode::Log => OpenOptions { write: true, create: true, direct: true, dsync: true, ..plain },
            };
            let (file, sync_each) = match disk::open(&path, options).await {
                Err(error) if mode == Mode::Log && error.kind() == io::ErrorKind::InvalidInput => {
                    // The file system does not support direct or synchronous writes: write, then
                    // sync.
                    (disk::open(&path, OpenOptions { write: true, create: true, ..plain }).await?, true)
                }
                opened => (opened?, false),
            };
            Ok(Arc::new(LanesFile { file, sync_each }) as Arc<dyn File>)
        })
    }

    fn list(&self, dir: &Path) -> BoxFuture<io::Result<Vec<String>>> {
        let dir = dir.to_owned();
        Box::pin(async move { disk::list_dir(&dir).await })
    }

    fn create_dir_all(&self, dir: &Path) -> BoxFuture<io::Result<()>> {
        let dir = dir.to_owned();
        Box::pin(async move { disk::create_dir_all(&dir).await })
    }

    fn remove(&self, path: &Path) -> BoxFuture<io::Result<()>> {
        let path = path.to_owned();
        Box::pin(async move { disk::remove_file(&path).await })
    }

    fn rename(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::pin(async move { disk::rename(&from, &to).await })
    }

    fn link(&self, from: &Path, to: &Path) -> BoxFuture<io::Result<()>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::pin(async move { disk::hard_link(&from, &to).await })
    }

    fn remove_dir(&self, path: &Path) -> BoxFuture<io::Result<()>> {
        let path = path.to_owned();
        Box::pin(async move { disk::remove_dir(&path).await })
    }

    fn sync_dir(&self, dir: &Path) -> BoxFuture<io::Result<()>> {
        let dir = dir.to_owned();
        Box::pin(async move { disk::sync_dir(&dir).await })
    }

    fn lock(&self, path: &Path) -> BoxFuture<io::Result<Box<dyn Debug>>> {
        struct Lock {
            _file: disk::File,
        }
        impl Debug for Lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("Lock")
            }
        }
        let path = path.to_owned();
        Box::pin(async move { Ok(Box::new(Lock { _file: disk::lock_file(&path).await? }) as Box<dyn Debug>) })
    }

    fn spawn(&self, work: Work, task: LocalBoxFuture<()>) {
        let event_sink = self.event_sink.clone();
        lanes::spawn(self.group(work), watched(event_sink, work, task)).detach();
    }

    fn heavy(&self, work: Work, task: BoxFuture<Box<dyn Any + Send>>) -> LocalBoxFuture<Box<dyn Any + Send>> {
        Box::pin(match work {
            Work::Compaction | Work::Requested(_) => lanes::heavy(self.group(work), task),
            // Urgent: writers wait for a flush as soon as memory is short.
            Work::Log | Work::Flush | Work::Control => lanes::heavy_urgent(self.group(work), task),
        })
    }

    fn heavy_yield(&self) -> BoxFuture<()> {
        Box::pin(async { lanes::heavy_yield().await })
    }

    fn spend(&self, units: u32) -> Option<BoxFuture<()>> {
        lanes::spend(units).then(|| Box::pin(lanes::yield_now()) as BoxFuture<()>)
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<()> {
        Box::pin(lanes::time::sleep(duration))
    }

    fn heavy_sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(lanes::time::sleep(duration))
    }

    fn now_ns(&self) -> u64 {
        lanes::time::monotonic_ns()
    }

    fn used_time(&self, work: Work) -> UsedTime {
        let usage = lanes::handle().core_usage(lanes::current_core(), self.group(work));
        // Each core has an equal share of the disk.
        let disk_ns = usage.disk_ns * lanes::cores() as u64;
        UsedTime { cpu_ns: usage.cpu_fast_ns + usage.cpu_heavy_ns, disk_ns }
    }

    fn group(&self) -> lanes::Group {
        lanes::current_group()
    }

    fn shares(&self) -> u32 {
        lanes::current_shares()
    }

    fn set_shares(&self, division: Division) {
        shares::set(&lanes::handle(), lanes::current_core(), self.groups, division);
    }

    fn shared_files(&self) -> &SharedFiles {
        static OF_THE_PROCESS: OnceLock<SharedFiles> = OnceLock::new();
        OF_THE_PROCESS.get_or_init(SharedFiles::default)
    }

    fn open_files_max(&self) -> u64 {
        disk::open_files_max()
    }

    fn now_s(&self) -> u32 {
        u32::try_from(lanes::time::unix_micros() / 1_000_000).unwrap_or(u32::MAX)
    }

    fn random(&self) -> u64 {
        lanes::random::u64()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn background_task_that_panics_is_reported() {
        let lanes = testkit::start_lanes(1);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let (taken, waited) = (reported.clone(), reported.clone());
        let event_sink =
            EventSink::new(move |event| taken.lock().expect("no panic holds it").push(event.to_string()));
        lanes.block_on(0, Group::CONTROL, move || async move {
            let disk = OnLanes::new(crate::StorageOptions::in_memory().groups, event_sink);
            disk.spawn(Work::Flush, Box::pin(async {}));
            disk.spawn(Work::Log, Box::pin(async { panic!("this panic is part of the test") }));
            // The task runs when its group gets its slice.
            for _ in 0..10_000 {
                if !waited.lock().expect("no panic holds it").is_empty() {
                    break;
                }
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        });
        lanes.shutdown();
        let reported = reported.lock().expect("no panic holds it");
        assert_eq!(*reported, ["background task failed: log; the server stops, as its work stays half done"]);
    }
}
