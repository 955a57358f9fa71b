//! The least and greatest values in a block, by which a scan passes over it unread.
//!
//! ```text
//!  bounds   clustering low string, cut u8, high string | columns varint | bounds of each column, ascending
//!  column   column varint | encoding u8 | width u8 | kind u8 | [low string | high string]
//!  kind     0 nothing is known | 1 there are no values | 2 low and high | 3 the same, and high is cut
//! ```
//!
//! A column that is not named has no values in the block. Strings are cut to 32 bytes; what was cut is the beginning of the
//! true bound, which for the lower one is a lower bound still. Expired values count; dead ones do not.

use crate::codec::{put_bytes, put_varint};
use crate::columnar::bits::BitsBuilder;
use crate::columnar::layout::ColumnEncoding;
use crate::columnar::values::ValuesBuilder;

/// Bytes kept of a bound.
const KEPT: usize = 32;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const RANGE: u8 = 2;
const CUT: u8 = 3;

/// The bounds of one block, as they are kept in the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockBounds {
    clustering: Vec<u8>,
    count: u64,
    columns: Vec<u8>,
}

fn cut(value: &[u8]) -> &[u8] {
    &value[..value.len().min(KEPT)]
}

impl BlockBounds {
    pub(crate) fn of_clustering(clustering: &ValuesBuilder) -> BlockBounds {
        let mut bounds = BlockBounds::default();
        let low = clustering.all().min().unwrap_or_default();
        let high = clustering.all().max().unwrap_or_default();
        put_bytes(&mut bounds.clustering, cut(low));
        bounds.clustering.push(u8::from(high.len() > KEPT));
        put_bytes(&mut bounds.clustering, cut(high));
        bounds
    }

    /// Adds a column; they come in ascending order.
    pub(crate) fn add(
        &mut self,
        column: u32,
        encoding: ColumnEncoding,
        values: &ValuesBuilder,
        valid: &BitsBuilder,
        elements: bool,
    ) {
        self.count += 1;
        let out = &mut self.columns;
        put_varint(out, u64::from(column));
        out.push(encoding.code());
        out.push(encoding.number().unwrap_or(0));
        let odd = |value: &[u8]| encoding.number().is_some_and(|width| value.len() != usize::from(width));
        let order = |left: &&[u8], right: &&[u8]| encoding.compare(left, right);
        let low = values.present(valid).min_by(order);
        let high = values.present(valid).max_by(order);
        match (low, high) {
            _ if elements || values.present(valid).any(odd) => out.push(UNKNOWN),
            (Some(low), Some(high)) => {
                out.push(if high.len() > KEPT { CUT } else { RANGE });
                put_bytes(out, cut(low));
                put_bytes(out, cut(high));
            }
            _ => out.push(NONE),
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.clustering);
        put_varint(out, self.count);
        out.extend_from_slice(&self.columns);
    }
}
