//! The values of a column, one for each slot, in Arrow's buffer layout.
//!
//! ```text
//!  strings   offset u32 of each value and of the end | the values' bytes
//!  fixed     `width` bytes for each slot, zeros where there is no value
//!  number    like fixed, with big-endian values stored little-endian
//! ```
//!
//! The block's directory has the layout and the width. The writer detects values of equal length by
//! itself. Only for numbers it needs the encoding of the column.

use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::table::columnar::bits::BitsBuilder;

/// Values of up to this many bytes take space in slots without a value too.
const FIXED_MAX: usize = 16;

/// The layout of the values of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueLayout {
    /// Offsets and bytes.
    Strings,
    /// Values of this many bytes, in the byte order of the input.
    Fixed(u8),
    /// Values of this many bytes, in reversed byte order.
    Number(u8),
}

impl ValueLayout {
    pub(crate) fn code(self) -> (u8, u8) {
        match self {
            ValueLayout::Strings => (0, 0),
            ValueLayout::Fixed(width) => (1, width),
            ValueLayout::Number(width) => (2, width),
        }
    }

    pub(crate) fn from_code(code: u8, width: u8) -> Result<ValueLayout, Malformed> {
        match (code, width) {
            (0, 0) => Ok(ValueLayout::Strings),
            (1, _) => Ok(ValueLayout::Fixed(width)),
            (2, _) => Ok(ValueLayout::Number(width)),
            _ => Err(Malformed),
        }
    }
}

/// Builds values.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValuesBuilder {
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl ValuesBuilder {
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len() as u32);
    }

    /// Adds slots without a value until there are `len`.
    pub(crate) fn pad(&mut self, len: usize) {
        if len > self.ends.len() {
            self.ends.resize(len, self.data.len() as u32);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Empties the values and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    /// Returns the bytes of every slot.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| self.get(index))
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.data[start..self.ends[index] as usize]
    }

    /// Returns the values of the slots that have one.
    pub(crate) fn present<'a>(&'a self, valid: &'a BitsBuilder) -> impl Iterator<Item = &'a [u8]> {
        (0..self.ends.len()).filter(|index| valid.get(*index)).map(|index| self.get(index))
    }

    /// Writes the values of the slots that have one: all, if `valid` is `None`. `number`: values
    /// are big-endian numbers of this width. A value of another length makes this block store them
    /// as bytes.
    pub(crate) fn put(
        &self,
        out: &mut Vec<u8>,
        valid: Option<&BitsBuilder>,
        number: Option<u8>,
    ) -> ValueLayout {
        let is_valid = |index: usize| valid.is_none_or(|valid| valid.get(index));
        let all = valid.is_none_or(BitsBuilder::all);
        let mut present = (0..self.ends.len()).filter(|index| is_valid(*index)).map(|index| self.get(index));
        let width = present.next().map(<[u8]>::len);
        let even = present.all(|value| Some(value.len()) == width);
        let width = width.unwrap_or(usize::from(number.unwrap_or(0)));
        let layout = match number {
            Some(number) if even && width == usize::from(number) => ValueLayout::Number(number),
            _ if even && (width <= FIXED_MAX || all && width <= 255) => ValueLayout::Fixed(width as u8),
            _ => ValueLayout::Strings,
        };
        match layout {
            ValueLayout::Strings => {
                out.extend_from_slice(&[0; 4]);
                self.ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
                out.extend_from_slice(&self.data);
            }
            ValueLayout::Fixed(_) if all => out.extend_from_slice(&self.data),
            ValueLayout::Fixed(width) | ValueLayout::Number(width) => {
                let width = usize::from(width);
                for index in 0..self.ends.len() {
                    match self.get(index) {
                        value if value.len() != width => out.resize(out.len() + width, 0),
                        value if matches!(layout, ValueLayout::Number(_)) => out.extend(value.iter().rev()),
                        value => out.extend_from_slice(value),
                    }
                }
            }
        }
        layout
    }
}

/// The values of a region, checked once, so that reading a value cannot fail.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    data: Bytes,
    layout: ValueLayout,
    count: usize,
}

