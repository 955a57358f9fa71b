//! Scrubbing a table: every block of its files is read, and files with damage are written anew with what can be read.
//!
//! 1. Every block is read and decoded. A file with a block that cannot be is set aside (see damage.rs).
//! 2. A file that was set aside is written anew, partition by partition, without its damaged blocks. A filter that cannot
//!    be read is built anew. Without a footer or an index no block can be found, so nothing of such a file is saved.
//! 3. One edit of the manifest puts the new file in the place of the old one, which stays beside it as `ID.table.damaged`.
//!
//! Lost blocks may have held deletions: what these shadowed in other files is visible again. No program can know; an
//! operator who has a backup may prefer it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::background::progress::{CancelOnDrop, Progress};
use crate::background::table_name;
use crate::compaction::tasks::TaskKind;
use crate::error::StorageError;
use crate::event::Event;
use crate::manifest::{Edit, FileEntry};
use crate::model::TableId;
use crate::options::Compression;
use crate::shard::Shard;
use crate::table::TableWriter;
use crate::table::columnar::region::Packing;
use crate::table::file::TableFile;
use crate::table::part::Part;
use crate::world::{Mode, Work, World, run_heavy};

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// The result of a scrub.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Files that were read.
    pub files: u64,
    /// Files with damage, which were written anew, each with its first damage.
    pub damaged: Vec<StorageError>,
    /// Blocks whose contents are lost.
    pub blocks_lost: u64,
    /// Files of which nothing could be saved.
    pub files_lost: u64,
    /// Rows that could not be read, of files that record how many they have.
    pub rows_lost: u64,
    /// Partitions that were saved from files with damage.
    pub partitions_saved: u64,
    /// Rows that were saved from files with damage.
    pub rows_saved: u64,
}

/// What became of a file that was written anew.
#[derive(Default)]
struct Saved {
    file: Option<TableFile>,
    blocks_lost: u64,
    rows_lost: u64,
    partitions: u64,
    rows: u64,
}

/// On whose account a scrub works, and how far it is.
#[derive(Clone)]
struct Asked {
    work: Work,
    progress: Progress,
}

impl Shard {
    /// Reads all files of a table, and writes those anew in which something is damaged, without it. Reads of the table
    /// meet no damage afterwards. Writes and reads go on meanwhile. The work runs in `group`; a caller that goes away
    /// cancels it.
    ///
    /// # Errors
    /// A file cannot be written; [`StorageError::Cancelled`], where files that were written anew by then stay so;
    /// [`StorageError::Closed`].
    pub async fn scrub(
        self: &Rc<Self>,
        table: TableId,
        group: lanes::Group,
        progress: &Progress,
    ) -> Result<Scrubbed, StorageError> {
        {
            let state = &mut *self.state.borrow_mut();
            if state.closed {
                return Err(StorageError::Closed);
            }
            state.busy += 1;
        }
        let cancel = CancelOnDrop::new(progress.clone());
        let answer = Rc::new(RefCell::new(None));
        let (shard, told) = (self.clone(), answer.clone());
        let asked = Asked { work: Work::Requested(group), progress: progress.clone() };
        // A task of its own: a caller that goes away does not leave a file half replaced.
        let task = async move {
            let result = shard.scrub_files(table, &asked).await;
            *told.borrow_mut() = Some(result);
            shard.leave();
        };
        self.world.spawn(Work::Requested(group), Box::pin(task));
        let result = self.progress.wait(|| answer.borrow_mut().take()).await;
        cancel.disarm();
        result
    }

    async fn scrub_files(self: &Rc<Self>, table: TableId, asked: &Asked) -> Result<Scrubbed, StorageError> {
        let progress = &asked.progress;
        let all: Vec<Arc<TableFile>> = {
            let state = self.state.borrow();
            state.tables.get(&table).map(|table| table.files.iter().cloned().collect()).unwrap_or_default()
        };
        progress.add_total(all.iter().map(|file| file.bytes).sum());
        let now = (self.world.now_s(), progress.clone());
        let _task = self.tasks.begin(TaskKind::Scrub, Some(table), all.len() as u64, now);
        let mut scrubbed = Scrubbed::default();
        for file in all {
            self.check_asked(progress)?;
            let first = match file.damage() {
                Some(error) => Some(error.clone()),
                None => {
                    let verified = verify(file.clone(), self.world.clone(), progress.clone());
                    run_heavy(&*self.world, asked.work, verified).await
                }
            };
            self.check_asked(progress)?;
            scrubbed.files += 1;
            if let Some(error) = first {
                if let Some(table) = self.state.borrow_mut().tables.get_mut(&table) {
                    table.files.set_aside(file.id);
                }
                self.rewrite(table, file.id, asked, &mut scrubbed).await?;
                scrubbed.damaged.push(error);
            }
        }
        Ok(scrubbed)
    }

    /// Answers why work that was asked for is to end, if it is.
    pub(crate) fn check_asked(&self, progress: &Progress) -> Result<(), StorageError> {
        match () {
            () if self.state.borrow().closed => Err(StorageError::Closed),
            () if progress.is_cancelled() => Err(StorageError::Cancelled),
            () => Ok(()),
        }
    }

