//! Opening a shard: locks, the manifest, the table files it names, and the log records that are not
//! flushed. `layout.rs` describes the folder.
//!
//! 1. Take the locks. Shard 0 is opened first, and reshards the folder if its number of shards
//!    differs.
//! 2. Read the manifest, and prove by the mark that it has not lost its end (`shard_files.rs`). A
//!    folder without one must be empty.
//! 3. Open the table files that it names.
//! 4. Read the log segments that it names, one by one. Check that there is no gap between the first
//!    record that is not flushed and the last one that was durable (`replay.rs`).
//! 5. Remove log segments and table files that nothing names, left by a crash, if they are proven
//!    to be superseded. Move others aside (`leftovers.rs`). Nothing is removed before all of the
//!    above is known to be intact. On a full disk this frees space for the rest. Then write the
//!    mark if a crash came between the first edit of the manifest and the mark.
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
pub(crate) mod generations;
pub(crate) mod leftovers;
pub(crate) mod reshard;
pub(crate) mod shard_files;
pub(crate) mod snapshot;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{Env, File, Mode};
use crate::error::StorageError;
use crate::event::{Event, FlushReason, Recovery};
use crate::log::bound::{FREE_IDLE, LogBound};
use crate::log::replay::{Found, Other, Replay};
use crate::log::segment::SegmentHeader;
use crate::log::{Recovered, Segment, segment_path};
use crate::manifest::Manifest;
use crate::manifest::edits::History;
use crate::manifest::layout::{Layout, lock, make_shard};
use crate::manifest::mark::{Facts, Mark, MarkRead, NEW_MARK_COUNT, mark_path};
use crate::manifest::versions::{self, Versions};
use crate::options::StorageOptions;
use crate::recovery::damage::open_or_contain;
use crate::recovery::generations::check_generations;
use crate::recovery::leftovers::{clear_leftovers, move_aside, table_leftovers};
use crate::recovery::reshard::reshard;
use crate::recovery::shard_files::{ShardFiles, read_shard};
use crate::state::{ShardState, ShardTable};
use crate::table::file::table_name;
use crate::table::runs::Files;
use crate::table::shared::folder_key;
use crate::table::store::OpenManifest;

/// The contents of a shard's folder.
pub(crate) struct Opened {
    pub(crate) dir: PathBuf,
    /// The locks of the folder.
    pub(crate) lock: Box<dyn Debug>,
    pub(crate) manifest: OpenManifest,
    /// The folder was created.
    pub(crate) is_new: bool,
    pub(crate) state: ShardState,
    pub(crate) log: Recovered,
    pub(crate) recovery: Recovery,
    /// The time when the files were opened.
    pub(crate) began_ns: u64,
}

/// Takes steps 1 to 5. `root` is the data folder.
pub(crate) async fn recover(
    env: &Arc<dyn Env>,
    root: &Path,
    options: &StorageOptions,
) -> Result<Opened, StorageError> {
    let (dir, lock) = enter(&**env, root, options).await?;
    let files = read_shard(&**env, &dir, options.shard, options.shards).await?;
    let is_new = files.is_none();
    let mut open = match &files {
        Some(files) => resume_manifest(env, &dir, files).await?,
        None => create_manifest(env, &dir, options).await?,
    };
    let mut state = ShardState::new(options);
    let began_ns = env.now_ns();
    open_tables(&**env, &dir, folder_key(root), &open.manifest, &mut state).await?;
    identify(&mut open.manifest, &state);
    let (log, recovery) = recover_log(&**env, &dir.join("log"), options, &open.manifest, &mut state).await?;
    if let Some(files) = &files {
        let above = clear(&**env, &dir, files, options).await?;
        open.manifest.next_file = open.manifest.next_file.max(above);
        if let (Some(versions), Some(mark), true) = (&open.versions, &open.mark, files.awaits_mark()) {
            write_first_mark(mark, open.manifest.stamp, versions).await?;
        }
    }
    state.counts.replayed = recovery.records;
    Ok(Opened { dir, lock, manifest: open, is_new, state, log, recovery, began_ns })
}

/// Returns a stamp for a shard's files.
pub(crate) fn new_stamp(env: &dyn Env) -> u64 {
    env.random().max(1)
}

