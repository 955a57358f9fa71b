//! Applying writes with their entries.
//!
//! A write and its entries are one record of the log. If there are many entries, they are made in
//! several task polls, and written as records of their own before that of the rows. An entry
//! without its row is stale, so a crash in between is harmless. Readers remove no entry of a write
//! in flight.

use std::rc::Rc;
use std::time::Duration;

use storage::{CellRef, Commit, Mutation, Shard, StorageError};

use crate::Embedded;
use crate::index::maintain::{CELLS_AT_ONCE, Entries, IndexedTable, RowFacts, changed_row};
use crate::index::state::InFlight;
use crate::index::vectors::Writing;

/// Cells, and bytes of the places in their entries, from which the entries of a write are made in
/// several task polls.
const CELLS_MAX: usize = 1024;
const PLACE_BYTES_MAX: usize = 1 << 20;

/// Changes of a partition that storage applies in one task poll.
const CHANGES_MAX: usize = 16;

/// Bytes of entries in memory, about, before they are written.
const ENTRY_BYTES_MAX: usize = 4 << 20;

/// Entries that are made before they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryChunk {
    /// Number of entries, and bytes of their keys, from which a chunk is full.
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    /// True for rows that are stored: the next chunk waits until this one is durable, and the
    /// entries count for no sweep.
    pub(crate) is_build: bool,
}

/// Chunks of a write, without a wait for the log, which keeps their order.
const OF_WRITE: EntryChunk = EntryChunk { count: usize::MAX, bytes: ENTRY_BYTES_MAX, is_build: false };

/// Mutations with the entries of their rows behind them: storage applies them in this order, so
/// that no reader finds an entry before its row.
pub(crate) struct WithEntries {
    mutations: Vec<Mutation>,
    in_flight: Option<(InFlight, Writing)>,
}

impl WithEntries {
    /// Returns the mutations. Keep this value until they are applied.
    pub(crate) fn all(&self) -> &[Mutation] {
        &self.mutations
    }
}

/// Limits of a write that [`Embedded::apply_here`] applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limits {
    /// All.
    Plain,
    /// Those of a part of a write that the batch log has.
    Part,
}

impl Embedded {
    /// Adds the entries of mutations that this core applies next, in the same task poll.
    pub(crate) fn with_entries(&self, mut mutations: Vec<Mutation>) -> WithEntries {
        if !self.indexes.concern(&mutations) {
            return WithEntries { mutations, in_flight: None };
        }
        let timestamp = self.timestamps.next().now_us;
        let (mut entries, mut vectors) = (Entries::default(), Writing::default());
        for mutation in &mutations {
            if let Some(table) = self.indexes.of(mutation.table) {
                entries.add(&table, mutation);
                for graph in table.vectors.iter().filter_map(|column| self.indexes.graph(column.data)) {
                    vectors.add(&graph, mutation);
                }
            }
        }
        let rows = mutations.len();
        entries.finish(timestamp, &mut mutations);
        if self.indexes.sweeps.note(&mutations[rows..]) {
            self.start_sweeps();
        }
        WithEntries { mutations, in_flight: Some((self.indexes.begin(timestamp), vectors)) }
    }

