//! Scrub: reads every block of a table's files, and rewrites damaged files with the readable data.
//!
//! 1. Read and decode every block. Mark a file with an unreadable block as damaged, so that
//!    compactions leave it out (see `damage.rs`).
//! 2. Rewrite a damaged file, partition by partition, without its damaged blocks. A damaged filter
//!    is rebuilt. Without a footer or an index no block can be found, so that nothing of the file
//!    is saved.
//! 3. One edit of the manifest replaces the file by the new one. The old file stays as
//!    `ID.table.damaged`.
//!
//! A lost block may have contained deletions. Data that they shadowed in other files is visible
//! again, and no program can detect that. An operator with a backup may prefer to restore it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::compaction::Compactor;
use crate::env::{Env, Mode, Work, run_heavy};
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::tasks::TaskKind;
use crate::manifest::{Edit, FileEntry};
use crate::model::TableId;
use crate::state::progress::{CancelOnDrop, WorkProgress};
use crate::table::TableWriter;
use crate::table::file::TableFile;
use crate::table::file_statistics::WriteTime;
use crate::table::part::BlockPart;
use crate::table::store::NewFile;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// The result of a scrub.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Files that were read.
    pub files: u64,
    /// The first damage of each damaged file. These files were rewritten.
    pub damaged: Vec<StorageError>,
    /// Blocks whose contents are lost.
    pub blocks_lost: u64,
    /// Files of which no data could be saved.
    pub files_lost: u64,
    /// Rows that could not be read, in files that record their number of rows.
    pub rows_lost: u64,
    /// Partitions saved from damaged files.
    pub partitions_saved: u64,
    /// Rows saved from damaged files.
    pub rows_saved: u64,
}

impl Scrubbed {
    /// Adds the result for another table.
    pub(crate) fn add(&mut self, other: Scrubbed) {
        self.files += other.files;
        self.damaged.extend(other.damaged);
        self.blocks_lost += other.blocks_lost;
        self.files_lost += other.files_lost;
        self.rows_lost += other.rows_lost;
        self.partitions_saved += other.partitions_saved;
        self.rows_saved += other.rows_saved;
    }
}

/// The result of rewriting a file.
#[derive(Default)]
struct Saved {
    file: Option<TableFile>,
    blocks_lost: u64,
    rows_lost: u64,
    partitions: u64,
    rows: u64,
}

/// The group and progress of a scrub.
#[derive(Clone)]
struct Requested {
    work: Work,
    progress: WorkProgress,
}

impl Compactor {
    /// See [`crate::Shard::scrub`].
    pub(crate) async fn scrub(
        self: &Rc<Self>,
        table: TableId,
        group: lanes::Group,
        progress: &WorkProgress,
    ) -> Result<Scrubbed, StorageError> {
        self.jobs.enter()?;
        let cancel = CancelOnDrop::new(progress.clone());
        let answer = Rc::new(RefCell::new(None));
        let (own, reply) = (self.clone(), answer.clone());
        let requested = Requested { work: Work::Requested(group), progress: progress.clone() };
        // A task of its own, so that a caller that drops the future leaves no file half replaced.
        let task = async move {
            let result = own.scrub_files(table, &requested).await;
            *reply.borrow_mut() = Some(result);
            own.jobs.leave();
        };
        self.jobs.env.spawn(Work::Requested(group), Box::pin(task));
        let result = self.jobs.progress.wait(|| answer.borrow_mut().take()).await;
        cancel.disarm();
        result
    }

