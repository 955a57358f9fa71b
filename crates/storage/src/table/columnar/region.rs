//! The regions of a block. Each is compressed and checksummed by itself, and read only when needed.
//!
//! ```text
//!  block      directory | region | region | …          each starts at a multiple of 8, zeros between
//!  directory  flags u8 (1 continues from the block before, 2 continues in the next) | partitions u32 | rows u32 |
//!             regions u32 | entry of each region
//!  entry      kind u8 | column u32 | slots u32 | layout u8 | width u8 | compression u8 (0 none, 1 LZ4 block,
//!             2 Zstd frame) | stored u32 | raw u32 | crc u32                                      24 bytes
//! ```
//!
//! Checksums are CRC32C of the stored bytes, seeded with the file's number. The directory's own
//! checksum is in the index.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::model::codec::{Malformed, put_u32};
use crate::options::Compression;
use crate::table::columnar::compress;
use crate::table::columnar::values::ValueLayout;

/// Bytes of the directory without its entries.
const DIRECTORY: usize = 13;
/// Bytes of an entry.
const PLACE: usize = 24;
/// The largest region before compression, bytes. A region holds a part of a block, and at most one
/// row beyond the block's size.
pub(crate) const RAW_MAX: u32 = 1 << 30;
/// The slots of the largest region: cells of a block, and elements of one row beyond the block's
/// size.
pub(crate) const SLOTS_MAX: u32 = 1 << 26;

/// The limits of a region. Writers respect what readers check. Tests write with smaller limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionMax {
    /// Bytes before compression.
    pub(crate) raw: usize,
    /// Slots.
    pub(crate) slots: usize,
}

impl Default for RegionMax {
    fn default() -> RegionMax {
        RegionMax { raw: RAW_MAX as usize, slots: SLOTS_MAX as usize }
    }
}

const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Regions of up to this many bytes are not compressed.
const SMALL: usize = 32;

/// The first partition started in an earlier block.
const CONTINUED: u8 = 1;
/// The last partition continues in the next block.
const MORE: u8 = 2;

/// The content of a region. Kinds from `Marks` on belong to one column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RegionKind {
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

const KINDS: [RegionKind; 9] = [
    RegionKind::Keys,
    RegionKind::Heads,
    RegionKind::Clustering,
    RegionKind::Rows,
    RegionKind::Marks,
    RegionKind::Values,
    RegionKind::ElementMarks,
    RegionKind::Paths,
    RegionKind::Elements,
];

/// Returns the checksum of bytes of a file.
pub(crate) fn crc(file: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(file as u32 ^ (file >> 32) as u32, bytes)
}

/// A directory entry: location and description of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionEntry {
    pub(crate) kind: RegionKind,
    pub(crate) layout: ValueLayout,
    compression: u8,
    pub(crate) column: u32,
    slots: u32,
    offset: u32,
    stored: u32,
    raw: u32,
    crc: u32,
}

/// Builds the regions of a block.
#[derive(Debug)]
pub(crate) struct RegionsBuilder<'a> {
    file: u64,
    compression: Compression,
    buffers: &'a mut RegionBuffers,
    count: u32,
    max: RegionMax,
    /// A region was left out because it exceeds `max`.
    is_too_large: bool,
}

