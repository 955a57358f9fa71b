//! A shard: the data of one core, and the interface of this crate.

pub(crate) mod apply;
pub(crate) mod commit;
pub(crate) mod dropped;
pub(crate) mod import;
pub(crate) mod maintenance;
pub(crate) mod metrics;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod repair;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::background::Background;
use crate::env::Env;
use crate::error::StorageError;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::log::turns::Turn;
use crate::model::encoded::{put_mutations, put_one_row, put_row_of};
use crate::model::row::Draft;
use crate::model::{Change, Mutation, TableId};
use crate::options::TableOptions;
use crate::shard::commit::{Acks, Commit};
use crate::state::ShardState;
use crate::state::settings::DroppedCells;
use crate::table::columnar::layout::ColumnLayout;
use crate::table::store::FileStore;

/// The data of one core. All calls are made on the fast lane of that core.
#[derive(Debug)]
pub struct Shard {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) state: Rc<RefCell<ShardState>>,
    pub(crate) store: Rc<FileStore>,
    /// `None`: the shard is in memory, and nothing is durable.
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) background: Rc<Background>,
}

/// The limits that apply to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteKind {
    /// All.
    Plain,
    /// It is accepted on a full disk.
    Vital,
    /// It may enlarge a row beyond the limit.
    Part,
}

impl Shard {
    /// Applies mutations together: readers see all of them at once, and after a crash either all
    /// are present or none. They are visible when this returns, and durable when the [`Commit`]
    /// resolves.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`]: a record above [`crate::StorageOptions::record_bytes_max`].
    /// [`StorageError::RowTooLarge`]: a row with collections has reached
    /// [`crate::StorageOptions::row_bytes_max`].
    /// [`StorageError::Overloaded`]: the bytes that wait for the disk exceed a segment or the
    /// largest record, the log has reached its bound, or other writers wait for that reason; see
    /// [`Shard::apply_in_turn`]. [`StorageError::WritesRefused`]: an earlier write failed.
    /// [`StorageError::Closed`]: after shutdown. Nothing has been applied then.
    pub fn apply(self: &Rc<Self>, mutations: impl AsRef<[Mutation]>) -> Result<Commit, StorageError> {
        self.apply_as(mutations.as_ref(), WriteKind::Plain, None)
    }

    /// As [`Shard::apply`]. Waits while the log has no room: the levels wait independently of each
    /// other, and within a level turn goes round the flows.
    ///
    /// # Errors
    /// As [`Shard::apply`], without [`StorageError::Overloaded`].
    pub async fn apply_in_turn(self: &Rc<Self>, mutations: &[Mutation]) -> Result<Commit, StorageError> {
        self.in_turn(|turn| self.apply_as(mutations, WriteKind::Plain, turn)).await
    }

