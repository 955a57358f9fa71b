//! Compressing a region and unpacking it.
//!
//! Zstd needs a context of some hundred kilobytes either way, which is worth more than a region of a few; so each thread keeps one of
//! each, and there are as many threads as lanes.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::model::codec::Malformed;

/// Zstd's own default: about three times as long as LZ4 for a third less.
const LEVEL: i32 = zstd::DEFAULT_COMPRESSION_LEVEL;

/// What a byte stands for at most, so that what is damaged asks for no more memory than that. LZ4 counts lengths in bytes of 255.
const LZ4_RATIO: usize = 255;
/// A block of Zstd is at most 128 KiB, and four bytes at least.
const ZSTD_RATIO: usize = (128 << 10) / 4;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The LZ4 block of `raw`, in `room`, which grows to what it may take. `None`: it could not be done.
pub(crate) fn lz4<'a>(raw: &[u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    have(room, lz4_flex::block::get_maximum_output_size(raw.len()));
    let len = lz4_flex::block::compress_into(raw, room).ok()?;
    Some(&room[..len])
}

/// So many bytes at least. Whatever is in them will be written over.
fn have(room: &mut Vec<u8>, len: usize) {
    if room.len() < len {
        room.resize(len, 0);
    }
}

/// As [`lz4`], a frame of Zstd.
pub(crate) fn zstd<'a>(raw: &[u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    have(room, zstd::zstd_safe::compress_bound(raw.len()));
    let len = COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(LEVEL).ok()?),
        };
        compressor.compress_to_buffer(raw, &mut room[..]).ok()
    })?;
    Some(&room[..len])
}

/// The `raw` bytes that an LZ4 block stands for.
pub(crate) fn un_lz4(stored: &[u8], raw: usize) -> Result<Vec<u8>, Malformed> {
    if raw / LZ4_RATIO > stored.len() {
        return Err(Malformed);
    }
    lz4_flex::block::decompress(stored, raw).map_err(|_| Malformed)
}

/// The `raw` bytes that a frame of Zstd stands for.
pub(crate) fn un_zstd(stored: &[u8], raw: usize) -> Result<Vec<u8>, Malformed> {
    if raw / ZSTD_RATIO > stored.len() {
        return Err(Malformed);
    }
    let mut out = Vec::with_capacity(raw);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().map_err(|_| Malformed)?),
        };
        decompressor.decompress_to_buffer(stored, &mut out).map_err(|_| Malformed)
    })?;
    Ok(out)
}