/// Buffers that are reused for the regions of all blocks.
#[derive(Debug, Default)]
pub(crate) struct RegionBuffers {
    places: Vec<u8>,
    regions: Vec<u8>,
    packed: Vec<u8>,
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

impl RegionsBuilder<'_> {
    pub(crate) fn new(
        file: u64,
        compression: Compression,
        buffers: &mut RegionBuffers,
        max: RegionMax,
    ) -> RegionsBuilder<'_> {
        buffers.places.clear();
        buffers.regions.clear();
        RegionsBuilder { file, compression, buffers, count: 0, max, is_too_large: false }
    }

    /// Adds a region. Regions arrive in the order of column and kind. Leaves out a region beyond
    /// the limits, which no reader would accept.
    pub(crate) fn push(
        &mut self,
        kind: RegionKind,
        column: u32,
        slots: usize,
        layout: ValueLayout,
        raw: &[u8],
    ) {
        if raw.len() > self.max.raw || slots > self.max.slots {
            self.is_too_large = true;
            return;
        }
        let RegionBuffers { places, regions, packed: buffer } = &mut *self.buffers;
        align(regions);
        let start = regions.len();
        // Compression must save an eighth. Otherwise reading is cheaper without it.
        let worth = raw.len() - raw.len() / 8;
        let packed = match self.compression {
            _ if raw.len() <= SMALL => None,
            Compression::None => None,
            Compression::Lz4 => compress::lz4(raw, buffer).map(|packed| (LZ4, packed)),
            Compression::Zstd => compress::zstd(raw, buffer).map(|packed| (ZSTD, packed)),
        };
        let (compression, stored) = packed.filter(|(_, packed)| packed.len() < worth).unwrap_or((RAW, raw));
        regions.extend_from_slice(stored);
        let stored = &regions[start..];
        let (layout, width) = layout.code();
        places.push(kind as u8);
        put_u32(places, column);
        put_u32(places, slots as u32);
        places.extend_from_slice(&[layout, width, compression]);
        put_u32(places, stored.len() as u32);
        put_u32(places, raw.len() as u32);
        put_u32(places, crc(self.file, stored));
        self.count += 1;
    }

    /// Returns true if a region was left out. The block must not be used then.
    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Appends the block. Returns the bytes of its directory, and their checksum.
    pub(crate) fn finish(
        self,
        out: &mut Vec<u8>,
        continued: bool,
        more: bool,
        parts: usize,
        rows: usize,
    ) -> (u32, u32) {
        let start = out.len();
        out.push(if continued { CONTINUED } else { 0 } | if more { MORE } else { 0 });
        put_u32(out, parts as u32);
        put_u32(out, rows as u32);
        put_u32(out, self.count);
        out.extend_from_slice(&self.buffers.places);
        let directory = out.len() - start;
        let sum = crc(self.file, &out[start..]);
        out.resize(start + directory.next_multiple_of(8), 0);
        out.extend_from_slice(&self.buffers.regions);
        (directory as u32, sum)
    }
}

/// A directory: its fixed fields, and its entries, which are decoded one by one.
#[derive(Debug)]
pub(crate) struct Directory<'a> {
    pub(crate) continued: bool,
    pub(crate) more: bool,
    pub(crate) parts: usize,
    pub(crate) rows: usize,
    places: &'a [[u8; PLACE]],
    /// The entry decoded last, which is taken next.
    next: Option<RegionEntry>,
    /// The least offset of the next entry's region.
    offset: usize,
    /// Bytes of the block.
    len: usize,
    /// Bytes of the regions decoded so far, before compression.
    pub(crate) raw: u64,
}