    async fn scrub_files(
        self: &Rc<Self>,
        table: TableId,
        requested: &Requested,
    ) -> Result<Scrubbed, StorageError> {
        let progress = &requested.progress;
        let all: Vec<Arc<TableFile>> = {
            let state = self.jobs.state.borrow();
            state.tables.get(&table).map(|table| table.files.iter().cloned().collect()).unwrap_or_default()
        };
        progress.add_total(all.iter().map(|file| file.bytes).sum());
        let files = all.len() as u64;
        let _task = self.jobs.tasks.begin(
            TaskKind::Scrub,
            Some(table),
            files,
            self.jobs.env.now_s(),
            progress.clone(),
        );
        let mut scrubbed = Scrubbed::default();
        for file in all {
            self.jobs.check_stopped(progress)?;
            let first = match file.damage() {
                Some(error) => Some(error.clone()),
                None => {
                    let verified = verify(file.clone(), self.jobs.env.clone(), progress.clone());
                    run_heavy(&*self.jobs.env, requested.work, verified).await
                }
            };
            self.jobs.check_stopped(progress)?;
            scrubbed.files += 1;
            if let Some(error) = first {
                if let Some(table) = self.jobs.state.borrow_mut().tables.get_mut(&table) {
                    table.files.exclude(file.id);
                }
                self.rewrite(table, file.id, requested, &mut scrubbed).await?;
                scrubbed.damaged.push(error);
            }
        }
        Ok(scrubbed)
    }

    /// Replaces a file by its readable data.
    async fn rewrite(
        self: &Rc<Self>,
        table: TableId,
        id: u64,
        requested: &Requested,
        scrubbed: &mut Scrubbed,
    ) -> Result<(), StorageError> {
        let find = || {
            let state = self.jobs.state.borrow();
            state.tables.get(&table).and_then(|table| table.files.iter().find(|file| file.id == id).cloned())
        };
        // A compaction that started before the file was marked may still cut or remove it.
        let left = || {
            let Some(file) = find() else { return Some(Ok(())) };
            if let Err(ended) = self.jobs.check_stopped(&requested.progress) {
                return Some(Err(ended));
            }
            let state = self.jobs.state.borrow();
            state.tables.get(&table).is_none_or(|table| !table.needs.has(file.entry.run)).then_some(Ok(()))
        };
        self.wait_requested(left).await?;
        let Some(old) = find() else { return Ok(()) };
        let new = self.jobs.store.next_file();
        let path = new.path.clone();
        let options = self.jobs.state.borrow().settings.options(table);
        let layouts = self.jobs.state.borrow().settings.layouts(table);
        let writer =
            TableWriter::new(new.seal, options.block_bytes, WriteTime::new(self.jobs.env.now_s(), &options))
                .with(layouts, options.compression);
        let job = save(self.jobs.env.clone(), old.clone(), new, writer, requested.progress.clone());
        let saved = match run_heavy(&*self.jobs.env, requested.work, job).await {
            Ok(saved) => saved,
            Err(error) => {
                let _ = self.jobs.env.remove(&path).await;
                return Err(error);
            }
        };
        let is_same = || find().is_some_and(|now| now.entry == old.entry);
        let entry = saved.file.as_ref().map(|file| file.entry.clone());
        let replace = |edit: &mut Edit| {
            if is_same() {
                edit.remove(table, id);
                entry.iter().for_each(|entry| edit.add(table, entry.clone()));
            }
        };
        let replaced = self.jobs.store.edit(replace).await;
        let was_same = is_same();
        let file = saved.file.map(Arc::new);
        {
            let state = &mut *self.jobs.state.borrow_mut();
            match state.tables.get_mut(&table) {
                Some(table) if was_same && replaced.is_ok() => {
                    self.jobs.store.cache.borrow_mut().forget_rows();
                    table.files.remove(&old);
                    file.into_iter().for_each(|file| table.files.push(file));
                }
                _ if replaced.is_ok() => self.jobs.store.retire(file),
                _ => self.jobs.store.retire_unconfirmed(file),
            }
        }
        replaced?;
        if was_same {
            scrubbed.blocks_lost += saved.blocks_lost;
            scrubbed.rows_lost += saved.rows_lost;
            scrubbed.partitions_saved += saved.partitions;
            scrubbed.rows_saved += saved.rows;
            scrubbed.files_lost += u64::from(old.damage().is_some() && saved.partitions == 0);
            let aside = old.path.with_extension("table.damaged");
            // If the rename fails, the next start removes the file.
            let _ = self.jobs.env.rename(&old.path, &aside).await;
            let table = self.jobs.state.borrow().settings.named(table);
            let (rows_saved, rows_lost) = (saved.rows, saved.rows_lost);
            self.jobs.options.event_sink.send(&Event::FileScrubbed { table, aside, rows_saved, rows_lost });
            self.jobs.store.cache.borrow_mut().forget(id, old.index.len());
        }
        self.jobs.work.wake();
        Ok(())
    }
}