    /// Puts what can be read of a file in its place.
    async fn rewrite(
        self: &Rc<Self>,
        table: TableId,
        id: u64,
        asked: &Asked,
        scrubbed: &mut Scrubbed,
    ) -> Result<(), StorageError> {
        let find = |shard: &Shard| {
            let state = shard.state.borrow();
            state.tables.get(&table).and_then(|table| table.files.iter().find(|file| file.id == id).cloned())
        };
        // A compaction that began before the file was set aside may still cut it or end with it.
        let left = || {
            let Some(file) = find(self) else { return Some(Ok(())) };
            if let Err(ended) = self.check_asked(&asked.progress) {
                return Some(Err(ended));
            }
            let state = self.state.borrow();
            state.tables.get(&table).is_none_or(|table| !table.needs.has(file.entry.run)).then_some(Ok(()))
        };
        self.wait_asked(left).await?;
        let Some(old) = find(self) else { return Ok(()) };
        let new = {
            let mut manifest = self.manifest.borrow_mut();
            manifest.next_file += 1;
            manifest.next_file - 1
        };
        let path = self.dir.join("tables").join(table_name(new));
        let options = self.table_options(table);
        let packing = match options.compression {
            Compression::None => Packing::None,
            Compression::Lz4 => Packing::Lz4,
            Compression::Zstd => Packing::Zstd,
        };
        let layouts = self.state.borrow().layouts.get(&table).cloned().unwrap_or_default();
        let writer =
            TableWriter::new(new, options.block_bytes, self.write_time(&options)).with(layouts, packing);
        let job = save(self.world.clone(), old.clone(), (new, path.clone()), writer, asked.progress.clone());
        let saved = match run_heavy(&*self.world, asked.work, job).await {
            Ok(saved) => saved,
            Err(error) => {
                let _ = self.world.remove(&path).await;
                return Err(error);
            }
        };
        let is_same = |shard: &Shard| find(shard).is_some_and(|now| now.entry == old.entry);
        let entry = saved.file.as_ref().map(|file| file.entry.clone());
        let replace = |shard: &Shard, edit: &mut Edit| {
            if is_same(shard) {
                edit.remove(table, id);
                entry.iter().for_each(|entry| edit.add(table, entry.clone()));
            }
        };
        let replaced = self.edit(replace).await;
        let was_same = is_same(self);
        let file = saved.file.map(Arc::new);
        {
            let state = &mut *self.state.borrow_mut();
            match state.tables.get_mut(&table) {
                Some(table) if was_same && replaced.is_ok() => {
                    table.files.remove(&old);
                    file.into_iter().for_each(|file| table.files.push(file));
                }
                _ if replaced.is_ok() => state.obsolete.extend(file),
                _ => state.unconfirmed.extend(file),
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
            // If this fails the next start removes the file.
            let _ = self.world.rename(&old.path, &aside).await;
            let table = self.state.borrow().named(table);
            let (rows_saved, rows_lost) = (saved.rows, saved.rows_lost);
            self.options.teller.tell(&Event::FileScrubbed { table, aside, rows_saved, rows_lost });
            self.cache.borrow_mut().forget(id);
        }
        self.work.wake();
        Ok(())
    }
}

/// The first damage of a file. Its end does not matter once the scrub is cancelled.
async fn verify(file: Arc<TableFile>, world: Arc<dyn World>, progress: Progress) -> Option<StorageError> {
    let (mut last, mut left, mut damage) = (None, file.bytes, None);
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
        world.heavy_yield().await;
    }
    progress.add_done(left);
    damage
}

/// A partition, or what a block has of it.
struct Read {
    token: i64,
    key: Bytes,
    partition: crate::model::partition::Partition,
    continued: bool,
    more: bool,
}

/// Decodes a block, which must come after the place `last`.
async fn parts_of(
    file: &TableFile,
    index: usize,
    last: &mut Option<(i64, Bytes)>,
) -> Result<Vec<Read>, StorageError> {
    let block = file.read_block(index).await?;
    let mut parts = Vec::new();
    for part in 0..block.parts {
        let part = Part::new(&block, part).map_err(file.malformed(index))?;
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

/// Writes what can be read of a file.
async fn save(
    world: Arc<dyn World>,
    old: Arc<TableFile>,
    (id, path): (u64, PathBuf),
    mut writer: TableWriter,
    progress: Progress,
) -> Result<Saved, StorageError> {
    let io = |error| StorageError::io("write a table file", &path, error);
    let mut saved = Saved::default();
    let old = match old.damage() {
        None => old,
        Some(_) => match TableFile::open_without_filter(&*world, old.path.clone(), old.entry.clone()).await {
            Ok(file) => Arc::new(file),
            Err(_) => return Ok(saved),
        },
    };
    let out = world.open(&path, Mode::CreateTable).await.map_err(io)?;
    let (mut last, mut begun, mut rows_read) = (None, None, 0);
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
            // Behind a lost block a partition may go on whose beginning is lost.
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
        world.heavy_yield().await;
    }
    writer.end();
    // With rows of partitions that other cores own, where blocks of those are damaged.
    saved.rows_lost = old.statistics.map_or(0, |statistics| statistics.rows.saturating_sub(rows_read));
    saved.partitions = writer.partitions();
    if saved.partitions == 0 {
        drop(out);
        let _ = world.remove(&path).await;
        return Ok(saved);
    }
    writer.finish()?;
    let (offset, bytes) = writer.take();
    out.write(offset, Bytes::from(bytes)).await.map_err(io)?;
    out.sync().await.map_err(io)?;
    world.sync_dir(path.parent().expect("a table file is in a folder")).await.map_err(io)?;
    // A run of its own: that of the old file may have fragments beside it, and its tokens are among theirs.
    saved.file = Some(TableFile::open(&*world, path.clone(), FileEntry::new(id, id)).await?);
    Ok(saved)
}