impl Directory<'_> {
    /// Decodes the fixed fields of a directory, whose checksum the caller has compared. The block
    /// has `len` bytes.
    pub(crate) fn read(directory: &[u8], len: usize) -> Result<Directory<'_>, Malformed> {
        let (head, places) = directory.split_first_chunk::<DIRECTORY>().ok_or(Malformed)?;
        let (places, rest) = places.as_chunks::<PLACE>();
        let (flags, parts) = (head[0], u32_at(head, 1));
        let (rows, count) = (u32_at(head, 5), u32_at(head, 9) as usize);
        let known = flags & !(CONTINUED | MORE) == 0 && parts <= SLOTS_MAX && rows <= SLOTS_MAX && parts > 0;
        if !known || count != places.len() || !rest.is_empty() {
            return Err(Malformed);
        }
        let (continued, more) = (flags & CONTINUED != 0, flags & MORE != 0);
        let parts = parts as usize;
        let rows = rows as usize;
        let offset = directory.len();
        let mut read = Directory { continued, more, parts, rows, places, next: None, offset, len, raw: 0 };
        read.advance()?;
        Ok(read)
    }

    /// Returns the next entry without taking it.
    pub(crate) fn next(&self) -> Option<&RegionEntry> {
        self.next.as_ref()
    }

    /// Returns the number of entries not yet taken.
    pub(crate) fn left(&self) -> usize {
        self.places.len() + usize::from(self.next.is_some())
    }

    /// Takes the next entry if it has this kind and column. It must have `slots` slots, if that is
    /// given.
    pub(crate) fn take(
        &mut self,
        kind: RegionKind,
        column: u32,
        slots: Option<usize>,
    ) -> Result<Option<RegionEntry>, Malformed> {
        let Some(place) = self.next.filter(|place| place.kind == kind && place.column == column) else {
            return Ok(None);
        };
        if slots.is_some_and(|slots| slots != place.slots()) {
            return Err(Malformed);
        }
        self.advance()?;
        Ok(Some(place))
    }

    fn advance(&mut self) -> Result<(), Malformed> {
        let last = self.next.take();
        let Some((bytes, rest)) = self.places.split_first() else { return Ok(()) };
        let place = RegionEntry::read(bytes, &mut self.offset)?;
        let order = |place: &RegionEntry| (place.kind >= RegionKind::Marks, place.column, place.kind);
        if self.offset > self.len || last.is_some_and(|last| order(&last) >= order(&place)) {
            return Err(Malformed);
        }
        (self.places, self.next) = (rest, Some(place));
        self.raw += u64::from(place.raw);
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl RegionEntry {
    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    fn read(bytes: &[u8; PLACE], offset: &mut usize) -> Result<RegionEntry, Malformed> {
        let kind = *KINDS.get(usize::from(bytes[0])).ok_or(Malformed)?;
        let (column, slots) = (u32_at(bytes, 1), u32_at(bytes, 5));
        let layout = ValueLayout::from_code(bytes[9], bytes[10])?;
        let compression = bytes[11];
        let stored = u32_at(bytes, 12);
        let raw = u32_at(bytes, 16);
        let crc = u32_at(bytes, 20);
        if slots > SLOTS_MAX || raw > RAW_MAX || stored > RAW_MAX || compression > ZSTD {
            return Err(Malformed);
        }
        let start = offset.next_multiple_of(8);
        *offset = start + stored as usize;
        let start = u32::try_from(start).map_err(|_| Malformed)?;
        Ok(RegionEntry { kind, column, slots, layout, compression, offset: start, stored, raw, crc })
    }

    /// Checks the region and decompresses it. The number is the newly allocated memory, bytes.
    fn unpack(&self, block: &Bytes, file: u64) -> Result<(Bytes, usize), Malformed> {
        let (start, raw_len) = (self.offset as usize, self.raw as usize);
        let end =
            start.checked_add(self.stored as usize).filter(|end| *end <= block.len()).ok_or(Malformed)?;
        let stored = block.slice(start..end);
        if crc(file, &stored) != self.crc {
            return Err(Malformed);
        }
        if self.compression == RAW {
            return if self.raw == self.stored { Ok((stored, 0)) } else { Err(Malformed) };
        }
        let raw = match self.compression {
            LZ4 => compress::un_lz4(&stored, raw_len)?,
            _ => compress::un_zstd(&stored, raw_len)?,
        };
        if raw.len() != raw_len {
            return Err(Malformed);
        }
        Ok((Bytes::from(raw), raw_len))
    }
}

/// The stored bytes of a block, and the memory of its decompressed regions.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) bytes: Bytes,
    pub(crate) file: u64,
    pub(crate) rows: usize,
    pub(crate) unpacked: AtomicUsize,
}

/// The decoded form of a region.
pub(crate) trait FromRegion: Sized {
    /// Decodes and checks the bytes once, so that using them cannot fail. `rows` is the number of
    /// rows of the block.
    fn from_region(data: Bytes, place: &RegionEntry, rows: usize) -> Result<Self, Malformed>;
}

/// A region, decompressed on first use.
#[derive(Debug)]
pub(crate) struct Region<T> {
    place: RegionEntry,
    /// Boxed: a block has many regions, of which readers may use few.
    read: OnceLock<Box<T>>,
}

impl<T: FromRegion> Region<T> {
    pub(crate) fn new(place: RegionEntry) -> Region<T> {
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
        let read = Box::new(T::from_region(data, &self.place, store.rows)?);
        store.unpacked.fetch_add(new + size_of::<T>(), Ordering::Relaxed);
        Ok(self.read.get_or_init(|| read))
    }
}
