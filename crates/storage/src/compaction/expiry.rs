//! Work due to time: drops files that have expired completely, and reconsiders which compactions
//! tables need.
//!
//! A file is dropped if all of it expired or was deleted longer ago than the grace period, and if
//! all live data elsewhere is newer than its newest cell: then it shadows nothing. The least
//! timestamps of overlapping files and of memtables decide that. A file that cannot be opened is
//! never dropped, and blocks files it may overlap.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::Compactor;
use crate::env::{Env, Work, run_heavy};
use crate::error::StorageError;
use crate::event::Event;
use crate::memtable::{Memtable, ScanFrom};
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::model::row::EncodedRow;
use crate::read::merge::MergeStream;
use crate::state::ShardTable;
use crate::table::file::TableFile;
use crate::table::runs::Files;

/// Time between two checks. Windows of an hour are checked 60 times each.
const EVERY: Duration = Duration::from_secs(60);

/// Files dropped by one edit of the manifest at most.
const FILES_AN_EDIT: usize = 256;

/// Partitions of a memtable visited between yields, at about 1 µs each.
const YIELD_EVERY: u32 = 256;

/// Work units charged for one table.
const TABLE_UNITS: u32 = 20;

impl Compactor {
    /// Starts the periodic task.
    pub(crate) fn start_expiry_checks(self: &Rc<Self>) {
        let (own, env) = (Rc::downgrade(self), self.jobs.env.clone());
        let clock = async move {
            loop {
                env.sleep(EVERY).await;
                let Some(own) = own.upgrade() else { return };
                if own.jobs.enter().is_err() {
                    return;
                }
                own.check_expiry().await;
                own.jobs.leave();
            }
        };
        self.jobs.env.spawn(Work::Compaction, Box::pin(clock));
    }

    /// Drops dead files of all tables, and reconsiders which compactions tables need.
    pub(crate) async fn check_expiry(self: &Rc<Self>) {
        let tables: Vec<TableId> = self.jobs.state.borrow().tables.keys().copied().collect();
        for id in tables {
            if self.jobs.state.borrow().closed {
                return;
            }
            // Works even if the table cannot be compacted because of a damaged block.
            if let Err(error) = self.drop_dead(id).await {
                self.jobs.state.borrow_mut().counts.compactions_failed += 1;
                let table = self.jobs.state.borrow().settings.named(id);
                self.jobs.options.event_sink.send(&Event::CompactionFailed {
                    table,
                    error,
                    again: Some(EVERY),
                });
            }
            {
                let state = self.jobs.state.borrow();
                if let Some(table) = state.tables.get(&id) {
                    table.needs.touch();
                    let _ = self.choice(&state, id, table);
                }
            }
            if let Some(due) = self.jobs.env.spend(TABLE_UNITS) {
                due.await;
            }
        }
        self.update_run_pressure();
        // Also deletes files dropped earlier whose last reader has ended since.
        self.jobs.store.sweep().await;
        self.jobs.work.wake();
    }

