//! Opening a shard: locks, the manifest, the files it names, and the log records that were not flushed.
//!
//! ```text
//!  DIR/shards                 how many shards the folder was written with, and the version of its layout
//!  DIR/shard-0003/LOCK        held by the server that has the folder open
//!  DIR/shard-0003/manifest    see manifest.rs
//!  DIR/shard-0003/log/        see segment.rs
//!  DIR/shard-0003/tables/     see table.rs
//! ```
//!
//! 1. Take the lock and check the number of shards.
//! 2. Read the manifest; a folder without one must be empty.
//! 3. Open the files it names; remove others, which a crash left behind.
//! 4. Read every log segment, order the batches by record, and check that from the first record not flushed to the last
//!    one there is no gap.
//! 5. Replay.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::cache::Cache;
use crate::codec::Reader;
use crate::edits;
use crate::error::StorageError;
use crate::log::{Log, Recovered, Segment, segment_path};
use crate::manifest::{self, Manifest, Unusable};
use crate::model::TableId;
use crate::on_lanes::OnLanes;
use crate::options::{CommitMode, Options};
use crate::segment::{self, BLOCK, Batch, HeaderRead, SegmentHeader};
use crate::shard::{Shard, State, Table};
use crate::signal::Signal;
use crate::table_file::TableFile;
use crate::upkeep::{counts, table_name};
use crate::versions::{Versions, replace_file};
use crate::world::{Mode, World};

/// The version of the folder's layout.
const LAYOUT: u32 = 2;

impl Shard {
    /// Opens a shard, recovering what its folder holds.
    ///
    /// # Errors
    /// The folder is in use, was written with another number of shards or by a newer version, is damaged, or cannot be
    /// read or written.
    pub async fn open(options: Options) -> Result<Rc<Shard>, StorageError> {
        let world = Arc::new(OnLanes(options.groups));
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
        let dir = root.join(format!("shard-{:04}", options.shard));
        for folder in [&root, &dir, &dir.join("log"), &dir.join("tables")] {
            let made = world.create_dir_all(folder).await;
            made.map_err(|error| StorageError::io("create the data folder", folder, error))?;
        }
        keep_folders(&*world, &dir).await?;
        check_shards(&*world, &root, &options).await?;
        let lock = world.lock(&dir.join("LOCK")).await.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => StorageError::Locked { path: root.clone() },
            _ => StorageError::io("lock the data folder", &dir, error),
        })?;
        let manifest = read_manifest(&*world, &dir, &options).await?;
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
        let log = Log::start(world.clone(), log_dir, options.shard, options.segment_bytes, every, recovered);
        let shard =
            Rc::new(build(options, world, dir, (manifest, Some(versions)), state, Some(log), Some(lock)));
        shard.start_upkeep();
        Ok(shard)
    }
}

/// Makes the names of a shard's folders durable, from its own up: whatever a lost folder holds is lost with it, synced or not.
async fn keep_folders(world: &dyn World, dir: &Path) -> Result<(), StorageError> {
    for folder in dir.ancestors() {
        // A relative path ends in an empty one: the working directory.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match world.sync_dir(folder).await {
            // Far above, folders may be closed to us; those were not made by us either.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            synced => synced.map_err(|error| StorageError::io("sync the folder", folder, error))?,
        }
    }
    Ok(())
}

fn build(
    options: Options,
    world: Arc<dyn World>,
    dir: PathBuf,
    (manifest, versions): (Manifest, Option<Versions>),
    state: State,
    log: Option<Rc<Log>>,
    lock: Option<Box<dyn std::fmt::Debug>>,
) -> Shard {
    Shard {
        world,
        dir,
        state: RefCell::new(state),
        cache: RefCell::new(Cache::new(options.cache_bytes)),
        log,
        manifest: RefCell::new(manifest),
        manifest_busy: Cell::new(false),
        versions: RefCell::new(versions),
        work: Signal::default(),
        progress: Signal::default(),
        lock: RefCell::new(lock),
        options,
    }
}