/// Writes the manifest and the mark of a new shard.
async fn create_manifest(
    env: &Arc<dyn Env>,
    dir: &Path,
    options: &StorageOptions,
) -> Result<OpenManifest, StorageError> {
    let stamp = new_stamp(&**env);
    let manifest = Manifest { stamp, ..Manifest::empty(options.shard, options.shards) };
    let (versions, facts) = versions::create(&**env, dir, &manifest).await?;
    let mark = Mark::new(env.clone(), dir.to_owned(), Some(NEW_MARK_COUNT), facts);
    let last_edit = versions.last;
    Ok(OpenManifest { manifest, versions: Some(versions), mark: Some(mark), last_edit })
}

/// Opens the file of the manifest for more edits, if it is complete. Otherwise the next edit writes
/// a new file, without the torn edit.
async fn resume_manifest(
    env: &Arc<dyn Env>,
    dir: &Path,
    files: &ShardFiles,
) -> Result<OpenManifest, StorageError> {
    let History { manifest, end, .. } = &files.history;
    let mut manifest = manifest.clone();
    if manifest.stamp == 0 {
        manifest.stamp = new_stamp(&**env);
    }
    let versions = match end {
        Some(end) => Versions::resume(&**env, dir, files.data.clone(), *end).await?,
        None => None,
    };
    let (last, chain) = files.history.last().unwrap_or((0, 0));
    let Manifest { shard, stamp, .. } = manifest;
    let known = files.known_facts();
    let durable = known.map_or(0, |facts| facts.durable);
    let facts = known.unwrap_or(Facts { shard, stamp, edit: last, chain, durable });
    let mark = Mark::new(env.clone(), dir.to_owned(), files.mark_count(), facts);
    Ok(OpenManifest { manifest, versions, mark: Some(mark), last_edit: last })
}

/// Writes the mark of a shard that crashed before it had one. Otherwise a crash between the next
/// edit and the mark would look like the loss of the mark. Does nothing on a full disk.
async fn write_first_mark(mark: &Mark, stamp: u64, versions: &Versions) -> Result<(), StorageError> {
    match mark.state_edit(stamp, versions.last, versions.chain).await {
        Err(error) if !error.is_full() => Err(error),
        _ => Ok(()),
    }
}

