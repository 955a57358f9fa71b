//! Opening a shard: locks, the manifest, the table files it names, and the log records that are not
//! flushed. `layout.rs` describes the folder.
//!
//! 1. Take the locks. Shard 0 is opened first, and reshards the folder if its number of shards
//!    differs.
//! 2. Read the manifest. A folder without one must be empty.
//! 3. Remove table files that the manifest does not name, left by a crash. On a full disk this
//!    frees space for the rest.
//! 4. Open the table files that it names.
//! 5. Read the log segments that it names, one by one. Check that there is no gap between the first
//!    record that is not flushed and the last one that was durable (`replay.rs`).
//! 6. Create a new segment, and name it in the manifest (`shard/open.rs`).
//!
//! Steps 1 to 5 need no disk space, so a shard on a full disk can be read.
//!
//! The time of a start is that of opening the files, and of reading and applying the records that
//! are not flushed. Memory is that of their memtables and of one segment. The bound on the log
//! bounds both, for any load (`log/bound.rs`). After an orderly shutdown nothing is read or
//! applied. Recovered memtables beyond the first are flushed when the shard is open.

pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod reshard;
pub(crate) mod snapshot;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashSet;

use crate::env::{Env, File, Mode};
use crate::error::StorageError;
use crate::event::{Event, FlushReason, Recovery};
use crate::log::bound::{FREE_IDLE, LogBound};
use crate::log::replay::{Found, Replay};
use crate::log::segment::SegmentHeader;
use crate::log::{Recovered, Segment, segment_path};
use crate::manifest::edits::{self, End};
use crate::manifest::layout::{Layout, list, lock, make_shard, read_all};
use crate::manifest::versions::Versions;
use crate::manifest::{self, Manifest, Unusable};
use crate::options::Options;
use crate::recovery::damage::open_or_contain;
use crate::recovery::reshard::reshard;
use crate::state::{State, Table};
use crate::table::file::table_name;
use crate::table::runs::Files;
use crate::table::shared::folder_key;

/// The contents of a shard's folder.
pub(crate) struct Opened {
    pub(crate) dir: PathBuf,
    /// The locks of the folder.
    pub(crate) lock: Box<dyn Debug>,
    pub(crate) manifest: (Manifest, Option<Versions>),
    /// The folder was created.
    pub(crate) is_new: bool,
    pub(crate) state: State,
    pub(crate) log: Recovered,
    pub(crate) recovery: Recovery,
    /// The time when the files were opened.
    pub(crate) began_ns: u64,
}

/// Takes steps 1 to 5. `root` is the data folder.
pub(crate) async fn recover(env: &dyn Env, root: &Path, options: &Options) -> Result<Opened, StorageError> {
    let (dir, lock) = enter(env, root, options).await?;
    let (manifest, versions, is_new) = resume_manifest(env, &dir, options).await?;
    remove_leftovers(env, &dir, &manifest).await?;
    let mut state = State::new(options);
    let began_ns = env.now_ns();
    open_tables(env, &dir, folder_key(root), &manifest, &mut state).await?;
    let (log, recovery) = recover_log(env, &dir.join("log"), options, &manifest, &mut state).await?;
    state.counts.replayed = recovery.records;
    Ok(Opened { dir, lock, manifest: (manifest, versions), is_new, state, log, recovery, began_ns })
}

