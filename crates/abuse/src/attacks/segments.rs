//! Segments of protocol v5, of any size and flags. A client of good manners fills them.

use crc::{crc24, crc32};

/// Returns one segment without compression.
pub(super) fn segment(payload: &[u8], self_contained: bool) -> Vec<u8> {
    let fields = payload.len() as u32 | u32::from(self_contained) << 17;
    let mut bytes = fields.to_le_bytes()[..3].to_vec();
    bytes.extend_from_slice(&crc24(&bytes).to_le_bytes()[..3]);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&crc32(payload).to_le_bytes());
    bytes
}

/// Cuts an envelope into segments of `bytes` bytes each.
pub(super) fn cut(envelope: &[u8], bytes: usize) -> Vec<u8> {
    envelope.chunks(bytes).flat_map(|chunk| segment(chunk, false)).collect()
}

/// Checksums of the protocol, by their definitions.
mod crc {
    const CRC24_INIT: u32 = 0x87_5060;
    const CRC24_POLYNOMIAL: u32 = 0x197_4F0B;
    const CRC32_POLYNOMIAL: u32 = 0xEDB8_8320;
    /// Bytes that every payload's checksum begins with.
    const CRC32_FIRST: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

    pub(super) fn crc24(bytes: &[u8]) -> u32 {
        bytes.iter().fold(CRC24_INIT, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte) << 16, |crc, _| {
                let shifted = crc << 1;
                if shifted & 0x100_0000 == 0 { shifted } else { shifted ^ CRC24_POLYNOMIAL }
            })
        })
    }

    pub(super) fn crc32(bytes: &[u8]) -> u32 {
        let all = CRC32_FIRST.iter().chain(bytes);
        !all.fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ CRC32_POLYNOMIAL }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use wire::{Decoder, Direction, Encoder, Framing, Limits, Request, Version};

    use super::*;

    /// Encodes OPTIONS without segments.
    fn options() -> Vec<u8> {
        let mut encoder = Encoder::new(Direction::Request, Version::V5);
        encoder.request(1, &Request::Options).expect("fits");
        encoder.finish().to_vec()
    }

    #[test]
    fn decoder_accepts_segments_of_any_size() {
        for bytes in [cut(&options(), 1), cut(&options(), 4), segment(&options(), true)] {
            let mut decoder = Decoder::new(Direction::Request, Limits::default());
            decoder.set_framing(Framing::V5 { lz4: false });
            let mut input = BytesMut::from(&bytes[..]);
            let envelope = decoder.decode(&mut input).expect("valid").expect("whole");
            assert_eq!((envelope.stream, input.len()), (1, 0));
        }
    }
}
