//! Checksummed segments of protocol v5. All numbers are little-endian. Lengths have 17 bits.
//!
//! ```text
//!  uncompressed  | length 17 | self-contained 1 | 0 ×6 | CRC24 | payload | CRC32 |
//!  LZ4           | compressed 17 | uncompressed 17 | self-contained 1 | 0 ×5 | CRC24 | payload | CRC32 |
//! ```
//!
//! A self-contained segment holds one or more whole envelopes. Any other segment is one part of a
//! single envelope that is too large for a segment. In the LZ4 format, an uncompressed length of
//! zero marks an uncompressed payload.

use crate::Error;
use crate::crc::{crc24, crc32};

/// The longest payload of a segment in bytes, limited by its 17 bits of length.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;

/// Bytes of CRC32 after the payload.
pub(crate) const TRAILER_BYTES: usize = 4;

/// Bytes of a header, CRC24 included.
pub(crate) fn header_bytes(lz4: bool) -> usize {
    if lz4 { 8 } else { 6 }
}

/// A parsed segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Payload bytes on the wire.
    pub(crate) length: usize,
    /// Payload bytes once inflated; zero when the payload is not compressed.
    pub(crate) uncompressed: usize,
    /// True if the payload consists of whole envelopes.
    pub(crate) self_contained: bool,
}

const LENGTH_MASK: u64 = PAYLOAD_BYTES_MAX as u64;

impl SegmentHeader {
    /// Parses a header of exactly [`header_bytes`] bytes.
    pub(crate) fn parse(bytes: &[u8], lz4: bool) -> Result<SegmentHeader, Error> {
        let word_bytes = header_bytes(lz4) - 3;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let all = u64::from_le_bytes(word);
        let fields = all & ((1 << (8 * word_bytes)) - 1);
        let checksum = all >> (8 * word_bytes);
        if u64::from(crc24(&bytes[..word_bytes])) != checksum {
            return Err(Error::SegmentHeaderChecksum);
        }
        let length = (fields & LENGTH_MASK) as usize;
        Ok(if lz4 {
            let uncompressed = ((fields >> 17) & LENGTH_MASK) as usize;
            SegmentHeader { length, uncompressed, self_contained: fields >> 34 & 1 == 1 }
        } else {
            SegmentHeader { length, uncompressed: 0, self_contained: fields >> 17 & 1 == 1 }
        })
    }

    /// Writes this header over `out`, which has exactly [`header_bytes`] bytes.
    pub(crate) fn emit(&self, lz4: bool, out: &mut [u8]) {
        assert!(self.length <= PAYLOAD_BYTES_MAX && self.uncompressed <= PAYLOAD_BYTES_MAX);
        let contained = u64::from(self.self_contained);
        let fields = if lz4 {
            self.length as u64 | (self.uncompressed as u64) << 17 | contained << 34
        } else {
            self.length as u64 | contained << 17
        };
        let word_bytes = header_bytes(lz4) - 3;
        out[..word_bytes].copy_from_slice(&fields.to_le_bytes()[..word_bytes]);
        let checksum = crc24(&out[..word_bytes]);
        out[word_bytes..].copy_from_slice(&checksum.to_le_bytes()[..3]);
    }
}

/// Checks a payload against its CRC32.
pub(crate) fn check_payload(payload: &[u8], trailer: &[u8]) -> Result<(), Error> {
    if crc32(payload).to_le_bytes() == trailer { Ok(()) } else { Err(Error::SegmentPayloadChecksum) }
}

/// Returns the trailer of a payload: its CRC32.
pub(crate) fn trailer(payload: &[u8]) -> [u8; TRAILER_BYTES] {
    crc32(payload).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: SegmentHeader, lz4: bool, expected: &[u8]) {
        let mut bytes = vec![0; header_bytes(lz4)];
        header.emit(lz4, &mut bytes);
        assert_eq!(&bytes[..expected.len()], expected);
        assert_eq!(SegmentHeader::parse(&bytes, lz4), Ok(header));
        for position in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[position / 8] ^= 1 << (position % 8);
            assert_eq!(SegmentHeader::parse(&broken, lz4), Err(Error::SegmentHeaderChecksum));
        }
    }

    /// The checksum of the first case was computed by hand from the definition.
    #[test]
    fn headers_have_the_specified_bits() {
        let header =
            |length, uncompressed, self_contained| SegmentHeader { length, uncompressed, self_contained };
        check(header(50, 0, true), false, &[0x32, 0x00, 0x02, 0xA5, 0xFF, 0xEE]);
        check(header(PAYLOAD_BYTES_MAX, 0, false), false, &[0xFF, 0xFF, 0x01]);
        check(header(12, 50, true), true, &[0x0C, 0x00, 0x64, 0x00, 0x04]);
        check(header(1, PAYLOAD_BYTES_MAX, false), true, &[0x01, 0x00, 0xFE, 0xFF, 0x03]);
    }
}
