//! Applying writes with their entries.

use std::rc::Rc;

use storage::{Commit, Mutation, Shard, StorageError};

use crate::Embedded;
use crate::index::maintain::Entries;
use crate::index::state::InFlight;
use crate::index::vectors::Writing;

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
        let WithEntries { mutations, in_flight } = self.with_entries(mutations);
        self.timestamps.keep_floor(&self.shard)?;
        let Some(in_flight) = in_flight else { return apply(&self.shard, mutations, limits).await };
        // A task of its own: storage applies the rest if the caller gives up, and the timestamp
        // must be in flight until then.
        let (shard, (sender, receiver)) = (self.shard.clone(), lanes::sync::oneshot::channel());
        let work = async move {
            let applied = apply(&shard, mutations, limits).await;
            drop(in_flight);
            drop(sender.send(applied));
        };
        lanes::spawn(lanes::current_group(), work).detach();
        receiver.await.unwrap_or(Err(StorageError::Closed))
    }
}

async fn apply(shard: &Rc<Shard>, mutations: Vec<Mutation>, limits: Limits) -> Result<Commit, StorageError> {
    match limits {
        Limits::Plain => shard.apply_yielding(mutations).await,
        Limits::Part => shard.apply_part(mutations).await,
    }
}
