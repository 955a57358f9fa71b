//! What the owner of a table says of its columns. Storage knows no types; this is all it needs to know of them.

use std::cmp::Ordering;

use crate::model::codec::Malformed;

/// How the values of a column are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ColumnEncoding {
    /// Strings of bytes, ordered as bytes.
    #[default]
    Bytes,
    /// Big-endian numbers of so many bytes (1, 2, 4 or 8), two's complement.
    Signed(u8),
    /// Big-endian numbers of so many bytes without a sign.
    Unsigned(u8),
    /// Big-endian IEEE 754 numbers of 4 or 8 bytes.
    Float(u8),
}

/// What is known of a column. Values of another length than said do no harm: where they are, the column is kept as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnLayout {
    /// The column's number.
    pub column: u32,
    /// Its values.
    pub encoding: ColumnEncoding,
}

impl ColumnEncoding {
    /// The width of a number that is kept little-endian.
    pub(crate) fn number(self) -> Option<u8> {
        match self {
            ColumnEncoding::Signed(width)
            | ColumnEncoding::Unsigned(width)
            | ColumnEncoding::Float(width) => matches!(width, 1 | 2 | 4 | 8).then_some(width),
            ColumnEncoding::Bytes => None,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            ColumnEncoding::Bytes => 0,
            ColumnEncoding::Signed(_) => 1,
            ColumnEncoding::Unsigned(_) => 2,
            ColumnEncoding::Float(_) => 3,
        }
    }

    pub(crate) fn from_code(code: u8, width: u8) -> Result<ColumnEncoding, Malformed> {
        match code {
            0 => Ok(ColumnEncoding::Bytes),
            1 => Ok(ColumnEncoding::Signed(width)),
            2 => Ok(ColumnEncoding::Unsigned(width)),
            3 => Ok(ColumnEncoding::Float(width)),
            _ => Err(Malformed),
        }
    }

    /// A number's place in the order of its column.
    fn rank(self, value: &[u8]) -> u64 {
        let bits = value.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let sign = 1u64 << (8 * value.len() - 1);
        match self {
            ColumnEncoding::Signed(_) => bits ^ sign,
            // Of negative numbers the larger bits are the smaller number.
            ColumnEncoding::Float(_) if bits & sign != 0 => !bits & (sign | (sign - 1)),
            ColumnEncoding::Float(_) => bits | sign,
            ColumnEncoding::Unsigned(_) | ColumnEncoding::Bytes => bits,
        }
    }

    /// A number that ascends with values, so that those of another number need not be compared: where a number stands, or the first
    /// eight bytes. Of numbers with the width that was said those with one place are equal.
    pub(crate) fn place(self, value: &[u8]) -> u64 {
        if self.number().is_some() {
            return self.rank(value);
        }
        let mut first = [0; 8];
        let len = value.len().min(8);
        first[..len].copy_from_slice(&value[..len]);
        u64::from_be_bytes(first)
    }

    /// The order of two values; numbers have the width that was said.
    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self.number() {
            Some(width) if left.len() == usize::from(width) && right.len() == usize::from(width) => {
                self.rank(left).cmp(&self.rank(right))
            }
            _ => left.cmp(right),
        }
    }
}

/// The layout of a column among those said, which ascend by column.
pub(crate) fn encoding_of(layouts: &[ColumnLayout], column: u32) -> ColumnEncoding {
    let at = layouts.binary_search_by_key(&column, |layout| layout.column);
    at.map_or(ColumnEncoding::Bytes, |at| layouts[at].encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoding: ColumnEncoding, ascending: &[Vec<u8>]) {
        for (l, left) in ascending.iter().enumerate() {
            for (r, right) in ascending.iter().enumerate() {
                assert_eq!(encoding.compare(left, right), l.cmp(&r), "{encoding:?} {left:?} {right:?}");
            }
        }
    }

    #[test]
    fn numbers_are_in_their_own_order() {
        let signed = [i32::MIN, -2, -1, 0, 1, i32::MAX].map(|n| n.to_be_bytes().to_vec());
        check(ColumnEncoding::Signed(4), &signed);
        let unsigned = [0u16, 1, 0x7fff, 0x8000, 0xffff].map(|n| n.to_be_bytes().to_vec());
        check(ColumnEncoding::Unsigned(2), &unsigned);
        let floats = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        check(ColumnEncoding::Float(8), &floats.map(|n| n.to_be_bytes().to_vec()));
        check(ColumnEncoding::Bytes, &[b"".to_vec(), b"a".to_vec(), b"aa".to_vec(), b"b".to_vec()]);
    }
}
