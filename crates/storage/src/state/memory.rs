//! The memory of a shard's memtables: the fill of the active ones, and the frozen ones in the queue
//! for a flush.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::event::FlushReason;
use crate::model::TableId;
use crate::state::ShardTable;

/// Maximum number of memtables that are frozen: waiting for a flush, or in one. With the active one
/// this bounds memory to three memtables.
pub(crate) const FROZEN_MAX: usize = 2;

/// The fill of the active memtables of all tables, and the queue of frozen ones.
#[derive(Debug, Default)]
pub(crate) struct MemtableMemory {
    /// Approximate size of the active memtables in bytes.
    pub(crate) bytes: usize,
    /// Fill of the active memtables in bytes: the larger of their size and what their part of the
    /// log counts for.
    pub(crate) filled: u64,
    /// Length of the log when the active memtables were created.
    pub(crate) log_from: u64,
    /// Frozen memtables, oldest first.
    pub(crate) frozen: VecDeque<Frozen>,
    /// Bytes of all memtables ever frozen.
    pub(crate) frozen_bytes: u64,
    /// The generation of the active memtables: the number of freezes before.
    pub(crate) generation: u64,
    /// Records of the log that are not completely applied yet, see
    /// [`crate::Shard::apply_yielding`].
    pub(crate) applying: Vec<u64>,
}

/// Memtables of all tables that are flushed together.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) generation: u64,
    /// The last log record in it.
    pub(crate) last_record: u64,
    pub(crate) tables: Vec<TableId>,
    /// Fill in bytes, see [`MemtableMemory::filled`].
    pub(crate) bytes: u64,
    /// Its part of the log, in bytes.
    pub(crate) log_bytes: u64,
    pub(crate) partitions: u64,
    /// It contains a part of a record.
    pub(crate) partial: bool,
    pub(crate) reason: FlushReason,
}

impl MemtableMemory {
    /// Returns the bytes ever filled, of active and frozen memtables.
    pub(crate) fn filled_ever(&self) -> u64 {
        self.frozen_bytes + self.filled
    }

    /// Returns the log bytes with records in memtables, at this length of the log.
    pub(crate) fn live_log(&self, log_length: u64) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|frozen| frozen.log_bytes).sum();
        frozen + (log_length - self.log_from)
    }

    /// Freezes the active memtables and queues them for a flush. `log_length` is the length of the
    /// log at `last_record`.
    pub(super) fn freeze(
        &mut self,
        tables: &mut FxHashMap<TableId, ShardTable>,
        last_record: u64,
        log_length: u64,
        reason: FlushReason,
    ) {
        // A record that is being applied may be in two memtables. It is replayed until the later
        // one is flushed. Replaying what a file already contains has no effect.
        let applying = self.applying.iter().map(|record| record - 1).min();
        let last_record = last_record.min(applying.unwrap_or(u64::MAX));
        let generation = self.generation;
        self.generation += 1;
        let bytes = std::mem::take(&mut self.filled).max(std::mem::take(&mut self.bytes) as u64);
        let log_bytes = log_length - std::mem::replace(&mut self.log_from, log_length);
        self.frozen_bytes += bytes;
        let (mut ids, mut partitions) = (Vec::new(), 0);
        for (id, table) in tables {
            if table.active.len() > 0 {
                table.frozen.push((generation, std::mem::take(&mut table.active)));
                ids.push(*id);
                partitions += table.frozen.last().map_or(0, |(_, memtable)| memtable.len() as u64);
            }
        }
        let partial = applying.is_some();
        self.frozen.push_back(Frozen {
            generation,
            last_record,
            tables: ids,
            bytes,
            log_bytes,
            partitions,
            partial,
            reason,
        });
    }
}
