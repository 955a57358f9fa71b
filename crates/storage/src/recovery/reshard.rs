//! Resharding: opens a folder with another number of cores, and distributes the data without
//! copying it.
//!
//! 1. Lock all shards of the old generation, and read their manifests.
//! 2. Create the folders of the new shards. Link a table file of an old shard into each new one
//!    that some of its tokens may belong to. These are tokens that the writer owned, that every
//!    shard owned which had the file since, and that the new shard owns (`FileEntry::owners`).
//!    Links to the same file, as after a change of the number and back, become one entry again.
//!    Compaction rewrites shared files, so the sharing ends by itself.
//! 3. Read the old logs, and write the mutations of each record to the new logs of their shards.
//! 4. When all of this is durable, open the manifest and all files of every new shard at once.
//!    Check first that the process may open that many, with a margin for clients. Damaged files are
//!    contained as at any start (`damage.rs`).
//! 5. Replace `shards`: from then on the new generation is the current one.
//! 6. Remove the old generation. Files in it that cannot be proven to be superseded were moved
//!    aside before step 5.
//!
//! After a crash or an error the old generation is current up to step 5, and the new one later. The
//! next start removes the other. The old generation is never written to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schema::Sharding;

use crate::env::{BLOCK, Env, File, Mode};
use crate::error::StorageError;
use crate::log::replay::{Other, Replay};
use crate::log::segment::{BATCH_HEADER, SegmentHeader, encode_header, seal_batch};
use crate::log::segment_path;
use crate::manifest::layout::{self, Layout, lock, make_shard};
use crate::manifest::{FileEntry, Manifest, Origin, Owner, seal_of, versions};
use crate::model::codec::put_u32;
use crate::model::encoded::put_mutations;
use crate::model::{Mutation, TableId};
use crate::options::StorageOptions;
use crate::recovery::damage::{concerns_one_file, open_or_contain};
use crate::recovery::leftovers::{move_aside, table_leftovers};
use crate::recovery::new_stamp;
use crate::recovery::shard_files::{read_manifest, read_shard};
use crate::table::file::{TableFile, table_name, tokens_of};
use crate::table::owners::may_own;
use crate::table::shared::folder_key;

/// Size of a batch of records, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes copied at a time, if the file system does not support links.
const COPY_BYTES: u64 = 1 << 20;

/// Distributes a data folder over `shards` shards, and returns the new layout. The caller holds the
/// lock of the folder.
pub(crate) async fn reshard(
    env: &dyn Env,
    root: &Path,
    old: &Layout,
    options: &StorageOptions,
) -> Result<Layout, StorageError> {
    let (shards, segment_bytes) = (options.shards, options.segment_bytes);
    let new = Layout::new(old.generation + 1, shards);
    old.clear(env, root).await?;
    let mut parts = Vec::new();
    for shard in 0..shards {
        let dir = new.shard_dir(root, shard);
        make_shard(env, &dir).await?;
        parts.push(NewShard::new(dir, shard, new_stamp(env), new, segment_bytes));
    }
    let (mut locks, mut all) = (Vec::new(), Vec::new());
    for shard in 0..old.sharding.shards {
        let dir = old.shard_dir(root, shard);
        // An interrupted first start may not have created all of them.
        make_shard(env, &dir).await?;
        locks.push(lock(env, root, &dir).await?);
        let read = read_shard(env, &dir, shard, old.sharding.shards).await?;
        let empty = Manifest::empty(shard, old.sharding.shards);
        let manifest = read.as_ref().map_or(empty, |read| read.history.manifest.clone());
        let mut files = Vec::new();
        for (table, entry) in manifest.files() {
            let path = dir.join("tables").join(table_name(entry.id));
            let tokens = match tokens_of(env, &path, entry).await {
                // A damaged file may have any tokens. The new shards contain it when they open it.
                Err(error) if concerns_one_file(&error) => (i64::MIN, i64::MAX),
                tokens => tokens?,
            };
            files.push(OldFile::new(table, entry, path, tokens, old, shard, manifest.stamp));
        }
        all.push((dir, manifest, files, read));
    }
    for part in &mut parts {
        let files = all.iter().flat_map(|(_, _, files, _)| files);
        let own = files.filter_map(|file| part.entry(file).map(|entry| (file, entry))).collect();
        part.link_files(env, join(own, old.sharding)).await?;
    }
    check_limit(env, root, old, shards, &parts)?;
    let mut unknown = Vec::new();
    for (shard, (dir, manifest, ..)) in (0..).zip(&all) {
        unknown.append(&mut split_log(env, dir, shard, manifest, &mut parts).await?);
    }
    for part in &mut parts {
        part.finish(env).await?;
    }
    drop(open_all(env, root, new, shards).await?);
    for (dir, _, _, read) in &all {
        let Some(read) = read else { continue };
        for leftover in table_leftovers(env, dir, read).await? {
            unknown.extend(leftover.kept.map(|because| (leftover.path, because)));
        }
        let tables = dir.join("tables");
        let others = layout::list(env, &tables).await?.into_iter().filter(|name| !name.ends_with(".table"));
        let because = "it is kept until an operator removes it";
        unknown.extend(others.map(|name| (tables.join(name), because.to_owned())));
    }
    for (path, because) in unknown {
        move_aside(env, &path, because, &options.event_sink).await?;
    }
    new.write(env, root, 0).await?;
    drop(locks);
    new.clear(env, root).await?;
    Ok(new)
}

