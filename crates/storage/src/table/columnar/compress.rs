//! Compression and decompression of regions.
//!
//! Zstd needs a context of some hundred kilobytes in each direction, and creating one costs more
//! than compressing a region of a few kilobytes. So each thread keeps one of each. There are as
//! many threads as lanes.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::model::codec::Malformed;

/// The default of Zstd: takes about three times as long as LZ4 for a third less output.
const LEVEL: i32 = zstd::DEFAULT_COMPRESSION_LEVEL;

/// The greatest expansion of a compressed byte, so that damaged input cannot request more memory.
/// LZ4 encodes lengths in bytes of up to 255.
const LZ4_RATIO: usize = 255;
/// A block of Zstd decompresses to at most 128 KiB and takes at least four bytes.
const ZSTD_RATIO: usize = (128 << 10) / 4;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses `raw` to an LZ4 block in `buffer`, which grows as needed. `None`: compression failed.
pub(crate) fn lz4<'a>(raw: &[u8], buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    have(buffer, lz4_flex::block::get_maximum_output_size(raw.len()));
    let len = lz4_flex::block::compress_into(raw, buffer).ok()?;
    Some(&buffer[..len])
}

/// Grows a buffer to `len` bytes. The caller overwrites them.
fn have(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

/// Compresses `raw` to a Zstd frame, like [`lz4`].
pub(crate) fn zstd<'a>(raw: &[u8], buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    have(buffer, zstd::zstd_safe::compress_bound(raw.len()));
    let len = COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(LEVEL).ok()?),
        };
        compressor.compress_to_buffer(raw, &mut buffer[..]).ok()
    })?;
    Some(&buffer[..len])
}

/// Decompresses an LZ4 block to `raw` bytes.
pub(crate) fn un_lz4(stored: &[u8], raw: usize) -> Result<Vec<u8>, Malformed> {
    if raw / LZ4_RATIO > stored.len() {
        return Err(Malformed);
    }
    lz4_flex::block::decompress(stored, raw).map_err(|_| Malformed)
}

/// Decompresses a Zstd frame to `raw` bytes.
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
