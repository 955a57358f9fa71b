//! A merge as heavy work: partitions in, purged of what is dead, a table file out. Flushes and compactions are both this.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use sched::control::Pacer;

use crate::columnar::layout::ColumnLayout;
use crate::columnar::region::Packing;
use crate::error::StorageError;
use crate::manifest::FileEntry;
use crate::memtable::Memtable;
use crate::merge::MergeStream;
use crate::model::TableId;
use crate::options::Compression;
use crate::pacing::Pace;
use crate::purge::Purge;
use crate::shard::Shard;
use crate::table::TableWriter;
use crate::table_file::TableFile;
use crate::upkeep::table_name;
use crate::world::{Mode, World};

/// Bytes written to a table file at a time.
const CHUNK: usize = 1 << 20;

/// A heavy merge looks at the scheduler after this many partitions: at about 2 µs each, well within 1 ms.
const YIELD_EVERY: u32 = 128;

/// The pace a merge keeps. Tokens are hashes, so the token it has come to says what part of its bytes is done.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    pace: Arc<Pace>,
    pacer: Pacer,
    bytes: u64,
    done: u64,
}

impl Paced {
    /// The pace of a merge of about so many bytes.
    pub(crate) fn new(pace: Arc<Pace>, bytes: u64) -> Paced {
        Paced { pace, pacer: Pacer::default(), bytes, done: 0 }
    }

    async fn reached(&mut self, world: &dyn World, token: i64) {
        let part = (token as u64) ^ (1 << 63);
        let done = ((u128::from(self.bytes) * u128::from(part)) >> 64) as u64;
        let more = done.saturating_sub(self.done);
        self.done += more;
        self.pace.give_way(world, &mut self.pacer, more).await;
    }
}

/// A merge to be run on the heavy lane.
pub(crate) struct Job {
    stream: MergeStream,
    file: u64,
    path: PathBuf,
    block_bytes: usize,
    layouts: Arc<[ColumnLayout]>,
    packing: Packing,
    purge: Purge,
    /// Memtables and files outside the merge that may hold what a tombstone shadows.
    others: (Vec<Memtable>, Vec<Arc<TableFile>>),
    paced: Paced,
}

impl Job {
    /// Writes the merged table; `None` when nothing was left to write. If it fails nothing is left of it.
    pub(crate) async fn run(self, world: Arc<dyn World>) -> Result<Option<TableFile>, StorageError> {
        let path = self.path.clone();
        let written = self.write(world.clone()).await;
        if written.is_err() {
            // Where even that fails, the next start removes it.
            let _ = world.remove(&path).await;
        }
        written
    }

    async fn write(mut self, world: Arc<dyn World>) -> Result<Option<TableFile>, StorageError> {
        let io = |error| StorageError::io("write a table file", &self.path, error);
        let file = world.open(&self.path, Mode::Create).await.map_err(io)?;
        let mut writer =
            TableWriter::new(self.file, self.block_bytes).with(self.layouts.clone(), self.packing);
        let mut count = 0;
        while let Some((token, key, partition)) = self.stream.next().await? {
            let elsewhere = self.others.0.iter().any(|memtable| memtable.get(token, &key).is_some())
                || self.others.1.iter().any(|file| file.may_contain(token));
            let purge = Purge {
                forget_before_s: if elsewhere { 0 } else { self.purge.forget_before_s },
                ..self.purge
            };
            if let Some(partition) = purge.partition(partition) {
                writer.push(token, &key, &partition);
            }
            if writer.pending() >= CHUNK {
                let (offset, bytes) = writer.take();
                file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
            }
            count += 1;
            if count % YIELD_EVERY == 0 {
                self.paced.reached(&*world, token).await;
                world.heavy_yield().await;
            }
        }
        self.paced.reached(&*world, i64::MAX).await;
        if writer.partitions() == 0 {
            drop(file);
            world.remove(&self.path).await.map_err(io)?;
            return Ok(None);
        }
        writer.finish();
        let (offset, bytes) = writer.take();
        file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        file.sync().await.map_err(io)?;
        let dir = self.path.parent().expect("a table file is in a folder");
        world.sync_dir(dir).await.map_err(io)?;
        TableFile::open(&*world, self.path.clone(), FileEntry::new(self.file, self.file)).await.map(Some)
    }
}

impl Shard {
    fn new_file(&self) -> (u64, PathBuf) {
        let mut manifest = self.manifest.borrow_mut();
        let file = manifest.next_file;
        manifest.next_file += 1;
        (file, self.dir.join("tables").join(table_name(file)))
    }

    pub(crate) fn job(
        &self,
        table: TableId,
        stream: MergeStream,
        forget: bool,
        others: (Vec<Memtable>, Vec<Arc<TableFile>>),
        paced: Paced,
    ) -> Job {
        let (file, path) = self.new_file();
        let now_s = self.world.now_s();
        let options = self.table_options(table);
        let forget_before_s = if forget { now_s.saturating_sub(options.gc_grace_s) } else { 0 };
        let purge = Purge { now_s, forget_before_s };
        let layouts = self.state.borrow().layouts.get(&table).cloned().unwrap_or_default();
        let packing = match options.compression {
            Compression::None => Packing::None,
            Compression::Lz4 | Compression::Zstd => Packing::Lz4,
        };
        Job { stream, file, path, block_bytes: options.block_bytes, layouts, packing, purge, others, paced }
    }
}
