//! Opening a shard: locks, the manifest, the files it names, and the log records that were not flushed. What is where in the
//! folder is said in layout.rs.
//!
//! 1. Take the locks; shard 0, which is opened first, splits the folder anew if it was written with another number of shards.
//! 2. Read the manifest; a folder without one must be empty.
//! 3. Remove the table files that it does not name, which a crash left behind: on a full disk that makes room for the rest.
//! 4. Open the files it names.
//! 5. Read the log segments it names, one after the other, and check that from the first record not flushed to the last
//!    one that was durable there is no gap (replay.rs).
//! 6. Begin a new segment, and name it in the manifest.
//!
//! Nothing up to step 5 needs space on the disk, so a full one can be read.
//!
//! A start takes the time to open the files, and to read and apply what was written since the last flush; memory is that
//! of the memtables it was in, and of one segment. Both are bounded by the log (log_bound.rs), whatever the load was. After
//! an orderly stop nothing is read or applied. What is recovered beyond a memtable is flushed as soon as the shard is open.

pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod import;
pub(crate) mod reshard;
pub(crate) mod snapshot;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashSet;

use crate::background::pacing::Pacing;
use crate::background::reports::{Recovery, Reports};
use crate::background::{counts, table_name};
use crate::compaction::tasks::Tasks;
use crate::error::StorageError;
use crate::event::{Event, FlushReason};
use crate::log::bound::{FREE_IDLE, LogBound};
use crate::log::replay::{Found, Replay};
use crate::log::reserve::Reserve;
use crate::log::segment::{BLOCK, SegmentHeader};
use crate::log::{Log, Recovered, Register, Segment, segment_path};
use crate::manifest::edits::{self, End};
use crate::manifest::layout::{Layout, list, lock, make_shard, read_all};
use crate::manifest::versions::Versions;
use crate::manifest::{self, Edit, Manifest, Unusable};
use crate::on_lanes::OnLanes;
use crate::options::Options;
use crate::recovery::damage::open_or_contain;
use crate::recovery::reshard::reshard;
use crate::shard::{Shard, State, Table};
use crate::signal::Signal;
use crate::table::cache::Cache;
use crate::table::runs::Files;
use crate::table::scan_cache::ScanCache;
use crate::table::shared::folder_key;
use crate::world::{File, Mode, World};

impl Shard {
    /// Opens a shard, recovering what its folder holds. Shard 0 is to be opened first: it takes the folder's lock, and if the folder was
    /// written with another number of shards, it splits the data anew.
    ///
    /// # Errors
    /// The folder is in use, was written by a newer version, is damaged, or cannot be read or written; it was written with
    /// another number of shards, and this is not shard 0.
    pub async fn open(options: Options) -> Result<Rc<Shard>, StorageError> {
        let world = Arc::new(OnLanes::new(options.groups, options.teller.clone()));
        Shard::open_in(options, world).await
    }

    pub(crate) async fn open_in(options: Options, world: Arc<dyn World>) -> Result<Rc<Shard>, StorageError> {
        assert!(options.shard < options.shards, "a shard's number is below their count");
        assert!(
            options.segment_bytes.is_multiple_of(BLOCK as u64) && options.segment_bytes >= 4 * BLOCK as u64
        );
        let Some(root) = options.dir.clone() else {
            return Ok(Rc::new(build(
                options,
                world,
                PathBuf::new(),
                Default::default(),
                State::default(),
                None,
                None,
            )));
        };
        let (dir, lock) = enter(&*world, &root, &options).await?;
        let (manifest, versions) = resume_manifest(&*world, &dir, &options).await?;
        remove_leftovers(&*world, &dir, &manifest).await?;
        let mut state = State { counts: counts(0), ..State::default() };
        let began_ns = world.now_ns();
        open_tables(&*world, &dir, folder_key(&root), &manifest, &mut state).await?;
        let (recovered, mut recovery) =
            recover_log(&*world, &dir.join("log"), &options, &manifest, &mut state).await?;
        state.counts = counts(recovery.records);
        let is_new = recovered.last == 0;
        let reserve = Rc::new(Reserve::new(world.clone(), &dir, options.reserve_bytes));
        let shard = Rc::new_cyclic(|shard: &Weak<Shard>| {
            let log = Log::start(
                world.clone(),
                dir.join("log"),
                &options,
                recovered,
                (register(shard.clone()), reserve.clone()),
            );
            build(options, world, dir, (manifest, versions), state, Some((log, reserve)), Some(lock))
        });
        let log = shard.log.as_ref().expect("made above");
        match log.make_ready().await {
            // A shard that holds nothing has nothing to read either; any other may be read until there is space again.
            Err(error) if is_new || !error.is_full() => {
                log.fail(Arc::new(error.clone()));
                return Err(error);
            }
            _ => {}
        }
        log.release(&shard.manifest.borrow().log);
        log.trim(Some(FREE_IDLE)).await;
        shard.reserve.make().await;
        shard.report_damaged();
        shard.weigh_runs();
        shard.start_upkeep();
        recovery.duration = Duration::from_nanos(shard.world.now_ns().saturating_sub(began_ns));
        shard.reports.recovered(&shard.options, recovery);
        Ok(shard)
    }
}

