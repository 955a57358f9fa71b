//! Checksums of v5 segments. CRC24 (Koopman polynomial, most significant bit first) protects the
//! few bytes of a segment header. CRC32 (IEEE) protects the payload. It starts with four fixed
//! bytes, so that a run of zeros does not have the checksum zero.

const CRC24_INIT: u32 = 0x87_5060;
const CRC24_POLYNOMIAL: u32 = 0x197_4F0B;

/// CRC32 of the four initial bytes FA 2D 55 CA. A test derives it.
const CRC32_AFTER_INITIAL_BYTES: u32 = 0x4477_7ED3;

/// Lookup table of 1 KiB for one byte at a time, built at compile time.
const CRC24_TABLE: [u32; 256] = crc24_table();

const fn crc24_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[index] = crc & 0xFF_FFFF;
        index += 1;
    }
    table
}

/// Computes the CRC24 of a segment header.
pub(crate) fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = CRC24_INIT;
    for &byte in bytes {
        let index = ((crc >> 16) as u8 ^ byte) as usize;
        crc = ((crc << 8) & 0xFF_FFFF) ^ CRC24_TABLE[index];
    }
    crc
}

/// Computes the CRC32 of a segment payload.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_AFTER_INITIAL_BYTES);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the CRC24 by its definition, bit by bit, without a table.
    fn crc24_by_bits(bytes: &[u8]) -> u32 {
        let mut crc = CRC24_INIT;
        for &byte in bytes {
            crc ^= u32::from(byte) << 16;
            for _ in 0..8 {
                crc <<= 1;
                if crc & 0x100_0000 != 0 {
                    crc ^= CRC24_POLYNOMIAL;
                }
            }
        }
        crc
    }

    #[test]
    fn crc24_table_matches_the_definition() {
        for seed in 0..500u32 {
            let bytes = seed.wrapping_mul(2_654_435_761).to_le_bytes();
            let length = seed as usize % 5;
            let input = &[bytes.as_slice(), &[7]].concat()[..length];
            assert_eq!(crc24(input), crc24_by_bits(input), "{input:?}");
        }
        assert_eq!(crc24(&[]), CRC24_INIT);
    }

    #[test]
    fn crc32_starts_from_the_initial_bytes() {
        let mut plain = crc32fast::Hasher::new();
        plain.update(&[0xFA, 0x2D, 0x55, 0xCA]);
        assert_eq!(plain.clone().finalize(), CRC32_AFTER_INITIAL_BYTES);
        plain.update(b"payload");
        assert_eq!(crc32(b"payload"), plain.finalize());
    }
}
