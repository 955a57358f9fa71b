//! Encoding of mutations: the records of the log, which other crates store elsewhere too.

use std::ops::Bound;

use bytes::Bytes;

use crate::model::codec::{Malformed, Reader, put_bytes, put_deletion, put_i64, put_u128, put_varint};
use crate::model::row::{Draft, EncodedRow};
use crate::model::{Change, Mutation, TableId};

const MUTATION_BYTES_MIN: usize = 26; // table 16, token 8, key length 1, count 1
const CHANGE_DELETE_PARTITION: u8 = 2;
const CHANGE_DELETE_RANGE: u8 = 3;
const CHANGE_ROW: u8 = 4;
const CHANGE_STATIC: u8 = 5;

/// Encodes mutations for [`decode_mutations`], in the format of a log record
/// (`docs/file-format.md`).
pub fn encode_mutations<'m>(mutations: impl ExactSizeIterator<Item = &'m Mutation>) -> Vec<u8> {
    let mut out = Vec::new();
    put_mutations(&mut out, mutations);
    out
}

/// Decodes the result of [`encode_mutations`]; `None` for anything else. Keys and values are slices
/// of `bytes`.
pub fn decode_mutations(bytes: Bytes) -> Option<Vec<Mutation>> {
    Reader::new(bytes).mutations().ok()
}

impl Reader {
    /// Reads an encoded [`EncodedRow`] with its length.
    fn packed(&mut self) -> Result<EncodedRow, Malformed> {
        EncodedRow::from_bytes(self.slice()?)
    }

    /// Reads a bound of a range deletion. It is copied, as keys are: a slice would keep the whole
    /// log segment in memory.
    fn bound(&mut self) -> Result<Bound<Bytes>, Malformed> {
        match self.u8()? {
            0 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(self.copied()?)),
            2 => Ok(Bound::Excluded(self.copied()?)),
            _ => Err(Malformed),
        }
    }

    fn change(&mut self) -> Result<Change, Malformed> {
        Ok(match self.u8()? {
            CHANGE_ROW => Change::Row(self.packed()?),
            CHANGE_STATIC => Change::Static(self.packed()?),
            CHANGE_DELETE_PARTITION => Change::DeletePartition(self.deletion()?),
            CHANGE_DELETE_RANGE => {
                Change::DeleteRange { start: self.bound()?, end: self.bound()?, deletion: self.deletion()? }
            }
            _ => return Err(Malformed),
        })
    }

    /// Reads the mutations of a log record, which must have no bytes after them.
    pub(crate) fn mutations(mut self) -> Result<Vec<Mutation>, Malformed> {
        let count = self.count(MUTATION_BYTES_MIN)?;
        if count == 0 && self.rest() > 0 {
            let table = TableId(self.u128()?);
            let token = self.i64()?;
            let row = self.packed()?;
            let key = Bytes::copy_from_slice(row.key());
            let mutation = Mutation { table, token, key, changes: vec![Change::Row(row)] };
            return if self.rest() == 0 { Ok(vec![mutation]) } else { Err(Malformed) };
        }
        let mut mutations = Vec::with_capacity(count);
        for _ in 0..count {
            let table = TableId(self.u128()?);
            let token = self.i64()?;
            let key = self.bytes()?;
            let changes = (0..self.count(1)?).map(|_| self.change()).collect::<Result<_, _>>()?;
            mutations.push(Mutation { table, token, key, changes });
        }
        if self.rest() == 0 { Ok(mutations) } else { Err(Malformed) }
    }
}

fn put_bound(out: &mut Vec<u8>, bound: &Bound<Bytes>) {
    match bound {
        Bound::Unbounded => out.push(0),
        Bound::Included(key) => {
            out.push(1);
            put_bytes(out, key);
        }
        Bound::Excluded(key) => {
            out.push(2);
            put_bytes(out, key);
        }
    }
}

/// Encodes a log record of one row that contains its key: zero mutations, then the row.
pub(crate) fn put_one_row(out: &mut Vec<u8>, table: TableId, token: i64, row: &Draft) {
    put_varint(out, 0);
    put_u128(out, table.0);
    put_i64(out, token);
    put_bytes(out, row.as_bytes());
}

/// Encodes a log record of one row of a partition with several.
pub(crate) fn put_row_of(out: &mut Vec<u8>, table: TableId, token: i64, key: &[u8], row: &Draft) {
    put_varint(out, 1);
    put_u128(out, table.0);
    put_i64(out, token);
    put_bytes(out, key);
    put_varint(out, 1);
    out.push(CHANGE_ROW);
    put_bytes(out, row.as_bytes());
}

/// Encodes a log record.
pub(crate) fn put_mutations<'m>(
    out: &mut Vec<u8>,
    mutations: impl IntoIterator<Item = &'m Mutation, IntoIter: ExactSizeIterator>,
) {
    let mutations = mutations.into_iter();
    put_varint(out, mutations.len() as u64);
    for mutation in mutations {
        put_mutation_head(out, mutation);
        mutation.changes.iter().for_each(|change| put_change(out, change));
    }
}

/// Encodes the part of a mutation before its changes.
pub(crate) fn put_mutation_head(out: &mut Vec<u8>, mutation: &Mutation) {
    put_u128(out, mutation.table.0);
    put_i64(out, mutation.token);
    put_bytes(out, &mutation.key);
    put_varint(out, mutation.changes.len() as u64);
}

pub(crate) fn put_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Row(row) | Change::Static(row) => {
            put_row_head(out, change, row);
            out.extend_from_slice(row.as_bytes());
        }
        Change::DeletePartition(deletion) => {
            out.push(CHANGE_DELETE_PARTITION);
            put_deletion(out, deletion);
        }
        Change::DeleteRange { start, end, deletion } => {
            out.push(CHANGE_DELETE_RANGE);
            put_bound(out, start);
            put_bound(out, end);
            put_deletion(out, deletion);
        }
    }
}

/// Appends what comes before the bytes of the row that a change has.
pub(crate) fn put_row_head(out: &mut Vec<u8>, change: &Change, row: &EncodedRow) {
    out.push(if matches!(change, Change::Static(_)) { CHANGE_STATIC } else { CHANGE_ROW });
    put_varint(out, row.as_bytes().len() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::row::RowBuilder;
    use crate::model::{CellRef, Deletion};

    #[test]
    fn decoding_returns_the_encoded_mutations() {
        let mut row = RowBuilder::new(b"k", &[], 7);
        row.push(CellRef::live(3, 7, b"value"));
        let deletion = Change::DeletePartition(Deletion { timestamp: 9, deleted_at_s: 1 });
        let one = |key: &'static [u8], changes| Mutation {
            table: TableId(1 << 20),
            token: -5,
            key: Bytes::from_static(key),
            changes,
        };
        let mutations = [one(b"k", vec![Change::Row(row.finish())]), one(b"l", vec![deletion])];
        let bytes = encode_mutations(mutations.iter());
        let found = decode_mutations(Bytes::from(bytes.clone())).expect("it was written by this");
        assert_eq!(format!("{found:?}"), format!("{mutations:?}"));
        assert!(decode_mutations(Bytes::from(bytes[..bytes.len() - 1].to_vec())).is_none());
        assert_eq!(decode_mutations(Bytes::from(encode_mutations([].iter()))).map(|all| all.len()), Some(0));
    }
}
