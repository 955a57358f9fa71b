//! The state of each slot of a column beside its value: present or not, write time, and expiry.
//!
//! ```text
//!  marks   valid bits | special bits | own timestamps u8 | ints if 1 | if any is special: time to live ints, end ints
//!
//!              valid  special
//!  absent        0       0       nothing was written
//!  live          1       0
//!  expiring      1       1       end: expiry time, Unix seconds
//!  dead          0       1       end: deletion time, Unix seconds
//! ```
//!
//! Without own timestamps, slots have the timestamp of their row, as nearly all do. Where no slot
//! is special, the valid bits are Arrow's validity bitmap.

use bytes::Bytes;

use crate::model::Expiry;
use crate::model::codec::{Malformed, Reader};
use crate::table::columnar::bits::{Bits, BitsBuilder};
use crate::table::columnar::ints::Ints;
use crate::table::columnar::region::{FromRegion, RegionEntry};

/// The content of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkState {
    /// A value, with its expiry if it has one.
    Live(Option<Expiry>),
    /// A tombstone made at this Unix second.
    Dead(u32),
}

/// Builds marks.
#[derive(Clone, Debug, Default)]
pub(crate) struct MarksBuilder {
    pub(crate) valid: BitsBuilder,
    special: BitsBuilder,
    timestamps: Vec<i64>,
    own: bool,
    ttls: Vec<i64>,
    ends: Vec<i64>,
}

impl MarksBuilder {
    /// Adds a slot with this timestamp; its row has `row_timestamp`.
    pub(crate) fn push(&mut self, state: MarkState, timestamp: i64, row_timestamp: i64) {
        let special = !matches!(state, MarkState::Live(None));
        self.valid.push(matches!(state, MarkState::Live(_)));
        self.special.push(special);
        self.own |= timestamp != row_timestamp;
        self.timestamps.push(timestamp);
        if special {
            // Slots before the first special one have no entries yet. Their values are never read.
            let (ttl_s, end_s) = match state {
                MarkState::Live(expiry) => expiry.map_or((0, 0), |expiry| (expiry.ttl_s, expiry.at_s)),
                MarkState::Dead(deleted_at_s) => (0, deleted_at_s),
            };
            let before = self.timestamps.len() - 1;
            self.ttls.resize(before, i64::from(ttl_s));
            self.ends.resize(before, i64::from(end_s));
            self.ttls.push(i64::from(ttl_s));
            self.ends.push(i64::from(end_s));
        }
    }

    /// Adds absent slots until there are `len`.
    pub(crate) fn pad(&mut self, len: usize) {
        self.valid.pad(len);
        self.special.pad(len);
        if len > self.timestamps.len() {
            let filler = self.timestamps.last().copied().unwrap_or(0);
            self.timestamps.resize(len, filler);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    /// Empties the marks and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.valid.clear();
        self.special.clear();
        self.own = false;
        [&mut self.timestamps, &mut self.ttls, &mut self.ends].into_iter().for_each(Vec::clear);
    }

    /// Returns true if any slot is not absent.
    pub(crate) fn any(&self) -> bool {
        self.valid.any() || self.special.any()
    }

    pub(crate) fn put(&mut self, out: &mut Vec<u8>) {
        self.valid.put(out);
        self.special.put(out);
        out.push(u8::from(self.own));
        if self.own {
            Ints::put(out, &self.timestamps);
        }
        if self.special.any() {
            for ints in [&mut self.ttls, &mut self.ends] {
                let filler = ints.last().copied().unwrap_or(0);
                ints.resize(self.timestamps.len(), filler);
                Ints::put(out, ints);
            }
        }
    }
}

/// The location of marks in their region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) valid: Bits,
    pub(crate) special: Bits,
    timestamps: Option<Ints>,
    expiry: Option<(Ints, Ints)>,
}

impl Marks {
    /// Decodes the location of the marks of `count` slots.
    pub(crate) fn read(reader: &mut Reader, count: usize) -> Result<Marks, Malformed> {
        let valid = Bits::read(reader, count)?;
        let special = Bits::read(reader, count)?;
        let timestamps = match reader.u8()? {
            0 => None,
            1 => Some(Ints::read(reader, count)?),
            _ => return Err(Malformed),
        };
        let expiry = match special {
            Bits::None => None,
            _ => Some((Ints::read(reader, count)?, Ints::read(reader, count)?)),
        };
        Ok(Marks { valid, special, timestamps, expiry })
    }

