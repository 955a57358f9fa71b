//! Entries of the batch log: their format, their rows and their keys.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use engine::Error;
use storage::{
    BatchInFlight, BatchesInFlight, CellRef, Change, Deletion, Liveness, Mutation, PartitionView, RowBuilder,
};

use crate::bind::term;
use crate::system::own_tables::BATCH_TABLE;

/// Version of the entry format: the first byte of an entry.
const VERSION: u8 = 1;

/// Bytes of an entry per row. Above this an entry has several rows, which are written with yields
/// in between.
const ROW_BYTES: usize = 64 << 10;

/// Encodes mutations as an entry.
pub(crate) fn entry_of<'m>(mutations: impl Iterator<Item = &'m Mutation>) -> Bytes {
    let all: Vec<&Mutation> = mutations.collect();
    let mut entry = vec![VERSION];
    entry.append(&mut storage::encode_mutations(all.into_iter()));
    entry.into()
}

/// Decodes the mutations of an entry.
///
/// # Errors
/// Returns an error if the entry is damaged, or if another version wrote it.
pub(crate) fn mutations_of(entry: &Bytes) -> Result<Vec<Mutation>, Error> {
    let damaged = || Error::Server("an entry of the batch log cannot be read: it is damaged".to_owned());
    match entry.first() {
        Some(&VERSION) => storage::decode_mutations(entry.slice(1..)).ok_or_else(damaged),
        Some(version) => Err(Error::Server(format!(
            "an entry of the batch log has form {version}, which this version does not know: \
             start the version that wrote it, and stop it in order"
        ))),
        None => Err(damaged()),
    }
}

/// Entries of this core's writes that span cores. Their keys are reused, so that the table has no
/// more partitions than the peak number of concurrent entries.
#[derive(Debug)]
pub(crate) struct BatchLog {
    /// Random prefix: distinguishes the keys of this start from those of others, also if shards
    /// were joined.
    start: [u8; 8],
    free: RefCell<Vec<u32>>,
    pub(super) next: Cell<u32>,
    /// Entries to be applied again, in their order.
    pub(super) unfinished: RefCell<VecDeque<Unfinished>>,
    /// True while a task applies them.
    pub(super) is_retrying: Cell<bool>,
    /// Writes of all cores that span cores and are in flight.
    pub(crate) in_flight: Arc<BatchesInFlight>,
    /// Keeps all tombstones until a start has replayed the batch logs (core 0 only).
    pub(crate) replaying: RefCell<Option<BatchInFlight>>,
}

/// An entry of which a part could not be applied.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) key: Bytes,
    /// Number of the key; `None` if another start made it.
    pub(super) number: Option<u32>,
    pub(super) in_flight: BatchInFlight,
}

impl Drop for BatchLog {
    fn drop(&mut self) {
        for entry in self.unfinished.take() {
            entry.in_flight.leave_to_next_start();
        }
    }
}

impl BatchLog {
    /// Creates a log without entries. `replaying` keeps all tombstones until it is dropped.
    pub(crate) fn new(in_flight: Arc<BatchesInFlight>, replaying: Option<BatchInFlight>) -> BatchLog {
        let random = term::random_uuid().into_bytes();
        let start = random[..8].try_into().expect("a UUID has 16 bytes");
        BatchLog {
            start,
            free: RefCell::default(),
            next: Cell::new(0),
            unfinished: RefCell::default(),
            is_retrying: Cell::new(false),
            in_flight,
            replaying: RefCell::new(replaying),
        }
    }

    /// Returns the number of a free key.
    pub(crate) fn acquire(&self) -> u32 {
        self.free.borrow_mut().pop().unwrap_or_else(|| self.next.replace(self.next.get() + 1))
    }

    /// Frees a key.
    pub(crate) fn release(&self, number: u32) {
        self.free.borrow_mut().push(number);
    }

    /// Returns the key of this number.
    pub(crate) fn key(&self, number: u32) -> Bytes {
        Bytes::from([&self.start[..], &number.to_be_bytes()].concat())
    }
}

/// Returns the mutations that write an entry: one row per [`ROW_BYTES`], so that no row is large.
/// They are one record of the log.
pub(crate) fn rows_of(key: &Bytes, timestamp: i64, entry: &[u8]) -> Vec<Mutation> {
    let row = |(number, part): (usize, &[u8])| {
        let mut row = RowBuilder::new(&[], &(number as u32).to_be_bytes(), timestamp);
        row.marker(Some(Liveness { timestamp, expiry: None }));
        row.push(CellRef::live(0, timestamp, part));
        of_table(key, Change::Row(row.finish()))
    };
    entry.chunks(ROW_BYTES).enumerate().map(row).collect()
}

/// Returns the mutation that deletes an entry.
pub(crate) fn deletion(key: &Bytes, timestamp: i64) -> Mutation {
    let deleted_at_s = u32::try_from(timestamp / 1_000_000).unwrap_or(0);
    of_table(key, Change::DeletePartition(Deletion { timestamp, deleted_at_s }))
}

fn of_table(key: &Bytes, change: Change) -> Mutation {
    Mutation { table: BATCH_TABLE, token: schema::token::token(key), key: key.clone(), changes: vec![change] }
}

/// Assembles an entry from its rows. Returns it with its timestamp.
pub(crate) fn stored_entry(view: &PartitionView) -> (Bytes, i64) {
    let (mut entry, mut timestamp) = (Vec::new(), i64::MIN);
    for row in view.rows() {
        let Some(cell) = row.cell(0) else { continue };
        entry.extend_from_slice(cell.value().unwrap_or_default());
        timestamp = timestamp.max(cell.timestamp);
    }
    (entry.into(), timestamp)
}