/// Reads the manifest of a shard; an empty one if the shard is new.
pub(crate) async fn read_manifest(
    env: &dyn Env,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Manifest, StorageError> {
    let read = read_manifest_file(env, dir, shard, shards).await?;
    Ok(read.map_or_else(|| Manifest::empty(shard, shards), |(manifest, ..)| manifest))
}

/// Reads the manifest and opens its file for more edits, if that is complete. Writes the first one
/// of a new shard.
async fn resume_manifest(
    env: &dyn Env,
    dir: &Path,
    options: &Options,
) -> Result<(Manifest, Option<Versions>, bool), StorageError> {
    match read_manifest_file(env, dir, options.shard, options.shards).await? {
        Some((manifest, data, Some(end))) => {
            Ok((manifest, Versions::resume(env, dir, data, end).await?, false))
        }
        // The next edit writes a new file, without the torn edit.
        Some((manifest, _, None)) => Ok((manifest, None, false)),
        None => {
            let manifest = Manifest::empty(options.shard, options.shards);
            let versions = Versions::begin(env, dir, &manifest).await?;
            Ok((manifest, Some(versions), true))
        }
    }
}

/// A manifest, its encoded file, and the position of the next edit.
type ManifestFile = (Manifest, Bytes, Option<End>);

/// Reads the manifest of a shard; `None` if the shard is new.
async fn read_manifest_file(
    env: &dyn Env,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Option<ManifestFile>, StorageError> {
    let path = dir.join("manifest");
    if !list(env, dir).await?.iter().any(|name| name == "manifest") {
        // The manifest is the first file written.
        let mut others = list(env, &dir.join("tables")).await?;
        others.append(&mut list(env, &dir.join("log")).await?);
        if !others.is_empty() {
            return Err(StorageError::corrupt(&path, "it is missing, although the folder holds data"));
        }
        return Ok(None);
    }
    let data = read_all(env, &path).await?;
    let (mut manifest, end) = edits::read(&data).map_err(|why| match why {
        Unusable::Damaged(what) => StorageError::corrupt(&path, what),
        Unusable::Version(found) => {
            StorageError::UnknownFormat { path: path.clone(), found, known: manifest::VERSION }
        }
    })?;
    if (manifest.shard, manifest.shards) != (shard, shards) {
        return Err(StorageError::corrupt(
            &path,
            format!("it belongs to shard {} of {}", manifest.shard, manifest.shards),
        ));
    }
    manifest.tidy();
    Ok(Some((manifest, data, end)))
}

/// Takes the locks, and creates the folder of the shard if necessary. Shard 0 also holds the lock
/// of the data folder.
async fn enter(
    env: &dyn Env,
    root: &Path,
    options: &Options,
) -> Result<(PathBuf, Box<dyn Debug>), StorageError> {
    let made = env.create_dir_all(root).await;
    made.map_err(|error| StorageError::io("create the data folder", root, error))?;
    let folder = if options.shard == 0 { Some(lock(env, root, root).await?) } else { None };
    let mut layout = match Layout::read(env, root).await? {
        Some(layout) => layout,
        None => {
            let layout = Layout::new(0, options.shards);
            layout.write(env, root, options.shard).await?;
            layout
        }
    };
    if layout.sharding.shards != options.shards {
        if options.shard != 0 {
            let (folder, asked) = (layout.sharding.shards, options.shards);
            return Err(StorageError::ShardCount { path: root.into(), folder, asked });
        }
        let from = layout.sharding.shards;
        layout = reshard(env, root, &layout, options.shards, options.segment_bytes).await?;
        options.event_sink.send(&Event::Resharded { from, to: options.shards });
    }
    if options.shard == 0 {
        layout.clear(env, root).await?;
    }
    let dir = layout.shard_dir(root, options.shard);
    make_shard(env, &dir).await?;
    let own = lock(env, root, &dir).await?;
    Ok((dir, Box::new((own, folder))))
}

/// Removes table files that the manifest does not name. On a full disk, one that cannot be removed
/// stays.
async fn remove_leftovers(env: &dyn Env, dir: &Path, manifest: &Manifest) -> Result<(), StorageError> {
    let dir = dir.join("tables");
    let named: FxHashSet<String> = manifest.files().map(|(_, file)| table_name(file.id)).collect();
    for name in list(env, &dir).await? {
        if name.ends_with(".table") && !named.contains(&name) {
            let path = dir.join(name);
            let removed = env.remove(&path).await;
            match removed.map_err(|error| StorageError::io("remove a leftover", &path, error)) {
                Err(error) if !error.is_full() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

async fn open_tables(
    env: &dyn Env,
    dir: &Path,
    folder: u64,
    manifest: &Manifest,
    state: &mut State,
) -> Result<(), StorageError> {
    let dir = dir.join("tables");
    for (id, version) in &manifest.tables {
        let mut files = Files::default();
        for file in version.files.values() {
            let path = dir.join(table_name(file.id));
            files.push(Arc::new(open_or_contain(env, &path, file, folder).await?));
        }
        if !files.is_empty() {
            state.tables.insert(*id, Table { files, ..Table::default() });
        }
    }
    Ok(())
}

async fn recover_log(
    env: &dyn Env,
    dir: &Path,
    options: &Options,
    manifest: &Manifest,
    state: &mut State,
) -> Result<(Recovered, Recovery), StorageError> {
    let bound = LogBound::new(options);
    let mut replay = Replay::open(env, dir, options.shard, manifest).await?;
    let (mut replayed, mut length, mut read) = (0, 0, 0);
    let full = |state: &State, length: u64| {
        (state.bytes as u64).max(bound.fill(length - state.log_from)) >= options.memtable_bytes_max as u64
    };
    while let Some((number, mutations)) = replay.next().await? {
        for found in &replay.found[read..] {
            length += found.bytes;
        }
        read = replay.found.len();
        let units = mutations.len() as u32;
        for mutation in mutations {
            let version = manifest.tables.get(&mutation.table);
            if version.is_none_or(|version| number > version.truncated) {
                let table = state.tables.entry(mutation.table).or_default();
                state.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
            }
        }
        replayed += 1;
        if state.bytes >= options.memtable_bytes_max {
            state.freeze(number, length, FlushReason::Recovery);
        }
        if let Some(yield_now) = env.spend(units) {
            yield_now.await;
        }
    }
    if full(state, length) {
        state.freeze(replay.last, length, FlushReason::Recovery);
    }
    if let Some((segment, torn)) = replay.torn_tail() {
        let (segment, offset, bytes) = (segment.to_owned(), torn.offset, torn.bytes);
        options.event_sink.send(&Event::TornTail { segment, offset, bytes });
    }
    let segments = replay.found.len() as u64;
    let files = manifest.files().count() as u64;
    let recovery = Recovery { files, segments, records: replayed, bytes: length, ..Recovery::default() };
    let Replay { all, found, last, .. } = replay;
    let mut recovered =
        Recovered { next_segment: all.last().map_or(1, |last| last + 1), last, ..Recovered::default() };
    recovered.bytes = length;
    let mut live = FxHashSet::default();
    // Segments that the manifest names are kept even if all their records are flushed. Otherwise
    // the next start would miss them, unless another edit was durable before.
    for found in found {
        live.insert(found.header.segment);
        let file = env.open(&found.path, Mode::Log).await;
        let file = file.map_err(|error| StorageError::io("open the log segment", &found.path, error))?;
        make_durable(&*file, &found).await?;
        let Found { path, bytes, header, last_record, .. } = found;
        recovered.sealed.push(Segment { file, path, header, bytes, last_record });
    }
    for segment in all.into_iter().filter(|segment| !live.contains(segment)) {
        let path = segment_path(dir, segment);
        recovered.free.extend(free_segment(env, path, segment, options, recovered.free.len()).await?);
    }
    Ok((recovered, recovery))
}

/// Makes a segment durable after reading it. The page cache may have data that no disk has, if the
/// server was killed, and clients see that data from now on. After a failed sync the page cache may
/// contain the last batch as clean, so it is written again.
async fn make_durable(file: &dyn File, found: &Found) -> Result<(), StorageError> {
    if let Some((at, batch)) = &found.last_batch {
        let written = file.write_durable(*at, batch).await;
        match written.map_err(|error| StorageError::io("write the commit log", &found.path, error)) {
            Err(error) if !error.is_full() => return Err(error),
            _ => {}
        }
    }
    let synced = file.sync().await;
    synced.map_err(|error| StorageError::io("sync the log segment", &found.path, error))
}

/// Returns a free segment for reuse, without reading it. Removes it and returns `None` if there are
/// enough.
async fn free_segment(
    env: &dyn Env,
    path: PathBuf,
    segment: u64,
    options: &Options,
    there: usize,
) -> Result<Option<Segment>, StorageError> {
    if there < FREE_IDLE
        && let Ok(file) = env.open(&path, Mode::Log).await
        && file.len().await.is_ok_and(|bytes| bytes == options.segment_bytes)
    {
        let header = SegmentHeader::new(options.shard, segment, 0, 0);
        return Ok(Some(Segment { file, path, header, bytes: options.segment_bytes, last_record: 0 }));
    }
    let removed = env.remove(&path).await;
    match removed.map_err(|error| StorageError::io("remove an old log segment", &path, error)) {
        Err(error) if !error.is_full() => Err(error),
        _ => Ok(None),
    }
}
