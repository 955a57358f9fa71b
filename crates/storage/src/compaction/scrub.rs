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

use crate::compaction::Compactor;
use crate::compaction::salvage::{Saved, save, verify};
use crate::env::{Work, run_heavy};
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::tasks::TaskKind;
use crate::manifest::Edit;
use crate::model::TableId;
use crate::state::progress::{CancelOnDrop, WorkProgress};
use crate::table::TableWriter;
use crate::table::file::TableFile;
use crate::table::file_statistics::WriteTime;

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
        self.wait_until_idle(table, id, &requested.progress).await?;
        let Some(old) = self.file(table, id) else { return Ok(()) };
        let mut saved = self.save(table, &old, requested).await?;
        if self.swap(table, &old, saved.file.take()).await? {
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

    fn file(&self, table: TableId, id: u64) -> Option<Arc<TableFile>> {
        let state = self.jobs.state.borrow();
        state.tables.get(&table)?.files.iter().find(|file| file.id == id).cloned()
    }

    /// Waits until no compaction uses the file. One that started before the file was marked may
    /// still cut or remove it.
    async fn wait_until_idle(
        &self,
        table: TableId,
        id: u64,
        progress: &WorkProgress,
    ) -> Result<(), StorageError> {
        let idle = || {
            let Some(file) = self.file(table, id) else { return Some(Ok(())) };
            if let Err(ended) = self.jobs.check_stopped(progress) {
                return Some(Err(ended));
            }
            let state = self.jobs.state.borrow();
            state.tables.get(&table).is_none_or(|table| !table.needs.has(file.entry.run)).then_some(Ok(()))
        };
        self.wait_requested(idle).await
    }

    /// Writes the readable data of a file to a new one.
    async fn save(
        &self,
        table: TableId,
        old: &Arc<TableFile>,
        requested: &Requested,
    ) -> Result<Saved, StorageError> {
        let env = &self.jobs.env;
        let new = self.jobs.store.next_file();
        let path = new.path.clone();
        let options = self.jobs.state.borrow().settings.options(table);
        let layouts = self.jobs.state.borrow().settings.layouts(table);
        let written = WriteTime::new(env.now_s(), &options);
        let writer =
            TableWriter::new(new.seal, options.block_bytes, written).with(layouts, options.compression);
        let job = save(env.clone(), old.clone(), new, writer, requested.progress.clone());
        let saved = run_heavy(&**env, requested.work, job).await;
        if saved.is_err() {
            let _ = env.remove(&path).await;
        }
        saved
    }

    /// Replaces a file by another, durably. Returns false if a compaction or TRUNCATE changed it
    /// meanwhile.
    async fn swap(
        &self,
        table: TableId,
        old: &Arc<TableFile>,
        new: Option<TableFile>,
    ) -> Result<bool, StorageError> {
        let is_same = || self.file(table, old.id).is_some_and(|now| now.entry == old.entry);
        let replace = |edit: &mut Edit| {
            if is_same() {
                edit.remove(table, old.id);
                new.iter().for_each(|file| edit.add(table, file.entry.clone()));
            }
        };
        let replaced = self.jobs.store.edit(replace).await;
        let was_same = is_same();
        let new = new.map(Arc::new);
        let state = &mut *self.jobs.state.borrow_mut();
        match state.tables.get_mut(&table) {
            Some(table) if was_same && replaced.is_ok() => {
                self.jobs.store.cache.borrow_mut().forget_rows();
                table.files.remove(old);
                new.into_iter().for_each(|file| table.files.push(file));
            }
            _ if replaced.is_ok() => self.jobs.store.retire(new),
            _ => self.jobs.store.retire_unconfirmed(new),
        }
        replaced.map(|()| was_same)
    }
}
