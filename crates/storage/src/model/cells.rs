//! Decodes the bytes of a row (see `row.rs`): its head, and its cells one by one.

use std::ops::Range;

use crate::model::{CellRef, CellValue, Deletion, Expiry, Liveness};

/// The row has a marker.
pub(super) const MARKER: u8 = 1;
/// The timestamp of the marker differs from that of the row.
pub(super) const MARKER_TIMESTAMP: u8 = 2;
/// The marker expires.
pub(super) const MARKER_EXPIRY: u8 = 4;
/// The row was deleted.
pub(super) const DELETION: u8 = 8;
/// The timestamp of some cell differs from that of the row.
pub(super) const MIXED: u8 = 16;
/// Some cell has a path.
pub(super) const ELEMENTS: u8 = 32;
pub(super) const FLAGS: u8 = 63;

pub(super) const LIVE: u8 = 0;
pub(super) const EXPIRING: u8 = 1;
pub(super) const DEAD: u8 = 2;
pub(super) const OWN_TIMESTAMP: u8 = 4;
pub(super) const PATH: u8 = 8;

pub(super) const CHECKED: &str = "a row is well-formed from the moment it exists";

/// Cursor over bytes that checks each step.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    #[inline]
    fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let slice = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(slice)
    }

    #[inline]
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.slice(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.slice(8)?.try_into().expect("eight bytes")))
    }

    #[inline]
    fn varint(&mut self) -> Option<usize> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(usize::from(first));
        }
        let mut value = usize::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.slice(len)
    }

    fn expiry(&mut self) -> Option<Expiry> {
        Some(Expiry { ttl_s: self.u32()?, at_s: self.u32()? })
    }

    fn deletion(&mut self) -> Option<Deletion> {
        Some(Deletion { timestamp: self.i64()?, deleted_at_s: self.u32()? })
    }
}

/// The parts of a row before its cells.
pub(crate) struct Head<'a> {
    pub(crate) clustering: &'a [u8],
    pub(super) flags: u8,
    pub(crate) timestamp: i64,
    pub(crate) marker: Option<Liveness>,
    pub(crate) deletion: Option<Deletion>,
    pub(super) directory: Range<usize>,
}

#[inline]
pub(super) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    let mut walk = Walk { bytes, at: 0 };
    let (_key, clustering) = (walk.string()?, walk.string()?);
    let (flags, timestamp) = (walk.u8()?, walk.i64()?);
    let mut marker = None;
    if flags & MARKER != 0 {
        let timestamp = if flags & MARKER_TIMESTAMP != 0 { walk.i64()? } else { timestamp };
        let expiry = if flags & MARKER_EXPIRY != 0 { Some(walk.expiry()?) } else { None };
        marker = Some(Liveness { timestamp, expiry });
    }
    let deletion = if flags & DELETION != 0 { Some(walk.deletion()?) } else { None };
    let len = walk.varint()?;
    let directory = walk.at..walk.at.checked_add(len).filter(|end| *end <= bytes.len())?;
    Some(Head { clustering, flags, timestamp, marker, deletion, directory })
}

#[inline]
pub(super) fn key_of(row: &[u8]) -> &[u8] {
    Walk { bytes: row, at: 0 }.string().expect(CHECKED)
}

#[inline]
pub(super) fn clustering_of(row: &[u8]) -> &[u8] {
    let mut walk = Walk { bytes: row, at: 0 };
    walk.string().and_then(|_| walk.string()).expect(CHECKED)
}

#[inline]
pub(super) fn has_elements(row: &[u8]) -> bool {
    let mut walk = Walk { bytes: row, at: 0 };
    let flags = walk.string().and_then(|_| walk.string()).and_then(|_| walk.u8());
    flags.expect(CHECKED) & ELEMENTS != 0
}

/// Iterator over the cells of a row.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) end: usize,
    pub(super) payload: usize,
    pub(super) timestamp: i64,
}

impl<'a> Cells<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], head: &Head<'_>) -> Cells<'a> {
        let Range { start, end } = head.directory.clone();
        Cells { bytes, at: start, end, payload: end, timestamp: head.timestamp }
    }

    #[inline]
    pub(super) fn decode(&mut self) -> Option<CellRef<'a>> {
        let mut walk = Walk { bytes: self.bytes.get(..self.end)?, at: self.at };
        let column = u32::try_from(walk.varint()?).ok()?;
        let kind = walk.u8()?;
        let timestamp = if kind & OWN_TIMESTAMP != 0 { walk.i64()? } else { self.timestamp };
        let expiry = if kind & 3 == EXPIRING { Some(walk.expiry()?) } else { None };
        let deleted_at_s = if kind & 3 == DEAD { walk.u32()? } else { 0 };
        let mut payload = Walk { bytes: self.bytes, at: self.payload };
        let path = if kind & PATH != 0 { Some(payload.slice(walk.varint()?)?) } else { None };
        let value = match kind & !(OWN_TIMESTAMP | PATH) {
            LIVE | EXPIRING => CellValue::Live { value: payload.slice(walk.varint()?)?, expiry },
            DEAD => CellValue::Dead { deleted_at_s },
            _ => return None,
        };
        (self.at, self.payload) = (walk.at, payload.at);
        Some(CellRef { column, path, timestamp, value })
    }

    /// Skips the cells of smaller columns, and decodes only the lengths of those.
    #[inline]
    pub(super) fn seek(&mut self, column: u32) -> Option<()> {
        while self.at < self.end {
            let mut walk = Walk { bytes: &self.bytes[..self.end], at: self.at };
            if walk.varint()? >= column as usize {
                break;
            }
            let kind = walk.u8()?;
            let state = match kind & 3 {
                EXPIRING => 8,
                DEAD => 4,
                _ => 0,
            };
            walk.at += state + if kind & OWN_TIMESTAMP != 0 { 8 } else { 0 };
            self.payload += if kind & PATH != 0 { walk.varint()? } else { 0 };
            self.payload += if kind & 3 != DEAD { walk.varint()? } else { 0 };
            self.at = walk.at;
        }
        Some(())
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = CellRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<CellRef<'a>> {
        if self.at == self.end {
            return None;
        }
        Some(self.decode().expect(CHECKED))
    }
}
