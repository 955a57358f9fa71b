//! The format of a table file, as pure functions over bytes: the writer, the index and the footer.
//!
//! ```text
//!  file      block | block | … | filter | index | footer
//!  index     entry for each block: token i64 | key | at u8 | clustering | offset u64 | stored u32 | raw u32 |
//!            compression u8 | crc u32
//!  footer    filter offset u64, bytes u32, crc u32 | index offset u64, bytes u32, crc u32 | file id u64 |
//!            partitions u64 | version u32 | crc u32 | magic u64                              64 bytes
//! ```
//!
//! A file is written once, synced, and only then named in the manifest. Checksums (CRC32C) are over the bytes as
//! stored and seeded with the file's number, so a block of another file does not pass either.

use bytes::Bytes;

use crate::block::{Block, BlockBuilder};
use crate::bloom;
use crate::codec::{Malformed, Reader, put_bytes, put_i64, put_u32, put_u64};
use crate::partition::Partition;

const MAGIC: u64 = 0x3130_4c42_5446_4c46; // "FLFTBL01"
/// The newest version of the format this program reads and writes.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the footer.
pub(crate) const FOOTER: usize = 64;

const RAW: u8 = 0;
const LZ4: u8 = 1;

/// Where a block starts in the order of (token, key, clustering).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BlockStart {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// `None` when the partition itself starts here; it sorts before its rows.
    pub(crate) clustering: Option<Bytes>,
}

/// One entry of the index.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) start: BlockStart,
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    raw: u32,
    compression: u8,
    crc: u32,
}

fn crc(file: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(file as u32 ^ (file >> 32) as u32, bytes)
}

/// What is known of a finished file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) partitions: u64,
}

/// Turns partitions, given in order, into the bytes of a file. Take the bytes with `take` now and then.
#[derive(Debug)]
pub(crate) struct TableWriter {
    file: u64,
    block_bytes: usize,
    block: BlockBuilder,
    start: Option<BlockStart>,
    index: Vec<IndexEntry>,
    tokens: Vec<i64>,
    out: Vec<u8>,
    taken: u64,
}

impl TableWriter {
    pub(crate) fn new(file: u64, block_bytes: usize) -> TableWriter {
        TableWriter {
            file,
            block_bytes,
            block: BlockBuilder::default(),
            start: None,
            index: Vec::new(),
            tokens: Vec::new(),
            out: Vec::new(),
            taken: 0,
        }
    }

    /// The number of partitions so far.
    pub(crate) fn partitions(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// Bytes that wait to be taken.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Takes what is ready, with its place in the file.
    pub(crate) fn take(&mut self) -> (u64, Vec<u8>) {
        let out = std::mem::take(&mut self.out);
        let offset = self.taken;
        self.taken += out.len() as u64;
        (offset, out)
    }

    /// Adds a partition, which must come after the last one.
    pub(crate) fn push(&mut self, token: i64, key: &Bytes, partition: &Partition) {
        self.tokens.push(token);
        if self.block.len() >= self.block_bytes {
            self.close_block();
        }
        self.start.get_or_insert_with(|| BlockStart { token, key: key.clone(), clustering: None });
        self.block.start_part(token, key, Some(partition));
        match partition {
            Partition::Single(row) => self.block.push_row(row),
            Partition::Full(full) => {
                for row in full.rows.iter() {
                    if self.block.len() >= self.block_bytes {
                        self.block.end_part(true);
                        self.close_block();
                        let clustering = Some(Bytes::copy_from_slice(row.clustering()));
                        self.start = Some(BlockStart { token, key: key.clone(), clustering });
                        self.block.start_part(token, key, None);
                    }
                    self.block.push_row(row);
                }
            }
        }
        self.block.end_part(false);
    }

    fn close_block(&mut self) {
        let Some(start) = self.start.take() else { return };
        let raw = self.block.finish();
        let packed = lz4_flex::block::compress(&raw);
        // Compression must save an eighth, or reading is cheaper without it.
        let (compression, stored) =
            if packed.len() < raw.len() - raw.len() / 8 { (LZ4, packed) } else { (RAW, raw.clone()) };
        self.index.push(IndexEntry {
            start,
            offset: self.taken + self.out.len() as u64,
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            compression,
            crc: crc(self.file, &stored),
        });
        self.out.extend_from_slice(&stored);
    }

    /// Ends the file; take the rest of the bytes after this.
    pub(crate) fn finish(&mut self) -> Written {
        if !self.block.is_empty() {
            self.close_block();
        }
        let filter = bloom::build(&self.tokens);
        let mut index = Vec::new();
        for entry in &self.index {
            put_i64(&mut index, entry.start.token);
            put_bytes(&mut index, &entry.start.key);
            index.push(u8::from(entry.start.clustering.is_some()));
            put_bytes(&mut index, entry.start.clustering.as_deref().unwrap_or(&[]));
            put_u64(&mut index, entry.offset);
            put_u32(&mut index, entry.stored);
            put_u32(&mut index, entry.raw);
            index.push(entry.compression);
            put_u32(&mut index, entry.crc);
        }
        let mut footer = Vec::with_capacity(FOOTER);
        for section in [&filter, &index] {
            put_u64(&mut footer, self.taken + self.out.len() as u64);
            put_u32(&mut footer, section.len() as u32);
            put_u32(&mut footer, crc(self.file, section));
            self.out.extend_from_slice(section);
        }
        put_u64(&mut footer, self.file);
        put_u64(&mut footer, self.tokens.len() as u64);
        put_u32(&mut footer, VERSION);
        let sum = crc32c::crc32c(&footer);
        put_u32(&mut footer, sum);
        put_u64(&mut footer, MAGIC);
        self.out.extend_from_slice(&footer);
        Written { bytes: self.taken + self.out.len() as u64, partitions: self.tokens.len() as u64 }
    }
}

/// A section of a file: offset, bytes, checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    crc: u32,
}

