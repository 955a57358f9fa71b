//! The batch log: a write that spans cores is applied whole or not at all, even after a crash or an
//! error of one core. Cassandra's batch log does the same for writes that span nodes.
//!
//! 1. The core that runs the statement writes all of it as one entry of its batch log, a system
//!    table on that core. It waits until the entry is durable. On an error before that the
//!    statement fails, and nothing is applied.
//! 2. All cores apply their parts in parallel.
//! 3. Once every part is durable, the entry is deleted. The statement does not wait for the
//!    deletion.
//! 4. If a core refuses its part, the statement fails, and the entry is applied again in the
//!    background ([`unfinished`]). A start replays the entries that it finds, and deletes them.
//!    Mutations carry their timestamps, so that applying them twice has no effect.
//!
//! Meanwhile, no core removes tombstones that are newer than the entry: a part that is applied late
//! would show data that they delete ([`storage::BatchesInFlight`]).
//!
//! A write to one core is one record of that core's log, and costs nothing here. A write that spans
//! cores costs one more disk write, of at most 16 MiB.

mod entry;
mod unfinished;

use std::collections::HashSet;

use bytes::Bytes;
use engine::Error;
use schema::Sharding;
use storage::{Event, Mutation, StorageError, TableId};

use crate::heavy_lane::{heavy, run_to_completion};
use crate::index::apply::Limits;
use crate::system::own_tables::BATCH_TABLE;
use crate::{Embedded, storage_error};
use entry::{deletion, entry_of, rows_of, stored_entry};

pub(crate) use entry::{BatchLog, mutations_of};

/// Entries with more bytes are split into rows on a heavy lane.
const BYTES_AT_ONCE: usize = 256 << 10;

/// Mutations of a write by core, with the batch log entry if it needs one.
#[derive(Debug)]
pub(crate) struct Spread {
    by_core: Vec<Vec<Mutation>>,
    entry: Option<Bytes>,
}

impl Spread {
    /// Builds a write, with an entry if it `is_atomic` and spans cores. The time is proportional to
    /// its bytes: call it on a heavy lane for a large write.
    pub(crate) fn of(by_core: Vec<Vec<Mutation>>, is_atomic: bool) -> Spread {
        let cores = by_core.iter().filter(|part| !part.is_empty()).count();
        let entry = (is_atomic && cores > 1).then(|| entry_of(by_core.iter().flatten()));
        Spread { by_core, entry }
    }
}

impl Embedded {
    /// Applies a write on the cores that own its partitions. It completes even if the caller stops
    /// waiting.
    ///
    /// # Errors
    /// Returns the error of a core. An atomic write has then been applied nowhere, or it is in the
    /// batch log and the error says so.
    pub(crate) async fn apply_spread(&self, spread: Spread) -> Result<(), Error> {
        let Spread { by_core, entry } = spread;
        let Some(entry) = entry else { return self.apply_by_core(by_core).await };
        let engine = self.rc();
        run_to_completion(async move { engine.apply_logged(entry, by_core).await }).await
    }

    async fn apply_logged(&self, entry: Bytes, by_core: Vec<Vec<Mutation>>) -> Result<(), Error> {
        let number = self.batch_log.acquire();
        let key = self.batch_log.key(number);
        // Until all parts are applied, no core removes a tombstone that may delete their data.
        let in_flight = self.batch_log.in_flight.begin(self.timestamps.next().now_s);
        if let Err(error) = self.write_entry(&key, &entry, None).await {
            // The entry may become durable after all, as any write that failed halfway. Delete it,
            // so that no start applies it much later.
            drop(self.shard.apply_few_vital(&[deletion(&key, self.timestamps.next().now_us)]));
            self.batch_log.release(number);
            return Err(error);
        }
        let failed = apply_parts(by_core, &entry, self.sharding).await;
        let Some((_, error)) = failed.first() else {
            // The statement does not wait for its commit: an entry that reappears is only applied
            // once more. Until then it counts as in flight.
            match self.shard.apply(vec![deletion(&key, self.timestamps.next().now_us)]) {
                Ok(deleted) => {
                    self.batch_log.release(number);
                    let ended = async move {
                        match deleted.await {
                            Ok(()) => drop(in_flight),
                            Err(_) => in_flight.leave_to_next_start(),
                        }
                    };
                    lanes::spawn(lanes::current_group(), ended).detach();
                }
                Err(_) => self.finish_later(key, Some(number), in_flight),
            }
            return Ok(());
        };
        let error = Error::Server(format!(
            "a part of the write could not be applied ({error}): it is in the batch log, and will be applied \
             once the core accepts writes again, or when the server starts again"
        ));
        // Remove the parts of the other cores from the entry. Their rows may have been deleted
        // before it is applied again.
        let sharding = self.sharding;
        let left = async move {
            let left = |mutation: &Mutation| {
                failed.iter().any(|(core, _)| *core == sharding.shard_of(mutation.token) as usize)
            };
            mutations_of(&entry).map(|mut all| {
                all.retain(left);
                entry_of(all.iter())
            })
        };
        if let Ok(left) = heavy(left).await {
            let before = deletion(&key, self.timestamps.next().now_us);
            drop(self.write_entry(&key, &left, Some(before)).await);
        }
        self.finish_later(key, Some(number), in_flight);
        Err(error)
    }

