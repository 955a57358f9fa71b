//! The regions of a block: each a piece of it that is compressed and checked by itself, and read only when wanted.
//!
//! ```text
//!  block      directory | region | region | …          each starts at a multiple of 8, zeros between
//!  directory  flags u8 (1 goes on from the block before, 2 goes on in the next) | partitions u32 | rows u32 | regions u32 |
//!             place of each region
//!  place      kind u8 | column u32 | slots u32 | lie u8 | width u8 | compression u8 (0 none, 1 LZ4 block,
//!             2 Zstd frame) | stored u32 | raw u32 | crc u32                                      24 bytes
//! ```
//!
//! Checksums are CRC32C of the bytes as stored, seeded with the file's number; the directory's own is in the index.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::codec::{Malformed, Reader, put_u32};
use crate::columnar::packing;
use crate::columnar::values::Lie;

/// The directory without its places.
const DIRECTORY: usize = 13;
/// A place.
const PLACE: usize = 24;
/// A region is never larger: it holds a part of a block, and one row at most beyond the block's size.
const RAW_MAX: u32 = 1 << 30;
/// Slots of a region: elements of one row more than a block holds, at most.
pub(crate) const SLOTS_MAX: u32 = 1 << 26;

const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Regions of up to so many bytes are left as they are.
const SMALL: usize = 32;

/// The first block goes on with a partition.
const CONTINUED: u8 = 1;
const MORE: u8 = 2;

/// What a region holds. Those from `Marks` on are of one column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Keys = 0,
    Heads = 1,
    Clustering = 2,
    Rows = 3,
    Marks = 4,
    Values = 5,
    ElementMarks = 6,
    Paths = 7,
    Elements = 8,
}

const KINDS: [Kind; 9] = [
    Kind::Keys,
    Kind::Heads,
    Kind::Clustering,
    Kind::Rows,
    Kind::Marks,
    Kind::Values,
    Kind::ElementMarks,
    Kind::Paths,
    Kind::Elements,
];

/// The checksum of a piece of a file.
pub(crate) fn crc(file: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(file as u32 ^ (file >> 32) as u32, bytes)
}

/// Where a region lies and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) column: u32,
    /// How many slots it speaks of.
    pub(crate) slots: usize,
    pub(crate) lie: Lie,
    compression: u8,
    offset: usize,
    stored: usize,
    raw: usize,
    crc: u32,
}

/// How a block is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstd.
    Zstd,
}

/// The regions of a block being written.
#[derive(Debug)]
pub(crate) struct RegionsBuilder {
    file: u64,
    packing: Packing,
    places: Vec<u8>,
    regions: Vec<u8>,
    count: u32,
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

impl RegionsBuilder {
    pub(crate) fn new(file: u64, packing: Packing) -> RegionsBuilder {
        RegionsBuilder { file, packing, places: Vec::new(), regions: Vec::new(), count: 0 }
    }

    /// Adds a region; they come in the order of column and kind.
    pub(crate) fn push(&mut self, kind: Kind, column: u32, slots: usize, lie: Lie, raw: &[u8]) {
        align(&mut self.regions);
        let start = self.regions.len();
        // It must save an eighth, or reading is cheaper without it.
        let worth = raw.len() - raw.len() / 8;
        let packed = match self.packing {
            _ if raw.len() <= SMALL => None,
            Packing::None => None,
            Packing::Lz4 => packing::lz4(raw, &mut self.regions).map(|packed| (LZ4, packed)),
            Packing::Zstd => packing::zstd(raw, &mut self.regions).map(|packed| (ZSTD, packed)),
        };
        let (compression, kept) = packed.filter(|(_, packed)| *packed < worth).unwrap_or((RAW, 0));
        self.regions.truncate(start + kept);
        if compression == RAW {
            self.regions.extend_from_slice(raw);
        }
        let stored = &self.regions[start..];
        let (lie, width) = lie.code();
        self.places.push(kind as u8);
        put_u32(&mut self.places, column);
        put_u32(&mut self.places, slots as u32);
        self.places.extend_from_slice(&[lie, width, compression]);
        put_u32(&mut self.places, stored.len() as u32);
        put_u32(&mut self.places, raw.len() as u32);
        put_u32(&mut self.places, crc(self.file, stored));
        self.count += 1;
    }

    /// Appends the block; returns the bytes of its directory, and their checksum.
    pub(crate) fn finish(
        self,
        out: &mut Vec<u8>,
        ends: (bool, bool),
        parts: usize,
        rows: usize,
    ) -> (u32, u32) {
        let start = out.len();
        out.push(if ends.0 { CONTINUED } else { 0 } | if ends.1 { MORE } else { 0 });
        put_u32(out, parts as u32);
        put_u32(out, rows as u32);
        put_u32(out, self.count);
        out.extend_from_slice(&self.places);
        let directory = out.len() - start;
        let sum = crc(self.file, &out[start..]);
        out.resize(start + directory.next_multiple_of(8), 0);
        out.extend_from_slice(&self.regions);
        (directory as u32, sum)
    }
}

/// A directory that has been read.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) continued: bool,
    pub(crate) more: bool,
    pub(crate) parts: usize,
    pub(crate) rows: usize,
    pub(crate) places: Vec<Place>,
}

