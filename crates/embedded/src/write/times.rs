//! Timestamps of writes, and the floors that keep them above earlier ones (see `clock`).

use std::rc::Rc;
use std::sync::Arc;

use engine::Schema;
use storage::{EventSink, Shard, StorageError, TableId};

use crate::system::own_tables::FLOORS;
use crate::system::own_tables::is_server_keyspace;
use crate::write::clock::{Clock, Floor};

/// Server times of one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Timestamp of the write, in microseconds.
    pub(crate) now_us: i64,
    /// Unique timestamp for list elements, in microseconds.
    pub(crate) list_us: i64,
    /// Wall clock in seconds. It decides expiry and the age of deletions.
    pub(crate) now_s: u32,
    /// True if a condition or a counter decided on the timestamp: those of the client do not count.
    pub(crate) is_decided: bool,
}

impl Times {
    /// Returns those of the statement with this number in a batch, which has a timestamp for list
    /// elements for each.
    pub(crate) fn of_statement(self, number: usize) -> Times {
        Times { list_us: self.list_us + number as i64, ..self }
    }
}

/// Source of the timestamps of one core's writes.
pub(crate) struct Timestamps {
    /// Shared by all cores.
    clock: Arc<Clock>,
    floor: Floor,
}

impl Timestamps {
    /// Creates a source. `floor`: that of this core.
    pub(crate) fn new(clock: Arc<Clock>, floor: Floor) -> Timestamps {
        Timestamps { clock, floor }
    }

    /// Returns the clock that all cores share.
    pub(crate) fn clock(&self) -> Arc<Clock> {
        self.clock.clone()
    }

    /// Returns the timestamps of a statement, which exceed those of all earlier statements on any
    /// core.
    pub(crate) fn next(&self) -> Times {
        self.next_for(1)
    }

    /// Returns the same, with `count` consecutive timestamps for list elements.
    pub(crate) fn next_for(&self, count: usize) -> Times {
        let (now_us, wall_us) = self.clock.take(count);
        let now_s = u32::try_from(wall_us / 1_000_000).unwrap_or(0);
        Times { now_us, list_us: now_us, now_s, is_decided: false }
    }

    /// Logs a new floor if a timestamp exceeds the last one. Call it before passing a write with a
    /// server timestamp to `shard`, that of this core, in the same task poll.
    ///
    /// # Errors
    /// Returns an error if the shard rejects writes.
    pub(crate) fn keep_floor(&self, shard: &Rc<Shard>) -> Result<(), StorageError> {
        if let Some((floor_us, mutation)) = self.floor.needed(self.clock.last_us()) {
            // Do not wait for its commit: it is durable before the write that follows.
            drop(shard.apply_few_vital(&[mutation])?);
            self.floor.set(floor_us);
        }
        Ok(())
    }

    /// Raises the clock to this core's floors, or else to the timestamps of the system tables.
    pub(crate) async fn read_floors(
        &self,
        shard: &Rc<Shard>,
        schema: &Schema,
        event_sink: &EventSink,
    ) -> Result<(), StorageError> {
        let every = i64::MIN..=i64::MAX;
        let mut floors = shard.scan(FLOORS, every, None, 0);
        let mut highest = i64::MIN;
        while let Some((_, _, view)) = floors.next().await? {
            let times = view.rows().filter_map(|row| row.cell(0).map(|cell| cell.timestamp));
            highest = times.fold(highest, i64::max);
        }
        if highest == i64::MIN {
            let own = schema.keyspaces.iter().filter(|(name, _)| is_server_keyspace(name));
            for def in own.flat_map(|(_, keyspace)| keyspace.tables.values()) {
                let newest = shard.newest_timestamp(TableId(def.data_id().as_u128())).await;
                highest = highest.max(newest?);
            }
        }
        self.raise(highest);
        self.clock.report(event_sink);
        Ok(())
    }

    /// Makes all later timestamps exceed `floor_us`, a timestamp of the server.
    pub(crate) fn raise(&self, floor_us: i64) {
        self.clock.raise(floor_us);
    }
}
