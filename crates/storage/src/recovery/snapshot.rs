//! Snapshots. A snapshot is a data folder of its own, with links to the table files, which never
//! change, and copies of the rest: the manifest, and the part of the log that is not flushed.
//!
//! 1. All memtables are flushed, so that little of the log must be copied.
//! 2. The cut of the shard is taken ([`Cut::take`]): the snapshot contains what is durable then.
//!    Until the log is copied, flushes wait before they edit the manifest, so that no log segment
//!    of the snapshot is reused.
//! 3. Table files are linked, and the new manifest is written last: the folder is not valid without
//!    it. Reads and writes continue.
//!
//! A snapshot of several shards is consistent if no acknowledgement is sent between the first cut
//! and the last (`Shard::hold_acks`). Writes acknowledged before are in every cut. Writes that a
//! client sends after an acknowledgement that was delayed are in no cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::env::{Env, Mode};
use crate::error::StorageError;
use crate::event::EventSink;
use crate::jobs::Jobs;
use crate::jobs::tasks::TaskKind;
use crate::log::replay::{Found, Replay};
use crate::log::segment::{SegmentHeader, encode_header};
use crate::manifest::layout::{self, Layout, enter, lock, make_shard};
use crate::manifest::{Manifest, TableVersion, versions};
use crate::model::TableId;
use crate::on_lanes::OnLanes;
use crate::options::Groups;
use crate::recovery::generations::check_generations;
use crate::recovery::new_stamp;
use crate::recovery::reshard::{copy, link_or_copy};
use crate::recovery::shard_files::read_manifest;
use crate::state::progress::WorkProgress;
use crate::table::file::{TableFile, table_name};
use crate::table::store::ManifestHold;

/// A log segment, and the header of its copy, which has the number of bytes to copy.
pub(crate) type Tail = (PathBuf, SegmentHeader);

/// The state of a shard for a snapshot. Until it is written or dropped, its table files are not
/// removed, and flushes wait.
#[derive(Debug)]
pub struct Cut {
    jobs: Rc<Jobs>,
    manifest: Manifest,
    /// The files of the manifest. Their references keep them on disk.
    files: Vec<Arc<TableFile>>,
    tail: Vec<Tail>,
    hold: ManifestHold,
}

impl Cut {
    /// See [`crate::Shard::cut`].
    pub(crate) async fn take(jobs: &Rc<Jobs>) -> Result<Cut, StorageError> {
        let Some(log) = &jobs.log else { return Err(StorageError::Closed) };
        let hold = jobs.store.hold().await;
        log.sync().await?;
        let mut manifest = jobs.store.manifest().clone();
        let (mut live, durable) = log.live(manifest.flushed);
        let tail = log.tail(manifest.flushed);
        // A segment that is being named is empty.
        live.truncate(tail.len());
        (manifest.log, manifest.durable) = (live, durable);
        let state = jobs.state.borrow();
        let files = state.tables.values().flat_map(|table| table.files.iter().cloned()).collect();
        Ok(Cut { jobs: jobs.clone(), manifest, files, tail, hold })
    }

    /// Restricts the snapshot to these tables.
    #[must_use]
    pub fn only(mut self, tables: &[TableId]) -> Cut {
        let last = self.jobs.log.as_ref().map_or(0, |log| log.last_record());
        // The copied log may have records of other tables. Ignore them.
        let there = self.jobs.state.borrow().tables.keys().copied().collect::<Vec<_>>();
        for table in there {
            self.manifest.tables.entry(table).or_default();
        }
        for (_, version) in self.manifest.tables.iter_mut().filter(|(table, _)| !tables.contains(table)) {
            *version = TableVersion { truncated: last, files: BTreeMap::new() };
        }
        self.manifest.tidy();
        let kept: FxHashSet<u64> = self.manifest.files().map(|(_, file)| file.id).collect();
        self.files.retain(|file| kept.contains(&file.id));
        self
    }

