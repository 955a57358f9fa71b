//! Records that wait to be written, in batches of bounded size: what the log seals and copies
//! between two yields does not depend on how many records wait.

use std::collections::VecDeque;
use std::convert::Infallible;

use crate::env::BLOCK;
use crate::log::segment::BATCH_HEADER;
use crate::model::codec::put_u32;

/// Size of the length before a record.
pub(super) const RECORD_HEADER: usize = 4;

/// Bytes from which on a batch takes no further record.
const BATCH_BYTES: usize = 512 << 10;

/// Maximum size of an encoded record that shares a batch, in bytes: copying it takes less than a
/// disk write more.
const SHARED_MAX: usize = 256 << 10;

/// Maximum size of a buffer that is kept for a later batch.
const SPARE_MAX: usize = 2 * BATCH_BYTES;

/// Records in the order of their numbers. The batch header is not filled in.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u32,
}

/// Batches that wait, and the one that takes the next record.
#[derive(Debug)]
pub(super) struct Pending {
    full: VecDeque<PendingBatch>,
    full_bytes: usize,
    open: PendingBatch,
    spare: Vec<u8>,
}

/// An encoded record. A long one becomes a batch of its own, so that appending it copies nothing.
#[derive(Default, Debug)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Returns an empty record with space for `bytes`.
    pub(crate) fn with_capacity(bytes: usize) -> Record {
        // Sealing fills the last block.
        let capacity = (BATCH_HEADER + RECORD_HEADER + bytes).next_multiple_of(BLOCK);
        let mut record = Vec::with_capacity(capacity);
        record.resize(BATCH_HEADER + RECORD_HEADER, 0);
        Record(record)
    }

    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len() - BATCH_HEADER - RECORD_HEADER
    }

    /// Returns the buffer, to append to it only.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl PendingBatch {
    fn in_buffer(mut bytes: Vec<u8>) -> PendingBatch {
        bytes.clear();
        bytes.resize(BATCH_HEADER, 0);
        PendingBatch { bytes, records: 0 }
    }
}

impl Pending {
    pub(super) fn new() -> Pending {
        Pending {
            full: VecDeque::new(),
            full_bytes: 0,
            open: PendingBatch::in_buffer(Vec::new()),
            spare: Vec::new(),
        }
    }

    /// Returns the size of all batches in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.full_bytes + self.open.bytes.len()
    }

    /// Returns true if there are records.
    pub(super) fn has_records(&self) -> bool {
        self.open.records > 0 || !self.full.is_empty()
    }

    /// Returns the size of the next batch in bytes.
    pub(super) fn next_bytes(&self) -> usize {
        self.full.front().unwrap_or(&self.open).bytes.len()
    }

    /// Adds a record that `put` writes, if `takes` accepts its length without the header. Returns
    /// what `takes` did.
    #[inline]
    pub(super) fn add<E>(
        &mut self,
        put: impl FnOnce(&mut Vec<u8>),
        takes: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.open.bytes.len() >= BATCH_BYTES {
            self.close();
        }
        let out = &mut self.open.bytes;
        let start = out.len();
        put_u32(out, 0);
        put(out);
        let bytes = out.len() - start - RECORD_HEADER;
        let taken = takes(bytes);
        if taken.is_ok() {
            out[start..start + RECORD_HEADER].copy_from_slice(&(bytes as u32).to_le_bytes());
            self.open.records += 1;
        } else {
            out.truncate(start);
        }
        taken
    }

    /// Adds an encoded record.
    pub(super) fn add_record(&mut self, record: Record) {
        if record.len() <= SHARED_MAX {
            lanes::count_copied(record.len());
            let put = |out: &mut Vec<u8>| out.extend_from_slice(&record.0[BATCH_HEADER + RECORD_HEADER..]);
            return self.add(put, |_| Ok::<(), Infallible>(())).unwrap_or_else(|never| match never {});
        }
        if self.open.records > 0 {
            self.close();
        }
        let bytes = record.len() as u32;
        let Record(mut batch) = record;
        batch[BATCH_HEADER..BATCH_HEADER + RECORD_HEADER].copy_from_slice(&bytes.to_le_bytes());
        self.full_bytes += batch.len();
        self.full.push_back(PendingBatch { bytes: batch, records: 1 });
    }

    fn close(&mut self) {
        let next = PendingBatch::in_buffer(std::mem::take(&mut self.spare));
        let full = std::mem::replace(&mut self.open, next);
        self.full_bytes += full.bytes.len();
        self.full.push_back(full);
    }

    /// Takes the next batch.
    pub(super) fn take(&mut self) -> PendingBatch {
        if self.full.is_empty() {
            self.close();
        }
        let batch = self.full.pop_front().expect("one was closed");
        self.full_bytes -= batch.bytes.len();
        batch
    }

    /// Keeps the buffer of a batch that was written.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_MAX {
            self.spare = buffer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pending: &mut Pending, bytes: usize, byte: u8) {
        let put = |out: &mut Vec<u8>| out.resize(out.len() + bytes, byte);
        pending.add(put, |_| Ok::<(), ()>(())).expect("taken");
    }

    #[test]
    fn batches_are_bounded_and_keep_the_order() {
        let mut pending = Pending::new();
        (0..5).for_each(|byte| add(&mut pending, 200 << 10, byte));
        let mut long = Record::with_capacity(3 << 20);
        long.out().extend(std::iter::repeat_n(5, 3 << 20));
        pending.add_record(long);
        let mut short = Record::with_capacity(0);
        short.out().push(6);
        pending.add_record(short);
        add(&mut pending, 1, 7);
        pending.add(|out| out.push(9), Err).expect_err("refused");
        let mut records = Vec::new();
        let mut bytes = pending.bytes();
        let mut shared = false;
        while pending.has_records() {
            let next = pending.next_bytes();
            let batch = pending.take();
            assert_eq!(batch.bytes.len(), next);
            bytes -= next;
            shared |= batch.records == 2 && next < 100;
            assert!(batch.records == 1 || next <= BATCH_BYTES + (200 << 10) + RECORD_HEADER, "{next}");
            let mut rest = &batch.bytes[BATCH_HEADER..];
            for _ in 0..batch.records {
                let (len, record) = rest.split_at(RECORD_HEADER);
                let (record, behind) = record.split_at(u32::from_le_bytes(len.try_into().unwrap()) as usize);
                records.push((record[0], record.len()));
                rest = behind;
            }
            assert!(rest.is_empty());
        }
        let expected: Vec<(u8, usize)> = (0..5).map(|byte| (byte, 200 << 10)).collect();
        assert_eq!(records, [&expected[..], &[(5, 3 << 20), (6, 1), (7, 1)]].concat());
        assert!(shared, "short encoded records share a batch");
        // The last batch was open, and the next one is.
        assert_eq!(bytes + BATCH_HEADER, pending.bytes());
    }
}