impl Directory {
    /// Reads the first `bytes` of a block that has `len` of them, their checksum having been compared.
    pub(crate) fn read(directory: Bytes, len: usize) -> Result<Directory, Malformed> {
        let bytes = directory.len();
        let mut reader = Reader::new(directory);
        let flags = reader.u8()?;
        let (parts, rows, count) = (reader.u32()?, reader.u32()?, reader.u32()? as usize);
        let known = flags & !(CONTINUED | MORE) == 0 && parts <= SLOTS_MAX && rows <= SLOTS_MAX && parts > 0;
        if !known || count.checked_mul(PLACE) != Some(bytes.wrapping_sub(DIRECTORY)) {
            return Err(Malformed);
        }
        let mut offset = bytes;
        let mut places: Vec<Place> = Vec::with_capacity(count);
        for _ in 0..count {
            let place = Place::read(&mut reader, &mut offset)?;
            let order = |place: &Place| (place.kind >= Kind::Marks, place.column, place.kind);
            if offset > len || places.last().is_some_and(|last| order(last) >= order(&place)) {
                return Err(Malformed);
            }
            places.push(place);
        }
        let (continued, more) = (flags & CONTINUED != 0, flags & MORE != 0);
        Ok(Directory { continued, more, parts: parts as usize, rows: rows as usize, places })
    }
}

impl Place {
    fn read(reader: &mut Reader, offset: &mut usize) -> Result<Place, Malformed> {
        let kind = *KINDS.get(usize::from(reader.u8()?)).ok_or(Malformed)?;
        let (column, slots) = (reader.u32()?, reader.u32()?);
        let lie = Lie::from_code(reader.u8()?, reader.u8()?)?;
        let compression = reader.u8()?;
        let (stored, raw, crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if slots > SLOTS_MAX || raw > RAW_MAX || stored > RAW_MAX || compression > ZSTD {
            return Err(Malformed);
        }
        let start = offset.next_multiple_of(8);
        *offset = start + stored as usize;
        let (stored, raw) = (stored as usize, raw as usize);
        Ok(Place { kind, column, slots: slots as usize, lie, compression, offset: start, stored, raw, crc })
    }

    /// Checks the region and takes or unpacks its bytes; the number says how many of them are new memory.
    fn unpack(&self, block: &Bytes, file: u64) -> Result<(Bytes, usize), Malformed> {
        let end = self.offset.checked_add(self.stored).filter(|end| *end <= block.len()).ok_or(Malformed)?;
        let stored = block.slice(self.offset..end);
        if crc(file, &stored) != self.crc {
            return Err(Malformed);
        }
        if self.compression == RAW {
            return if self.raw == self.stored { Ok((stored, 0)) } else { Err(Malformed) };
        }
        let raw = match self.compression {
            LZ4 => packing::un_lz4(&stored, self.raw)?,
            _ => packing::un_zstd(&stored, self.raw)?,
        };
        if raw.len() != self.raw {
            return Err(Malformed);
        }
        Ok((Bytes::from(raw), self.raw))
    }
}

/// The stored bytes of a block, and how much memory has been taken for what was unpacked of them.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) bytes: Bytes,
    pub(crate) file: u64,
    pub(crate) rows: usize,
    pub(crate) unpacked: AtomicUsize,
}

/// What a region's bytes are read as.
pub(crate) trait FromRegion: Sized {
    /// Reads and checks them once, so that using them cannot fail. `rows`: how many the block has.
    fn from_region(data: Bytes, place: &Place, rows: usize) -> Result<Self, Malformed>;
}

/// A region, unpacked when first asked for.
#[derive(Debug)]
pub(crate) struct Region<T> {
    pub(crate) place: Place,
    read: OnceLock<T>,
}

impl<T: FromRegion> Region<T> {
    pub(crate) fn new(place: Place) -> Region<T> {
        Region { place, read: OnceLock::new() }
    }

    #[inline]
    pub(crate) fn get(&self, store: &Store) -> Result<&T, Malformed> {
        match self.read.get() {
            Some(read) => Ok(read),
            None => self.unpack(store),
        }
    }

    #[cold]
    fn unpack(&self, store: &Store) -> Result<&T, Malformed> {
        let (data, new) = self.place.unpack(&store.bytes, store.file)?;
        let read = T::from_region(data, &self.place, store.rows)?;
        store.unpacked.fetch_add(new, Ordering::Relaxed);
        Ok(self.read.get_or_init(|| read))
    }
}