    /// Adds the entries of a row, or of static cells, some cells at a time. Writes full chunks.
    pub(crate) async fn add_row<'c>(
        &self,
        entries: &mut Entries,
        table: &IndexedTable,
        facts: RowFacts<'_>,
        cells: impl Iterator<Item = CellRef<'c>>,
        chunk: EntryChunk,
    ) -> Result<(), StorageError> {
        let mut cells = cells.peekable();
        loop {
            entries.row(table, facts, cells.by_ref().take(CELLS_AT_ONCE));
            if entries.count >= chunk.count || entries.bytes >= chunk.bytes {
                self.write_entries(std::mem::take(entries), chunk).await?;
            }
            if cells.peek().is_none() {
                return Ok(());
            }
            if lanes::spend(CELLS_AT_ONCE as u32) {
                lanes::yield_now().await;
            }
        }
    }

    /// Writes entries without their rows, which are stored, or are written later while their
    /// timestamp is in flight.
    pub(crate) async fn write_entries(
        &self,
        entries: Entries,
        chunk: EntryChunk,
    ) -> Result<(), StorageError> {
        if entries.count == 0 {
            return Ok(());
        }
        let mut mutations = Vec::new();
        let timestamp = self.timestamps.next().now_us;
        let _in_flight = self.indexes.begin(timestamp);
        entries.finish(timestamp, &mut mutations);
        if !chunk.is_build && self.indexes.sweeps.note(&mutations) {
            self.start_sweeps();
        }
        self.timestamps.keep_floor(&self.shard)?;
        let written = self.shard.apply_yielding(mutations).await?;
        if chunk.is_build { written.await } else { Ok(()) }
    }

    /// Applies many mutations with their entries: see the head of this module.
    async fn apply_large(&self, mutations: Vec<Mutation>, limits: Limits) -> Result<Commit, StorageError> {
        let timestamp = self.timestamps.next().now_us;
        let _in_flight = self.indexes.begin(timestamp);
        let (mut entries, mut vectors) = (Entries::default(), Writing::default());
        for mutation in &mutations {
            let Some(table) = self.indexes.of(mutation.table) else { continue };
            for graph in table.vectors.iter().filter_map(|column| self.indexes.graph(column.data)) {
                vectors.add(&graph, mutation);
            }
            for change in &mutation.changes {
                if let Some((facts, cells)) = changed_row(mutation, change) {
                    self.add_row(&mut entries, &table, facts, cells, OF_WRITE).await?;
                }
            }
        }
        self.write_entries(entries, OF_WRITE).await?;
        self.timestamps.keep_floor(&self.shard)?;
        apply(&self.shard, mutations, limits).await
    }

    /// Marks a write as being applied until the guard is dropped. An index created meanwhile waits
    /// for it.
    pub(crate) fn begin_write(&self) -> InFlight {
        self.indexes.begin(self.timestamps.next().now_us)
    }

    /// Waits for the writes that this core is applying. They may lack entries of an index that the
    /// core has just adopted.
    pub(crate) async fn wait_for_writes(&self) {
        let now_us = self.timestamps.next().now_us;
        while self.indexes.oldest_in_flight().is_some_and(|oldest| oldest < now_us) {
            lanes::time::sleep(WRITE_WAIT).await;
        }
    }

    /// Returns a timestamp for the removal of entries that are found stale from now on.
    pub(crate) fn removal_timestamp(&self) -> i64 {
        let now_us = self.timestamps.next().now_us;
        self.indexes.oldest_in_flight().map_or(now_us, |oldest| now_us.min(oldest - 1))
    }

    /// Applies mutations of this core with their entries, in several task polls if there are many.
    pub(crate) async fn apply_here(
        &self,
        mutations: Vec<Mutation>,
        limits: Limits,
    ) -> Result<Commit, StorageError> {
        let is_indexed = self.indexes.concern(&mutations);
        let is_small = matches!(&mutations[..], [one] if one.changes.len() <= CHANGES_MAX);
        if !is_indexed && is_small {
            let _waiting = self.begin_write();
            self.timestamps.keep_floor(&self.shard)?;
            return apply(&self.shard, mutations, limits).await;
        }
        // A task of its own: storage applies the rest if the caller gives up, and the timestamp
        // must be in flight until then.
        let (engine, (sender, receiver)) = (self.rc(), lanes::sync::oneshot::channel());
        let work = async move {
            let applied = match is_indexed && has_many_entries(&mutations) {
                true => engine.apply_large(mutations, limits).await,
                false => engine.apply_with_entries(mutations, limits).await,
            };
            drop(sender.send(applied));
        };
        lanes::spawn(lanes::current_group(), work).detach();
        receiver.await.unwrap_or(Err(StorageError::Closed))
    }

    async fn apply_with_entries(
        &self,
        mutations: Vec<Mutation>,
        limits: Limits,
    ) -> Result<Commit, StorageError> {
        let _waiting = self.begin_write();
        let WithEntries { mutations, in_flight: _in_flight } = self.with_entries(mutations);
        self.timestamps.keep_floor(&self.shard)?;
        apply(&self.shard, mutations, limits).await
    }
}

/// Returns true if making the entries of mutations takes longer than a task poll may.
fn has_many_entries(mutations: &[Mutation]) -> bool {
    let (mut count, mut bytes) = (0, 0);
    for (mutation, change) in mutations.iter().flat_map(|own| own.changes.iter().map(move |c| (own, c))) {
        let Some((facts, cells)) = changed_row(mutation, change) else { continue };
        let place = facts.place.key.len() + facts.place.row.map_or(0, <[u8]>::len);
        for _ in cells {
            (count, bytes) = (count + 1, bytes + place);
            if count > CELLS_MAX || bytes > PLACE_BYTES_MAX {
                return true;
            }
        }
    }
    false
}

/// Pause between two looks at the writes in flight.
const WRITE_WAIT: Duration = Duration::from_millis(5);

async fn apply(shard: &Rc<Shard>, mutations: Vec<Mutation>, limits: Limits) -> Result<Commit, StorageError> {
    match limits {
        Limits::Plain => shard.apply_yielding(mutations).await,
        Limits::Part => shard.apply_part(mutations).await,
    }
}
