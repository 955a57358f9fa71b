//! Compactions that fail: the table is retried later, or without the file or the runs that caused
//! the error.

use std::rc::Rc;

use crate::compaction::Compactor;
use crate::env::Work;
use crate::error::StorageError;
use crate::event::Event;
use crate::model::TableId;
use crate::state::retry::backoff;

/// Successive failed reads of a file after which its disk is assumed to have a bad sector.
const READS_FAILED_MAX: u32 = 3;

impl Compactor {
    /// Counts and reports a failed compaction of a table, and decides about the next one.
    pub(super) fn compaction_failed(self: &Rc<Self>, id: TableId, error: &StorageError) {
        if let StorageError::Closed | StorageError::Cancelled = error {
            return;
        }
        self.jobs.state.borrow_mut().counts.compactions_failed += 1;
        if let StorageError::RowTooLarge { .. } = error {
            let table = self.jobs.state.borrow().settings.named(id);
            let error = error.clone();
            self.jobs.options.event_sink.send(&Event::RunsLeftOut { table, error });
        } else if !error.is_full() && !self.exclude_damaged(id, error) {
            self.postpone(id, error);
        }
    }

    /// Excludes a table from compaction for a while after one failed.
    fn postpone(self: &Rc<Self>, id: TableId, error: &StorageError) {
        let again = {
            let state = &mut *self.jobs.state.borrow_mut();
            let failures = &mut state.tables.entry(id).or_default().failures;
            failures.in_a_row += 1;
            let again = error.is_retryable().then(|| backoff(failures.in_a_row));
            failures.waits = true;
            again
        };
        let table = self.jobs.state.borrow().settings.named(id);
        self.jobs.options.event_sink.send(&Event::CompactionFailed { table, error: error.clone(), again });
        if let Some(again) = again {
            let (own, wait) = (Rc::downgrade(self), self.jobs.env.sleep(again));
            let wake = async move {
                wait.await;
                let Some(own) = own.upgrade() else { return };
                if let Some(table) = own.jobs.state.borrow_mut().tables.get_mut(&id) {
                    table.failures.waits = false;
                }
                own.jobs.work.wake();
            };
            self.jobs.env.spawn(Work::Control, Box::pin(wake));
        }
    }

    /// Excludes from compactions the file that an error of a compaction names, if the file is
    /// damaged or reading it failed repeatedly. Returns true if it did, so that the compaction can
    /// be retried without the file.
    fn exclude_damaged(&self, table: TableId, error: &StorageError) -> bool {
        let is_read = |doing: &str| doing == "read the table file";
        let state = &mut *self.jobs.state.borrow_mut();
        let Some(files) = state.tables.get_mut(&table) else { return false };
        let path = match error {
            StorageError::Corrupt { path, .. } => path,
            StorageError::Io { doing, path, .. }
                if is_read(doing) && files.failures.in_a_row + 1 >= READS_FAILED_MAX =>
            {
                path
            }
            _ => return false,
        };
        let Some(file) = files.files.iter().find(|file| file.path == *path && !file.is_excluded()) else {
            return false;
        };
        let id = file.id;
        files.files.exclude(id);
        let table = state.settings.named(table);
        self.jobs.options.event_sink.send(&Event::FileDamaged { table, error: error.clone() });
        true
    }
}
