//! The format of a table file as pure functions over bytes: the writer, the index and the footer.
//!
//! ```text
//!  file      block | block | … | filter | index | footer          each block starts at a multiple of 8
//!  index     entry of each block
//!  entry     token i64 | key string | at u8 | clustering string | offset u64 | stored u32 | directory u32 |
//!            crc u32 | rows u32 | zone map string
//!  at        0 a partition starts here | 1 one continues | 3 one without deletions and static cells continues
//!  footer    filter offset u64, bytes u32, crc u32 | index offset u64, bytes u32, crc u32 | statistics 272 bytes |
//!            file id u64 | partitions u64 | version u32 | crc u32 | magic u64                          336 bytes
//! ```
//!
//! [`crate::table::columnar`] defines blocks. A file is written once and synced before the manifest
//! names it. Checksums are CRC32C of the stored bytes, seeded with the file's number, so that a
//! block of another file fails the check too.

pub(crate) mod bloom;
pub(crate) mod cache;
pub(crate) mod cached_row;
pub(crate) mod columnar;
pub(crate) mod deaths;
pub(crate) mod fifo;
pub(crate) mod file;
pub(crate) mod file_cursor;
pub(crate) mod file_statistics;
pub(crate) mod large_rows;
pub(crate) mod metrics;
pub(crate) mod owners;
pub(crate) mod part;
pub(crate) mod read_ahead;
pub(crate) mod runs;
pub(crate) mod scan_cache;
pub(crate) mod shared;
pub(crate) mod size;
pub(crate) mod store;

use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::model::codec::{Malformed, Reader, put_bytes, put_i64, put_u32, put_u64};
use crate::model::partition::Partition;
use crate::model::row::EncodedRow;
use crate::options::Compression;
use crate::table::columnar::layout::ColumnLayout;
#[cfg(test)]
use crate::table::columnar::region::RegionMax;
use crate::table::columnar::region::{RAW_MAX, crc};
use crate::table::columnar::{BlockBuilder, HeadRef};
use crate::table::file_statistics::{FileStatistics, WriteTime};
use crate::table::large_rows::{LargeRows, LargeRowsBuilder};

const MAGIC: u64 = 0x3130_4c42_5446_4c46; // "FLFTBL01"
/// Version of the format that this program reads and writes.
pub(crate) const VERSION: u32 = 4;
/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: usize = 64 + file_statistics::BYTES;

const INSIDE: u8 = 1;
const PLAIN: u8 = 2;

/// The position at which a block starts, in the order of (token, key, clustering).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockStart {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// `None` if the partition itself starts here, which sorts before its rows.
    pub(crate) clustering: Option<Bytes>,
}

/// One entry of the index.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) start: BlockStart,
    /// True if the partition that continues here has neither deletions nor static cells.
    pub(crate) plain: bool,
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    pub(crate) rows: u32,
    /// Bytes of the directory at the start of the block.
    pub(crate) directory: u32,
    /// The zone map of the block: see [`columnar::bounds`].
    pub(crate) zone_map: Bytes,
    pub(crate) crc: u32,
}

/// The size of a finished file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) partitions: u64,
}

/// Encodes partitions, which arrive in order, into the bytes of a file. The caller takes finished
/// bytes with `take` from time to time.
#[derive(Debug)]
pub(crate) struct TableWriter {
    file: u64,
    block_bytes: usize,
    compression: Compression,
    layouts: Arc<[ColumnLayout]>,
    block: BlockBuilder,
    start: Option<(BlockStart, bool)>,
    /// The current partition, and true if it has neither deletions nor static cells.
    begun: Option<(i64, Bytes, bool)>,
    index: Vec<u8>,
    tokens: Vec<i64>,
    statistics: FileStatistics,
    out: Vec<u8>,
    taken: u64,
    /// The token of a partition with a row that exceeds the limits of the format.
    too_large: Option<i64>,
    large_rows: LargeRowsBuilder,
}

