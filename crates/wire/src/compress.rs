//! Compression of v4 bodies and v5 segment payloads. The uncompressed length that a peer claims is
//! accepted only up to the limit, and up to the highest ratio of the compression. A few bytes
//! therefore never reserve megabytes.

use bytes::{Bytes, BytesMut};

use crate::{Error, Version};

/// Compression agreed for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Snappy blocks, in v4 only.
    Snappy,
}

impl Compression {
    /// Returns the compression named by the COMPRESSION option of STARTUP (`lz4`, `snappy`), in any
    /// case. `None`: the name is unknown.
    pub fn from_name(name: &str) -> Option<Compression> {
        match () {
            () if name.eq_ignore_ascii_case("lz4") => Some(Compression::Lz4),
            () if name.eq_ignore_ascii_case("snappy") => Some(Compression::Snappy),
            () if name.is_empty() || name.eq_ignore_ascii_case("none") => Some(Compression::None),
            () => None,
        }
    }

    /// Returns the name for the COMPRESSION option of STARTUP. `None`: no compression.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Lz4 => Some("lz4"),
            Compression::Snappy => Some("snappy"),
        }
    }
}

/// Layout of envelopes in the byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Before and during STARTUP: envelopes back to back, uncompressed, in either version.
    Startup,
    /// Version 4 after STARTUP: envelopes back to back, each body compressed or not.
    V4(Compression),
    /// Version 5 after STARTUP: checksummed segments.
    V5 {
        /// True if segments have the LZ4 format.
        lz4: bool,
    },
}

impl Framing {
    /// Returns the framing after the answer to a STARTUP of this version and compression.
    ///
    /// # Errors
    /// [`Error::CompressionUnsupported`] for Snappy in version 5.
    pub fn after_startup(version: Version, compression: Compression) -> Result<Framing, Error> {
        match (version, compression) {
            (Version::V4, compression) => Ok(Framing::V4(compression)),
            (Version::V5, Compression::None) => Ok(Framing::V5 { lz4: false }),
            (Version::V5, Compression::Lz4) => Ok(Framing::V5 { lz4: true }),
            (Version::V5, Compression::Snappy) => Err(Error::CompressionUnsupported),
        }
    }
}

/// The highest LZ4 ratio: 255 bytes from one. [`EXPANSION_SLACK`] covers the first token and the
/// last literals.
const LZ4_EXPANSION_MAX: usize = 255;
/// The highest Snappy ratio: 64 bytes from three.
const SNAPPY_EXPANSION_MAX: usize = 22;
/// Extra bytes allowed for the start of a block, where the ratio does not hold yet.
const EXPANSION_SLACK: usize = 64;

/// Rejects a claimed length over `max`, or over `ratio` times the `compressed` bytes.
fn check_claim(claimed: usize, compressed: usize, ratio: usize, max: usize) -> Result<(), Error> {
    if claimed > max {
        return Err(Error::Oversized { length: claimed as u64, max });
    }
    if claimed > compressed.saturating_mul(ratio).saturating_add(EXPANSION_SLACK) {
        return Err(Error::Decompression("the uncompressed length is impossible"));
    }
    Ok(())
}

/// Returns the length in bytes that a v4 body of `compressed` bytes claims to inflate to. `body` is
/// the beginning of that body.
///
/// # Errors
/// Fails if the claim is malformed, above `max`, or impossible for this many bytes.
pub(crate) fn inflated_bytes(
    compression: Compression,
    body: &[u8],
    compressed: usize,
    max: usize,
) -> Result<usize, Error> {
    let (claimed, ratio) = match compression {
        Compression::None => return Err(Error::CompressionNotNegotiated),
        // Some drivers set the flag on every message, even on those without a body.
        _ if body.is_empty() => return Ok(0),
        Compression::Lz4 => {
            let Some(length) = body.first_chunk::<4>() else {
                return Err(Error::Decompression("the LZ4 body is shorter than its length field"));
            };
            (u32::from_be_bytes(*length) as usize, LZ4_EXPANSION_MAX)
        }
        Compression::Snappy => {
            let length = snap::raw::decompress_len(body)
                .map_err(|_| Error::Decompression("the Snappy length is malformed"))?;
            (length, SNAPPY_EXPANSION_MAX)
        }
    };
    check_claim(claimed, compressed, ratio, max)?;
    Ok(claimed)
}