impl Values {
    /// Checks a region of `count` slots.
    pub(crate) fn read(data: Bytes, layout: ValueLayout, count: usize) -> Result<Values, Malformed> {
        match layout {
            ValueLayout::Fixed(width) | ValueLayout::Number(width) => {
                if count.checked_mul(usize::from(width)) != Some(data.len()) {
                    return Err(Malformed);
                }
            }
            ValueLayout::Strings => {
                let table = count.checked_add(1).and_then(|n| n.checked_mul(4)).ok_or(Malformed)?;
                let offsets = data.get(..table).ok_or(Malformed)?;
                let mut last = 0;
                let mut rising = true;
                for offset in offsets.chunks_exact(4) {
                    let offset = u32::from_le_bytes(offset.try_into().expect("chunks of four"));
                    rising &= last <= offset;
                    last = offset;
                }
                if !rising || offsets[..4] != [0; 4] || last as usize != data.len() - table {
                    return Err(Malformed);
                }
            }
        }
        Ok(Values { data, layout, count })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn layout(&self) -> ValueLayout {
        self.layout
    }

    /// Returns all bytes of the region.
    pub(crate) fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the end offsets of the strings of these slots.
    pub(crate) fn ends(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = u32> {
        let offsets = &self.data[4 * (slots.start + 1)..4 * (slots.end + 1)];
        offsets.chunks_exact(4).map(|end| u32::from_le_bytes(end.try_into().expect("four bytes")))
    }

    /// Returns the bytes of the strings, without their offsets.
    pub(crate) fn strings(&self) -> &[u8] {
        &self.data[4 * (self.count + 1)..]
    }

    /// Returns the start offset of a string. For `index == count`, the end of the last string.
    #[inline]
    pub(crate) fn offset(&self, index: usize) -> usize {
        let at = 4 * index;
        u32::from_le_bytes(self.data[at..at + 4].try_into().expect("four bytes")) as usize
    }

    /// Returns the stored bytes of a slot: those of a number are in reversed order.
    #[inline]
    pub(crate) fn raw(&self, index: usize) -> &[u8] {
        match self.layout {
            ValueLayout::Fixed(width) | ValueLayout::Number(width) => {
                let width = usize::from(width);
                &self.data[index * width..(index + 1) * width]
            }
            ValueLayout::Strings => &self.strings()[self.offset(index)..self.offset(index + 1)],
        }
    }

    /// Returns the same bytes as [`Values::raw`], sharing the region's memory.
    pub(crate) fn bytes(&self, index: usize) -> Bytes {
        self.data.slice_ref(self.raw(index))
    }

    /// Calls `with` with the value of a slot.
    #[inline]
    pub(crate) fn with<T>(&self, index: usize, with: impl FnOnce(&[u8]) -> T) -> T {
        let raw = self.raw(index);
        if !matches!(self.layout, ValueLayout::Number(_)) {
            return with(raw);
        }
        let mut turned = [0; 255];
        let turned = &mut turned[..raw.len()];
        turned.copy_from_slice(raw);
        turned.reverse();
        with(turned)
    }

    /// Returns the first slot in `low..high` whose value is not less than `key`, given that they
    /// ascend there.
    pub(crate) fn lower_bound(&self, mut low: usize, mut high: usize, key: &[u8]) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.raw(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[Option<&[u8]>], number: Option<u8>, expected: ValueLayout) {
        let mut builder = ValuesBuilder::default();
        let mut valid = BitsBuilder::default();
        for value in values {
            valid.push(value.is_some());
            builder.push(value.unwrap_or_default());
        }
        let mut out = Vec::new();
        let layout = builder.put(&mut out, Some(&valid), number);
        assert_eq!(layout, expected, "{values:?}");
        let read = Values::read(Bytes::from(out.clone()), layout, values.len()).unwrap();
        for (index, value) in values.iter().enumerate().filter_map(|(i, v)| v.map(|v| (i, v))) {
            read.with(index, |again| assert_eq!(again, value));
        }
        out.push(0);
        assert!(Values::read(Bytes::from(out), layout, values.len()).is_err());
    }

    #[test]
    fn lengths_of_values_decide_their_layout() {
        check(&[Some(b"abc"), Some(b"de")], None, ValueLayout::Strings);
        check(&[Some(b"abc"), None, Some(b"def")], None, ValueLayout::Fixed(3));
        check(&[Some(b"abcd"), None, Some(b"efgh")], Some(4), ValueLayout::Number(4));
        check(&[Some(b"abcd"), None, Some(b"")], Some(4), ValueLayout::Strings);
        check(&[Some(b""), Some(b"")], None, ValueLayout::Fixed(0));
        check(&[None, None], Some(8), ValueLayout::Number(8));
        check(&[Some(&[1; 100]), Some(&[2; 100])], None, ValueLayout::Fixed(100));
        check(&[Some(&[1; 100]), None], None, ValueLayout::Strings);
        check(&[], None, ValueLayout::Fixed(0));
        check(&[None, Some(b"abcd")], Some(8), ValueLayout::Fixed(4));
    }
}