impl TableWriter {
    /// Starts a file written at `time`. A block is closed when it has `block_bytes` before
    /// compression.
    pub(crate) fn new(file: u64, block_bytes: usize, time: WriteTime) -> TableWriter {
        TableWriter {
            file,
            block_bytes,
            compression: Compression::default(),
            layouts: Arc::new([]),
            block: BlockBuilder::default(),
            start: None,
            begun: None,
            index: Vec::new(),
            tokens: Vec::new(),
            statistics: FileStatistics::new(time),
            out: Vec::new(),
            taken: 0,
            too_large: None,
            large_rows: LargeRowsBuilder::new(usize::MAX),
        }
    }

    /// Sets the layouts of the columns, ascending by column, and the compression.
    pub(crate) fn with(self, layouts: Arc<[ColumnLayout]>, compression: Compression) -> TableWriter {
        TableWriter { layouts, compression, ..self }
    }

    /// Notes rows of at least `from_bytes` bytes, for [`TableWriter::large_rows`].
    pub(crate) fn with_large_rows(self, from_bytes: usize) -> TableWriter {
        TableWriter { large_rows: LargeRowsBuilder::new(from_bytes), ..self }
    }

    /// Returns the large rows of the file.
    pub(crate) fn large_rows(&mut self) -> LargeRows {
        self.large_rows.finish()
    }

    /// Sets other limits of a region.
    #[cfg(test)]
    pub(crate) fn with_max(self, max: RegionMax) -> TableWriter {
        TableWriter { block: BlockBuilder::with_max(max), ..self }
    }

    /// Returns the number of partitions so far.
    pub(crate) fn partitions(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// Returns the number of finished bytes that were not taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Takes the finished bytes, with their offset in the file.
    pub(crate) fn take(&mut self) -> (u64, Vec<u8>) {
        let out = std::mem::take(&mut self.out);
        let offset = self.taken;
        self.taken += out.len() as u64;
        (offset, out)
    }

    /// Takes the finished bytes in whole multiples of `unit` bytes, with their offset in the file.
    /// The remainder stays.
    pub(crate) fn take_whole(&mut self, unit: usize) -> (u64, Vec<u8>) {
        let whole = self.out.len() / unit * unit;
        // With the same capacity, the buffer grows without copying.
        let mut rest = Vec::with_capacity(self.out.capacity());
        rest.extend(self.out.drain(whole..));
        let taken = self.take();
        self.out = rest;
        taken
    }

    /// Starts a partition, which must sort after the last one, with its deletions and static cells.
    pub(crate) fn begin(&mut self, token: i64, key: &Bytes, partition: &Partition) {
        self.tokens.push(token);
        if self.block.bytes() >= self.block_bytes {
            self.close_block();
        }
        let start = || (BlockStart { token, key: key.clone(), clustering: None }, false);
        self.start.get_or_insert_with(start);
        let mut plain = true;
        match partition {
            Partition::Single(_) => self.block.start_part(token, key, Some(HeadRef::default())),
            Partition::Full(full) => {
                let (deletion, statics) = (full.deletion, full.statics());
                let head = HeadRef { deletion, statics, ranges: Some(&full.ranges) };
                plain = deletion.is_none() && statics.is_none() && full.ranges.is_empty();
                self.statistics.add_head(deletion, statics, &full.ranges);
                statics.into_iter().for_each(|row| self.large_rows.add(token, key, None, row));
                self.block.start_part(token, key, Some(head));
            }
        }
        self.begun = Some((token, key.clone(), plain));
    }

    /// Adds rows to the current partition. They sort after its earlier rows.
    pub(crate) fn rows(&mut self, partition: &Partition) {
        match partition {
            Partition::Single(row) => self.row(row),
            Partition::Full(full) => full.rows.iter().for_each(|row| self.row(row)),
        }
    }

    fn row(&mut self, row: &EncodedRow) {
        if self.block.bytes() >= self.block_bytes && !row.clustering().is_empty() {
            self.block.end_part(true);
            self.close_block();
            let (token, key, plain) = self.begun.clone().expect("a partition was begun");
            self.block.start_part(token, &key, None);
            let clustering = Some(Bytes::copy_from_slice(row.clustering()));
            self.start = Some((BlockStart { token, key, clustering }, plain));
        }
        if let Some((token, key, _)) = &self.begun {
            self.large_rows.add(*token, key, Some(row.clustering()), row);
        }
        self.block.push_row(row, &mut self.statistics);
    }

    /// Returns true between `begin` and `end` of a partition.
    pub(crate) fn is_inside(&self) -> bool {
        self.begun.is_some()
    }

    /// Ends the current partition, if there is one.
    pub(crate) fn end(&mut self) {
        if self.begun.take().is_some() {
            self.block.end_part(false);
        }
    }

    fn close_block(&mut self) {
        let Some((start, plain)) = self.start.take() else { return };
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let from = self.out.len();
        // `take` may have cut at an offset that is not aligned, but a block's offset must be.
        let padding = (self.taken + from as u64).next_multiple_of(8) - (self.taken + from as u64);
        self.out.resize(from + padding as usize, 0);
        let from = self.out.len();
        let finished = self.block.finish(self.file, self.compression, &self.layouts, &mut self.out);
        let index = &mut self.index;
        put_i64(index, start.token);
        put_bytes(index, &start.key);
        let inside = start.clustering.is_some();
        index.push(if inside { INSIDE } else { 0 } | if inside && plain { PLAIN } else { 0 });
        put_bytes(index, start.clustering.as_deref().unwrap_or(&[]));
        put_u64(index, self.taken + from as u64);
        put_u32(index, (self.out.len() - from) as u32);
        put_u32(index, finished.directory);
        put_u32(index, finished.crc);
        put_u32(index, finished.rows);
        let mut zone_map = Vec::new();
        finished.zone_map.put(&mut zone_map);
        put_bytes(index, &zone_map);
        if finished.is_too_large {
            // A block is closed right after the row that fills it, so the row is in the last
            // partition.
            self.too_large = self.too_large.or(self.tokens.last().copied());
        }
    }

    /// Returns an error if a row exceeded the limits of the format. The file must not be used then.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        self.too_large
            .map_or(Ok(()), |token| Err(StorageError::RowTooLarge { token, limit: RAW_MAX as usize }))
    }

