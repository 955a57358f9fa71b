//! A block of a table file of version 1: parts of partitions, rows in order. Row-wise; found by binary search, decoded on
//! demand. No longer written.
//!
//! ```text
//!  block      part … part | offset of each part u32 … | number of parts u32
//!  part       token i64 | key | flags u8 | head unless CONTINUED | rows u32 | offset of each row u32 … | row …
//!  head       deletion present u8 | deletion | static cells | ranges
//! ```
//!
//! A partition larger than a block goes on in the next one: the part has MORE set, the next one CONTINUED. Row
//! offsets count from the end of the offset table. Nothing is decoded but what a reader asks for.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{Malformed, Reader};
use crate::partition::{Full, Partition};
use crate::reconcile::merge_deletion;

const CONTINUED: u8 = 1;
const MORE: u8 = 2;

/// A decompressed block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    data: Bytes,
    parts: usize,
}

/// One part, its rows not yet decoded.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) continued: bool,
    pub(crate) more: bool,
    head: Full,
    rows: usize,
    offsets_at: usize,
    data: Bytes,
}

impl Block {
    pub(crate) fn new(data: Bytes) -> Result<Block, Malformed> {
        let at = data.len().checked_sub(4).ok_or(Malformed)?;
        let parts = Reader::at(data.clone(), at).u32()? as usize;
        if parts == 0 || parts > at / 4 {
            return Err(Malformed);
        }
        Ok(Block { data, parts })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    fn reader(&self, part: usize) -> Result<Reader, Malformed> {
        let table = self.data.len() - 4 - 4 * self.parts;
        let offset = Reader::at(self.data.clone(), table + 4 * part).u32()? as usize;
        if offset >= table { Err(Malformed) } else { Ok(Reader::at(self.data.clone(), offset)) }
    }

    pub(crate) fn token(&self, part: usize) -> Result<i64, Malformed> {
        self.reader(part)?.i64()
    }

    /// Decodes the head of a part.
    pub(crate) fn part(&self, index: usize) -> Result<Part, Malformed> {
        let mut reader = self.reader(index)?;
        let (token, key) = (reader.i64()?, reader.bytes()?);
        let flags = reader.u8()?;
        let mut head = Full::default();
        if flags & CONTINUED == 0 {
            head.deletion = match reader.u8()? {
                0 => None,
                1 => Some(reader.deletion()?),
                _ => return Err(Malformed),
            };
            head.statics = reader.statics()?;
            head.ranges = reader.ranges()?;
        }
        let rows = reader.u32()? as usize;
        if rows > reader.rest() / 4 {
            return Err(Malformed);
        }
        let (continued, more) = (flags & CONTINUED != 0, flags & MORE != 0);
        let offsets_at = reader.position();
        Ok(Part { token, key, continued, more, head, rows, offsets_at, data: self.data.clone() })
    }

    /// The part of this partition, if the block has one.
    pub(crate) fn find(&self, token: i64, key: &[u8]) -> Result<Option<Part>, Malformed> {
        let (mut low, mut high) = (0, self.parts);
        while low < high {
            let middle = (low + high) / 2;
            let mut reader = self.reader(middle)?;
            let own = reader.i64()?;
            let order = if own == token { reader.slice()?.cmp(key) } else { own.cmp(&token) };
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return self.part(middle).map(Some),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

impl Part {
    fn row_reader(&self, index: usize) -> Result<Reader, Malformed> {
        let offset = Reader::at(self.data.clone(), self.offsets_at + 4 * index).u32()? as usize;
        Ok(Reader::at(self.data.clone(), self.offsets_at + 4 * self.rows + offset))
    }

    /// Everything in this part.
    pub(crate) fn partition(&self) -> Result<Partition, Malformed> {
        let head_is_empty =
            self.head.deletion.is_none() && self.head.statics.is_none() && self.head.ranges.is_empty();
        let mut full = self.head.clone();
        for index in 0..self.rows {
            let row = self.row_reader(index)?.row()?;
            if self.rows == 1 && head_is_empty && !self.continued && !self.more && row.clustering().is_empty()
            {
                return Ok(Partition::Single(row));
            }
            full.rows.push(row);
        }
        Ok(Partition::Full(Arc::new(full)))
    }

    /// The head of the partition and at most the one row.
    pub(crate) fn only(&self, clustering: &[u8]) -> Result<Partition, Malformed> {
        let (mut low, mut high) = (0, self.rows);
        let deletion = merge_deletion(self.head.deletion, self.head.ranges.covering(clustering));
        let mut full = Full { deletion, ..Full::default() };
        while low < high {
            let middle = (low + high) / 2;
            let mut reader = self.row_reader(middle)?;
            let at = reader.position();
            match reader.slice()?.cmp(clustering) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let row = Reader::at(self.data.clone(), at).row()?;
                    full.rows.push(row);
                    break;
                }
            }
        }
        Ok(Partition::Full(Arc::new(full)))
    }
}
