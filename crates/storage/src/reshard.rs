//! Opening a folder with another number of cores: the data is split anew, without copying it.
//!
//! 1. All shards of the old generation are locked.
//! 2. Each shard of the new one gets a folder. Every table file of every old shard is linked into it, for its tokens are spread over
//!    all of them; the manifest says which count (`FileEntry::owners`). Reads pass over the others, and compaction drops
//!    them, so the sharing ends by itself.
//! 3. The old logs are read, and each record is written to the new logs, to each the mutations that are its own.
//! 4. When all of this is durable, `shards` is replaced: from then on the new generation counts.
//! 5. The old generation is removed.
//!
//! A crash up to 4 leaves the old generation as it was, and later the new one; what is left of the other is removed at the
//! next start. Nothing of the old generation is written to.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::{put_mutations, put_u32};
use crate::error::StorageError;
use crate::layout::{self, Layout, lock, make_shard};
use crate::log::segment_path;
use crate::manifest::{FileEntry, Manifest, Owner};
use crate::model::{Mutation, TableId};
use crate::recover::read_manifest;
use crate::replay::Replay;
use crate::segment::{BATCH_HEADER, BLOCK, SegmentHeader, encode_header, seal_batch};
use crate::upkeep::table_name;
use crate::versions::Versions;
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
    let mut locks = Vec::new();
    for shard in 0..old.sharding.shards {
        let dir = old.shard_dir(root, shard);
        // A first start that was cut short has not made all of them.
        make_shard(world, &dir).await?;
        locks.push(lock(world, root, &dir).await?);
        split(world, &dir, Owner { sharding: old.sharding, shard }, &mut parts).await?;
    }
    for part in &mut parts {
        part.finish(world).await?;
    }
    new.write(world, root, 0).await?;
    drop(locks);
    new.clear(world, root).await?;
    Ok(new)
}

/// Gives every new shard what one old shard has.
async fn split(world: &dyn World, dir: &Path, old: Owner, parts: &mut [Part]) -> Result<(), StorageError> {
    let manifest = read_manifest(world, dir, old.shard, old.sharding.shards).await?;
    for part in parts.iter_mut() {
        part.link_files(world, &dir.join("tables"), &manifest).await?;
    }
    let mut replay = Replay::open(world, &dir.join("log"), old.shard, &manifest).await?;
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
    fn entry(&self, table: TableId, old: &FileEntry) -> Option<FileEntry> {
        let mut owners = old.owners.clone();
        match () {
            () if table.is_systems() => return (self.own.shard == 0).then(|| old.clone()),
            // One of its own sharding owns it already, this one or another.
            () if owners.iter().any(|owner| owner.sharding == self.own.sharding) => {
                return owners.contains(&self.own).then(|| old.clone());
            }
            () if self.own.sharding.shards > 1 => owners.push(self.own),
            () => {}
        }
        Some(FileEntry { owners, ..old.clone() })
    }

    async fn link_files(
        &mut self,
        world: &dyn World,
        from: &Path,
        old: &Manifest,
    ) -> Result<(), StorageError> {
        // Runs are numbered by each shard for itself.
        let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
        let to = self.dir.join("tables");
        for (table, file) in old.files() {
            let Some(entry) = self.entry(table, file) else { continue };
            let id = self.manifest.next_file;
            self.manifest.next_file += 1;
            let run = *runs.entry(file.run).or_insert(id);
            let to = to.join(table_name(id));
            let linked = link_or_copy(world, &from.join(table_name(file.id)), &to).await;
            linked.map_err(|error| StorageError::io("link the table file", &to, error))?;
            let files = &mut self.manifest.tables.entry(table).or_default().files;
            files.push(FileEntry { id, run, ..entry });
        }
        Ok(())
    }

    /// Makes everything durable.
    async fn finish(&mut self, world: &dyn World) -> Result<(), StorageError> {
        self.log.write(world).await?;
        self.manifest.log = Some((1..=self.log.segments).collect());
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
        Err(error) if error.kind() == ErrorKind::TooManyLinks => {}
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