    /// Ends the file. The caller takes the remaining bytes afterwards.
    ///
    /// # Errors
    /// [`StorageError::RowTooLarge`]
    pub(crate) fn finish(&mut self) -> Result<Written, StorageError> {
        if !self.block.is_empty() {
            self.close_block();
        }
        self.check()?;
        let filter = bloom::build(&self.tokens);
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        for section in [&filter, &self.index] {
            put_u64(&mut footer, self.taken + self.out.len() as u64);
            put_u32(&mut footer, section.len() as u32);
            put_u32(&mut footer, crc(self.file, section));
            self.out.extend_from_slice(section);
        }
        self.statistics.tokens = (self.tokens.first().copied(), self.tokens.last().copied());
        self.statistics.put(&mut footer);
        put_u64(&mut footer, self.file);
        put_u64(&mut footer, self.tokens.len() as u64);
        put_u32(&mut footer, VERSION);
        let sum = crc32c::crc32c(&footer);
        put_u32(&mut footer, sum);
        put_u64(&mut footer, MAGIC);
        self.out.extend_from_slice(&footer);
        Ok(Written { bytes: self.taken + self.out.len() as u64, partitions: self.tokens.len() as u64 })
    }
}

/// A section of a file: offset, bytes, checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// A decoded footer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Footer {
    pub(crate) filter: Section,
    pub(crate) index: Section,
    pub(crate) file: u64,
    pub(crate) partitions: u64,
    pub(crate) statistics: FileStatistics,
    /// Checksum of the footer, which covers those of index and filter, and so everything.
    pub(crate) crc: u32,
}

/// The reason why a file cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable(pub(crate) &'static str);

