//! Applies many mutations in several task polls, as one record of the log: after a crash either all
//! are present or none.
//!
//! 1. The record is encoded with yields, and appended to the log at once.
//! 2. Partitions are changed one by one, with yields. Readers see a partition with all of its
//!    changes or without them.
//! 3. Until the last partition is changed, a memtable that is frozen counts as flushed only up to
//!    the record before. So the record is replayed after a crash (`ShardState::freeze`).
//!
//! A partition with many changes is changed in a copy. What other writes change meanwhile is
//! recorded, and applied to the copy too, before it replaces the partition.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::env::Work;
use crate::error::StorageError;
use crate::log::pending::Record;
use crate::log::turns::Turn;
use crate::model::codec::put_varint;
use crate::model::encoded::{put_change, put_mutation_head, put_row_head};
use crate::model::partition::{Growth, Partition};
use crate::model::row::EncodedRow;
use crate::model::{Change, Mutation};
use crate::shard::commit::Commit;
use crate::shard::{Shard, WriteKind};
use crate::signal::Signal;
use crate::state::ShardState;

/// Work units of a change: a search for the row, and a merge.
const CHANGE_UNITS: u32 = 4;

/// Changes of one partition that are applied without a yield. Each may merge a row of 4 KiB, in
/// about 2.5 µs.
const CHANGES_AT_ONCE: usize = 64;

/// Times that recorded changes are applied with yields. Each time there are fewer, unless other
/// writers get far more of the core.
const ROUNDS_MAX: usize = 16;

/// Mutations that are applied without a yield.
const MUTATIONS_AT_ONCE: usize = 16;

/// Bytes of rows that are encoded without a yield.
const BYTES_AT_ONCE: usize = 256 << 10;

/// Returns true if mutations can be encoded and applied without a yield.
fn is_small(mutations: &[Mutation]) -> bool {
    let changes = || mutations.iter().flat_map(|mutation| &mutation.changes);
    mutations.len() <= MUTATIONS_AT_ONCE
        && changes().take(CHANGES_AT_ONCE + 1).count() <= CHANGES_AT_ONCE
        && changes().filter_map(row_of).map(EncodedRow::bytes).sum::<usize>() <= BYTES_AT_ONCE
}

/// Returns the row that a change writes.
fn row_of(change: &Change) -> Option<&EncodedRow> {
    match change {
        Change::Row(row) | Change::Static(row) => Some(row),
        Change::DeletePartition(_) | Change::DeleteRange { .. } => None,
    }
}

/// Returns the row of a change that is encoded with yields.
fn long_row(change: &Change) -> Option<&EncodedRow> {
    row_of(change).filter(|row| row.bytes() > BYTES_AT_ONCE / 4)
}

/// A record that is being applied. If its caller gives up, a task applies the rest. Until then,
/// freezing a memtable leaves this record and all later ones in the log, which would grow without
/// bound.
struct Applying {
    shard: Rc<Shard>,
    record: u64,
    /// Mutations still to apply.
    left: VecDeque<Mutation>,
    /// A background task applies the rest. If the shard closes first, a restart replays the whole
    /// record.
    is_task: bool,
}

impl Drop for Applying {
    fn drop(&mut self) {
        if self.left.is_empty() {
            if self.record > 0 {
                self.shard.state.borrow_mut().memory.applying.retain(|record| *record != self.record);
                self.shard.jobs.progress.wake();
            }
            return;
        }
        if self.is_task {
            return;
        }
        let (shard, left) = (self.shard.clone(), std::mem::take(&mut self.left));
        let rest = Applying { shard, record: self.record, left, is_task: true };
        let env = self.shard.env.clone();
        env.spawn(Work::Flush, Box::pin(rest.finish()));
    }
}

impl Applying {
    /// Applies the rest. A mutation that was interrupted is applied again, which has no effect.
    async fn finish(mut self) {
        let shard = self.shard.clone();
        while let Some(mutation) = self.left.front() {
            if mutation.changes.len() > CHANGES_AT_ONCE {
                shard.apply_wide(mutation, self.record).await;
                self.left.pop_front();
                continue;
            }
            shard.apply_one(mutation, self.record);
            let units = CHANGE_UNITS.saturating_mul(mutation.changes.len() as u32 + 1);
            self.left.pop_front();
            if let Some(yield_now) = shard.env.spend(units) {
                yield_now.await;
            }
        }
    }
}

