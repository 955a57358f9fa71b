//! A merge as heavy work: partitions in, purged of what is dead, a run of table files out, a fragment at a time. Flushes and
//! compactions are both this. Between fragments the merge rests with the fast lane, which makes the last one visible.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sched::control::Pacer;

use crate::background::pacing::Pace;
use crate::background::progress::Progress;
use crate::background::table_name;
use crate::compaction::purge::Purge;
use crate::compaction::tasks::SOURCES_MAX;
use crate::error::StorageError;
use crate::manifest::FileEntry;
use crate::memtable::Memtable;
use crate::model::TableId;
use crate::options::Compression;
use crate::read::merge::{MergeStream, Piece};
use crate::shard::Shard;
use crate::table::TableWriter;
use crate::table::columnar::layout::ColumnLayout;
use crate::table::columnar::region::Packing;
use crate::table::file::TableFile;
use crate::table::runs::Files;
use crate::table::statistics::WriteTime;
use crate::world::{Mode, Work, World, run_heavy};

/// Bytes written to a table file at a time.
const CHUNK: usize = 1 << 20;

/// Writes but the last are multiples of this, in bytes, so that they need no page cache.
const WRITE_UNIT: usize = 4096;

/// A heavy merge looks at the scheduler after this many partitions: at about 2 µs each, well within 1 ms.
const YIELD_EVERY: u32 = 128;

/// In a wide partition so many rows count as another one.
const ROWS_A_PARTITION: u32 = 4;

/// The pace a merge keeps. Tokens are hashes, so the token it has come to says what part of its bytes is done.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    pace: Arc<Pace>,
    pacer: Pacer,
    progress: Progress,
    /// The first token, and how many there are from it to the last.
    tokens: (i64, u64),
    bytes: u64,
    done: u64,
}

impl Paced {
    /// The pace of a merge of about so many bytes.
    pub(crate) fn new(pace: Arc<Pace>, bytes: u64) -> Paced {
        let (pacer, progress) = (Pacer::default(), Progress::default());
        Paced { pace, pacer, progress, tokens: (i64::MIN, u64::MAX), bytes, done: 0 }
    }

    /// The same for tokens from `first` to `last`, reported to `progress`, which may cancel the merge.
    pub(crate) fn of(self, first: i64, last: i64, progress: Progress) -> Paced {
        Paced { tokens: (first, last.abs_diff(first).max(1)), progress, ..self }
    }

    /// Why the merge is to end, if it is.
    fn ended(&self) -> Option<StorageError> {
        match () {
            () if self.pace.is_stopped() => Some(StorageError::Closed),
            () if self.progress.is_cancelled() => Some(StorageError::Cancelled),
            () => None,
        }
    }

    async fn reached(&mut self, world: &dyn World, token: i64) {
        let (first, count) = self.tokens;
        let part = if token <= first { 0 } else { token.abs_diff(first).min(count) };
        let done = (u128::from(self.bytes) * u128::from(part) / u128::from(count)) as u64;
        let more = done.saturating_sub(self.done);
        self.done += more;
        self.progress.add_done(more);
        self.pace.give_way(world, &mut self.pacer, more).await;
    }
}

/// A merge to be run on the heavy lane, a fragment at a time.
pub(crate) struct Job {
    stream: MergeStream,
    /// What did not fit into the last fragment.
    pending: Option<Piece>,
    /// The number of the first file, which stands for the run.
    run: Option<u64>,
    fragment_bytes: u64,
    block_bytes: usize,
    layouts: Arc<[ColumnLayout]>,
    packing: Packing,
    purge: Purge,
    /// Memtables and files outside the merge that may hold what a tombstone shadows.
    others: (Vec<Memtable>, Files),
    written: WriteTime,
    paced: Paced,
}

/// What one turn of a merge came to.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// `None` when nothing was left to write.
    pub(crate) file: Option<TableFile>,
    /// Where the merge goes on: everything of smaller tokens is written. `None` at its end.
    pub(crate) next: Option<i64>,
}

impl Job {
    /// Has it look at other memtables and files from now on; returns the memtables it looked at so far.
    pub(crate) fn replace_others(&mut self, others: (Vec<Memtable>, Files)) -> Vec<Memtable> {
        std::mem::replace(&mut self.others, others).0
    }

    /// Partitions read so far, by the number of sources they were in.
    pub(crate) fn partitions(&self) -> [u64; SOURCES_MAX] {
        self.stream.partitions
    }

    /// The memtables that it looked at, of which some may be nobody else's any more.
    pub(crate) fn into_memory(self) -> Vec<Memtable> {
        self.others.0
    }

    /// Writes the next fragment. If it fails nothing is left of it.
    async fn fragment(
        mut self,
        id: u64,
        path: PathBuf,
        world: Arc<dyn World>,
    ) -> (Job, Result<Sealed, StorageError>) {
        let written = self.write(id, &path, &*world).await;
        if !matches!(written, Ok(Sealed { file: Some(_), .. })) {
            // Where even that fails, the next start removes it.
            let _ = world.remove(&path).await;
        }
        (self, written)
    }