async fn read_all(world: &dyn World, path: &Path) -> Result<Bytes, StorageError> {
    let read = async {
        let file = world.open(path, Mode::Read).await?;
        let len = file.len().await?;
        if len == 0 { Ok(Bytes::new()) } else { file.read(0, len as usize).await }
    };
    read.await.map_err(|error| StorageError::io("read", path, error))
}

async fn list(world: &dyn World, dir: &Path) -> Result<Vec<String>, StorageError> {
    world.list(dir).await.map_err(|error| StorageError::io("list the folder", dir, error))
}

/// The folder records how many shards it was written with. Every shard writes the same text, so it does not matter which
/// is first.
async fn check_shards(world: &dyn World, root: &Path, options: &Options) -> Result<(), StorageError> {
    let path = root.join("shards");
    if !list(world, root).await?.iter().any(|name| name == "shards") {
        return write_shards(world, root, options).await;
    }
    let text = String::from_utf8_lossy(&read_all(world, &path).await?).into_owned();
    let number = |name: &str| -> Option<u32> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    let damaged = || StorageError::corrupt(&path, "it should name a layout and a number of shards");
    let (layout, shards) = (number("layout").ok_or_else(damaged)?, number("shards").ok_or_else(damaged)?);
    if layout > LAYOUT {
        return Err(StorageError::NewerFormat { path, found: layout, known: LAYOUT });
    }
    if shards != options.shards {
        return Err(StorageError::ShardCount { path: root.into(), folder: shards, asked: options.shards });
    }
    // Before anything is written that an older program would take for damage.
    if layout < LAYOUT { write_shards(world, root, options).await } else { Ok(()) }
}

async fn write_shards(world: &dyn World, root: &Path, options: &Options) -> Result<(), StorageError> {
    let path = root.join("shards");
    let text = format!("layout {LAYOUT}\nshards {}\n", options.shards);
    // Each shard by a temporary name of its own, since they start at the same time.
    let own = format!("shards.{}", options.shard);
    replace_file(world, root, &own, text.into_bytes()).await?;
    let renamed = world.rename(&root.join(&own), &path).await;
    renamed.map_err(|error| StorageError::io("write", &path, error))?;
    world.sync_dir(root).await.map_err(|error| StorageError::io("write", &path, error))
}

