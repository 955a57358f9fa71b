//! Truncates and drops tables. One edit of the manifest removes their data. Later writes to dropped
//! tables are refused.

use std::rc::Rc;

use crate::error::StorageError;
use crate::log::Log;
use crate::manifest::Edit;
use crate::model::TableId;
use crate::shard::Shard;
use crate::state::ShardTable;

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
    pub fn drop_tables<'a>(
        self: &'a Rc<Self>,
        tables: &'a [TableId],
    ) -> lanes::LocalBoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            tables.iter().for_each(|table| self.state.borrow_mut().dropped.add(*table));
            self.applied_all().await;
            let gone: Vec<(TableId, ShardTable)> = {
                let state = &mut *self.state.borrow_mut();
                for table in tables {
                    state.settings.remove(*table);
                }
                tables.iter().filter_map(|table| Some((*table, state.tables.remove(table)?))).collect()
            };
            self.store.cache.borrow_mut().forget_rows();
            match &self.log {
                Some(log) if !gone.is_empty() => self.remove(log, gone).await,
                _ => Ok(()),
            }
        })
    }

    /// Removes all data of a table, durably.
    ///
    /// # Errors
    /// The log or the manifest could not be written.
    pub fn truncate(self: &Rc<Self>, table: TableId) -> lanes::LocalBoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            let Some(log) = &self.log else {
                self.state.borrow_mut().tables.remove(&table);
                self.store.cache.borrow_mut().forget_rows();
                return Ok(());
            };
            self.applied_all().await;
            let gone = self.state.borrow_mut().tables.remove(&table);
            self.store.cache.borrow_mut().forget_rows();
            if let Some(gone) = gone {
                return self.remove(log, vec![(table, gone)]).await;
            }
            // Another truncation may have emptied the table without being durable yet.
            let settled = || {
                let failed = self.jobs.failed.borrow().clone();
                let failed = failed.map(|error| Err(StorageError::clone(&error)));
                failed.or_else(|| (!self.store.is_truncating()).then_some(Ok(())))
            };
            self.jobs.progress.wait(settled).await
        })
    }

    /// Waits for records in progress. They are older than a truncation. What they wrote after it
    /// would be lost by a restart, which does not replay them.
    async fn applied_all(&self) {
        self.jobs.progress.wait(|| self.state.borrow().memory.applying.is_empty().then_some(())).await;
    }

    /// Makes the removal of tables durable, which are removed from memory just before.
    async fn remove(&self, log: &Log, gone: Vec<(TableId, ShardTable)>) -> Result<(), StorageError> {
        self.store.begin_truncation();
        let last = log.last_record();
        let name = |edit: &mut Edit| gone.iter().for_each(|(table, _)| edit.truncate(*table, last));
        let named = async {
            // The edit covers records up to `last`, so they must be in the log first. Otherwise a
            // restart would assign their numbers again.
            log.sync().await?;
            self.jobs.retry_while_full(async || self.store.edit(name).await).await
        };
        if let Err(error) = named.await {
            // Memory and disk disagree now: a restart would restore the tables.
            self.jobs.fail(error.clone());
            return Err(error);
        }
        {
            let flushed = &mut self.state.borrow_mut().flushed;
            self.store.end_truncation();
            for (_, mut table) in gone {
                self.store.retire(table.files.take());
                flushed.extend(table.frozen.into_iter().map(|(_, memtable)| memtable).chain([table.active]));
            }
        }
        self.jobs.progress.wake();
        self.jobs.work.wake();
        self.store.sweep().await;
        Ok(())
    }
}
