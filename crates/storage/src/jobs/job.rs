//! The heavy part of flushes and compactions: merges partitions, purges dead data, and writes a run
//! of table files, one fragment at a time. Between fragments the job returns to the fast lane,
//! which makes the last fragment visible.

use std::sync::Arc;

use bytes::Bytes;
use sched::control::Pacer;

use crate::env::{Env, Mode, Work, run_heavy};
use crate::error::StorageError;
use crate::jobs::Jobs;
use crate::jobs::pacing::Pace;
use crate::jobs::purge::Purge;
use crate::manifest::FileEntry;
use crate::memtable::Memtable;
use crate::model::{SOURCES_MAX, TableId};
use crate::options::Compression;
use crate::read::merge::{MergeStream, Piece};
use crate::state::progress::WorkProgress;
use crate::table::TableWriter;
use crate::table::columnar::layout::ColumnLayout;
use crate::table::file::TableFile;
use crate::table::file_statistics::WriteTime;
use crate::table::large_rows::noted_from;
use crate::table::runs::Files;
use crate::table::store::NewFile;

/// Bytes written to a table file at a time.
const CHUNK: usize = 1 << 20;

/// All writes but the last are multiples of this, bytes, so that they bypass the page cache.
const WRITE_UNIT: usize = 4096;

/// Partitions merged between yields: at about 2 µs each, well within 1 ms.
const YIELD_EVERY: u32 = 128;

/// Rows of a wide partition that count as one more partition.
const ROWS_A_PARTITION: u32 = 4;

/// The pacing of a job. Tokens are hashes, so the token reached tells which fraction of the bytes
/// is done.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    pace: Arc<Pace>,
    pacer: Pacer,
    progress: WorkProgress,
    /// The first token, and the distance to the last.
    tokens: (i64, u64),
    bytes: u64,
    done: u64,
}

impl Paced {
    /// Paces a job of about `bytes` bytes of input.
    pub(crate) fn new(pace: Arc<Pace>, bytes: u64) -> Paced {
        let (pacer, progress) = (Pacer::default(), WorkProgress::default());
        Paced { pace, pacer, progress, tokens: (i64::MIN, u64::MAX), bytes, done: 0 }
    }

    /// Sets the token range from `first` to `last`. Reports to `progress`, which may cancel the
    /// job.
    pub(crate) fn of(self, first: i64, last: i64, progress: WorkProgress) -> Paced {
        Paced { tokens: (first, last.abs_diff(first).max(1)), progress, ..self }
    }

    /// Returns the reason to stop, if there is one.
    fn ended(&self) -> Option<StorageError> {
        match () {
            () if self.pace.is_stopped() => Some(StorageError::Closed),
            () if self.progress.is_cancelled() => Some(StorageError::Cancelled),
            () => None,
        }
    }

    async fn reached(&mut self, env: &dyn Env, token: i64) {
        let (first, count) = self.tokens;
        let part = if token <= first { 0 } else { token.abs_diff(first).min(count) };
        let done = (u128::from(self.bytes) * u128::from(part) / u128::from(count)) as u64;
        let more = done.saturating_sub(self.done);
        self.done += more;
        self.progress.add_done(more);
        self.pace.keep_rate(env, &mut self.pacer, more).await;
    }
}

/// Memtables and files outside a job.
#[derive(Debug, Default)]
pub(crate) struct Others {
    pub(crate) memory: Vec<Memtable>,
    pub(crate) files: Files,
}

impl Others {
    fn may_have(&self, token: i64, key: &Bytes) -> bool {
        self.memory.iter().any(|memtable| memtable.get(token, key).is_some())
            || self.files.holding(token).next().is_some()
    }
}

/// A flush or compaction, run on the heavy lane one fragment at a time.
pub(crate) struct Job {
    stream: MergeStream,
    /// The first piece of the next fragment.
    pending: Option<Piece>,
    /// The number of the first file, which is also the number of the run.
    run: Option<u64>,
    fragment_bytes: u64,
    block_bytes: usize,
    layouts: Arc<[ColumnLayout]>,
    compression: Compression,
    purge: Purge,
    /// Memtables and files outside the job that may contain data that a tombstone shadows.
    others: Others,
    written: WriteTime,
    paced: Paced,
    /// Bytes from which rows are noted.
    large_rows_from: usize,
}

/// The result of writing one fragment.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// `None` if no data was left to write.
    pub(crate) file: Option<TableFile>,
    /// The token at which the job continues: all smaller tokens are written. `None` at the end.
    pub(crate) next: Option<i64>,
}

