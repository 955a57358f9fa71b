//! Opening a folder with another number of cores: the data is split anew, without copying it.
//!
//! 1. All shards of the old generation are locked, and their manifests are read.
//! 2. Each shard of the new one gets a folder. A table file of an old shard is linked into it if some of the file's tokens may be
//!    its own: those that the writer owned, that every shard owned which had it since, and that the new one owns
//!    (`FileEntry::owners`). Files that are names of one file, as they are after a change of the number and back, become
//!    one again. Compaction rewrites what is shared, so the sharing ends by itself.
//! 3. The old logs are read, and each record is written to the new logs, to each the mutations that are its own.
//! 4. When all of this is durable, every new shard is opened: its manifest, and all its files at once, each once. That they may be
//!    open at once, with files left for clients, is checked first. Damaged files are contained, as at any start (damage.rs).
//! 5. `shards` is replaced: from then on the new generation counts.
//! 6. The old generation is removed.
//!
//! A crash or an error up to 5 leaves the old generation as it was, and later the new one; what is left of the other is removed
//! at the next start. Nothing of the old generation is written to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schema::Sharding;

use crate::background::table_name;
use crate::error::StorageError;
use crate::log::replay::Replay;
use crate::log::segment::{BATCH_HEADER, BLOCK, SegmentHeader, encode_header, seal_batch};
use crate::log::segment_path;
use crate::manifest::layout::{self, Layout, lock, make_shard};
use crate::manifest::versions::Versions;
use crate::manifest::{FileEntry, Manifest, Origin, Owner};
use crate::model::codec::{put_mutations, put_u32};
use crate::model::{Mutation, TableId};
use crate::recovery::damage::{is_of_one_file, open_or_contain};
use crate::recovery::read_manifest;
use crate::table::file::{TableFile, tokens_of};
use crate::table::owners::may_own;
use crate::table::shared::folder_key;
use crate::world::{File, Mode, World};

/// A batch of records is written when it has this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes copied at a time, where links are not to be had.
const COPY_BYTES: u64 = 1 << 20;

/// Splits a folder over `shards`; its lock is held by the caller. Answers with what the folder says then.
pub(crate) async fn reshard(
    world: &dyn World,
    root: &Path,
    old: &Layout,
    shards: u32,
    segment_bytes: u64,
) -> Result<Layout, StorageError> {
    let new = Layout::new(old.generation + 1, shards);
    old.clear(world, root).await?;
    let mut parts = Vec::new();
    for shard in 0..shards {
        let dir = new.shard_dir(root, shard);
        make_shard(world, &dir).await?;
        parts.push(Part::new(dir, shard, new, segment_bytes));
    }
    let (mut locks, mut all) = (Vec::new(), Vec::new());
    for shard in 0..old.sharding.shards {
        let dir = old.shard_dir(root, shard);
        // A first start that was cut short has not made all of them.
        make_shard(world, &dir).await?;
        locks.push(lock(world, root, &dir).await?);
        let manifest = read_manifest(world, &dir, shard, old.sharding.shards).await?;
        let mut files = Vec::new();
        for (table, entry) in manifest.files() {
            let path = dir.join("tables").join(table_name(entry.id));
            let tokens = match tokens_of(world, &path, entry.seal).await {
                // A damaged file may have anything. Its shards contain it when they open it.
                Err(error) if is_of_one_file(&error) => (i64::MIN, i64::MAX),
                tokens => tokens?,
            };
            files.push(OldFile::new(table, entry, path, tokens, old, shard));
        }
        all.push((dir, manifest, files));
    }
    for part in &mut parts {
        let files = all.iter().flat_map(|(_, _, files)| files);
        let own = files.filter_map(|file| part.entry(file).map(|entry| (file, entry))).collect();
        part.link_files(world, join(own, old.sharding)).await?;
    }
    check_limit(world, root, old, shards, &parts)?;
    for (shard, (dir, manifest, _)) in (0..).zip(&all) {
        split_log(world, dir, shard, manifest, &mut parts).await?;
    }
    for part in &mut parts {
        part.finish(world).await?;
    }
    drop(open_all(world, root, new, shards).await?);
    new.write(world, root, 0).await?;
    drop(locks);
    new.clear(world, root).await?;
    Ok(new)
}

