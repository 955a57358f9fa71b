//! Encoding of values in log records and table files; `encoded.rs` encodes mutations. Numbers are
//! little-endian, lengths and counts are LEB128.
//!
//! Reading never panics and never trusts a length. Input that does not decode exactly is
//! [`Malformed`].

use bytes::Bytes;

use crate::model::ranges::{Position, Ranges};
use crate::model::{Deletion, Expiry};

/// The bytes do not decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u128(out: &mut Vec<u8>, value: u128) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reader of a shared buffer. Byte strings are returned as slices of it.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    data: Bytes,
    at: usize,
}

impl Reader {
    pub(crate) fn new(data: Bytes) -> Reader {
        Reader { data, at: 0 }
    }

    pub(crate) fn at(data: Bytes, at: usize) -> Reader {
        Reader { data, at }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> usize {
        self.data.len().saturating_sub(self.at)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let end = self.at.checked_add(N).ok_or(Malformed)?;
        let bytes = self.data.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// Reads a count of items of at least `each` bytes.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        if count.checked_mul(each).is_none_or(|bytes| bytes > self.rest()) {
            Err(Malformed)
        } else {
            Ok(count)
        }
    }

    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.at = self.at.checked_add(len).filter(|end| *end <= self.data.len()).ok_or(Malformed)?;
        Ok(())
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<Bytes, Malformed> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.data.len()).ok_or(Malformed)?;
        let bytes = self.data.slice(self.at..end);
        self.at = end;
        Ok(bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.take(len)
    }

    /// Reads a byte string into its own allocation, which keeps nothing else in memory.
    pub(crate) fn copied(&mut self) -> Result<Bytes, Malformed> {
        self.slice().map(Bytes::copy_from_slice)
    }

    /// Reads a byte string without taking a reference to the buffer.
    pub(crate) fn slice(&mut self) -> Result<&[u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        let end = self.at.checked_add(len).filter(|end| *end <= self.data.len()).ok_or(Malformed)?;
        let start = std::mem::replace(&mut self.at, end);
        Ok(&self.data[start..end])
    }

    pub(crate) fn deletion(&mut self) -> Result<Deletion, Malformed> {
        Ok(Deletion { timestamp: self.i64()?, deleted_at_s: self.u32()? })
    }

    fn position_of_range(&mut self) -> Result<Position, Malformed> {
        match self.u8()? {
            0 => Ok(Position::At(self.bytes()?, false)),
            1 => Ok(Position::At(self.bytes()?, true)),
            2 => Ok(Position::End),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn ranges(&mut self) -> Result<Ranges, Malformed> {
        let count = self.count(RANGE_BYTES_MIN)?;
        let mut ranges = Ranges::default();
        for _ in 0..count {
            let start = self.position_of_range()?;
            let end = self.position_of_range()?;
            let deletion = self.deletion()?;
            ranges.insert(start, end, deletion);
        }
        Ok(ranges)
    }
}

const RANGE_BYTES_MIN: usize = 14; // two positions of 1, a deletion of 12

pub(crate) fn put_deletion(out: &mut Vec<u8>, deletion: &Deletion) {
    put_i64(out, deletion.timestamp);
    put_u32(out, deletion.deleted_at_s);
}

pub(crate) fn put_expiry(out: &mut Vec<u8>, expiry: &Expiry) {
    put_u32(out, expiry.ttl_s);
    put_u32(out, expiry.at_s);
}

pub(crate) fn put_ranges(out: &mut Vec<u8>, ranges: &Ranges) {
    fn put_position(out: &mut Vec<u8>, position: &Position) {
        match position {
            Position::At(key, after) => {
                out.push(u8::from(*after));
                put_bytes(out, key);
            }
            Position::End => out.push(2),
        }
    }
    put_varint(out, ranges.iter().count() as u64);
    for (start, end, deletion) in ranges.iter() {
        put_position(out, start);
        put_position(out, end);
        put_deletion(out, &deletion);
    }
}
