//! The encodings of columns, which the owner of a table specifies. Storage knows no other types.

use std::cmp::Ordering;

use crate::model::codec::Malformed;

/// The encoding of a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ColumnEncoding {
    /// Strings of bytes, ordered as bytes.
    #[default]
    Bytes,
    /// Big-endian two's-complement numbers of this width in bytes (1, 2, 4 or 8).
    Signed(u8),
    /// Big-endian unsigned numbers of this width in bytes (1, 2, 4 or 8).
    Unsigned(u8),
    /// Big-endian IEEE 754 numbers of 4 or 8 bytes.
    Float(u8),
}

/// The specified encoding of a column. Values of another length are allowed: a block with one
/// stores the column as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnLayout {
    /// The column's number.
    pub column: u32,
    /// The encoding of its values.
    pub encoding: ColumnEncoding,
}

impl ColumnEncoding {
    /// Returns the width of a number that is stored little-endian.
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

    /// Returns an integer that orders numbers like their column does.
    fn rank(self, value: &[u8]) -> u64 {
        let bits = value.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let sign = 1u64 << (8 * value.len() - 1);
        match self {
            ColumnEncoding::Signed(_) => bits ^ sign,
            // Negative numbers with larger bits are smaller.
            ColumnEncoding::Float(_) if bits & sign != 0 => !bits & (sign | (sign - 1)),
            ColumnEncoding::Float(_) => bits | sign,
            ColumnEncoding::Unsigned(_) | ColumnEncoding::Bytes => bits,
        }
    }

    /// Returns an order-preserving prefix of 8 bytes: the rank of a number, or the first eight
    /// bytes. Different prefixes decide a comparison. Equal prefixes of numbers with the encoding's
    /// width mean equal numbers.
    pub(crate) fn order_prefix(self, value: &[u8]) -> u64 {
        if self.number().is_some() {
            return self.rank(value);
        }
        let mut first = [0; 8];
        let len = value.len().min(8);
        first[..len].copy_from_slice(&value[..len]);
        u64::from_be_bytes(first)
    }

    /// Compares two values. Numbers of another width than the encoding's compare as bytes.
    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self.number() {
            Some(width) if left.len() == usize::from(width) && right.len() == usize::from(width) => {
                self.rank(left).cmp(&self.rank(right))
            }
            _ => left.cmp(right),
        }
    }
}

/// Returns the encoding of a column from `layouts`, which ascend by column. Bytes if it has none.
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
    fn numbers_compare_by_value() {
        let signed = [i32::MIN, -2, -1, 0, 1, i32::MAX].map(|n| n.to_be_bytes().to_vec());
        check(ColumnEncoding::Signed(4), &signed);
        let unsigned = [0u16, 1, 0x7fff, 0x8000, 0xffff].map(|n| n.to_be_bytes().to_vec());
        check(ColumnEncoding::Unsigned(2), &unsigned);
        let floats = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        check(ColumnEncoding::Float(8), &floats.map(|n| n.to_be_bytes().to_vec()));
        check(ColumnEncoding::Bytes, &[b"".to_vec(), b"a".to_vec(), b"aa".to_vec(), b"b".to_vec()]);
    }
}
