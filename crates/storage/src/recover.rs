//! Opening a shard: locks, the manifest, the files it names, and the log records that were not flushed. What is where in the
//! folder is said in layout.rs.
//!
//! 1. Take the locks; shard 0, which is opened first, splits the folder anew if it was written with another number of shards.
//! 2. Read the manifest; a folder without one must be empty.
//! 3. Open the files it names; remove others, which a crash left behind.
//! 4. Read every log segment, order the batches by record, and check that from the first record not flushed to the last
//!    one there is no gap.
//! 5. Replay.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cache::Cache;
use crate::edits;
use crate::error::StorageError;
use crate::event::Event;
use crate::layout::{Layout, list, lock, make_shard, read_all};
use crate::log::{Log, Recovered, Segment};
use crate::manifest::{self, Manifest, Unusable};
use crate::model::TableId;
use crate::on_lanes::OnLanes;
use crate::options::{CommitMode, Options};
use crate::pacing::Pacing;
use crate::replay::{Replay, read_segments};
use crate::reshard::reshard;
use crate::scan_cache::ScanCache;
use crate::segment::{BLOCK, SegmentHeader};
use crate::shard::{Shard, State, Table};
use crate::signal::Signal;
use crate::table_file::TableFile;
use crate::upkeep::{counts, table_name};
use crate::versions::Versions;
use crate::world::{Mode, World};

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
        let manifest = read_manifest(&*world, &dir, options.shard, options.shards).await?;
        // It begins anew: that ends a torn edit, and brings an old version up.
        let versions = Versions::begin(&*world, &dir, &manifest).await?;
        let mut state = State { counts: counts(0), ..State::default() };
        open_tables(&*world, &dir, &manifest, &mut state).await?;
        let (recovered, replayed) =
            recover_log(&*world, &dir.join("log"), &options, &manifest, &mut state).await?;
        state.counts = counts(replayed);
        if state.bytes >= options.memtable_bytes_max {
            state.freeze(recovered.last);
        }
        let every = match options.commit {
            CommitMode::Batch => None,
            CommitMode::Periodic { every } => Some(every),
        };
        let log_dir = dir.join("log");
        let is_new = recovered.last == 0;
        let log = Log::start(world.clone(), log_dir, options.shard, options.segment_bytes, every, recovered);
        match log.make_ready().await {
            // A shard that holds nothing has nothing to read either; any other may be read until there is space again.
            Err(error) if is_new || !error.is_full() => {
                log.fail(Arc::new(error.clone()));
                return Err(error);
            }
            _ => {}
        }
        let shard =
            Rc::new(build(options, world, dir, (manifest, Some(versions)), state, Some(log), Some(lock)));
        shard.start_upkeep();
        Ok(shard)
    }
}

fn build(
    options: Options,
    world: Arc<dyn World>,
    dir: PathBuf,
    (manifest, versions): (Manifest, Option<Versions>),
    state: State,
    log: Option<Rc<Log>>,
    lock: Option<Box<dyn Debug>>,
) -> Shard {
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
        pacing: Pacing::new(&options),
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
    let path = dir.join("manifest");
    if !list(world, dir).await?.iter().any(|name| name == "manifest") {
        // The manifest comes before anything else is written.
        let mut others = list(world, &dir.join("tables")).await?;
        others.append(&mut list(world, &dir.join("log")).await?);
        if !others.is_empty() {
            return Err(StorageError::corrupt(&path, "it is missing, although the folder holds data"));
        }
        return Ok(Manifest::empty(shard, shards));
    }
    let manifest = edits::read(&read_all(world, &path).await?).map_err(|why| match why {
        Unusable::Damaged(what) => StorageError::corrupt(&path, what),
        Unusable::Newer(found) => {
            StorageError::NewerFormat { path: path.clone(), found, known: manifest::VERSION }
        }
    })?;
    if (manifest.shard, manifest.shards) != (shard, shards) {
        return Err(StorageError::corrupt(
            &path,
            format!("it belongs to shard {} of {}", manifest.shard, manifest.shards),
        ));
    }
    Ok(manifest)
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
    if layout.is_old() {
        // Before anything is written that an older program would take for damage.
        layout.write(world, root, options.shard).await?;
    }
    Ok((dir, Box::new((own, folder))))
}

async fn open_tables(
    world: &dyn World,
    dir: &Path,
    manifest: &Manifest,
    state: &mut State,
) -> Result<(), StorageError> {
    let dir = dir.join("tables");
    let mut named = Vec::new();
    for (id, version) in &manifest.tables {
        let mut files = Vec::new();
        for file in &version.files {
            named.push(table_name(file.id));
            files.push(Arc::new(TableFile::open(world, dir.join(table_name(file.id)), file.clone()).await?));
        }
        if !files.is_empty() {
            state.tables.insert(*id, Table { files, ..Table::default() });
        }
    }
    for name in list(world, &dir).await? {
        if name.ends_with(".table") && !named.contains(&name) {
            let path = dir.join(name);
            world.remove(&path).await.map_err(|error| StorageError::io("remove a leftover", &path, error))?;
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
) -> Result<(Recovered, u64), StorageError> {
    let mut recovered = Recovered { next_segment: 1, ..Recovered::default() };
    let segments = read_segments(world, dir, options.shard).await?;
    for found in &segments {
        recovered.next_segment = recovered.next_segment.max(found.segment + 1);
        let needed = found.last_record() > manifest.flushed;
        if !needed && found.bytes != options.segment_bytes {
            let removed = world.remove(&found.path).await;
            removed.map_err(|error| StorageError::io("remove an old log segment", &found.path, error))?;
            continue;
        }
        let file = world.open(&found.path, Mode::Log).await;
        let file = file.map_err(|error| StorageError::io("open the log segment", &found.path, error))?;
        if needed {
            // A server that was killed may have left here what no disk has yet; from now on it is seen, and others build on it.
            let synced = file.sync().await;
            synced.map_err(|error| StorageError::io("sync the log segment", &found.path, error))?;
        }
        let header =
            found.header.unwrap_or(SegmentHeader { shard: options.shard, segment: found.segment, salt: 0 });
        let kept = Segment { file, path: found.path.clone(), header, last_record: found.last_record() };
        if needed { recovered.sealed.push(kept) } else { recovered.free.push(kept) }
    }
    recovered.sealed.sort_by_key(|segment| segment.last_record);
    let truncated: FxHashMap<TableId, u64> =
        manifest.tables.iter().map(|(id, version)| (*id, version.truncated)).collect();
    let mut replay = Replay::new(segments, manifest.flushed);
    let mut replayed = 0;
    while let Some((number, mutations)) = replay.next()? {
        for mutation in mutations {
            if truncated.get(&mutation.table).is_none_or(|truncated| number > *truncated) {
                let table = state.tables.entry(mutation.table).or_default();
                state.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
            }
        }
        replayed += 1;
    }
    recovered.last = replay.last;
    Ok((recovered, replayed))
}