impl Job {
    /// Replaces the memtables and files that may contain shadowed data. Returns the old memtables.
    pub(crate) fn replace_others(&mut self, others: Others) -> Vec<Memtable> {
        std::mem::replace(&mut self.others, others).memory
    }

    /// Returns the partitions read so far, by the number of sources that had them.
    pub(crate) fn partitions(&self) -> [u64; SOURCES_MAX] {
        self.stream.partitions
    }

    /// Returns the memtables used, of which the job may hold the last reference.
    pub(crate) fn into_memory(self) -> Vec<Memtable> {
        self.others.memory
    }

    /// Writes the next fragment. Removes its file if that fails.
    async fn fragment(mut self, new: NewFile, env: Arc<dyn Env>) -> (Job, Result<Sealed, StorageError>) {
        let written = self.write(&new, &*env).await;
        if !matches!(written, Ok(Sealed { file: Some(_), .. })) {
            // If the removal fails too, the next start removes the file.
            let _ = env.remove(&new.path).await;
        }
        (self, written)
    }

    async fn write(&mut self, new: &NewFile, env: &dyn Env) -> Result<Sealed, StorageError> {
        let NewFile { id, ref path, seal } = *new;
        let io = |error| StorageError::io("write a table file", path, error);
        let file = env.open(path, Mode::CreateTable).await.map_err(io)?;
        let writer = TableWriter::new(seal, self.block_bytes, self.written);
        let writer = writer.with(self.layouts.clone(), self.compression);
        let mut writer = writer.with_large_rows(self.large_rows_from);
        let mut count = 0;
        let mut taken = 0;
        let mut last = None;
        let next = loop {
            let piece = match self.pending.take() {
                Some(piece) => Some(piece),
                None => self.stream.next_piece().await?,
            };
            let Some(piece) = piece else { break None };
            let token = piece.token;
            // All partitions of a token are in one fragment of a run.
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
                self.paced.reached(env, token).await;
                if let Some(error) = self.paced.ended() {
                    return Err(error);
                }
                env.heavy_yield().await;
            }
        };
        self.paced.reached(env, next.unwrap_or(i64::MAX)).await;
        if writer.partitions() == 0 {
            return Ok(Sealed { file: None, next });
        }
        writer.finish()?;
        let (offset, bytes) = writer.take();
        file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        file.sync().await.map_err(io)?;
        let dir = path.parent().expect("a table file is in a folder");
        env.sync_dir(dir).await.map_err(io)?;
        let run = *self.run.get_or_insert(id);
        let mut file = TableFile::open_new(env, path.to_owned(), FileEntry::new(id, run, seal)).await?;
        file.large_rows = writer.large_rows();
        Ok(Sealed { file: Some(file), next })
    }

    /// Writes what the purge leaves of a piece. The partition starts with the first piece that is
    /// not empty then.
    fn add(&self, writer: &mut TableWriter, piece: Piece) {
        let Piece { token, key, partition, first, last } = piece;
        let left = match self.purge.is_all_alive(&partition) {
            // The usual case, which needs no lookup of the key elsewhere.
            true => Some(partition),
            false if first => self.purge(token, &key).partition(partition),
            false => self.purge(token, &key).later_piece(partition),
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
        let forget_before_s = if self.others.may_have(token, key) { 0 } else { self.purge.forget_before_s };
        Purge { forget_before_s, ..self.purge.clone() }
    }
}

impl Jobs {
    /// Runs a job up to the end of its next fragment.
    pub(crate) async fn next_fragment(&self, work: Work, job: Job) -> (Job, Result<Sealed, StorageError>) {
        run_heavy(&*self.env, work, job.fragment(self.store.next_file(), self.env.clone())).await
    }

    pub(crate) fn job(
        &self,
        table: TableId,
        stream: MergeStream,
        forget: bool,
        others: Others,
        paced: Paced,
    ) -> Job {
        let now_s = self.env.now_s();
        let options = self.state.borrow().settings.options(table);
        let forget_before_s =
            if forget { self.state.borrow().settings.forget_before_s(&options, now_s) } else { 0 };
        let layouts = self.state.borrow().settings.layouts(table);
        let dropped = self.state.borrow().settings.dropped_columns(table);
        Job {
            stream,
            pending: None,
            run: None,
            fragment_bytes: options.fragment_bytes,
            block_bytes: options.block_bytes,
            layouts,
            compression: options.compression,
            purge: Purge { now_s, forget_before_s, dropped },
            others,
            written: WriteTime::new(now_s, &options),
            paced,
            large_rows_from: noted_from(self.options.row_bytes_max),
        }
    }
}
