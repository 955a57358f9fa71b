//! Sweeps: removal of stale entries whose values no query asks for.
//!
//! 1. Every core counts the entries that it writes to an index, and sweeps it after enough of them
//!    (`due`).
//! 2. A task in the group `index` reads the entries in the order of storage, and checks each as
//!    queries do (`stale`): one point read. It yields as all work does.
//! 3. After each round it stores the partition it has reached, so that a restart goes on there.
//!
//! Memory: [`BATCH`] entries and a stretch of rows.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::Error;
use schema::TableDef;
use storage::{StorageError, TableId};

use crate::index::entry::{Entry, is_bucket};
use crate::index::list::damaged;
use crate::{Embedded, storage_error};

/// Entries checked together.
const BATCH: usize = 256;

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

    /// Sweeps one index of this core, from the stored progress on.
    async fn sweep(self: &Rc<Self>, index: TableId) -> Result<(), Error> {
        let key = progress_key(index);
        let mut token = self.stored_progress(&key).await?;
        let (mut seen, mut removed) = (0, 0);
        while let Some(table) = self.indexes.table_of(index) {
            let def = &table.def;
            if self.shard.refuses_writes() {
                return Err(storage_error(StorageError::Closed));
            }
            let round = self.sweep_round(def, index, token).await?;
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

    /// Checks some entries of an index, from the partitions with a token on.
    async fn sweep_round(
        &self,
        def: &Arc<TableDef>,
        index: TableId,
        token: Option<i64>,
    ) -> Result<Round, Error> {
        let own = def.indexes.iter().find(|own| own.data.as_u128() == index.0);
        let ty = own.and_then(|own| def.column(&own.column)).map(|(_, column)| &column.ty);
        let finds_ranges = own.zip(ty).is_some_and(|(own, ty)| own.finds_ranges(ty));
        let mut round = Round { seen: 0, removed: 0, reached: None };
        let mut batch = Vec::new();
        let now_s = self.timestamps.next().now_s;
        let mut scan = self.shard.scan(index, token.unwrap_or(i64::MIN)..=i64::MAX, None, now_s);
        while let Some(piece) = scan.next_piece().await.map_err(storage_error)? {
            let mut rows = piece.view.rows();
            while let Some(row) = rows.next_stored() {
                if lanes::spend(ENTRY_UNITS) {
                    lanes::yield_now().await;
                }
                let Some(row) = row else { continue };
                let decode =
                    if finds_ranges && is_bucket(&piece.key) { Entry::decode_ordered } else { Entry::decode };
                batch.push(decode(&piece.key, row.clustering()).ok_or_else(damaged)?);
                round.seen += 1;
                if batch.len() >= BATCH {
                    round.removed += self.swept(def, index, &mut batch).await?;
                }
            }
            if piece.last && round.seen >= ROUND_ENTRIES {
                // Partitions with the same token are checked with the next one.
                let next = piece.token.checked_add(1);
                round.reached = next;
                break;
            }
        }
        round.removed += self.swept(def, index, &mut batch).await?;
        Ok(round)
    }

    async fn swept(&self, def: &Arc<TableDef>, index: TableId, batch: &mut Vec<Entry>) -> Result<u64, Error> {
        let removed = self.remove_stale(def, index, std::mem::take(batch)).await;
        removed.map(|removed| removed as u64).map_err(storage_error)
    }
}

/// Result of a round.
struct Round {
    seen: u64,
    removed: u64,
    /// Token to continue from. `None`: all entries were checked.
    reached: Option<i64>,
}