    /// Returns the content of a slot, or `None` if it is absent.
    #[inline]
    pub(crate) fn state(&self, data: &[u8], index: usize) -> Option<MarkState> {
        let valid = self.valid.get(data, index);
        if !self.special.get(data, index) {
            return valid.then_some(MarkState::Live(None));
        }
        // `read` made sure that special slots have both. A value beyond 32 bits can only be damage.
        let second = |ints: Ints| u32::try_from(ints.get(data, index)).unwrap_or(u32::MAX);
        let (ttl_s, end_s) = self.expiry.map_or((0, 0), |(ttls, ends)| (second(ttls), second(ends)));
        Some(match valid {
            true => MarkState::Live(Some(Expiry { ttl_s, at_s: end_s })),
            false => MarkState::Dead(end_s),
        })
    }

    /// Returns the timestamp of a slot whose row has `row_timestamp`.
    #[inline]
    pub(crate) fn timestamp(&self, data: &[u8], index: usize, row_timestamp: i64) -> i64 {
        self.timestamps.map_or(row_timestamp, |ints| ints.get(data, index))
    }

    /// Returns true if the slot has a value that has not expired at `now_s`.
    #[inline]
    pub(crate) fn is_live(&self, data: &[u8], index: usize, now_s: u32) -> bool {
        match self.state(data, index) {
            Some(MarkState::Live(expiry)) => expiry.is_none_or(|expiry| expiry.at_s > now_s),
            _ => false,
        }
    }

    /// Returns true if every slot has a value without expiry.
    pub(crate) fn all_live(&self) -> bool {
        self.valid == Bits::All && self.special == Bits::None
    }
}

/// The marks of a column's elements, and the first element of each row.
#[derive(Debug)]
pub(crate) struct ElementMarks {
    pub(crate) data: Bytes,
    starts: Ints,
    pub(crate) marks: Marks,
    count: usize,
    rows: usize,
}

impl FromRegion for ElementMarks {
    fn from_region(data: Bytes, place: &RegionEntry, rows: usize) -> Result<ElementMarks, Malformed> {
        let mut reader = Reader::new(data.clone());
        let starts = Ints::read(&mut reader, rows)?;
        let marks = Marks::read(&mut reader, place.slots())?;
        let mut last = 0;
        for row in 0..rows {
            let start = starts.get(&data, row);
            if start < last || start > place.slots() as i64 {
                return Err(Malformed);
            }
            last = start;
        }
        if reader.rest() != 0 {
            return Err(Malformed);
        }
        Ok(ElementMarks { data, starts, marks, count: place.slots(), rows })
    }
}

impl ElementMarks {
    /// Returns the elements of a row.
    pub(crate) fn of_row(&self, row: usize) -> std::ops::Range<usize> {
        let start =
            |row: usize| if row < self.rows { self.starts.get(&self.data, row) as usize } else { self.count };
        start(row)..start(row + 1)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn check(slots: &[Option<(MarkState, i64)>], bytes: usize) {
        let mut builder = MarksBuilder::default();
        for (index, slot) in slots.iter().enumerate() {
            if let Some((state, timestamp)) = slot {
                builder.pad(index);
                builder.push(*state, *timestamp, 10);
            }
        }
        builder.pad(slots.len());
        let mut out = Vec::new();
        builder.put(&mut out);
        assert_eq!(out.len(), bytes, "{slots:?}");
        let data = Bytes::from(out);
        let marks = Marks::read(&mut Reader::new(data.clone()), slots.len()).unwrap();
        for (index, slot) in slots.iter().enumerate() {
            let again = marks.state(&data, index).map(|state| (state, marks.timestamp(&data, index, 10)));
            assert_eq!(again, *slot, "slot {index} of {slots:?}");
        }
        for cut in 0..bytes {
            assert!(Marks::read(&mut Reader::new(data.slice(..cut)), slots.len()).is_err());
        }
    }

    #[test]
    fn slots_round_trip_and_uniform_ones_take_three_bytes() {
        let live = MarkState::Live(None);
        let expiring = |at_s| MarkState::Live(Some(Expiry { ttl_s: 60, at_s }));
        check(&[Some((live, 10)), Some((live, 10))], 3);
        check(&[None, None], 3);
        check(&[Some((live, 10)), None], 4);
        check(&[Some((live, 10)), None, Some((live, 11))], 1 + 1 + 1 + 1 + 9 + 3);
        check(&[Some((expiring(70), 10)), Some((expiring(71), 10))], 3 + 17 + 17);
        check(&[None, Some((MarkState::Dead(5), 10)), Some((live, 10))], 2 + 2 + 1 + 17 + 17);
        let all = [
            None,
            Some((live, 1)),
            Some((MarkState::Dead(u32::MAX), i64::MIN)),
            Some((expiring(0), i64::MAX)),
        ];
        check(&all, 2 + 2 + 1 + 41 + 13 + 25);
    }
}
