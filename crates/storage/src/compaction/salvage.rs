//! The heavy part of a scrub: reads the blocks of a file, and writes what is readable to another.

use std::sync::Arc;

use bytes::Bytes;

use crate::env::{Env, Mode};
use crate::error::StorageError;
use crate::manifest::FileEntry;
use crate::model::codec::Malformed;
use crate::model::partition::Partition;
use crate::state::progress::WorkProgress;
use crate::table::TableWriter;
use crate::table::file::TableFile;
use crate::table::part::BlockPart;
use crate::table::store::NewFile;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// The result of rewriting a file.
#[derive(Default)]
pub(super) struct Saved {
    pub(super) file: Option<TableFile>,
    pub(super) blocks_lost: u64,
    pub(super) rows_lost: u64,
    pub(super) partitions: u64,
    pub(super) rows: u64,
}

/// Returns the first damage of a file. After a cancel the result does not matter.
pub(super) async fn verify(
    file: Arc<TableFile>,
    env: Arc<dyn Env>,
    progress: WorkProgress,
) -> Option<StorageError> {
    let mut last = None;
    let mut left = file.bytes;
    let mut damage = None;
    for index in 0..file.index.len() {
        if progress.is_cancelled() {
            return None;
        }
        damage = parts_of(&file, index, &mut last).await.err();
        if damage.is_some() {
            break;
        }
        let read = u64::from(file.index[index].stored).min(left);
        left -= read;
        progress.add_done(read);
        env.heavy_yield().await;
    }
    progress.add_done(left);
    damage
}

/// A partition, or its part in one block.
struct Read {
    token: i64,
    key: Bytes,
    partition: Partition,
    continued: bool,
    more: bool,
}

/// Decodes a block, which must sort after the position `last`.
async fn parts_of(
    file: &TableFile,
    index: usize,
    last: &mut Option<(i64, Bytes)>,
) -> Result<Vec<Read>, StorageError> {
    let block = file.read_block(index).await?;
    let mut parts = Vec::new();
    for part in 0..block.parts {
        let part = BlockPart::new(&block, part).map_err(file.malformed(index))?;
        let partition = part.partition().map_err(file.malformed(index))?;
        let (token, key) = part.place();
        let here = (token, key.clone());
        let in_order = match &*last {
            Some(before) if part.continued() => *before <= here,
            Some(before) => *before < here,
            None => true,
        };
        if !in_order || !file.filter_has(token) {
            return Err(file.malformed(index)(Malformed));
        }
        *last = Some(here.clone());
        parts.push(Read { token, key: here.1, partition, continued: part.continued(), more: part.more() });
    }
    Ok(parts)
}

/// Writes partitions of a damaged file to a new one.
struct Salvage {
    old: Arc<TableFile>,
    writer: TableWriter,
    /// The place of the last partition that was begun.
    begun: Option<(i64, Bytes)>,
    /// Rows read, including those of partitions that other shards own.
    rows_read: u64,
    saved: Saved,
}

impl Salvage {
    fn add(&mut self, read: Read) {
        let Read { token, key, partition, continued, more } = read;
        let rows = partition.row_count() as u64;
        self.rows_read += rows;
        if !self.old.entry.owns(token) {
            return;
        }
        self.saved.rows += rows;
        let place = Some((token, key.clone()));
        // A partition may continue behind a lost block that had its start.
        if !continued || self.begun != place {
            self.writer.end();
            self.writer.begin(token, &key, &partition);
            self.begun = place;
        }
        self.writer.rows(&partition);
        if !more {
            self.writer.end();
        }
    }

    /// Ends the partitions. Returns the counts.
    fn end(&mut self) -> Saved {
        self.writer.end();
        let mut saved = std::mem::take(&mut self.saved);
        // Includes lost rows of partitions that other shards own.
        let statistics = self.old.statistics;
        saved.rows_lost = statistics.map_or(0, |statistics| statistics.rows.saturating_sub(self.rows_read));
        saved.partitions = self.writer.partitions();
        saved
    }
}

/// Writes the readable data of a file.
pub(super) async fn save(
    env: Arc<dyn Env>,
    old: Arc<TableFile>,
    new: NewFile,
    writer: TableWriter,
    progress: WorkProgress,
) -> Result<Saved, StorageError> {
    let NewFile { id, path, seal } = new;
    let io = |error| StorageError::io("write a table file", &path, error);
    let Some(old) = readable(&*env, old).await else { return Ok(Saved::default()) };
    let mut salvage =
        Salvage { old: old.clone(), writer, begun: None, rows_read: 0, saved: Saved::default() };
    let out = env.open(&path, Mode::CreateTable).await.map_err(io)?;
    let mut last = None;
    for index in 0..old.index.len() {
        if progress.is_cancelled() {
            return Err(StorageError::Cancelled);
        }
        let before = last.clone();
        match parts_of(&old, index, &mut last).await {
            Ok(parts) => parts.into_iter().for_each(|part| salvage.add(part)),
            Err(_) => {
                salvage.saved.blocks_lost += 1;
                last = before;
                continue;
            }
        }
        if salvage.writer.pending() >= CHUNK {
            salvage.writer.check()?;
            let (offset, bytes) = salvage.writer.take_whole(4096);
            out.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        }
        env.heavy_yield().await;
    }
    let mut saved = salvage.end();
    if saved.partitions == 0 {
        drop(out);
        let _ = env.remove(&path).await;
        return Ok(saved);
    }
    salvage.writer.finish()?;
    let (offset, bytes) = salvage.writer.take();
    out.write(offset, Bytes::from(bytes)).await.map_err(io)?;
    out.sync().await.map_err(io)?;
    env.sync_dir(path.parent().expect("a table file is in a folder")).await.map_err(io)?;
    // A run of its own: the old run may have other fragments with overlapping tokens.
    saved.file = Some(TableFile::open_new(&*env, path.clone(), FileEntry::new(id, id, seal)).await?);
    Ok(saved)
}

/// Opens a file without its filter, if that may be what is damaged. `None`: nothing can be read.
async fn readable(env: &dyn Env, file: Arc<TableFile>) -> Option<Arc<TableFile>> {
    if file.damage().is_none() {
        return Some(file);
    }
    let opened = TableFile::open_without_filter(env, file.path.clone(), file.entry.clone()).await;
    opened.ok().map(Arc::new)
}