impl Shard {
    /// Applies mutations as [`Shard::apply_in_turn`] does, with yields in between. After a crash
    /// either all are present or none. Until this returns, readers may see those of some
    /// partitions.
    ///
    /// # Errors
    /// As [`Shard::apply_in_turn`].
    pub async fn apply_yielding(self: &Rc<Self>, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        self.apply_yielding_as(mutations, WriteKind::Plain).await
    }

    /// As [`Shard::apply_yielding`], also while writes are refused for lack of disk space. For
    /// changes that free space, such as those of the schema. Deletions are accepted without this.
    ///
    /// # Errors
    /// As [`Shard::apply_in_turn`].
    pub async fn apply_vital(self: &Rc<Self>, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        self.apply_yielding_as(mutations, WriteKind::Vital).await
    }

    /// As [`Shard::apply_yielding`], for a part of a write that a batch log contains. No limit of
    /// rows refuses it: its other parts may have been applied.
    ///
    /// # Errors
    /// As [`Shard::apply_in_turn`].
    pub async fn apply_part(self: &Rc<Self>, mutations: Vec<Mutation>) -> Result<Commit, StorageError> {
        self.apply_yielding_as(mutations, WriteKind::Part).await
    }

    async fn apply_yielding_as(
        self: &Rc<Self>,
        mutations: Vec<Mutation>,
        kind: WriteKind,
    ) -> Result<Commit, StorageError> {
        if is_small(&mutations) {
            return self.in_turn(|turn| self.apply_as(&mutations, kind, turn)).await;
        }
        for mutation in &mutations {
            for changes in mutation.changes.chunks(CHANGES_AT_ONCE) {
                self.check_rows(mutation, changes, kind)?;
                if let Some(yield_now) = self.env.spend(changes.len() as u32) {
                    yield_now.await;
                }
            }
        }
        let mut record = self.write_record(&mutations).await?;
        let append = |turn: Option<&Turn<'_>>| {
            // A table may have been dropped during the yields.
            self.state.borrow().dropped.check(mutations.iter().map(|mutation| mutation.table))?;
            self.append(&mutations, kind, |log, is_vital| log.append_record(is_vital, turn, &mut record))
        };
        let record = self.in_turn(append).await?;
        // Without a log there is no replay.
        if record > 0 {
            self.state.borrow_mut().memory.applying.push(record);
        }
        Applying { shard: self.clone(), record, left: mutations.into(), is_task: false }.finish().await;
        Ok(Commit::new(self.background.clone(), record).wait_while_full(kind == WriteKind::Vital))
    }

    /// Encodes the record of the mutations.
    async fn write_record(&self, mutations: &[Mutation]) -> Result<Record, StorageError> {
        let limit = self.log.as_ref().map_or(usize::MAX, |log| log.record_bytes_max());
        let long = mutations.iter().flat_map(|mutation| &mutation.changes).filter_map(long_row);
        let mut record = Record::with_capacity(long.map(EncodedRow::bytes).sum::<usize>().min(limit));
        put_varint(record.out(), mutations.len() as u64);
        for mutation in mutations {
            put_mutation_head(record.out(), mutation);
            for changes in mutation.changes.chunks(CHANGES_AT_ONCE) {
                for change in changes {
                    match long_row(change) {
                        Some(row) => self.put_long_row(record.out(), change, row).await,
                        None => put_change(record.out(), change),
                    }
                    if record.len() > limit {
                        return Err(StorageError::TooLarge { bytes: record.len(), limit });
                    }
                }
                if let Some(yield_now) = self.env.spend(changes.len() as u32) {
                    yield_now.await;
                }
            }
        }
        Ok(record)
    }

    /// Encodes a change of a long row, with yields.
    async fn put_long_row(&self, out: &mut Vec<u8>, change: &Change, row: &EncodedRow) {
        put_row_head(out, change, row);
        for piece in row.as_bytes().chunks(BYTES_AT_ONCE) {
            out.extend_from_slice(piece);
            if let Some(yield_now) = self.env.spend(lanes::units_of_copy(piece.len())) {
                yield_now.await;
            }
        }
    }

    fn apply_one(&self, mutation: &Mutation, record: u64) {
        let state = &mut *self.state.borrow_mut();
        let table = state.tables.entry(mutation.table).or_default();
        state.memory.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
        state.recordings.record(mutation);
        self.background.applied(state, record);
    }

    /// Applies many changes of one partition, with yields. Changes that other writes make meanwhile
    /// are recorded, and applied to the copy as well. Changes commute, so their order is no matter.
    async fn apply_wide(self: &Rc<Self>, mutation: &Mutation, record: u64) {
        let Mutation { table, token, key, changes } = mutation;
        // One copy of a partition at a time: of two, the second would replace the first.
        let is_free = || (!self.state.borrow().recordings.has(mutation)).then_some(());
        self.jobs.progress.wait(is_free).await;
        let recording = Recording::begin(self, mutation);
        let mut copy = Copy::of(self, mutation);
        self.change_copy(&mut copy, changes).await;
        let mut growth = copy.growth;
        for round in 0.. {
            if copy.generation != self.state.borrow().memory.generation {
                // The copied partition was frozen. What was recorded is in the frozen one, or in
                // the new one, which is copied next.
                copy = Copy::of(self, mutation);
                drop(recording.take());
                self.change_copy(&mut copy, changes).await;
                growth = copy.growth;
            }
            let others = recording.take();
            if others.len() <= CHANGES_AT_ONCE || round == ROUNDS_MAX {
                others.iter().for_each(|change| _ = copy.apply(change));
                break;
            }
            self.change_copy(&mut copy, &others).await;
        }
        let Some(partition) = copy.partition else { return };
        let state = &mut *self.state.borrow_mut();
        let active = &mut state.tables.entry(*table).or_default().active;
        // The growth by other writes is counted already.
        state.memory.bytes +=
            growth.bytes + active.replace(*token, key, partition, copy.growth.row, copy.newest);
        self.background.applied(state, record);
    }

    async fn change_copy(&self, copy: &mut Copy, changes: &[Change]) {
        for change in changes {
            copy.growth = copy.growth + copy.apply(change);
            if let Some(yield_now) = self.env.spend(CHANGE_UNITS) {
                yield_now.await;
            }
        }
    }
}