    /// Writes an entry, with the deletion of the entry that it replaces, and waits until both are
    /// durable.
    async fn write_entry(&self, key: &Bytes, entry: &Bytes, replaced: Option<Mutation>) -> Result<(), Error> {
        let timestamp = self.timestamps.next().now_us;
        let mut rows = if entry.len() <= BYTES_AT_ONCE {
            rows_of(key, timestamp, entry)
        } else {
            let (key, entry) = (key.clone(), entry.clone());
            heavy(async move { rows_of(&key, timestamp, &entry) }).await
        };
        rows.splice(0..0, replaced);
        self.timestamps.keep_floor(&self.shard).map_err(storage_error)?;
        let written = self.shard.apply_yielding(rows).await.map_err(storage_error)?;
        written.await.map_err(storage_error)
    }

    /// Replays the entries that a crash left on this core. Called once all cores are open, before
    /// statements run. An entry that cannot be applied is applied again in the background.
    ///
    /// # Errors
    /// Returns an error if an entry cannot be decoded.
    pub(crate) async fn replay_batches(&self) -> Result<(), Error> {
        let now_s = u32::try_from(lanes::time::unix_micros() / 1_000_000).unwrap_or(0);
        let mut scan = self.shard.scan(BATCH_TABLE, i64::MIN..=i64::MAX, None, now_s);
        let (mut replayed, mut left) = (0, 0);
        let mut tables = None;
        while let Some((_, key, view)) = scan.next().await.map_err(storage_error)? {
            let (entry, timestamp) = stored_entry(&view);
            // No statement runs yet, so the schema does not change.
            let tables = tables.get_or_insert_with(|| self.data_of_all());
            if self.replay(entry, tables).await?.is_ok() {
                let deletion = vec![deletion(&key, timestamp.saturating_add(1))];
                let deleted = async { self.shard.apply(deletion)?.await };
                if deleted.await.is_ok() {
                    replayed += 1;
                    continue;
                }
            }
            left += 1;
            self.finish_later(key, None, self.batch_log.in_flight.begin(0));
        }
        if replayed + left > 0 {
            self.event_sink.send(&Event::BatchesReplayed { replayed, left });
        }
        Ok(())
    }

    /// Returns the entries in a table of this core.
    pub(crate) async fn entries_of(&self, table: TableId) -> Result<Vec<Bytes>, Error> {
        let mut scan = self.shard.scan(table, i64::MIN..=i64::MAX, None, 0);
        let mut entries = Vec::new();
        while let Some((_, _, view)) = scan.next().await.map_err(storage_error)? {
            entries.push(stored_entry(&view).0);
        }
        Ok(entries)
    }

    /// Returns the data identities of all tables.
    fn data_of_all(&self) -> HashSet<u128> {
        let schema = self.current.schema();
        let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.map(|def| def.data_id().as_u128()).collect()
    }

    /// Applies the mutations of an entry to tables that still exist.
    async fn replay(&self, entry: Bytes, tables: &HashSet<u128>) -> Result<Result<(), StorageError>, Error> {
        let mut all = mutations_of(&entry)?;
        all.retain(|mutation| tables.contains(&mutation.table.0));
        let entry = entry_of(all.iter());
        let failed = apply_parts(by_core(all, self.sharding), &entry, self.sharding).await;
        Ok(failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)))
    }
}

/// Groups mutations by the core that owns their partition.
pub(crate) fn by_core(all: Vec<Mutation>, sharding: Sharding) -> Vec<Vec<Mutation>> {
    let mut by_core = vec![Vec::new(); sharding.shards as usize];
    for mutation in all {
        by_core[sharding.shard_of(mutation.token) as usize].push(mutation);
    }
    by_core
}

/// Applies the parts of all cores in parallel. Returns the cores that failed, with their errors.
async fn apply_parts(
    by_core: Vec<Vec<Mutation>>,
    entry: &Bytes,
    sharding: Sharding,
) -> Vec<(usize, StorageError)> {
    let group = lanes::current_group();
    let parts = by_core.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
    let apply = |(core, part)| (core, lanes::spawn(group, apply_part(core, part, entry.clone(), sharding)));
    let tasks: Vec<_> = parts.map(apply).collect();
    let mut failed = Vec::new();
    for (core, task) in tasks {
        if let Err(error) = task.await {
            failed.push((core, error));
        }
    }
    failed
}

/// Applies the part of one core. Skips tables whose data is dropped meanwhile.
async fn apply_part(
    core: usize,
    mut part: Vec<Mutation>,
    entry: Bytes,
    sharding: Sharding,
) -> Result<(), StorageError> {
    let mut gone = Vec::new();
    loop {
        let apply = move || async move { Embedded::local().apply_here(part, Limits::Part).await?.await };
        match lanes::call(core, apply).await {
            // If these rows had been written before the drop or truncation, they would be gone too.
            Err(StorageError::Dropped { table }) => gone.push(table),
            other => return other,
        }
        let (entry, gone) = (entry.clone(), gone.clone());
        let again = async move {
            let mut all = mutations_of(&entry).expect("it was written by this process");
            all.retain(|mutation| !gone.contains(&mutation.table));
            by_core(all, sharding).swap_remove(core)
        };
        part = heavy(again).await;
    }
}

#[cfg(test)]
mod tests;