/// Returns the first damage of a file. After a cancel the result does not matter.
async fn verify(file: Arc<TableFile>, env: Arc<dyn Env>, progress: WorkProgress) -> Option<StorageError> {
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
    partition: crate::model::partition::Partition,
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
            return Err(file.malformed(index)(crate::model::codec::Malformed));
        }
        *last = Some(here.clone());
        parts.push(Read { token, key: here.1, partition, continued: part.continued(), more: part.more() });
    }
    Ok(parts)
}

/// Writes the readable data of a file.
async fn save(
    env: Arc<dyn Env>,
    old: Arc<TableFile>,
    new: NewFile,
    mut writer: TableWriter,
    progress: WorkProgress,
) -> Result<Saved, StorageError> {
    let NewFile { id, path, seal } = new;
    let io = |error| StorageError::io("write a table file", &path, error);
    let mut saved = Saved::default();
    let old = match old.damage() {
        None => old,
        Some(_) => match TableFile::open_without_filter(&*env, old.path.clone(), old.entry.clone()).await {
            Ok(file) => Arc::new(file),
            Err(_) => return Ok(saved),
        },
    };
    let out = env.open(&path, Mode::CreateTable).await.map_err(io)?;
    let mut last = None;
    let mut begun = None;
    let mut rows_read = 0;
    for index in 0..old.index.len() {
        if progress.is_cancelled() {
            return Err(StorageError::Cancelled);
        }
        let before = last.clone();
        let parts = match parts_of(&old, index, &mut last).await {
            Ok(parts) => parts,
            Err(_) => {
                saved.blocks_lost += 1;
                last = before;
                continue;
            }
        };
        for Read { token, key, partition, continued, more } in parts {
            let rows = partition.row_count() as u64;
            rows_read += rows;
            if !old.entry.owns(token) {
                continue;
            }
            saved.rows += rows;
            let place = Some((token, key.clone()));
            // A partition may continue behind a lost block that had its start.
            if !continued || begun != place {
                writer.end();
                writer.begin(token, &key, &partition);
                begun = place;
            }
            writer.rows(&partition);
            if !more {
                writer.end();
            }
        }
        if writer.pending() >= CHUNK {
            writer.check()?;
            let (offset, bytes) = writer.take_whole(4096);
            out.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        }
        env.heavy_yield().await;
    }
    writer.end();
    // Includes lost rows of partitions that other shards own.
    saved.rows_lost = old.statistics.map_or(0, |statistics| statistics.rows.saturating_sub(rows_read));
    saved.partitions = writer.partitions();
    if saved.partitions == 0 {
        drop(out);
        let _ = env.remove(&path).await;
        return Ok(saved);
    }
    writer.finish()?;
    let (offset, bytes) = writer.take();
    out.write(offset, Bytes::from(bytes)).await.map_err(io)?;
    out.sync().await.map_err(io)?;
    env.sync_dir(path.parent().expect("a table file is in a folder")).await.map_err(io)?;
    // A run of its own: the old run may have other fragments with overlapping tokens.
    saved.file = Some(TableFile::open_new(&*env, path.clone(), FileEntry::new(id, id, seal)).await?);
    Ok(saved)
}