/// Removes or moves aside table files that nothing names, and a mark that is not valid. Returns a
/// number above those of all table files that stay.
async fn clear(
    env: &dyn Env,
    dir: &Path,
    files: &ShardFiles,
    options: &StorageOptions,
) -> Result<u64, StorageError> {
    let sink = &options.event_sink;
    let leftovers = table_leftovers(env, dir, files).await?;
    let above = clear_leftovers(env, leftovers, sink).await?;
    if let Some(error) = &files.mark_damage {
        sink.send(&Event::MarkLost { error: error.clone() });
        if !matches!(files.mark, MarkRead::Missing) {
            let because = "it is no valid mark of this shard".to_owned();
            match move_aside(env, &mark_path(dir), because, sink).await {
                Err(error) if !error.is_full() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(above)
}

/// Takes the locks, and creates the folder of the shard if necessary. Shard 0 also holds the lock
/// of the data folder.
async fn enter(
    env: &dyn Env,
    root: &Path,
    options: &StorageOptions,
) -> Result<(PathBuf, Box<dyn Debug>), StorageError> {
    let made = env.create_dir_all(root).await;
    made.map_err(|error| StorageError::io("create the data folder", root, error))?;
    let folder = if options.shard == 0 { Some(lock(env, root, root).await?) } else { None };
    let mut layout = match Layout::read(env, root).await? {
        Some(layout) => {
            if options.shard == 0 {
                check_generations(env, root, &layout).await?;
            }
            layout
        }
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
        layout = reshard(env, root, &layout, options).await?;
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

async fn open_tables(
    env: &dyn Env,
    dir: &Path,
    folder: u64,
    manifest: &Manifest,
    state: &mut ShardState,
) -> Result<(), StorageError> {
    let dir = dir.join("tables");
    for (id, version) in &manifest.tables {
        let mut files = Files::default();
        for file in version.files.values() {
            let path = dir.join(table_name(file.id));
            files.push(Arc::new(open_or_contain(env, &path, file, folder).await?));
        }
        if !files.is_empty() {
            state.tables.insert(*id, ShardTable { files, ..ShardTable::default() });
        }
    }
    Ok(())
}

/// Adds the identities of table files that an earlier version named. The next manifest that is
/// written anew has them.
fn identify(manifest: &mut Manifest, state: &ShardState) {
    for (id, table) in &state.tables {
        let Some(version) = manifest.tables.get_mut(id) else { continue };
        for file in table.files.iter() {
            let entry = version.files.get_mut(&file.id).filter(|entry| entry.identity.is_none());
            entry.into_iter().for_each(|entry| entry.identity = file.identity());
        }
    }
}

async fn recover_log(
    env: &dyn Env,
    dir: &Path,
    options: &StorageOptions,
    manifest: &Manifest,
    state: &mut ShardState,
) -> Result<(Recovered, Recovery), StorageError> {
    let mut replay = Replay::open(env, dir, options.shard, manifest).await?;
    let recovery = replay_records(env, &mut replay, options, manifest, state).await?;
    if let Some((segment, torn)) = replay.torn_tail() {
        let torn = Event::TornTail { segment: segment.to_owned(), offset: torn.offset, bytes: torn.bytes };
        options.event_sink.send(&torn);
    }
    let Replay { all, found, others, last, .. } = replay;
    let mut recovered =
        Recovered { next_segment: all.last().map_or(1, |last| last + 1), last, ..Recovered::default() };
    recovered.bytes = recovery.bytes;
    // Segments that the manifest names are kept even if all their records are flushed. Otherwise
    // the next start would miss them, unless another edit was durable before.
    for found in found {
        let file = env.open(&found.path, Mode::Log).await;
        let file = file.map_err(|error| StorageError::io("open the log segment", &found.path, error))?;
        make_durable(&*file, &found).await?;
        let Found { path, bytes, header, last_record, .. } = found;
        recovered.sealed.push(Segment { file, path, header, bytes, last_record });
    }
    for (segment, other) in others {
        let path = segment_path(dir, segment);
        if let Other::Unknown(because) = other {
            match move_aside(env, &path, because, &options.event_sink).await {
                Err(error) if !error.is_full() => return Err(error),
                _ => continue,
            }
        }
        recovered.free.extend(free_segment(env, path, segment, options, recovered.free.len()).await?);
    }
    Ok((recovered, recovery))
}

/// Applies the records that are not flushed to memtables. Freezes full ones.
async fn replay_records(
    env: &dyn Env,
    replay: &mut Replay<'_>,
    options: &StorageOptions,
    manifest: &Manifest,
    state: &mut ShardState,
) -> Result<Recovery, StorageError> {
    let mut records = 0;
    let mut bytes = 0;
    let mut read = 0;
    while let Some((number, mutations)) = replay.next().await? {
        bytes += replay.found[read..].iter().map(|found| found.bytes).sum::<u64>();
        read = replay.found.len();
        let units = mutations.len() as u32;
        for mutation in mutations {
            let version = manifest.tables.get(&mutation.table);
            if version.is_none_or(|version| number > version.truncated) {
                let table = state.tables.entry(mutation.table).or_default();
                state.memory.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
            }
        }
        records += 1;
        if state.memory.bytes >= options.memtable_bytes_max {
            state.freeze(number, bytes, FlushReason::Recovery);
        }
        if let Some(yield_now) = env.spend(units) {
            yield_now.await;
        }
    }
    let log_fill = LogBound::new(options).fill(bytes - state.memory.log_from);
    if (state.memory.bytes as u64).max(log_fill) >= options.memtable_bytes_max as u64 {
        state.freeze(replay.last, bytes, FlushReason::Recovery);
    }
    let segments = replay.found.len() as u64;
    let files = manifest.files().count() as u64;
    Ok(Recovery { files, segments, records, bytes, ..Recovery::default() })
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

/// Returns a free segment for reuse. Removes it and returns `None` if there are
/// enough.
async fn free_segment(
    env: &dyn Env,
    path: PathBuf,
    segment: u64,
    options: &StorageOptions,
    there: usize,
) -> Result<Option<Segment>, StorageError> {
    if there < FREE_IDLE
        && let Ok(file) = env.open(&path, Mode::Log).await
        && file.len().await.is_ok_and(|bytes| bytes == options.segment_bytes)
    {
        let bytes = options.segment_bytes;
        let header = SegmentHeader { shard: options.shard, segment, salt: 0, durable: 0, bytes };
        return Ok(Some(Segment { file, path, header, bytes, last_record: 0 }));
    }
    let removed = env.remove(&path).await;
    match removed.map_err(|error| StorageError::io("remove an old log segment", &path, error)) {
        Err(error) if !error.is_full() => Err(error),
        _ => Ok(None),
    }
}
