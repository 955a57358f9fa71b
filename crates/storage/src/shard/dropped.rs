//! Drops tables. One edit of the manifest removes their data, and later writes to them are refused.

use std::rc::Rc;

use crate::error::StorageError;
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::model::TableId;
use crate::shard::Shard;
use crate::state::Table;

impl Shard {
    /// Returns the tables with data.
    pub fn tables(&self) -> Vec<TableId> {
        self.state.borrow().tables.keys().copied().collect()
    }

    /// Removes tables and their data, durably, all or none of them. Writes to them are refused from
    /// now on.
    ///
    /// # Errors
    /// Writing the log or the manifest failed. Writes are refused then, and a restart restores the
    /// tables.
    pub async fn drop_tables(self: &Rc<Self>, tables: &[TableId]) -> Result<(), StorageError> {
        tables.iter().for_each(|table| self.state.borrow_mut().dropped.add(*table));
        // As for a truncation: a restart does not replay older records, so wait until they are
        // applied.
        self.progress.wait(|| self.state.borrow().applying.is_empty().then_some(())).await;
        let mut gone = {
            let state = &mut *self.state.borrow_mut();
            for table in tables {
                state.configured.remove(table);
                state.names.remove(table);
                state.layouts.remove(table);
                state.dropped_columns.remove(table);
            }
            let gone = tables.iter().filter_map(|table| Some((*table, state.tables.remove(table)?)));
            let gone: Vec<_> = gone.collect();
            if !gone.is_empty() && self.log.is_some() {
                self.store.begin_truncation();
            }
            gone
        };
        let Some(log) = self.log.as_ref().filter(|_| !gone.is_empty()) else { return Ok(()) };
        let last = log.last_record();
        let ids: Vec<TableId> = gone.iter().map(|(table, _)| *table).collect();
        let name = |edit: &mut Edit| ids.iter().for_each(|table| edit.truncate(*table, last));
        let named = async {
            // The edit covers records up to `last`, so they must be in the log first. Otherwise a
            // restart would assign their numbers again.
            log.sync().await?;
            self.retry_while_full(async || self.store.edit(name).await).await
        };
        if let Err(error) = named.await {
            self.fail(error.clone());
            return Err(error);
        }
        {
            let state = &mut *self.state.borrow_mut();
            self.store.end_truncation();
            for (_, table) in &mut gone {
                self.store.retire(table.files.take());
            }
            let memtables = |table: Table| -> Vec<Memtable> {
                table.frozen.into_iter().map(|(_, memtable)| memtable).chain([table.active]).collect()
            };
            state.flushed.extend(gone.into_iter().flat_map(|(_, table)| memtables(table)));
        }
        self.progress.wake();
        self.work.wake();
        self.store.sweep().await;
        Ok(())
    }
}