/// A table file of an old shard, which a new one may link.
pub(crate) struct OldFile {
    table: TableId,
    /// The entry, with the origin of the file, and its writer among the owners.
    entry: FileEntry,
    path: PathBuf,
    tokens: (i64, i64),
    /// The shard with this link to it.
    shard: u32,
    /// The shard that owns all of its tokens, if known.
    writer: Option<Owner>,
}

impl OldFile {
    /// Returns a file of the shard with this number and stamp.
    pub(crate) fn new(
        table: TableId,
        entry: &FileEntry,
        path: PathBuf,
        tokens: (i64, i64),
        old: &Layout,
        shard: u32,
        stamp: u64,
    ) -> OldFile {
        let mut entry = entry.clone();
        let owner = Owner { sharding: old.sharding, shard };
        let writer = entry.owners.is_empty().then_some(owner);
        if entry.owners.is_empty() && old.sharding.shards > 1 && !table.is_system_table() {
            entry.owners.push(owner);
        }
        // A different seal comes from the data folder that the table was restored from. It is not
        // unique in this folder. Files of earlier versions have their number for a seal.
        let is_own = entry.seal == entry.id || entry.seal == seal_of(stamp, entry.id);
        if entry.origin.is_none() && is_own {
            entry.origin = Some(Origin { generation: old.generation, shard, seal: entry.seal });
        }
        let tokens = (tokens.0.max(entry.from), tokens.1);
        OldFile { table, entry, path, tokens, shard, writer }
    }
}

impl OldFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the entry, without its number, for a shard that takes its own tokens, or all with
    /// `None`. Returns `None` if no token counts.
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

/// Merges links to the same file into one entry, if together they cover all tokens that the old
/// sharding divided.
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

/// Margin of open files for clients, logs and spills.
const FILES_LEFT: u64 = 256;

