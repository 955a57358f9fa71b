//! Values of one argument in many rows, for aggregates.

use std::cmp::Ordering;
use std::slice;

/// Values of consecutive rows, without nulls, in the layout of Arrow.
#[derive(Clone, Copy, Debug)]
pub enum Column<'v> {
    /// `tinyint`.
    Int8(&'v [i8]),
    /// `smallint`.
    Int16(&'v [i16]),
    /// `int`.
    Int32(&'v [i32]),
    /// `bigint`, `counter`, `time` and `timestamp`.
    Int64(&'v [i64]),
    /// `date`.
    UInt32(&'v [u32]),
    /// `float`.
    Float32(&'v [f32]),
    /// `double`.
    Float64(&'v [f64]),
    /// Serialized values of any type.
    Bytes {
        /// The values, one after the other.
        data: &'v [u8],
        /// Begin of each value in `data`, and the end of the last one.
        offsets: &'v [i32],
    },
}

impl<'v> Column<'v> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Column::Int8(values) => values.len(),
            Column::Int16(values) => values.len(),
            Column::Int32(values) => values.len(),
            Column::Int64(values) => values.len(),
            Column::UInt32(values) => values.len(),
            Column::Float32(values) => values.len(),
            Column::Float64(values) => values.len(),
            Column::Bytes { offsets, .. } => offsets.len().saturating_sub(1),
        }
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with each value, serialized.
    pub fn each(self, mut f: impl FnMut(&[u8])) {
        match self {
            Column::Int8(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Int16(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Int32(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Int64(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::UInt32(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Float32(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Float64(values) => values.iter().for_each(|value| f(&value.to_be_bytes())),
            Column::Bytes { data, offsets } => {
                offsets.windows(2).for_each(|ends| f(&data[ends[0] as usize..ends[1] as usize]));
            }
        }
    }

    /// Returns the sum of integers, which wraps around. `None`: the values have another type.
    pub(crate) fn wrapping_sum(self) -> Option<i64> {
        fn of<T: Copy + Into<i64>>(values: &[T]) -> i64 {
            values.iter().fold(0_i64, |sum, value| sum.wrapping_add((*value).into()))
        }
        Some(match self {
            Column::Int8(values) => of(values),
            Column::Int16(values) => of(values),
            Column::Int32(values) => of(values),
            Column::Int64(values) => of(values),
            _ => return None,
        })
    }

    /// Returns the sum of up to 2^63 integers. `None`: the values have another type.
    pub(crate) fn sum(self) -> Option<i128> {
        match self {
            Column::Int64(values) => Some(values.iter().map(|value| i128::from(*value)).sum()),
            // It cannot wrap around in memory of less than 2^32 values.
            smaller => smaller.wrapping_sum().map(i128::from),
        }
    }

    /// Returns the least of integers, or with `kept` as `Greater` the greatest. Returns other
    /// values as they are.
    pub(crate) fn extreme(self, kept: Ordering) -> Column<'v> {
        fn of<T: Ord>(values: &[T], kept: Ordering) -> &[T] {
            let extreme = if kept.is_lt() { values.iter().min() } else { values.iter().max() };
            extreme.map_or(&[], slice::from_ref)
        }
        match self {
            Column::Int8(values) => Column::Int8(of(values, kept)),
            Column::Int16(values) => Column::Int16(of(values, kept)),
            Column::Int32(values) => Column::Int32(of(values, kept)),
            Column::Int64(values) => Column::Int64(of(values, kept)),
            Column::UInt32(values) => Column::UInt32(of(values, kept)),
            other => other,
        }
    }
}