/// A decoded footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Footer {
    pub(crate) filter: Section,
    pub(crate) index: Section,
    pub(crate) file: u64,
    pub(crate) partitions: u64,
}

/// Why a file cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreadable {
    Damaged(&'static str),
    Newer(u32),
}

/// Reads the footer, the last [`FOOTER`] bytes of a file of `len` bytes which the manifest calls `file`.
pub(crate) fn read_footer(bytes: &Bytes, len: u64, file: u64) -> Result<Footer, Unreadable> {
    let read = || -> Result<(Footer, u32, bool), Malformed> {
        let mut reader = Reader::new(bytes.clone());
        let mut section = || Ok(Section { offset: reader.u64()?, bytes: reader.u32()?, crc: reader.u32()? });
        let (filter, index) = (section()?, section()?);
        let (file, partitions, version) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let end = reader.position();
        let intact =
            reader.u32()? == crc32c::crc32c(&bytes[..end]) && reader.u64()? == MAGIC && reader.rest() == 0;
        Ok((Footer { filter, index, file, partitions }, version, intact))
    };
    let (footer, version, intact) = read().map_err(|_| Unreadable::Damaged("its footer is too short"))?;
    let fits = |s: Section| s.offset.checked_add(u64::from(s.bytes)).is_some_and(|end| end <= len);
    match () {
        () if !intact => Err(Unreadable::Damaged("its footer does not match its checksum")),
        () if version > VERSION => Err(Unreadable::Newer(version)),
        () if footer.file != file => Err(Unreadable::Damaged("it is another table file under this name")),
        () if !fits(footer.filter) || !fits(footer.index) => {
            Err(Unreadable::Damaged("its footer points outside"))
        }
        () => Ok(footer),
    }
}

/// Checks a section's bytes.
pub(crate) fn check_section(section: &Section, file: u64, bytes: &Bytes) -> Result<(), Unreadable> {
    if bytes.len() == section.bytes as usize && crc(file, bytes) == section.crc {
        return Ok(());
    }
    Err(Unreadable::Damaged("its filter or index does not match its checksum"))
}

/// Reads the index.
pub(crate) fn read_index(bytes: Bytes) -> Result<Vec<IndexEntry>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut entries: Vec<IndexEntry> = Vec::new();
    while reader.rest() > 0 {
        let (token, key) = (reader.i64()?, reader.bytes()?);
        let (inside, clustering) = (reader.u8()? != 0, reader.bytes()?);
        let start = BlockStart { token, key, clustering: inside.then_some(clustering) };
        if entries.last().is_some_and(|last| last.start >= start) {
            return Err(Malformed);
        }
        entries.push(IndexEntry {
            start,
            offset: reader.u64()?,
            stored: reader.u32()?,
            raw: reader.u32()?,
            compression: reader.u8()?,
            crc: reader.u32()?,
        });
    }
    Ok(entries)
}

/// Checks and decompresses a block as stored.
pub(crate) fn read_block(entry: &IndexEntry, file: u64, stored: Bytes) -> Result<Block, Unreadable> {
    if stored.len() != entry.stored as usize || crc(file, &stored) != entry.crc {
        return Err(Unreadable::Damaged("a block does not match its checksum"));
    }
    let raw = match entry.compression {
        RAW => stored,
        LZ4 => lz4_flex::block::decompress(&stored, entry.raw as usize)
            .map(Bytes::from)
            .map_err(|_| Unreadable::Damaged("a block does not decompress"))?,
        _ => return Err(Unreadable::Damaged("a block is compressed in an unknown way")),
    };
    Block::new(raw).map_err(|Malformed| Unreadable::Damaged("a block does not decode"))
}