/// Checks that all files of the new shards may be open at once.
fn check_limit(
    env: &dyn Env,
    root: &Path,
    old: &Layout,
    shards: u32,
    parts: &[NewShard],
) -> Result<(), StorageError> {
    let mut origins = BTreeSet::new();
    let files = parts.iter().flat_map(|part| part.manifest.files());
    // Shards open files without an origin separately.
    let count = files.filter(|(_, file)| file.origin.is_none_or(|origin| origins.insert(origin))).count();
    let (needed, limit) = (count as u64 + FILES_LEFT, env.open_files_max());
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

/// Opens all files of the new shards at once.
async fn open_all(
    env: &dyn Env,
    root: &Path,
    new: Layout,
    shards: u32,
) -> Result<Vec<TableFile>, StorageError> {
    let (mut open, folder) = (Vec::new(), folder_key(root));
    for shard in 0..shards {
        let dir = new.shard_dir(root, shard);
        let manifest = read_manifest(env, &dir, shard, shards).await?;
        for (_, file) in manifest.files() {
            let path = dir.join("tables").join(table_name(file.id));
            open.push(open_or_contain(env, &path, file, folder).await?);
        }
    }
    Ok(open)
}

/// Distributes the records that are only in the log of one old shard. Returns the segments that
/// cannot be proven to be superseded, with the reasons.
async fn split_log(
    env: &dyn Env,
    dir: &Path,
    shard: u32,
    manifest: &Manifest,
    parts: &mut [NewShard],
) -> Result<Vec<(PathBuf, String)>, StorageError> {
    let mut replay = Replay::open(env, &dir.join("log"), shard, manifest).await?;
    while let Some((number, mutations)) = replay.next().await? {
        let counts = |mutation: &Mutation| {
            manifest.tables.get(&mutation.table).is_none_or(|table| number > table.truncated)
        };
        for part in parts.iter_mut() {
            let own = |mutation: &&Mutation| counts(mutation) && part.is_home_of(mutation);
            let own: Vec<Mutation> = mutations.iter().filter(own).cloned().collect();
            if !own.is_empty() {
                part.log.push(env, &own).await?;
            }
        }
    }
    let unknown = replay.others.into_iter().filter_map(|(segment, other)| match other {
        Other::Unknown(because) => Some((segment_path(&dir.join("log"), segment), because)),
        _ => None,
    });
    Ok(unknown.collect())
}

/// A shard of the new generation, under construction.
struct NewShard {
    dir: PathBuf,
    own: Owner,
    manifest: Manifest,
    log: NewLog,
}

impl NewShard {
    fn new(dir: PathBuf, shard: u32, stamp: u64, layout: Layout, segment_bytes: u64) -> NewShard {
        let own = Owner { sharding: layout.sharding, shard };
        let manifest = Manifest { stamp, ..Manifest::empty(shard, layout.sharding.shards) };
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
        NewShard { dir, own, manifest, log }
    }

    fn is_home_of(&self, mutation: &Mutation) -> bool {
        if mutation.table.is_system_table() { self.own.shard == 0 } else { self.own.owns(mutation.token) }
    }

    /// Returns the entry for a file of an old shard, without its number. `None` if no token counts.
    fn entry(&self, old: &OldFile) -> Option<FileEntry> {
        if old.table.is_system_table() {
            return (self.own.shard == 0).then(|| old.entry.clone());
        }
        old.entry_for(Some(&self.own))
    }

    async fn link_files(
        &mut self,
        env: &dyn Env,
        files: Vec<(&OldFile, FileEntry)>,
    ) -> Result<(), StorageError> {
        // Shards number their runs independently.
        let mut runs: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let to = self.dir.join("tables");
        for (old, entry) in files {
            let id = self.manifest.next_file;
            self.manifest.next_file += 1;
            let run = *runs.entry((old.shard, entry.run)).or_insert(id);
            let to = to.join(table_name(id));
            let linked = link_or_copy(env, &old.path, &to).await;
            linked.map_err(|error| StorageError::io("link the table file", &to, error))?;
            let files = &mut self.manifest.tables.entry(old.table).or_default().files;
            files.insert(id, FileEntry { id, run, ..entry });
        }
        Ok(())
    }

    /// Makes everything durable.
    async fn finish(&mut self, env: &dyn Env) -> Result<(), StorageError> {
        self.log.write(env).await?;
        self.manifest.log = (1..=self.log.segments).collect();
        self.manifest.durable = self.log.written;
        layout::sync(env, &self.dir.join("tables")).await?;
        versions::create(env, &self.dir, &self.manifest).await.map(drop)
    }
}

/// Links a file, or copies it if the file system does not support links.
pub(crate) async fn link_or_copy(env: &dyn Env, from: &Path, to: &Path) -> io::Result<()> {
    match env.link(from, to).await {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {}
        // The file has too many links. A copy has its own.
        Err(error) if matches!(error.kind(), ErrorKind::TooManyLinks | ErrorKind::CrossesDevices) => {}
        linked => return linked,
    }
    let len = env.open(from, Mode::Read).await?.len().await?;
    copy(env, from, to, len).await
}

/// Copies the first `len` bytes of a file. The contents are durable, the name is not.
pub(crate) async fn copy(env: &dyn Env, from: &Path, to: &Path, len: u64) -> io::Result<()> {
    let source = env.open(from, Mode::Read).await?;
    let copy = env.open(to, Mode::Create).await?;
    // The file may be shorter than `len`: segments of a full disk are small.
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

/// The log of a new shard. No client waits for it yet, so its batches are large.
struct NewLog {
    dir: PathBuf,
    shard: u32,
    segment_bytes: u64,
    /// The segment, and the offset of the next batch.
    segment: Option<(Arc<dyn File>, SegmentHeader, u64)>,
    segments: u64,
    /// Number of records on disk, numbered from 1.
    written: u64,
    /// Space for a batch header, then the pending records.
    batch: Vec<u8>,
    records: u32,
}

impl NewLog {
    async fn push(&mut self, env: &dyn Env, mutations: &[Mutation]) -> Result<(), StorageError> {
        let start = self.batch.len();
        put_u32(&mut self.batch, 0);
        put_mutations(&mut self.batch, mutations);
        let bytes = u32::try_from(self.batch.len() - start - 4).expect("a record came from a record");
        self.batch[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
        self.records += 1;
        if self.batch.len() >= BATCH_BYTES.min(self.segment_bytes as usize / 2) {
            self.write(env).await?;
        }
        Ok(())
    }

    /// Writes the pending records.
    async fn write(&mut self, env: &dyn Env) -> Result<(), StorageError> {
        if self.records == 0 {
            return Ok(());
        }
        let needed = self.batch.len().next_multiple_of(BLOCK) as u64;
        let fits = self.segment.as_ref().is_some_and(|(_, _, at)| at + needed <= self.segment_bytes);
        let io = |error| StorageError::io("write the commit log", &self.dir, error);
        if !fits {
            self.segments += 1;
            let (id, salt) = (self.segments, env.random() as u32);
            let bytes = self.segment_bytes.max(BLOCK as u64 + needed);
            let header = SegmentHeader { shard: self.shard, segment: id, salt, durable: self.written, bytes };
            let make = async {
                let file = env.open(&segment_path(&self.dir, id), Mode::Log).await?;
                file.allocate(bytes).await?;
                file.write_durable(0, &encode_header(&header)).await?;
                file.sync().await?;
                env.sync_dir(&self.dir).await?;
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