/// Copy of a partition that is being changed.
struct Copy {
    partition: Option<Partition>,
    growth: Growth,
    /// The greatest timestamp of what was applied to it.
    newest: i64,
    /// Number of freezes when it was made.
    generation: u64,
}

impl Copy {
    /// Copies the active partition of a mutation. The copy shares its nodes.
    fn of(shard: &Shard, mutation: &Mutation) -> Copy {
        let state = shard.state.borrow();
        let table = state.tables.get(&mutation.table);
        let partition = table.and_then(|table| table.active.get(mutation.token, &mutation.key));
        Copy { partition, growth: Growth::default(), newest: i64::MIN, generation: state.memory.generation }
    }

    fn apply(&mut self, change: &Change) -> Growth {
        self.newest = self.newest.max(change.newest());
        if let Some(partition) = &mut self.partition {
            return partition.apply(change);
        }
        let (first, growth) = Partition::from_changes(std::slice::from_ref(change));
        self.partition = Some(first);
        growth
    }
}

/// Records what other writes change in a partition, until it is dropped.
struct Recording {
    state: Rc<RefCell<ShardState>>,
    ended: Rc<Signal>,
    number: u64,
}

impl Recording {
    fn begin(shard: &Shard, mutation: &Mutation) -> Recording {
        let number = shard.state.borrow_mut().recordings.begin(mutation);
        Recording { state: shard.state.clone(), ended: shard.jobs.progress.clone(), number }
    }

    /// Takes the changes recorded so far.
    fn take(&self) -> Vec<Change> {
        self.state.borrow_mut().recordings.take(self.number)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.state.borrow_mut().recordings.end(self.number);
        self.ended.wake();
    }
}