    /// Drops the files of a table that are completely dead.
    async fn drop_dead(self: &Rc<Self>, id: TableId) -> Result<(), StorageError> {
        let (dead, memory) = {
            let state = self.jobs.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Ok(()) };
            let now_s = self.jobs.env.now_s();
            let forget_before_s = state.settings.forget_before_s(&state.settings.options(id), now_s);
            let dead = dead_files(table, forget_before_s, now_s);
            (dead, table.snapshot())
        };
        if dead.is_empty() {
            return Ok(());
        }
        let env = self.jobs.env.clone();
        let oldest = run_heavy(&*self.jobs.env, Work::Compaction, oldest_in(memory, env)).await?;
        let greatest = |file: &TableFile| file.statistics.map_or(i64::MAX, |s| s.timestamps.1);
        let dead = dead.into_iter().filter(|file| greatest(file) < oldest).take(FILES_AN_EDIT);
        let dead: Vec<Arc<TableFile>> = dead.collect();
        if dead.is_empty() {
            return Ok(());
        }
        // Skips files that a TRUNCATE or a compaction took meanwhile.
        let stays = |file: &TableFile| {
            let state = self.jobs.state.borrow();
            let table = state.tables.get(&id);
            table.is_some_and(|t| t.files.contains(file) && !t.needs.has(file.entry.run))
        };
        let dropped = std::cell::RefCell::new(Vec::new());
        self.jobs
            .store
            .edit(|edit| {
                for file in dead.iter().filter(|file| stays(file)) {
                    edit.remove(id, file.id);
                    dropped.borrow_mut().push(file.clone());
                }
                let state = self.jobs.state.borrow();
                let runs: Vec<u64> = dropped.borrow().iter().map(|file| file.entry.run).collect();
                state.tables.get(&id).into_iter().for_each(|table| table.needs.take(&runs));
            })
            .await
            .inspect_err(|_| self.give_back(id, &dropped.borrow()))?;
        let dropped = dropped.into_inner();
        self.give_back(id, &dropped);
        {
            let state = &mut *self.jobs.state.borrow_mut();
            if let Some(table) = state.tables.get_mut(&id) {
                let gone: Vec<_> = dropped.iter().filter_map(|file| table.files.remove(file)).collect();
                state.counts.expired_files += gone.len() as u64;
                state.counts.expired_bytes += gone.iter().map(|file| file.bytes).sum::<u64>();
                self.jobs.store.retire(gone);
            }
        }
        Ok(())
    }

    fn give_back(&self, id: TableId, files: &[Arc<TableFile>]) {
        let runs: Vec<u64> = files.iter().map(|file| file.entry.run).collect();
        let state = self.jobs.state.borrow();
        state.tables.get(&id).into_iter().for_each(|table| table.needs.give_back(&runs));
    }
}

/// Returns the files in which everything died before `forget_before_s`, and which shadow nothing
/// that is alive in other files at `now_s`.
fn dead_files(table: &ShardTable, forget_before_s: u32, now_s: u32) -> Vec<Arc<TableFile>> {
    let died = |file: &TableFile, before_s: u32| {
        file.statistics.is_some_and(|statistics| statistics.all_dead_s < before_s)
    };
    let runs = table.files.runs();
    let shadows_nothing = |file: &Arc<TableFile>| {
        let (first, last) = file.tokens();
        let greatest = file.statistics.map_or(i64::MAX, |statistics| statistics.timestamps.1);
        let least = |other: &TableFile| other.statistics.map_or(i64::MIN, |s| s.timestamps.0);
        let older = |other: &&Arc<TableFile>| {
            other.id != file.id && least(other) <= greatest && !died(other, now_s.saturating_add(1))
        };
        let others = runs.iter().filter(|run| run.known.timestamps.0 <= greatest);
        others.flat_map(|run| run.between(first, last)).find(older).is_none()
    };
    let runs =
        runs.iter().filter(|run| run.known.first_dead_s < forget_before_s && !table.needs.has(run.number));
    let dead = runs.flat_map(|run| run.files()).filter(|file| died(file, forget_before_s));
    dead.filter(|file| shadows_nothing(file)).cloned().collect()
}

/// Returns the least timestamp in memtables, `i64::MAX` if they are empty.
async fn oldest_in(memory: Vec<Memtable>, env: Arc<dyn Env>) -> Result<i64, StorageError> {
    let mut stream = MergeStream::new(memory, &Files::default(), ScanFrom::Token(i64::MIN), i64::MAX);
    let (mut oldest, mut count) = (i64::MAX, 0);
    while let Some((_, _, partition)) = stream.next().await? {
        oldest = oldest.min(oldest_of(&partition));
        count += 1 + partition.row_count() as u32;
        if count >= YIELD_EVERY {
            count = 0;
            env.heavy_yield().await;
        }
    }
    Ok(oldest)
}

fn oldest_of(partition: &Partition) -> i64 {
    let of_row = |row: &EncodedRow| {
        let cells = row.cells().map(|cell| cell.timestamp);
        let marks = row.marker().map(|marker| marker.timestamp);
        cells.chain(marks).chain(row.deletion().map(|deletion| deletion.timestamp)).min()
    };
    let oldest = match partition {
        Partition::Single(row) => of_row(row),
        Partition::Full(full) => {
            let rows = full.statics().into_iter().chain(full.rows.iter()).filter_map(of_row);
            let ranges = full.ranges.iter().map(|(_, _, deletion)| deletion.timestamp);
            rows.chain(ranges).chain(full.deletion.map(|deletion| deletion.timestamp)).min()
        }
    };
    oldest.unwrap_or(i64::MAX)
}