/// Inflates a v4 body.
pub(crate) fn decompress_body(compression: Compression, body: &[u8], max: usize) -> Result<Bytes, Error> {
    match compression {
        Compression::None => Err(Error::CompressionNotNegotiated),
        // Some drivers set the flag on every message, even on those without a body.
        _ if body.is_empty() => Ok(Bytes::new()),
        Compression::Lz4 => {
            let Some((length, block)) = body.split_first_chunk::<4>() else {
                return Err(Error::Decompression("the LZ4 body is shorter than its length field"));
            };
            lz4_block(block, u32::from_be_bytes(*length) as usize, max)
        }
        Compression::Snappy => {
            let length = snap::raw::decompress_len(body)
                .map_err(|_| Error::Decompression("the Snappy length is malformed"))?;
            check_claim(length, body.len(), SNAPPY_EXPANSION_MAX, max)?;
            let mut out = BytesMut::zeroed(length);
            let written = snap::raw::Decoder::new()
                .decompress(body, &mut out)
                .map_err(|_| Error::Decompression("the Snappy block is malformed"))?;
            out.truncate(written);
            Ok(out.freeze())
        }
    }
}

/// Inflates one LZ4 block to exactly `length` bytes.
pub(crate) fn lz4_block(block: &[u8], length: usize, max: usize) -> Result<Bytes, Error> {
    check_claim(length, block.len(), LZ4_EXPANSION_MAX, max)?;
    if length == 0 {
        return Ok(Bytes::new());
    }
    let mut out = BytesMut::zeroed(length);
    match lz4_flex::block::decompress_into(block, &mut out) {
        Ok(written) if written == length => Ok(out.freeze()),
        Ok(_) => Err(Error::Decompression("the LZ4 block is shorter than announced")),
        Err(_) => Err(Error::Decompression("the LZ4 block is malformed")),
    }
}

/// Scratch buffers above this size in bytes are freed after use. It holds four full segments.
const SCRATCH_KEPT_MAX: usize = 512 << 10;

/// Compressor with a scratch buffer that is reused between messages.
#[derive(Default)]
pub(crate) struct Compressor {
    scratch: Vec<u8>,
    table: Option<Box<lz4_flex::block::CompressTable>>,
    snappy: Option<Box<snap::raw::Encoder>>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("scratch_bytes", &self.scratch.len()).finish()
    }
}

impl Compressor {
    /// Returns the v4 form of `body`. `None`: compression would not make it shorter.
    pub(crate) fn body(&mut self, compression: Compression, body: &[u8]) -> Option<&[u8]> {
        let written = match compression {
            Compression::None => return None,
            Compression::Lz4 => {
                let written = self.lz4_at(4, body)?;
                self.scratch[..4].copy_from_slice(&(body.len() as u32).to_be_bytes());
                written
            }
            Compression::Snappy => {
                self.size_scratch(snap::raw::max_compress_len(body.len()));
                let encoder = self.snappy.get_or_insert_with(|| Box::new(snap::raw::Encoder::new()));
                encoder.compress(body, &mut self.scratch).ok()?
            }
        };
        (written < body.len()).then(|| &self.scratch[..written])
    }

    /// Returns the LZ4 block of `payload`. `None`: compression would not make it shorter.
    pub(crate) fn lz4(&mut self, payload: &[u8]) -> Option<&[u8]> {
        let written = self.lz4_at(0, payload)?;
        (written < payload.len()).then(|| &self.scratch[..written])
    }

    /// Resizes the scratch buffer to at least `bytes`. Frees an oversized buffer first, so that one
    /// huge message does not occupy memory for the life of the connection.
    fn size_scratch(&mut self, bytes: usize) {
        if self.scratch.len() > SCRATCH_KEPT_MAX && bytes <= SCRATCH_KEPT_MAX {
            self.scratch = Vec::new();
        }
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
    }

    /// Compresses to `scratch[offset..]` and returns the end of the block.
    fn lz4_at(&mut self, offset: usize, input: &[u8]) -> Option<usize> {
        self.size_scratch(offset + lz4_flex::block::get_maximum_output_size(input.len()));
        let table = self.table.get_or_insert_with(|| Box::new(lz4_flex::block::CompressTable::large()));
        let out = &mut self.scratch[offset..];
        let written = lz4_flex::block::compress_into_with_table(input, out, table).ok()?;
        Some(offset + written)
    }
}