/// A table file of an old shard.
pub(crate) struct OldFile {
    table: TableId,
    /// With the file's origin, and its writer among the owners.
    entry: FileEntry,
    path: PathBuf,
    tokens: (i64, i64),
    /// The shard that has this name of it.
    shard: u32,
    /// Owns all tokens in it, if one shard is known to.
    writer: Option<Owner>,
}

impl OldFile {
    pub(crate) fn new(
        table: TableId,
        entry: &FileEntry,
        path: PathBuf,
        (first, last): (i64, i64),
        old: &Layout,
        shard: u32,
    ) -> OldFile {
        let mut entry = entry.clone();
        let writer = entry.owners.is_empty().then_some(Owner { sharding: old.sharding, shard });
        if entry.owners.is_empty() && old.sharding.shards > 1 && !table.is_systems() {
            entry.owners.push(Owner { sharding: old.sharding, shard });
        }
        // Another seal is of the data folder that a table was restored from, and not unique here.
        if entry.origin.is_none() && entry.seal == entry.id {
            entry.origin = Some(Origin { generation: old.generation, shard, seal: entry.seal });
        }
        let tokens = (first.max(entry.from), last);
        OldFile { table, entry, path, tokens, shard, writer }
    }
}

impl OldFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the manifest of a shard says of it, but for its number: of one that takes its own tokens, or all of them.
    /// `None` when nothing in it counts.
    pub(crate) fn entry_for(&self, own: Option<&Owner>) -> Option<FileEntry> {
        let mut entry = self.entry.clone();
        let all_counts =
            |own: &Owner| self.writer.is_some_and(|writer| own.sharding.shards == 1 || writer.is_within(own));
        if own.is_some_and(all_counts) {
            entry.owners.clear();
            return Some(entry);
        }
        if let Some(own) = own.filter(|own| own.sharding.shards > 1 && !entry.owners.contains(own)) {
            entry.owners.push(*own);
        }
        may_own(&entry.owners, self.tokens.0, self.tokens.1).then_some(entry)
    }
}

/// Makes one of files that are names of the same file, where together they are all that the old sharding divided it into.
fn join(files: Vec<(&OldFile, FileEntry)>, old: Sharding) -> Vec<(&OldFile, FileEntry)> {
    let mut names: BTreeMap<(TableId, Origin), Vec<(&OldFile, FileEntry)>> = BTreeMap::new();
    let mut out = Vec::new();
    for (file, entry) in files {
        match entry.origin {
            Some(origin) => names.entry((file.table, origin)).or_default().push((file, entry)),
            None => out.push((file, entry)),
        }
    }
    for mut same in names.into_values() {
        let undivided = |entry: &FileEntry| -> Vec<Owner> {
            entry.owners.iter().filter(|owner| owner.sharding != old).copied().collect()
        };
        let base = undivided(&same[0].1);
        let (from, tokens) = (same[0].1.from, same[0].0.tokens);
        let alike = same.iter().all(|(_, entry)| entry.from == from && undivided(entry) == base);
        let has = |shard: u32| same.iter().any(|(file, _)| file.shard == shard);
        let needed = |shard: u32| {
            let mut owners = base.clone();
            owners.push(Owner { sharding: old, shard });
            may_own(&owners, tokens.0, tokens.1)
        };
        let divided = same.len() > 1 && same.iter().all(|(_, entry)| entry.owners.len() > base.len());
        if alike && divided && (0..old.shards).all(|shard| has(shard) || !needed(shard)) {
            same.truncate(1);
            same[0].1.owners = base;
        }
        out.append(&mut same);
    }
    out
}

/// Files left for clients, logs and spills.
const FILES_LEFT: u64 = 256;

