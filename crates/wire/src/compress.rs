//! Body compression of protocol v4 and payload compression of v5 segments. What a peer claims a body
//! inflates to is believed only up to the limit and up to what its compression could reach at best, so
//! that a few bytes never reserve megabytes.

use bytes::{Bytes, BytesMut};

use crate::{Error, Version};

/// The agreed compression of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Snappy blocks; v4 only.
    Snappy,
}

impl Compression {
    /// The compression that STARTUP's COMPRESSION option names, in any case (`lz4`, `snappy`).
    pub fn from_name(name: &str) -> Option<Compression> {
        match () {
            () if name.eq_ignore_ascii_case("lz4") => Some(Compression::Lz4),
            () if name.eq_ignore_ascii_case("snappy") => Some(Compression::Snappy),
            () if name.is_empty() || name.eq_ignore_ascii_case("none") => Some(Compression::None),
            () => None,
        }
    }

    /// The name in STARTUP's COMPRESSION option; none for no compression.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Lz4 => Some("lz4"),
            Compression::Snappy => Some("snappy"),
        }
    }
}

/// How bytes are cut into envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Before and during STARTUP: envelopes back to back, any version this codec speaks, uncompressed.
    Startup,
    /// Version 4 after STARTUP: envelopes back to back, each body compressed or not.
    V4(Compression),
    /// Version 5 after STARTUP: checksummed segments; `true` with LZ4.
    V5 {
        /// Segments in the LZ4 format.
        lz4: bool,
    },
}

impl Framing {
    /// The framing that follows the answer to a STARTUP message of this version and compression.
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

/// LZ4 at its best makes 255 bytes from one; the constant covers the first token and last literals.
const LZ4_EXPANSION_MAX: usize = 255;
/// Snappy at its best makes 64 bytes from three.
const SNAPPY_EXPANSION_MAX: usize = 22;
/// Slack for the first bytes of a block, where the ratio does not hold yet.
const EXPANSION_SLACK: usize = 64;

/// Refuses a claimed length that is over the limit or cannot come from so few bytes.
fn check_claim(claimed: usize, compressed: usize, ratio: usize, max: usize) -> Result<(), Error> {
    if claimed > max {
        return Err(Error::Oversized { length: claimed as u64, max });
    }
    if claimed > compressed.saturating_mul(ratio).saturating_add(EXPANSION_SLACK) {
        return Err(Error::Decompression("the uncompressed length is impossible"));
    }
    Ok(())
}

/// Returns the length in bytes that a v4 body of `compressed` bytes claims to inflate to. `body` is its beginning.
///
/// # Errors
/// The claim is malformed, beyond `max`, or impossible for so few bytes.
pub(crate) fn inflated_bytes(
    compression: Compression,
    body: &[u8],
    compressed: usize,
    max: usize,
) -> Result<usize, Error> {
    let (claimed, ratio) = match compression {
        Compression::None => return Err(Error::CompressionNotNegotiated),
        // Some drivers set the flag on every message, those without a body included.
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
        // Some drivers set the flag on every message, those without a body included.
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

/// A scratch buffer longer than this is given back: four full segments.
const SCRATCH_KEPT_MAX: usize = 512 << 10;

/// Deflates into a buffer that is kept between messages.
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
    /// The v4 form of `body`, or nothing when it would not be shorter.
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

    /// The LZ4 block of `payload`, or nothing when it would not be shorter.
    pub(crate) fn lz4(&mut self, payload: &[u8]) -> Option<&[u8]> {
        let written = self.lz4_at(0, payload)?;
        (written < payload.len()).then(|| &self.scratch[..written])
    }

    /// Makes the scratch buffer at least `bytes` long. One huge message does not keep its memory for the
    /// life of the connection.
    fn size_scratch(&mut self, bytes: usize) {
        if self.scratch.len() > SCRATCH_KEPT_MAX && bytes <= SCRATCH_KEPT_MAX {
            self.scratch = Vec::new();
        }
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
    }

    /// Compresses to `scratch[offset..]`; returns where the block ends.
    fn lz4_at(&mut self, offset: usize, input: &[u8]) -> Option<usize> {
        self.size_scratch(offset + lz4_flex::block::get_maximum_output_size(input.len()));
        let table = self.table.get_or_insert_with(|| Box::new(lz4_flex::block::CompressTable::large()));
        let out = &mut self.scratch[offset..];
        let written = lz4_flex::block::compress_into_with_table(input, out, table).ok()?;
        Some(offset + written)
    }
}
