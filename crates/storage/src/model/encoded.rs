//! Encoding of mutations, for storing them outside the log.

use bytes::Bytes;

use crate::model::Mutation;
use crate::model::codec::{Reader, put_mutations};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::row::RowBuilder;
    use crate::model::{CellRef, Change, Deletion, TableId};

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