    /// Writes the shard's part of a snapshot to the folder `to`.
    ///
    /// # Errors
    /// A write failed; then the folder is not valid.
    pub async fn write(self, to: &Path) -> Result<(), StorageError> {
        let Cut { jobs, manifest, files, tail, hold } = self;
        let (env, dir) = (&*jobs.env, &jobs.store.dir);
        let own = to.join(dir.file_name().expect("a shard's folder has a name"));
        make_shard(env, &own).await?;
        copy_tail(env, &own, tail).await?;
        drop(hold);
        let progress = WorkProgress::default();
        let count = manifest.files().count() as u64;
        progress.add_total(count);
        let _task = jobs.tasks.begin(TaskKind::Snapshot, None, count, env.now_s(), progress.clone());
        link_files(env, dir, &own, &manifest, &progress).await?;
        drop(files);
        finish_shard(env, &own, &manifest).await?;
        let root = jobs.options.dir.as_ref().filter(|_| jobs.options.shard == 0);
        let Some(root) = root else { return Ok(()) };
        let gone = || StorageError::corrupt(root.join("shards"), "it is missing");
        Layout::read(env, root).await?.ok_or_else(gone)?.write(env, to, 0).await
    }
}

/// Writes a snapshot to `to` of a folder that no server has open. Runs on a fast lane of an
/// otherwise idle process.
///
/// # Errors
/// The folder is in use, damaged, or written by a newer version, or a write failed.
pub fn snapshot<'a>(
    root: &'a Path,
    to: &'a Path,
    groups: Groups,
) -> lanes::LocalBoxFuture<'a, Result<(), StorageError>> {
    Box::pin(async move { snapshot_in(&OnLanes::new(groups, EventSink::default()), root, to).await })
}

pub(crate) async fn snapshot_in(env: &dyn Env, root: &Path, to: &Path) -> Result<(), StorageError> {
    let (layout, held) = enter(env, root).await?;
    check_generations(env, root, &layout).await?;
    let mut locks = vec![held];
    for shard in 0..layout.sharding.shards {
        let dir = layout.shard_dir(root, shard);
        let copy = layout.shard_dir(to, shard);
        locks.push(lock(env, root, &dir).await?);
        let manifest = read_manifest(env, &dir, shard, layout.sharding.shards).await?;
        let mut replay = Replay::open(env, &dir.join("log"), shard, &manifest).await?;
        replay.finish().await?;
        let needed = replay.found.iter().filter(|found| found.last_record > manifest.flushed);
        let log = needed.clone().map(|found| found.header.segment).collect();
        let part = |found: &Found| SegmentHeader { bytes: found.bytes, ..found.header };
        let tail = needed.map(|found| (found.path.clone(), part(found))).collect();
        let manifest = Manifest { log, durable: replay.last, ..manifest };
        put_shard(env, &dir, &copy, &manifest, tail).await?;
    }
    layout.write(env, to, 0).await
}

async fn put_shard(
    env: &dyn Env,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    tail: Vec<Tail>,
) -> Result<(), StorageError> {
    make_shard(env, to).await?;
    copy_tail(env, to, tail).await?;
    link_files(env, from, to, manifest, &WorkProgress::default()).await?;
    finish_shard(env, to, manifest).await
}

async fn link_files(
    env: &dyn Env,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    progress: &WorkProgress,
) -> Result<(), StorageError> {
    for (_, file) in manifest.files() {
        let name = table_name(file.id);
        let to = to.join("tables").join(&name);
        let linked = link_or_copy(env, &from.join("tables").join(name), &to).await;
        linked.map_err(|error| StorageError::io("link the table file", to, error))?;
        progress.add_done(1);
    }
    Ok(())
}

async fn copy_tail(env: &dyn Env, to: &Path, tail: Vec<Tail>) -> Result<(), StorageError> {
    for (segment, header) in tail {
        let name = segment.file_name().expect("a segment has a name");
        let to = to.join("log").join(name);
        let copied = async {
            copy(env, &segment, &to, header.bytes).await?;
            // The header states the length of the copy.
            let file = env.open(&to, Mode::Update).await?;
            let header = SegmentHeader { bytes: file.len().await?, ..header };
            file.write(0, encode_header(&header).into()).await?;
            file.sync().await
        };
        let copied = copied.await;
        copied.map_err(|error| StorageError::io("copy the log segment", to, error))?;
    }
    Ok(())
}

/// The manifest is written last.
async fn finish_shard(env: &dyn Env, to: &Path, manifest: &Manifest) -> Result<(), StorageError> {
    for inner in ["tables", "log"] {
        layout::sync(env, &to.join(inner)).await?;
    }
    let stamp = if manifest.stamp == 0 { new_stamp(env) } else { manifest.stamp };
    versions::create(env, to, &Manifest { stamp, ..manifest.clone() }).await.map(drop)
}