/// Whether all files of the new shards may be open at once.
fn check_limit(
    world: &dyn World,
    root: &Path,
    old: &Layout,
    shards: u32,
    parts: &[Part],
) -> Result<(), StorageError> {
    let mut origins = BTreeSet::new();
    let files = parts.iter().flat_map(|part| part.manifest.files());
    // Those without an origin are opened by each shard for itself.
    let count = files.filter(|(_, file)| file.origin.is_none_or(|origin| origins.insert(origin))).count();
    let (needed, limit) = (count as u64 + FILES_LEFT, world.open_files_max());
    if needed <= limit {
        return Ok(());
    }
    Err(StorageError::TooManyFiles {
        path: root.into(),
        needed,
        limit,
        folder: old.sharding.shards,
        asked: shards,
    })
}

/// Opens what the new shards are to open, all of it at once.
async fn open_all(
    world: &dyn World,
    root: &Path,
    new: Layout,
    shards: u32,
) -> Result<Vec<TableFile>, StorageError> {
    let (mut open, folder) = (Vec::new(), folder_key(root));
    for shard in 0..shards {
        let dir = new.shard_dir(root, shard);
        let manifest = read_manifest(world, &dir, shard, shards).await?;
        for (_, file) in manifest.files() {
            let path = dir.join("tables").join(table_name(file.id));
            open.push(open_or_contain(world, &path, file, folder).await?);
        }
    }
    Ok(open)
}

/// Gives every new shard what one old shard has in its log only.
async fn split_log(
    world: &dyn World,
    dir: &Path,
    shard: u32,
    manifest: &Manifest,
    parts: &mut [Part],
) -> Result<(), StorageError> {
    let mut replay = Replay::open(world, &dir.join("log"), shard, manifest).await?;
    while let Some((number, mutations)) = replay.next().await? {
        let counts = |mutation: &Mutation| {
            manifest.tables.get(&mutation.table).is_none_or(|table| number > table.truncated)
        };
        for part in parts.iter_mut() {
            let own = |mutation: &&Mutation| counts(mutation) && part.is_home_of(mutation);
            let own: Vec<Mutation> = mutations.iter().filter(own).cloned().collect();
            if !own.is_empty() {
                part.log.push(world, &own).await?;
            }
        }
    }
    Ok(())
}

/// A shard of the new generation, being made.
struct Part {
    dir: PathBuf,
    own: Owner,
    manifest: Manifest,
    log: NewLog,
}

impl Part {
    fn new(dir: PathBuf, shard: u32, layout: Layout, segment_bytes: u64) -> Part {
        let own = Owner { sharding: layout.sharding, shard };
        let manifest = Manifest::empty(shard, layout.sharding.shards);
        let log = NewLog {
            dir: dir.join("log"),
            shard,
            segment_bytes,
            segment: None,
            segments: 0,
            written: 0,
            batch: vec![0; BATCH_HEADER],
            records: 0,
        };
        Part { dir, own, manifest, log }
    }

    fn is_home_of(&self, mutation: &Mutation) -> bool {
        if mutation.table.is_systems() { self.own.shard == 0 } else { self.own.owns(mutation.token) }
    }

    /// What the manifest here says of an old shard's file, but for its number; `None` when nothing in it counts.
    fn entry(&self, old: &OldFile) -> Option<FileEntry> {
        if old.table.is_systems() {
            return (self.own.shard == 0).then(|| old.entry.clone());
        }
        old.entry_for(Some(&self.own))
    }

    async fn link_files(
        &mut self,
        world: &dyn World,
        files: Vec<(&OldFile, FileEntry)>,
    ) -> Result<(), StorageError> {
        // Runs are numbered by each shard for itself.
        let mut runs: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let to = self.dir.join("tables");
        for (old, entry) in files {
            let id = self.manifest.next_file;
            self.manifest.next_file += 1;
            let run = *runs.entry((old.shard, entry.run)).or_insert(id);
            let to = to.join(table_name(id));
            let linked = link_or_copy(world, &old.path, &to).await;
            linked.map_err(|error| StorageError::io("link the table file", &to, error))?;
            let files = &mut self.manifest.tables.entry(old.table).or_default().files;
            files.insert(id, FileEntry { id, run, ..entry });
        }
        Ok(())
    }