/// Names a segment in the manifest before it is used.
fn register(shard: Weak<Shard>) -> Register {
    Box::new(move |segment| {
        let shard = shard.clone();
        Box::pin(async move {
            let shard = shard.upgrade().ok_or(StorageError::Closed)?;
            let name = |shard: &Shard, edit: &mut Edit| {
                let log = shard.log.as_ref().expect("it has a log");
                let (mut live, durable) = log.live(shard.manifest.borrow().flushed);
                if !live.contains(&segment) {
                    live.push(segment);
                }
                edit.log((live, durable));
            };
            shard.edit(name).await
        })
    })
}

fn build(
    options: Options,
    world: Arc<dyn World>,
    dir: PathBuf,
    (manifest, versions): (Manifest, Option<Versions>),
    state: State,
    log: Option<(Rc<Log>, Rc<Reserve>)>,
    lock: Option<Box<dyn Debug>>,
) -> Shard {
    let (log, reserve) = log.unzip();
    let reserve = reserve.unwrap_or_else(|| Rc::new(Reserve::new(world.clone(), &dir, 0)));
    let scan_cache = Arc::new(ScanCache::new(options.cache_bytes));
    Shard {
        world,
        dir,
        state: RefCell::new(state),
        cache: RefCell::new(Cache::new(options.cache_bytes, scan_cache.clone())),
        scan_cache,
        log,
        manifest: RefCell::new(manifest),
        manifest_busy: Cell::new(false),
        acks_held: Cell::new(false),
        acks_free: Signal::default(),
        versions: RefCell::new(versions),
        work: Signal::default(),
        progress: Signal::default(),
        lock: RefCell::new(lock),
        pacing: Pacing::default(),
        log_bound: LogBound::new(&options),
        reserve,
        tasks: Rc::new(Tasks::new(options.shards)),
        reports: Reports::default(),
        options,
    }
}

