//! Sweeps: removal of stale entries of indexes and views that no query asks for.
//!
//! 1. Every core counts the entries that it writes to an index or a view, and sweeps it after
//!    enough of them (`due`).
//! 2. A task in the group `index` reads the entries in the order of storage, and checks each as
//!    queries do (`stale`, `view_stale`): one point read. It yields as all work does.
//! 3. After each round it stores the partition it has reached, so that a restart goes on there.
//!
//! Memory: [`BATCH_BYTES`] of entries and a stretch of rows.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Error;
use storage::{StorageError, TableId};

use crate::index::entry::Entry;
use crate::index::list::damaged;
use crate::index::maintain::IndexedTable;
use crate::index::view::{ViewEntry, ViewSource};
use crate::index::view_stale::StaleEntry;
use crate::{Embedded, storage_error};

/// Entries checked together, and their bytes, at most.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// Entries of a round. A round stores its progress, so that a restart repeats about one.
const ROUND_ENTRIES: u64 = 10_000;

/// Work units of reading an entry.
const ENTRY_UNITS: u32 = 2;

/// Pause before a sweep that failed is continued.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Returns the key of the row with the progress of a sweep.
fn progress_key(index: TableId) -> Vec<u8> {
    [&index.0.to_be_bytes()[..], b"sweep"].concat()
}

impl Embedded {
    /// Continues the sweeps that a restart interrupted.
    pub(crate) fn resume_sweeps(self: &Rc<Self>) {
        let engine = self.clone();
        let indexes = self.indexes.all();
        if indexes.is_empty() {
            return;
        }
        let work = async move {
            for index in indexes {
                if let Ok(Some(_)) = engine.stored_progress(&progress_key(index)).await {
                    engine.indexes.sweeps.mark(index);
                }
            }
            engine.start_sweeps();
        };
        lanes::spawn(lanes::Group::INDEX, work).detach();
    }

    /// Starts the task that sweeps indexes, if one is due and the task does not run.
    pub(crate) fn start_sweeps(&self) {
        let sweeps = &self.indexes.sweeps;
        if sweeps.next().is_none() || sweeps.is_running.replace(true) {
            return;
        }
        let me = self.me.clone();
        let work = async move {
            while let Some(engine) = me.upgrade() {
                let Some(index) = engine.indexes.sweeps.next() else {
                    engine.indexes.sweeps.is_running.set(false);
                    return;
                };
                let swept = engine.sweep(index).await;
                drop(engine);
                if swept.is_err() {
                    lanes::time::sleep(RETRY_AFTER).await;
                }
            }
        };
        lanes::spawn(lanes::Group::INDEX, work).detach();
    }

    /// Sweeps one index or view of this core, from the stored progress on.
    async fn sweep(self: &Rc<Self>, index: TableId) -> Result<(), Error> {
        let key = progress_key(index);
        let mut token = self.stored_progress(&key).await?;
        let (mut seen, mut removed) = (0, 0);
        while let Some(table) = self.indexes.table_of(index) {
            if self.shard.refuses_writes() {
                return Err(storage_error(StorageError::Closed));
            }
            let round = self.sweep_round(&table, index, token).await?;
            (seen, removed) = (seen + round.seen, removed + round.removed);
            let sweeps = &self.indexes.sweeps;
            sweeps.count(round.seen, round.removed);
            token = round.reached;
            self.store(&key, token).await?;
            if token.is_none() {
                sweeps.set_next(index, seen, removed);
                return Ok(());
            }
        }
        self.indexes.sweeps.retain(|own| own != index);
        self.store(&key, None).await
    }

    /// Checks some entries of an index or a view, from the partitions with a token on.
    async fn sweep_round(
        &self,
        table: &IndexedTable,
        data: TableId,
        token: Option<i64>,
    ) -> Result<Round, Error> {
        let mut round = Round { seen: 0, removed: 0, reached: None };
        let mut batch = Batch::of(table, data);
        let now_s = self.timestamps.next().now_s;
        let mut scan = self.shard.scan(data, token.unwrap_or(i64::MIN)..=i64::MAX, None, now_s);
        while let Some(piece) = scan.next_piece().await.map_err(storage_error)? {
            let mut rows = piece.view.rows();
            while let Some(row) = rows.next_stored() {
                if lanes::spend(ENTRY_UNITS) {
                    lanes::yield_now().await;
                }
                let Some(row) = row else { continue };
                round.seen += 1;
                if batch.add(&piece.key, row.clustering())? {
                    round.removed += self.remove_stale_of(table, data, &mut batch).await?;
                }
            }
            if piece.last && round.seen >= ROUND_ENTRIES {
                // Partitions with the same token are checked with the next one.
                let next = piece.token.checked_add(1);
                round.reached = next;
                break;
            }
        }
        round.removed += self.remove_stale_of(table, data, &mut batch).await?;
        Ok(round)
    }

    async fn remove_stale_of(
        &self,
        table: &IndexedTable,
        data: TableId,
        batch: &mut Batch,
    ) -> Result<u64, Error> {
        batch.bytes = 0;
        let removed = match batch {
            Batch { kind: Kind::OfIndex(_, entries), .. } => {
                self.remove_stale(&table.def, data, std::mem::take(entries)).await
            }
            Batch { kind: Kind::OfView(view, entries), .. } => {
                self.remove_stale_of_view(view, std::mem::take(entries)).await
            }
        };
        removed.map(|removed| removed as u64).map_err(storage_error)
    }
}

/// Entries to check together.
struct Batch {
    kind: Kind,
    bytes: usize,
}

enum Kind {
    /// Entries of an index, which finds ranges or not.
    OfIndex(bool, Vec<Entry>),
    OfView(Arc<ViewSource>, Vec<StaleEntry>),
}

impl Batch {
    fn of(table: &IndexedTable, data: TableId) -> Batch {
        let kind = match table.view(data) {
            Some(view) => Kind::OfView(view, Vec::new()),
            None => Kind::OfIndex(table.finds_ranges(data), Vec::new()),
        };
        Batch { kind, bytes: 0 }
    }

    /// Adds an entry. Returns true if the batch is full.
    fn add(&mut self, partition: &Bytes, clustering: &[u8]) -> Result<bool, Error> {
        self.bytes += partition.len() + clustering.len();
        let count = match &mut self.kind {
            Kind::OfIndex(finds_ranges, entries) => {
                let entry = Entry::of_index(*finds_ranges, partition, clustering);
                entries.push(entry.ok_or_else(damaged)?);
                entries.len()
            }
            Kind::OfView(_, entries) => {
                let entry = ViewEntry::decode(clustering);
                entries.push((partition.clone(), entry.ok_or_else(damaged)?));
                entries.len()
            }
        };
        Ok(count >= BATCH || self.bytes >= BATCH_BYTES)
    }
}

/// Result of a round.
struct Round {
    seen: u64,
    removed: u64,
    /// Token to continue from. `None`: all entries were checked.
    reached: Option<i64>,
}