/// Decodes the footer of a file of `len` bytes. `tail` has its last [`FOOTER_BYTES`] bytes, or all
/// bytes of a shorter file. The caller compares the seal.
pub(crate) fn read_footer(tail: &Bytes, len: u64) -> Result<Footer, Unreadable> {
    const SHORT: Unreadable = Unreadable("its footer is too short");
    let end = tail.len().checked_sub(16).ok_or(SHORT)?;
    let mut reader = Reader::at(tail.clone(), end);
    let (Ok(version), Ok(sum), Ok(magic)) = (reader.u32(), reader.u32(), reader.u64()) else {
        return Err(SHORT);
    };
    match version {
        _ if magic != MAGIC => {
            return Err(Unreadable("its footer does not end with the magic number of a table file"));
        }
        VERSION => {}
        _ => return Err(Unreadable("its footer has a damaged format version")),
    }
    let start = tail.len().checked_sub(FOOTER_BYTES).ok_or(SHORT)?;
    if crc32c::crc32c(&tail[start..end + 4]) != sum {
        return Err(Unreadable("its footer does not match its checksum"));
    }
    let read = || -> Result<Footer, Malformed> {
        let mut reader = Reader::at(tail.clone(), start);
        let mut section = || Ok(Section { offset: reader.u64()?, bytes: reader.u32()?, crc: reader.u32()? });
        let (filter, index) = (section()?, section()?);
        let statistics = FileStatistics::read(&mut reader)?;
        let (file, partitions) = (reader.u64()?, reader.u64()?);
        Ok(Footer { filter, index, file, partitions, statistics, crc: sum })
    };
    let footer = read().map_err(|Malformed| SHORT)?;
    let fits = |s: Section| s.offset.checked_add(u64::from(s.bytes)).is_some_and(|end| end <= len);
    match fits(footer.filter) && fits(footer.index) {
        true => Ok(footer),
        false => Err(Unreadable("its footer points outside of the file")),
    }
}

/// Returns version and checksum of a footer that another version of the program wrote. `None`: it
/// is none, or only its version is damaged. The ends of all footers have the same layout.
pub(crate) fn other_version(tail: &Bytes) -> Option<(u32, u32)> {
    let end = tail.len().checked_sub(16)?;
    let mut reader = Reader::at(tail.clone(), end);
    let version = reader.u32().ok()?;
    let sum = reader.u32().ok()?;
    let magic = reader.u64().ok()?;
    let is_ours = || {
        let start = tail.len().saturating_sub(FOOTER_BYTES);
        let checked = crc32c::crc32c(&tail[start..end]);
        crc32c::crc32c_append(checked, &VERSION.to_le_bytes()) == sum
    };
    (magic == MAGIC && version != VERSION && !is_ours()).then_some((version, sum))
}

/// Compares a section's bytes with its length and checksum.
pub(crate) fn check_section(section: &Section, file: u64, bytes: &Bytes) -> Result<(), Unreadable> {
    if bytes.len() == section.bytes as usize && crc(file, bytes) == section.crc {
        return Ok(());
    }
    Err(Unreadable("its filter or index does not match its checksum"))
}

/// Decodes the index of a file.
pub(crate) fn read_index(bytes: Bytes) -> Result<Vec<IndexEntry>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut entries: Vec<IndexEntry> = Vec::new();
    while reader.rest() > 0 {
        let entry = read_entry(&mut reader)?;
        if entries.last().is_some_and(|last| last.start >= entry.start) {
            return Err(Malformed);
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn read_entry(reader: &mut Reader) -> Result<IndexEntry, Malformed> {
    let (token, key) = (reader.i64()?, reader.bytes()?);
    let (at, clustering) = (reader.u8()?, reader.bytes()?);
    if at & !(INSIDE | PLAIN) != 0 {
        return Err(Malformed);
    }
    let start = BlockStart { token, key, clustering: (at & INSIDE != 0).then_some(clustering) };
    let (offset, stored) = (reader.u64()?, reader.u32()?);
    let directory = reader.u32()?;
    let crc = reader.u32()?;
    let rows = reader.u32()?;
    let zone_map = reader.bytes()?;
    Ok(IndexEntry { start, plain: at & PLAIN != 0, offset, stored, rows, directory, zone_map, crc })
}

/// Checks a block's stored bytes and opens it.
pub(crate) fn read_block(
    entry: &IndexEntry,
    file: u64,
    stored: Bytes,
) -> Result<Arc<columnar::Block>, Unreadable> {
    if stored.len() != entry.stored as usize {
        return Err(Unreadable("a block is truncated"));
    }
    columnar::Block::open(stored, entry.directory as usize, entry.crc, file)
        .map(Arc::new)
        .map_err(|Malformed| Unreadable("a block does not match its checksum"))
}
