//! Version 1 of table files: blocks by row, compressed as a whole. Read, and no longer written.
//!
//! ```text
//!  entry     token i64 | key string | at u8 | clustering string | offset u64 | stored u32 | raw u32 |
//!            compression u8 (0 none, 1 LZ4 block) | crc u32
//!  footer    filter offset u64, bytes u32, crc u32 | index offset u64, bytes u32, crc u32 | file id u64 |
//!            partitions u64 | version u32 | crc u32 | magic u64                              64 bytes
//! ```

use bytes::Bytes;

use crate::block::Block;
use crate::codec::{Malformed, Reader};
use crate::columnar::region::crc;
use crate::table::{BlockKind, BlockStart, IndexEntry, Unreadable};

/// Bytes of the footer.
pub(crate) const FOOTER: usize = 64;

const RAW: u8 = 0;
const LZ4: u8 = 1;

pub(crate) fn read_entry(reader: &mut Reader) -> Result<IndexEntry, Malformed> {
    let (token, key) = (reader.i64()?, reader.bytes()?);
    let (inside, clustering) = (reader.u8()? != 0, reader.bytes()?);
    let start = BlockStart { token, key, clustering: inside.then_some(clustering) };
    let (offset, stored) = (reader.u64()?, reader.u32()?);
    let kind = BlockKind::Rows { raw: reader.u32()?, compression: reader.u8()? };
    Ok(IndexEntry {
        start,
        plain: false,
        offset,
        stored,
        rows: 0,
        kind,
        bounds: Bytes::new(),
        crc: reader.u32()?,
    })
}

/// Checks and decompresses a block as stored.
pub(crate) fn read_block(
    stored: Bytes,
    file: u64,
    sum: u32,
    raw: usize,
    compression: u8,
) -> Result<Block, Unreadable> {
    if crc(file, &stored) != sum {
        return Err(Unreadable::Damaged("a block does not match its checksum"));
    }
    let raw = match compression {
        RAW => stored,
        LZ4 => lz4_flex::block::decompress(&stored, raw)
            .map(Bytes::from)
            .map_err(|_| Unreadable::Damaged("a block does not decompress"))?,
        _ => return Err(Unreadable::Damaged("a block is compressed in an unknown way")),
    };
    Block::new(raw).map_err(|Malformed| Unreadable::Damaged("a block does not decode"))
}