/// The manifest of a shard, or a new shard's.
pub(crate) async fn read_manifest(
    world: &dyn World,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Manifest, StorageError> {
    let read = read_manifest_file(world, dir, shard, shards).await?;
    Ok(read.map_or_else(|| Manifest::empty(shard, shards), |(manifest, ..)| manifest))
}

/// The manifest with its file to go on with, if that is whole. A new shard's is written.
async fn resume_manifest(
    world: &dyn World,
    dir: &Path,
    options: &Options,
) -> Result<(Manifest, Option<Versions>), StorageError> {
    match read_manifest_file(world, dir, options.shard, options.shards).await? {
        Some((manifest, data, Some(end))) => Ok((manifest, Versions::resume(world, dir, data, end).await?)),
        // The next edit begins a new file, without the torn edit.
        Some((manifest, _, None)) => Ok((manifest, None)),
        None => {
            let manifest = Manifest::empty(options.shard, options.shards);
            let versions = Versions::begin(world, dir, &manifest).await?;
            Ok((manifest, Some(versions)))
        }
    }
}

/// The manifest, the bytes of its file, and the place for the next edit.
type ManifestFile = (Manifest, Bytes, Option<End>);

/// Reads a shard's manifest; `None` when there is none, and nothing else either.
async fn read_manifest_file(
    world: &dyn World,
    dir: &Path,
    shard: u32,
    shards: u32,
) -> Result<Option<ManifestFile>, StorageError> {
    let path = dir.join("manifest");
    if !list(world, dir).await?.iter().any(|name| name == "manifest") {
        // The manifest comes before anything else is written.
        let mut others = list(world, &dir.join("tables")).await?;
        others.append(&mut list(world, &dir.join("log")).await?);
        if !others.is_empty() {
            return Err(StorageError::corrupt(&path, "it is missing, although the folder holds data"));
        }
        return Ok(None);
    }
    let data = read_all(world, &path).await?;
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

/// Takes the locks and finds the shard's folder; it is there then. Shard 0 holds the lock of the whole folder too.
async fn enter(
    world: &dyn World,
    root: &Path,
    options: &Options,
) -> Result<(PathBuf, Box<dyn Debug>), StorageError> {
    let made = world.create_dir_all(root).await;
    made.map_err(|error| StorageError::io("create the data folder", root, error))?;
    let folder = if options.shard == 0 { Some(lock(world, root, root).await?) } else { None };
    let mut layout = match Layout::read(world, root).await? {
        Some(layout) => layout,
        None => {
            let layout = Layout::new(0, options.shards);
            layout.write(world, root, options.shard).await?;
            layout
        }
    };
    if layout.sharding.shards != options.shards {
        if options.shard != 0 {
            let (folder, asked) = (layout.sharding.shards, options.shards);
            return Err(StorageError::ShardCount { path: root.into(), folder, asked });
        }
        let from = layout.sharding.shards;
        layout = reshard(world, root, &layout, options.shards, options.segment_bytes).await?;
        options.teller.tell(&Event::Resharded { from, to: options.shards });
    }
    if options.shard == 0 {
        layout.clear(world, root).await?;
    }
    let dir = layout.shard_dir(root, options.shard);
    make_shard(world, &dir).await?;
    let own = lock(world, root, &dir).await?;
    Ok((dir, Box::new((own, folder))))
}

/// Removes table files that the manifest does not name. One that cannot be removed for want of space stays.
async fn remove_leftovers(world: &dyn World, dir: &Path, manifest: &Manifest) -> Result<(), StorageError> {
    let dir = dir.join("tables");
    let named: FxHashSet<String> = manifest.files().map(|(_, file)| table_name(file.id)).collect();
    for name in list(world, &dir).await? {
        if name.ends_with(".table") && !named.contains(&name) {
            let path = dir.join(name);
            let removed = world.remove(&path).await;
            match removed.map_err(|error| StorageError::io("remove a leftover", &path, error)) {
                Err(error) if !error.is_full() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

async fn open_tables(
    world: &dyn World,
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
            files.push(Arc::new(open_or_contain(world, &path, file, folder).await?));
        }
        if !files.is_empty() {
            state.tables.insert(*id, Table { files, ..Table::default() });
        }
    }
    Ok(())
}

async fn recover_log(
    world: &dyn World,
    dir: &Path,
    options: &Options,
    manifest: &Manifest,
    state: &mut State,
) -> Result<(Recovered, Recovery), StorageError> {
    let bound = LogBound::new(options);
    let mut replay = Replay::open(world, dir, options.shard, manifest).await?;
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
        if let Some(pause) = world.spend(units) {
            pause.await;
        }
    }
    if full(state, length) {
        state.freeze(replay.last, length, FlushReason::Recovery);
    }
    if let Some((segment, torn)) = replay.torn_tail() {
        let (segment, offset, bytes) = (segment.to_owned(), torn.offset, torn.bytes);
        options.teller.tell(&Event::TornTail { segment, offset, bytes });
    }
    let segments = replay.found.len() as u64;
    let files = manifest.files().count() as u64;
    let recovery = Recovery { files, segments, records: replayed, bytes: length, ..Recovery::default() };
    let Replay { all, found, last, .. } = replay;
    let mut recovered =
        Recovered { next_segment: all.last().map_or(1, |last| last + 1), last, ..Recovered::default() };
    recovered.bytes = length;
    let mut live = FxHashSet::default();
    // Those that the manifest names are kept also where nothing of them is needed: the next start misses them until
    // another edit of the manifest is durable.
    for found in found {
        live.insert(found.header.segment);
        let file = world.open(&found.path, Mode::Log).await;
        let file = file.map_err(|error| StorageError::io("open the log segment", &found.path, error))?;
        settle(&*file, &found).await?;
        let Found { path, bytes, header, last_record, .. } = found;
        recovered.sealed.push(Segment { file, path, header, bytes, last_record });
    }
    for segment in all.into_iter().filter(|segment| !live.contains(segment)) {
        let path = segment_path(dir, segment);
        recovered.free.extend(free_segment(world, path, segment, options, recovered.free.len()).await?);
    }
    Ok((recovered, recovery))
}

/// Makes durable what was read. A server that was killed may have left here what no disk has yet; from now on it is seen,
/// and others build on it. After a sync that failed the page cache may have the last batch and call it clean, so that one
/// is written once more.
async fn settle(file: &dyn File, found: &Found) -> Result<(), StorageError> {
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

/// A segment that holds nothing, to be used again; it is not read. `None` where it is removed, as there are enough.
async fn free_segment(
    world: &dyn World,
    path: PathBuf,
    segment: u64,
    options: &Options,
    there: usize,
) -> Result<Option<Segment>, StorageError> {
    if there < FREE_IDLE
        && let Ok(file) = world.open(&path, Mode::Log).await
        && file.len().await.is_ok_and(|bytes| bytes == options.segment_bytes)
    {
        let header = SegmentHeader::new(options.shard, segment, 0, 0);
        return Ok(Some(Segment { file, path, header, bytes: options.segment_bytes, last_record: 0 }));
    }
    let removed = world.remove(&path).await;
    match removed.map_err(|error| StorageError::io("remove an old log segment", &path, error)) {
        Err(error) if !error.is_full() => Err(error),
        _ => Ok(None),
    }
}