    async fn write(&mut self, id: u64, path: &Path, world: &dyn World) -> Result<Sealed, StorageError> {
        let io = |error| StorageError::io("write a table file", path, error);
        let file = world.open(path, Mode::CreateTable).await.map_err(io)?;
        let writer = TableWriter::new(id, self.block_bytes, self.written);
        let mut writer = writer.with(self.layouts.clone(), self.packing);
        let (mut count, mut taken, mut last) = (0, 0, None);
        let next = loop {
            let piece = match self.pending.take() {
                Some(piece) => Some(piece),
                None => self.stream.next_piece().await?,
            };
            let Some(piece) = piece else { break None };
            let token = piece.token;
            // A token is in one fragment of a run.
            let full = taken + writer.pending() as u64 >= self.fragment_bytes;
            if full && last.is_some_and(|last| token > last) {
                self.pending = Some(piece);
                break Some(token);
            }
            last = Some(token);
            count += 1 + piece.partition.row_count() as u32 / ROWS_A_PARTITION;
            self.add(&mut writer, piece);
            if writer.pending() >= CHUNK {
                writer.check()?;
                let (offset, bytes) = writer.take_whole(WRITE_UNIT);
                taken += bytes.len() as u64;
                file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
            }
            if count >= YIELD_EVERY {
                count = 0;
                self.paced.reached(world, token).await;
                if let Some(error) = self.paced.ended() {
                    return Err(error);
                }
                world.heavy_yield().await;
            }
        };
        self.paced.reached(world, next.unwrap_or(i64::MAX)).await;
        if writer.partitions() == 0 {
            return Ok(Sealed { file: None, next });
        }
        writer.finish()?;
        let (offset, bytes) = writer.take();
        file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        file.sync().await.map_err(io)?;
        let dir = path.parent().expect("a table file is in a folder");
        world.sync_dir(dir).await.map_err(io)?;
        let run = *self.run.get_or_insert(id);
        let file = TableFile::open(world, path.to_owned(), FileEntry::new(id, run)).await?;
        Ok(Sealed { file: Some(file), next })
    }

    /// Writes what is left of a piece. A partition begins with the first piece of which anything is.
    fn add(&self, writer: &mut TableWriter, piece: Piece) {
        let Piece { token, key, partition, first, last } = piece;
        let left = match self.purge.is_all_alive(&partition) {
            // As nearly all are: who else has the key need not be asked.
            true => Some(partition),
            false if first => self.purge(token, &key).partition(partition),
            false => self.purge(token, &key).stretch(partition),
        };
        if let Some(partition) = left {
            if !writer.is_inside() {
                writer.begin(token, &key, &partition);
            }
            writer.rows(&partition);
        }
        if last {
            writer.end();
        }
    }

    fn purge(&self, token: i64, key: &Bytes) -> Purge {
        let elsewhere = self.others.0.iter().any(|memtable| memtable.get(token, key).is_some())
            || self.others.1.holding(token).next().is_some();
        let forget_before_s = if elsewhere { 0 } else { self.purge.forget_before_s };
        Purge { forget_before_s, ..self.purge.clone() }
    }
}

impl Shard {
    /// Runs a merge up to its next fragment.
    pub(crate) async fn next_fragment(&self, work: Work, job: Job) -> (Job, Result<Sealed, StorageError>) {
        let id = {
            let mut manifest = self.manifest.borrow_mut();
            manifest.next_file += 1;
            manifest.next_file - 1
        };
        let path = self.dir.join("tables").join(table_name(id));
        run_heavy(&*self.world, work, job.fragment(id, path, self.world.clone())).await
    }

    pub(crate) fn job(
        &self,
        table: TableId,
        stream: MergeStream,
        forget: bool,
        others: (Vec<Memtable>, Files),
        paced: Paced,
    ) -> Job {
        let now_s = self.world.now_s();
        let options = self.table_options(table);
        let forget_before_s = if forget { now_s.saturating_sub(options.gc_grace_s) } else { 0 };
        let layouts = self.state.borrow().layouts.get(&table).cloned().unwrap_or_default();
        let dropped = self.state.borrow().dropped_columns.get(&table).cloned().unwrap_or_default();
        let packing = match options.compression {
            Compression::None => Packing::None,
            Compression::Lz4 => Packing::Lz4,
            Compression::Zstd => Packing::Zstd,
        };
        Job {
            stream,
            pending: None,
            run: None,
            fragment_bytes: options.fragment_bytes,
            block_bytes: options.block_bytes,
            layouts,
            packing,
            purge: Purge { now_s, forget_before_s, dropped },
            others,
            written: self.write_time(&options),
            paced,
        }
    }
}
