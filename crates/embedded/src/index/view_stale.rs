//! Removal of entries of views whose rows have another key now. It is exact, as for indexes: see
//! the head of [`crate::index`].

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use storage::{Pick, RowView, StorageError, TableId};

use crate::Embedded;
use crate::index::entry::{Place, removal};
use crate::index::stale::{ENTRY_UNITS, Removals};
use crate::index::view::{ViewEntry, ViewSource};

/// Entry without a row, and the partition of the view that it is in.
pub(crate) type StaleEntry = (Bytes, ViewEntry);

impl ViewSource {
    /// Returns true if a live row of the base, which an entry names, has the key of the entry.
    pub(crate) fn has(&self, key: &[u8], entry: &ViewEntry, row: &RowView) -> bool {
        let value = self.keys.value.and_then(|id| row.cell(id)).and_then(|cell| cell.value());
        let place = Place { token: entry.token, key: &entry.key, row: Some(&entry.row) };
        let current = self.keys.entry(&self.base, place, value);
        current.is_some_and(|(partition, clustering)| partition == key && entry.is_of(&clustering))
    }
}

impl Embedded {
    /// Checks entries of a view in the background, and removes those that are stale.
    pub(crate) fn check_view_entries(self: &Rc<Self>, view: &Arc<ViewSource>, entries: Vec<StaleEntry>) {
        let (engine, view) = (self.clone(), view.clone());
        self.check_later(
            entries.is_empty(),
            async move { engine.remove_stale_of_view(&view, entries).await },
        );
    }

    /// Removes those of the entries that are stale. Returns their number.
    pub(super) async fn remove_stale_of_view(
        &self,
        view: &ViewSource,
        entries: Vec<StaleEntry>,
    ) -> Result<usize, StorageError> {
        let timestamp = self.removal_timestamp();
        let now_s = self.timestamps.next().now_s;
        let base = TableId(view.base.data_id().as_u128());
        let mut removals = Removals::new();
        for (key, entry) in entries {
            let pick = Pick { columns: None, bypass_cache: false };
            let read = self.shard.read_row(base, entry.token, &entry.key, &entry.row, pick, now_s);
            let row = read.wait().await?;
            if !row.is_some_and(|row| view.has(&key, &entry, &row)) {
                let removal = removal(&entry.clustering, timestamp, now_s);
                removals.entry(key).or_default().push(removal);
            }
            if lanes::spend(ENTRY_UNITS) {
                lanes::yield_now().await;
            }
        }
        let removed = removals.values().map(Vec::len).sum();
        self.apply_removals(view.keys.data, removals)?;
        Ok(removed)
    }
}
