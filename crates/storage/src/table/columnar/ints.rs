//! An array of integers, packed into the bytes that their spread needs, with random access.
//!
//! ```text
//!  ints   0 | base i64 | step i64                                value i is base + i × step: constants, sequences
//!         width u8 (1, 2, 4, 8) | base i64 | width bytes each    value i is base + the stored value, unsigned
//! ```
//!
//! The count is stored elsewhere. Arithmetic wraps, so any spread of 64-bit values fits.

use crate::model::codec::{Malformed, Reader, put_i64};

/// The location of an array of integers in its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ints {
    width: u8,
    base: i64,
    step: i64,
    at: usize,
}

impl Ints {
    /// Appends an array.
    pub(crate) fn put(out: &mut Vec<u8>, values: &[i64]) {
        let base = values.first().copied().unwrap_or(0);
        let step = values.get(1).map_or(0, |second| second.wrapping_sub(base));
        let mut expected = base;
        let even = values.iter().all(|value| {
            let same = *value == expected;
            expected = expected.wrapping_add(step);
            same
        });
        if even {
            out.push(0);
            put_i64(out, base);
            return put_i64(out, step);
        }
        let base = values.iter().copied().min().unwrap_or(0);
        let spread = values.iter().map(|value| value.wrapping_sub(base) as u64).max().unwrap_or(0);
        let width = match spread {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        out.push(width as u8);
        put_i64(out, base);
        for value in values {
            out.extend_from_slice(&value.wrapping_sub(base).to_le_bytes()[..width]);
        }
    }

    /// Decodes the location of an array of `count` integers.
    pub(crate) fn read(reader: &mut Reader, count: usize) -> Result<Ints, Malformed> {
        let width = reader.u8()?;
        let base = reader.i64()?;
        let step = if width == 0 { reader.i64()? } else { 0 };
        let at = reader.position();
        match width {
            0 => {}
            1 | 2 | 4 | 8 => reader.skip(count.checked_mul(usize::from(width)).ok_or(Malformed)?)?,
            _ => return Err(Malformed),
        }
        Ok(Ints { width, base, step, at })
    }

    /// Returns the value at `index`, which is below the count it was read with.
    #[inline]
    pub(crate) fn get(&self, data: &[u8], index: usize) -> i64 {
        let width = usize::from(self.width);
        if width == 0 {
            return self.base.wrapping_add((index as i64).wrapping_mul(self.step));
        }
        let at = self.at + index * width;
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&data[at..at + width]);
        self.base.wrapping_add(i64::from_le_bytes(bytes))
    }

    /// Returns true if the values ascend by one.
    pub(crate) fn counts_up(&self) -> bool {
        self.width == 0 && self.step == 1
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn check(values: &[i64], bytes: usize) {
        let mut out = vec![9];
        Ints::put(&mut out, values);
        assert_eq!(out.len() - 1, bytes, "{values:?}");
        let data = Bytes::from(out);
        let mut reader = Reader::at(data.clone(), 1);
        let ints = Ints::read(&mut reader, values.len()).unwrap();
        assert_eq!(reader.rest(), 0);
        let again: Vec<i64> = (0..values.len()).map(|index| ints.get(&data, index)).collect();
        assert_eq!(again, values);
        for cut in 1..data.len() {
            assert_eq!(Ints::read(&mut Reader::at(data.slice(..cut), 1), values.len()), Err(Malformed));
        }
    }

    #[test]
    fn spread_decides_the_width_of_integers() {
        check(&[], 17);
        check(&[i64::MIN], 17);
        check(&[7; 100], 17);
        check(&(0..100).map(|i| 5 - 3 * i).collect::<Vec<_>>(), 17);
        check(&[1_000_000, 1_000_255, 1_000_000], 9 + 3);
        check(&[0, 256, 1], 9 + 6);
        check(&[-1, 70_000, 3], 9 + 12);
        check(&[i64::MIN, i64::MAX, 0], 9 + 24);
    }
}