    /// Makes everything durable.
    async fn finish(&mut self, world: &dyn World) -> Result<(), StorageError> {
        self.log.write(world).await?;
        self.manifest.log = (1..=self.log.segments).collect();
        self.manifest.durable = self.log.written;
        layout::sync(world, &self.dir.join("tables")).await?;
        Versions::begin(world, &self.dir, &self.manifest).await.map(drop)
    }
}

/// A second name for a file; a copy where the file system has no such thing.
pub(crate) async fn link_or_copy(world: &dyn World, from: &Path, to: &Path) -> io::Result<()> {
    match world.link(from, to).await {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {}
        // Too many names for one file, too: then a copy starts afresh.
        Err(error) if matches!(error.kind(), ErrorKind::TooManyLinks | ErrorKind::CrossesDevices) => {}
        linked => return linked,
    }
    let len = world.open(from, Mode::Read).await?.len().await?;
    copy(world, from, to, len).await
}

/// Copies the first bytes of a file, durably but for its name.
pub(crate) async fn copy(world: &dyn World, from: &Path, to: &Path, len: u64) -> io::Result<()> {
    let (source, copy) = (world.open(from, Mode::Read).await?, world.open(to, Mode::Create).await?);
    // A segment may be shorter than those of today.
    let len = len.min(source.len().await?);
    let mut at = 0;
    while at < len {
        let bytes = source.read(at, (len - at).min(COPY_BYTES) as usize).await?;
        let next = at + bytes.len() as u64;
        copy.write(at, bytes).await?;
        at = next;
    }
    copy.sync().await
}

/// The log of a new shard, written before anyone uses it: no one waits for a record, so batches are large.
struct NewLog {
    dir: PathBuf,
    shard: u32,
    segment_bytes: u64,
    /// With the place of the next batch.
    segment: Option<(Arc<dyn File>, SegmentHeader, u64)>,
    segments: u64,
    /// Records on disk; they are numbered from 1.
    written: u64,
    /// Room for a batch header, then the records that wait.
    batch: Vec<u8>,
    records: u32,
}

impl NewLog {
    async fn push(&mut self, world: &dyn World, mutations: &[Mutation]) -> Result<(), StorageError> {
        let start = self.batch.len();
        put_u32(&mut self.batch, 0);
        put_mutations(&mut self.batch, mutations);
        let bytes = u32::try_from(self.batch.len() - start - 4).expect("a record came from a record");
        self.batch[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
        self.records += 1;
        if self.batch.len() >= BATCH_BYTES.min(self.segment_bytes as usize / 2) {
            self.write(world).await?;
        }
        Ok(())
    }

    /// Writes what waits.
    async fn write(&mut self, world: &dyn World) -> Result<(), StorageError> {
        if self.records == 0 {
            return Ok(());
        }
        let needed = self.batch.len().next_multiple_of(BLOCK) as u64;
        let fits = self.segment.as_ref().is_some_and(|(_, _, at)| at + needed <= self.segment_bytes);
        let io = |error| StorageError::io("write the commit log", &self.dir, error);
        if !fits {
            self.segments += 1;
            let (id, salt) = (self.segments, world.random() as u32);
            let header = SegmentHeader::new(self.shard, id, salt, self.written);
            let make = async {
                let file = world.open(&segment_path(&self.dir, id), Mode::Log).await?;
                file.allocate(self.segment_bytes.max(BLOCK as u64 + needed)).await?;
                file.write_durable(0, &encode_header(&header)).await?;
                file.sync().await?;
                world.sync_dir(&self.dir).await?;
                Ok(file)
            };
            self.segment = Some((make.await.map_err(io)?, header, BLOCK as u64));
        }
        let (file, header, at) = self.segment.as_mut().expect("made above");
        seal_batch(&mut self.batch, header, self.written + 1, self.records);
        file.write_durable(*at, &self.batch).await.map_err(io)?;
        *at += self.batch.len() as u64;
        self.written += u64::from(self.records);
        self.records = 0;
        self.batch.truncate(0);
        self.batch.resize(BATCH_HEADER, 0);
        Ok(())
    }
}