async fn read_manifest(world: &dyn World, dir: &Path, options: &Options) -> Result<Manifest, StorageError> {
    let path = dir.join("manifest");
    if !list(world, dir).await?.iter().any(|name| name == "manifest") {
        // The manifest comes before anything else is written.
        let mut others = list(world, &dir.join("tables")).await?;
        others.append(&mut list(world, &dir.join("log")).await?);
        if !others.is_empty() {
            return Err(StorageError::corrupt(&path, "it is missing, although the folder holds data"));
        }
        let (shard, shards) = (options.shard, options.shards);
        return Ok(Manifest::empty(shard, shards));
    }
    let manifest = edits::read(&read_all(world, &path).await?).map_err(|why| match why {
        Unusable::Damaged(what) => StorageError::corrupt(&path, what),
        Unusable::Newer(found) => {
            StorageError::NewerFormat { path: path.clone(), found, known: manifest::VERSION }
        }
    })?;
    if (manifest.shard, manifest.shards) != (options.shard, options.shards) {
        return Err(StorageError::corrupt(
            &path,
            format!("it belongs to shard {} of {}", manifest.shard, manifest.shards),
        ));
    }
    Ok(manifest)
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

/// A segment read back.
struct Found {
    segment: u64,
    path: PathBuf,
    bytes: u64,
    /// `None`: free.
    header: Option<SegmentHeader>,
    batches: Vec<Batch>,
}

async fn read_segment(
    world: &dyn World,
    dir: &Path,
    segment: u64,
    options: &Options,
) -> Result<Found, StorageError> {
    let path = segment_path(dir, segment);
    let data = read_all(world, &path).await?;
    let header = match segment::decode_header(&data.slice(..data.len().min(BLOCK))) {
        HeaderRead::Valid(header) if header.shard != options.shard => {
            return Err(StorageError::corrupt(path, format!("it belongs to shard {}", header.shard)));
        }
        HeaderRead::Valid(header) => (header.segment == segment).then_some(header),
        HeaderRead::Newer(found) => {
            return Err(StorageError::NewerFormat { path, found, known: segment::VERSION });
        }
        HeaderRead::Unreadable if segment::holds_batches_of(&data, segment) => {
            return Err(StorageError::corrupt(path, "its header does not match its checksum"));
        }
        HeaderRead::Unreadable => None,
    };
    let batches = header.map_or_else(Vec::new, |header| segment::read_batches(&data, &header));
    Ok(Found { segment, path, bytes: data.len() as u64, header, batches })
}

async fn recover_log(
    world: &dyn World,
    dir: &Path,
    options: &Options,
    manifest: &Manifest,
    state: &mut State,
) -> Result<(Recovered, u64), StorageError> {
    let mut recovered = Recovered { last: manifest.flushed, next_segment: 1, ..Recovered::default() };
    let mut batches: Vec<(Batch, PathBuf)> = Vec::new();
    for name in list(world, dir).await? {
        let Some(segment) = name.strip_suffix(".log").and_then(|hex| u64::from_str_radix(hex, 16).ok())
        else {
            continue;
        };
        recovered.next_segment = recovered.next_segment.max(segment + 1);
        let found = read_segment(world, dir, segment, options).await?;
        let last = found.batches.iter().map(Batch::last_record).max().unwrap_or(0);
        let needed = last > manifest.flushed;
        if !needed && found.bytes != options.segment_bytes {
            let removed = world.remove(&found.path).await;
            removed.map_err(|error| StorageError::io("remove an old log segment", &found.path, error))?;
            continue;
        }
        let file = world.open(&found.path, Mode::Log).await;
        let file = file.map_err(|error| StorageError::io("open the log segment", &found.path, error))?;
        let header =
            found.header.unwrap_or(SegmentHeader { shard: options.shard, segment: found.segment, salt: 0 });
        let kept = Segment { file, path: found.path.clone(), header, last_record: last };
        if needed {
            recovered.sealed.push(kept)
        } else {
            recovered.free.push(kept)
        }
        batches.extend(found.batches.into_iter().map(|batch| (batch, found.path.clone())));
    }
    batches.retain(|(batch, _)| batch.last_record() > manifest.flushed);
    batches.sort_by_key(|(batch, _)| batch.first_record);
    recovered.sealed.sort_by_key(|segment| segment.last_record);
    let truncated: FxHashMap<TableId, u64> =
        manifest.tables.iter().map(|(id, version)| (*id, version.truncated)).collect();
    let mut replayed = 0;
    for (batch, path) in batches {
        if batch.first_record > recovered.last + 1 {
            let (from, to) = (recovered.last + 1, batch.first_record - 1);
            return Err(StorageError::corrupt(
                path,
                format!("records {from} to {to} ahead of valid ones are missing"),
            ));
        }
        let undecodable = |_| StorageError::corrupt(&path, "a record with a valid checksum does not decode");
        let records = batch.payloads().map_err(undecodable)?;
        for (number, record) in (batch.first_record..).zip(records) {
            if number <= recovered.last {
                continue;
            }
            for mutation in Reader::new(record).mutations().map_err(undecodable)? {
                if truncated.get(&mutation.table).is_none_or(|truncated| number > *truncated) {
                    let table = state.tables.entry(mutation.table).or_default();
                    state.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
                }
            }
            recovered.last = number;
            replayed += 1;
        }
    }
    Ok((recovered, replayed))
}