    /// Calls `write` until it finds room in the log.
    pub(crate) async fn in_turn<T>(
        &self,
        mut write: impl FnMut(Option<&Turn<'_>>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut turn = None;
        loop {
            match (write(turn.as_ref()), &self.log) {
                (Err(StorageError::Overloaded { bytes }), Some(log)) => {
                    // End the turn before the next one begins.
                    drop(turn.take());
                    turn = Some(log.turn(bytes).await);
                }
                (result, _) => return result,
            }
        }
    }

    /// As [`Shard::apply_vital`], for few mutations.
    ///
    /// # Errors
    /// As [`Shard::apply`].
    pub fn apply_few_vital(self: &Rc<Self>, mutations: &[Mutation]) -> Result<Commit, StorageError> {
        self.apply_as(mutations, WriteKind::Vital, None)
    }

    pub(crate) fn apply_as(
        self: &Rc<Self>,
        mutations: &[Mutation],
        kind: WriteKind,
        turn: Option<&Turn<'_>>,
    ) -> Result<Commit, StorageError> {
        // Only counts: this cannot yield. Large batches use `apply_yielding`.
        drop(self.env.spend(mutations.len() as u32));
        self.state.borrow().dropped.check(mutations.iter().map(|mutation| mutation.table))?;
        for mutation in mutations {
            self.check_rows(mutation, &mutation.changes, kind)?;
        }
        let record = self.append(mutations, kind, |log, is_vital| {
            log.append(is_vital, turn, |out| put_mutations(out, mutations))
        })?;
        let state = &mut *self.state.borrow_mut();
        for mutation in mutations {
            let table = state.tables.entry(mutation.table).or_default();
            state.memory.bytes += table.active.apply(mutation.token, &mutation.key, &mutation.changes);
            state.recordings.record(mutation);
        }
        self.background.applied(state, record);
        Ok(Commit::new(self.background.clone(), record).wait_while_full(kind == WriteKind::Vital))
    }

    /// Prefetches what [`Shard::put`] reads first. Call it before other work: a cache miss takes as
    /// long as a hundred instructions or more.
    #[inline]
    pub fn prefetch(&self, table: TableId, token: i64) {
        if let Some(table) = self.state.borrow().tables.get(&table) {
            table.active.prefetch(token);
        }
    }

    /// Writes a row: [`Shard::apply`] without its allocations. A row without clustering contains
    /// the key of its partition, others do not.
    ///
    /// # Errors
    /// As [`Shard::apply`].
    pub fn put(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        row: &Draft,
    ) -> Result<Commit, StorageError> {
        self.put_as(table, token, key, row, None)
    }

    /// As [`Shard::put`]. Waits as [`Shard::apply_in_turn`] does.
    ///
    /// # Errors
    /// As [`Shard::apply_in_turn`].
    pub async fn put_in_turn(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        row: &Draft,
    ) -> Result<Commit, StorageError> {
        self.in_turn(|turn| self.put_as(table, token, key, row, turn)).await
    }

    #[inline]
    fn put_as(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        row: &Draft,
        turn: Option<&Turn<'_>>,
    ) -> Result<Commit, StorageError> {
        {
            let state = self.state.borrow();
            state.dropped.check(std::iter::once(table))?;
            if let Some(table) = state.tables.get(&table) {
                table.active.prefetch_row(token);
                let limit = self.jobs.options.row_bytes_max;
                if table.has_large_rows(limit)
                    && table.exceeds_limit(token, key, &Change::Row(row.row()), limit)
                {
                    return Err(StorageError::RowTooLarge { token, limit });
                }
            }
        }
        if self.state.borrow().closed {
            return Err(StorageError::Closed);
        }
        let put = |out: &mut Vec<u8>| match row.key() == key {
            true => put_one_row(out, table, token, row),
            false => put_row_of(out, table, token, key, row),
        };
        let record = self.log.as_ref().map_or(Ok(0), |log| log.append(false, turn, put))?;
        let state = &mut *self.state.borrow_mut();
        state.memory.bytes += state.tables.entry(table).or_default().active.put(token, key, row);
        if !state.recordings.is_empty() {
            let key = Bytes::copy_from_slice(key);
            let changes = vec![Change::Row(row.row())];
            state.recordings.record(&Mutation { table, token, key, changes });
        }
        self.background.applied(state, record);
        Ok(Commit::new(self.background.clone(), record))
    }

    /// Refuses changes of a partition that add elements to a row that is too large. Notes what its
    /// deletions shadow.
    pub(crate) fn check_rows(
        &self,
        mutation: &Mutation,
        changes: &[Change],
        kind: WriteKind,
    ) -> Result<(), StorageError> {
        let state = self.state.borrow();
        let limit = self.jobs.options.row_bytes_max;
        let Mutation { table, token, key, .. } = mutation;
        let Some(table) = state.tables.get(table).filter(|table| table.has_large_rows(limit)) else {
            return Ok(());
        };
        for change in changes {
            if table.exceeds_limit(*token, key, change, limit) && kind == WriteKind::Plain {
                return Err(StorageError::RowTooLarge { token: *token, limit });
            }
        }
        Ok(())
    }

    /// Has `append` append a record to the log and returns its number; 0 without a log. If it is
    /// refused for lack of disk space, and frees space, it is appended as vital; never waits then.
    pub(crate) fn append(
        &self,
        mutations: &[Mutation],
        kind: WriteKind,
        mut append: impl FnMut(&Log, bool) -> Result<u64, StorageError>,
    ) -> Result<u64, StorageError> {
        if self.state.borrow().closed {
            return Err(StorageError::Closed);
        }
        let Some(log) = &self.log else { return Ok(0) };
        let deletes = |m: &Mutation| m.changes.iter().all(Change::is_deletion);
        match append(log, false) {
            Err(StorageError::WritesRefused { because })
                if because.is_full() && (kind == WriteKind::Vital || mutations.iter().all(deletes)) =>
            {
                match append(log, true) {
                    // Wait for no flush: none can run.
                    Err(StorageError::Overloaded { .. }) => Err(StorageError::WritesRefused { because }),
                    appended => appended,
                }
            }
            appended => appended,
        }
    }

    /// Returns acknowledgements for a writer with many writes in flight.
    pub fn acks(self: &Rc<Self>) -> Acks {
        Acks::new(self.background.clone())
    }

    /// Sets the options of a table for future writes. Running flushes and compactions keep the
    /// previous ones. Options are not stored: the owner of the table sets them again after opening.
    /// Values out of bounds are clamped.
    pub fn configure(&self, table: TableId, options: TableOptions) {
        let options = options.in_bounds();
        let state = &mut *self.state.borrow_mut();
        state.settings.configure(table, options);
        state.tables.get(&table).into_iter().for_each(|table| table.needs.touch());
        self.jobs.work.wake();
    }

    /// Sets the layouts of columns for future files. Other columns contain bytes. Layouts are not
    /// stored, like options: files record the layouts of their own columns.
    pub fn describe(&self, table: TableId, columns: Vec<ColumnLayout>) {
        self.state.borrow_mut().settings.describe(table, columns);
    }

    /// Sets the dropped columns of a table: flushes and compactions omit these cells.
    pub fn forget_columns(&self, table: TableId, columns: Vec<DroppedCells>) {
        self.state.borrow_mut().settings.forget_columns(table, columns);
    }

    /// Returns the options of a table: its own, or the shard's.
    pub fn table_options(&self, table: TableId) -> TableOptions {
        self.state.borrow().settings.options(table)
    }

    /// Returns true if writes are refused, because one failed or the disk is full.
    pub fn refuses_writes(&self) -> bool {
        self.jobs.refuses_writes()
    }
}
