//! Tables that were dropped. Later writes to them are refused.
//!
//! A write that was bound before the drop may arrive after it, from another core or in a long
//! record. It would create the table again: acknowledged, and invisible. So the shard remembers the
//! tables dropped since it was opened. Table ids are random and never reused.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::error::StorageError;
use crate::model::TableId;

/// Number of dropped tables to remember. A write that arrives after that many more drops would be
/// minutes late. A table that it creates again is dropped at the next start.
const DROPPED_MAX: usize = 1 << 16;

/// Tables that were dropped, the last [`DROPPED_MAX`] of them.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    tables: FxHashSet<TableId>,
    /// Oldest first.
    order: VecDeque<TableId>,
}

impl Dropped {
    /// Checks that none of the tables was dropped.
    ///
    /// # Errors
    /// [`StorageError::Dropped`] for the first table that was.
    pub(crate) fn check(&self, mut tables: impl Iterator<Item = TableId>) -> Result<(), StorageError> {
        if self.tables.is_empty() {
            return Ok(());
        }
        match tables.find(|table| self.has(*table)) {
            Some(table) => Err(StorageError::Dropped { table }),
            None => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, table: TableId) {
        if self.tables.insert(table) {
            self.order.push_back(table);
        }
        if self.order.len() > DROPPED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.tables.remove(&oldest);
        }
    }

    fn has(&self, table: TableId) -> bool {
        self.tables.contains(&table)
    }
}
