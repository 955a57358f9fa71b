//! Bitmaps over slots, the least significant bit first as in Arrow, so that scans pass them on
//! without conversion.
//!
//! ```text
//!  bits   0: none is set | 1: all are | 2 and the bits, padded with zeros to whole bytes
//! ```

use crate::model::codec::{Malformed, Reader};

/// Builds a bitmap.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitsBuilder {
    bytes: Vec<u8>,
    len: usize,
    set: usize,
}

impl BitsBuilder {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit {
            self.bytes[self.len / 8] |= 1 << (self.len % 8);
            self.set += 1;
        }
        self.len += 1;
    }

    /// Adds unset slots until there are `len`.
    pub(crate) fn pad(&mut self, len: usize) {
        if len > self.len {
            self.bytes.resize(len.div_ceil(8), 0);
            self.len = len;
        }
    }

    /// Empties the bitmap and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.len, self.set) = (0, 0);
    }

    pub(crate) fn any(&self) -> bool {
        self.set > 0
    }

    pub(crate) fn all(&self) -> bool {
        self.set == self.len
    }

    pub(crate) fn get(&self, index: usize) -> bool {
        self.bytes[index / 8] >> (index % 8) & 1 == 1
    }

    /// Appends the encoded bits.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match (self.any(), self.all()) {
            (false, _) => out.push(0),
            (true, true) => out.push(1),
            (true, false) => {
                out.push(2);
                out.extend_from_slice(&self.bytes);
            }
        }
    }
}

/// The location of a bitmap in its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bits {
    None,
    All,
    /// The bits start at this byte.
    At(usize),
}

impl Bits {
    /// Decodes the location of `count` bits.
    pub(crate) fn read(reader: &mut Reader, count: usize) -> Result<Bits, Malformed> {
        match reader.u8()? {
            0 => Ok(Bits::None),
            1 => Ok(Bits::All),
            2 => {
                let at = reader.position();
                reader.skip(count.div_ceil(8))?;
                Ok(Bits::At(at))
            }
            _ => Err(Malformed),
        }
    }

    #[inline]
    pub(crate) fn get(self, data: &[u8], index: usize) -> bool {
        match self {
            Bits::None => false,
            Bits::All => true,
            Bits::At(at) => data[at + index / 8] >> (index % 8) & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn check(bits: &[bool], bytes: usize) {
        let mut builder = BitsBuilder::default();
        bits.iter().for_each(|bit| builder.push(*bit));
        let mut out = Vec::new();
        builder.put(&mut out);
        assert_eq!(out.len(), bytes);
        let data = Bytes::from(out);
        let read = Bits::read(&mut Reader::new(data.clone()), bits.len()).unwrap();
        let again: Vec<bool> = (0..bits.len()).map(|index| read.get(&data, index)).collect();
        assert_eq!(again, bits);
        assert_eq!(Bits::read(&mut Reader::new(data.slice(..bytes - 1)), bits.len()), Err(Malformed));
    }

    #[test]
    fn all_and_none_take_a_byte() {
        check(&[], 1);
        check(&[false; 77], 1);
        check(&[true; 77], 1);
        check(&[true, false, true], 2);
        check(&[true, false, true, true, true, true, true, true, false], 3);
    }
}
