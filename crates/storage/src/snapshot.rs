//! Snapshots: a data folder of its own, made of second names for the table files, which never change, and of copies of what does: the
//! manifest, and the log above what it says is flushed.
//!
//! 1. Everything in memory is flushed, so that there is little of the log to copy.
//! 2. With the manifest held still: files are linked, the log is copied up to what is durable then. A flush that wants to
//!    edit the manifest waits; so no file named in it goes, and no log segment that is needed is used again.
//! 3. The new manifest is written last: without it the folder is nothing.
//!
//! Each shard is as it was at one moment, and all that was acknowledged before the snapshot was asked for is in it. The moments of two shards are not
//! the same.

use std::path::{Path, PathBuf};

use crate::error::StorageError;
use crate::event::Teller;
use crate::layout::{self, Layout, enter, lock, make_shard};
use crate::log::segment_path;
use crate::manifest::Manifest;
use crate::on_lanes::OnLanes;
use crate::options::Groups;
use crate::recover::read_manifest;
use crate::replay::read_segments;
use crate::reshard::{copy, link_or_copy};
use crate::shard::Shard;
use crate::upkeep::table_name;
use crate::versions::Versions;
use crate::world::World;

/// A log segment, and how many of its bytes are of interest.
pub(crate) type Tail = (PathBuf, u64);

impl Shard {
    /// Makes this shard's part of a snapshot in the folder `to`, which is on the same file system if it is to cost little. Writes and reads go
    /// on. Shard 0 makes what is common to all.
    ///
    /// # Errors
    /// The shard is closed or lives in memory, or something could not be written; then what was made is worth nothing.
    pub async fn snapshot(self: &std::rc::Rc<Self>, to: &Path) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Err(StorageError::Closed) };
        self.flush_all().await?;
        self.progress.wait(|| (!self.manifest_busy.replace(true)).then_some(())).await;
        let made = async {
            log.sync().await?;
            let manifest = self.manifest.borrow().clone();
            let tail = log.tail(manifest.flushed);
            let name = self.dir.file_name().expect("a shard's folder has a name");
            put_shard(&*self.world, &self.dir, &to.join(name), &manifest, tail).await
        };
        let made = made.await;
        self.manifest_busy.set(false);
        self.progress.wake();
        made?;
        let root = self.options.dir.as_ref().filter(|_| self.options.shard == 0);
        let Some(root) = root else { return Ok(()) };
        let gone = || StorageError::corrupt(root.join("shards"), "it is missing");
        Layout::read(&*self.world, root).await?.ok_or_else(gone)?.write(&*self.world, to, 0).await
    }
}

/// Makes a snapshot in `to` of a folder that no server has open. To be called on a fast lane, that of an otherwise idle process.
///
/// # Errors
/// The folder is in use, damaged, or written by a newer version; something could not be written.
pub async fn snapshot(root: &Path, to: &Path, groups: Groups) -> Result<(), StorageError> {
    snapshot_in(&OnLanes::new(groups, Teller::default()), root, to).await
}

pub(crate) async fn snapshot_in(world: &dyn World, root: &Path, to: &Path) -> Result<(), StorageError> {
    let (layout, held) = enter(world, root).await?;
    let mut locks = vec![held];
    for shard in 0..layout.sharding.shards {
        let (dir, copy) = (layout.shard_dir(root, shard), layout.shard_dir(to, shard));
        locks.push(lock(world, root, &dir).await?);
        let manifest = read_manifest(world, &dir, shard, layout.sharding.shards).await?;
        let segments = read_segments(world, &dir.join("log"), shard).await?;
        let needed = segments.into_iter().filter(|found| found.last_record() > manifest.flushed);
        let tail = needed.map(|found| (segment_path(&dir.join("log"), found.segment), found.bytes));
        put_shard(world, &dir, &copy, &manifest, tail.collect()).await?;
    }
    layout.write(world, to, 0).await
}

async fn put_shard(
    world: &dyn World,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    tail: Vec<Tail>,
) -> Result<(), StorageError> {
    make_shard(world, to).await?;
    for (_, file) in manifest.files() {
        let name = table_name(file.id);
        let to = to.join("tables").join(&name);
        let linked = link_or_copy(world, &from.join("tables").join(name), &to).await;
        linked.map_err(|error| StorageError::io("link the table file", to, error))?;
    }
    for (segment, bytes) in tail {
        let name = segment.file_name().expect("a segment has a name");
        let to = to.join("log").join(name);
        let copied = copy(world, &segment, &to, bytes).await;
        copied.map_err(|error| StorageError::io("copy the log segment", to, error))?;
    }
    for inner in ["tables", "log"] {
        layout::sync(world, &to.join(inner)).await?;
    }
    Versions::begin(world, to, manifest).await.map(drop)
}
