//! Builders of the columns of Arrow record batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt32Type};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray, PrimitiveArray,
    StringArray, StructArray,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, OffsetBuffer,
    ScalarBuffer,
};
use arrow_schema::{DataType, Field, FieldRef, Fields};

use crate::table::columnar::bits::Bits;
use crate::table::columnar::decode::CellMarks;
use crate::table::columnar::values::{ValueLayout, Values};

/// The type of a batch's column. Stored numbers are big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    /// Bytes as stored.
    Binary,
    /// Text. Bytes that are not UTF-8 are damage.
    Utf8,
    /// Values of this many bytes.
    FixedBinary(u8),
    /// One byte each. Nonzero is true.
    Boolean,
    /// One byte.
    Int8,
    /// Two bytes.
    Int16,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Int64,
    /// Unsigned, four bytes.
    UInt32,
    /// IEEE 754, four bytes.
    Float32,
    /// IEEE 754, eight bytes.
    Float64,
}

impl ColumnType {
    /// The Arrow type.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            ColumnType::Binary => DataType::Binary,
            ColumnType::Utf8 => DataType::Utf8,
            ColumnType::FixedBinary(width) => DataType::FixedSizeBinary(i32::from(width)),
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int8 => DataType::Int8,
            ColumnType::Int16 => DataType::Int16,
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::UInt32 => DataType::UInt32,
            ColumnType::Float32 => DataType::Float32,
            ColumnType::Float64 => DataType::Float64,
        }
    }

    /// Returns the width of a value in bytes, and true if its byte order is reversed. `None` for
    /// strings.
    fn width(self) -> Option<(usize, bool)> {
        match self {
            ColumnType::Binary | ColumnType::Utf8 => None,
            ColumnType::FixedBinary(width) => Some((usize::from(width), false)),
            ColumnType::Boolean => Some((1, false)),
            ColumnType::Int8 => Some((1, true)),
            ColumnType::Int16 => Some((2, true)),
            ColumnType::Int32 | ColumnType::UInt32 | ColumnType::Float32 => Some((4, true)),
            ColumnType::Int64 | ColumnType::Float64 => Some((8, true)),
        }
    }
}

/// Builds a column.
#[derive(Debug)]
pub(crate) struct ColumnOut {
    kind: ColumnType,
    /// The end offsets of strings.
    ends: Vec<i32>,
    data: MutableBuffer,
    nulls: NullBufferBuilder,
    /// True if a value did not have the type's width.
    odd: bool,
    /// True if a number had no bytes.
    has_empty: bool,
}

impl ColumnOut {
    pub(crate) fn new(kind: ColumnType, rows: usize) -> ColumnOut {
        let bytes = kind.width().map_or(0, |(width, _)| rows * width);
        let ends = if kind.width().is_none() { Vec::with_capacity(rows) } else { Vec::new() };
        ColumnOut {
            kind,
            ends,
            data: MutableBuffer::new(bytes),
            nulls: NullBufferBuilder::new(rows),
            odd: false,
            has_empty: false,
        }
    }

    /// Returns the bytes of values and of their ends so far.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + size_of_val(self.ends.as_slice())
    }

    /// Returns true if a value without bytes became null: the column cannot hold it.
    pub(crate) fn has_empty(&self) -> bool {
        self.has_empty
    }

    /// Adds a slot. A number without bytes is null. A value of another width than the type's is
    /// damage, which [`ColumnOut::finish`] reports.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        match self.kind.width() {
            None => {
                self.data.extend_from_slice(value.unwrap_or_default());
                self.ends.push(self.data.len() as i32);
                self.nulls.append(value.is_some());
            }
            Some((width, turned)) => {
                self.has_empty |= value.is_some_and(<[u8]>::is_empty);
                let value = value.filter(|value| !value.is_empty());
                let fits = value.filter(|value| value.len() == width);
                self.odd |= value.is_some() && fits.is_none();
                let value = fits;
                match value {
                    None => self.data.extend_zeros(width),
                    Some(value) if turned => value.iter().rev().for_each(|byte| self.data.push(*byte)),
                    Some(value) => self.data.extend_from_slice(value),
                }
                self.nulls.append(value.is_some());
            }
        }
    }

    /// Adds slots without a value.
    pub(crate) fn push_nulls(&mut self, count: usize) {
        match self.kind.width() {
            None => self.ends.resize(self.ends.len() + count, self.data.len() as i32),
            Some((width, _)) => self.data.extend_zeros(width * count),
        }
        self.nulls.append_n_nulls(count);
    }

    /// Adds a value `count` times.
    pub(crate) fn push_repeated(&mut self, value: &[u8], count: usize) {
        match self.kind.width() {
            Some((width, true)) if value.len() == width => {
                let mut turned = [0; 8];
                turned[..width].copy_from_slice(value);
                turned[..width].reverse();
                (0..count).for_each(|_| self.data.extend_from_slice(&turned[..width]));
                self.nulls.append_n_non_nulls(count);
            }
            _ => (0..count).for_each(|_| self.push(Some(value))),
        }
    }

    /// Adds rows of a block's column, in their stored layout if possible. Without marks all slots
    /// have a value.
    pub(crate) fn push_stretch(
        &mut self,
        values: &Values,
        rows: Range<usize>,
        marks: Option<&CellMarks>,
        now_s: u32,
    ) {
        if !self.push_data(values, rows.clone()) {
            for row in rows {
                let live = marks.is_none_or(|marks| marks.marks.is_live(&marks.data, row, now_s));
                if live { values.with(row, |value| self.push(Some(value))) } else { self.push(None) }
            }
            return;
        }
        let Some(CellMarks { data, marks }) = marks else { return self.nulls.append_n_non_nulls(rows.len()) };
        match (marks.valid, marks.special) {
            (Bits::All, Bits::None) => self.nulls.append_n_non_nulls(rows.len()),
            (Bits::None, _) => self.nulls.append_n_nulls(rows.len()),
            (Bits::At(at), Bits::None) => {
                let bits = BooleanBuffer::new(Buffer::from(data.slice(at..)), rows.start, rows.len());
                self.nulls.append_buffer(&NullBuffer::new(bits));
            }
            _ => rows.for_each(|row| self.nulls.append(marks.is_live(data, row, now_s))),
        }
    }

    /// Copies the values of rows, if their layout is that of the batch or close to it. Returns
    /// false otherwise.
    fn push_data(&mut self, values: &Values, rows: Range<usize>) -> bool {
        let even = |width: u8| {
            let width = usize::from(width);
            &values.data()[rows.start * width..rows.end * width]
        };
        match (values.layout(), self.kind.width()) {
            (ValueLayout::Number(width), Some((wanted, true))) if usize::from(width) == wanted => {
                self.data.extend_from_slice(even(width));
            }
            (ValueLayout::Fixed(width), Some((wanted, false))) if usize::from(width) == wanted => {
                self.data.extend_from_slice(even(width));
            }
            (ValueLayout::Fixed(width), Some((wanted, true))) if usize::from(width) == wanted => {
                for value in even(width).chunks_exact(wanted) {
                    let mut turned = [0; 8];
                    turned[..wanted].copy_from_slice(value);
                    turned[..wanted].reverse();
                    self.data.extend_from_slice(&turned[..wanted]);
                }
            }
            (ValueLayout::Fixed(width), None) => {
                let start = self.data.len();
                self.data.extend_from_slice(even(width));
                let width = usize::from(width);
                self.ends.extend((1..=rows.len()).map(|slot| (start + slot * width) as i32));
            }
            (ValueLayout::Strings, None) => {
                let first = values.offset(rows.start);
                let shift = self.data.len() as i32 - first as i32;
                self.data.extend_from_slice(&values.strings()[first..values.offset(rows.end)]);
                self.ends.extend(values.ends(rows).map(|end| end as i32 + shift));
            }
            _ => return false,
        }
        true
    }

    /// Returns the finished array. `None` if text is not UTF-8, or if a value does not have the
    /// type's width.
    pub(crate) fn finish(mut self) -> Option<ArrayRef> {
        if self.odd {
            return None;
        }
        let nulls = self.nulls.finish();
        let len = match self.kind.width() {
            None => self.ends.len(),
            Some((width, _)) => self.data.len() / width.max(1),
        };
        let data = Buffer::from(self.data);
        let offsets = |ends: Vec<i32>| {
            let mut offsets = Vec::with_capacity(ends.len() + 1);
            offsets.push(0);
            offsets.extend(ends);
            OffsetBuffer::new(ScalarBuffer::from(offsets))
        };
        fn number<T: ArrowPrimitiveType>(data: Buffer, len: usize, nulls: Option<NullBuffer>) -> ArrayRef {
            Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(data, 0, len), nulls))
        }
        Some(match self.kind {
            ColumnType::Binary => Arc::new(BinaryArray::new(offsets(self.ends), data, nulls)),
            ColumnType::Utf8 => Arc::new(StringArray::try_new(offsets(self.ends), data, nulls).ok()?),
            ColumnType::FixedBinary(width) => {
                Arc::new(FixedSizeBinaryArray::try_new(i32::from(width), data, nulls).ok()?)
            }
            ColumnType::Boolean => {
                let mut bits = BooleanBufferBuilder::new(len);
                data.iter().for_each(|byte| bits.append(*byte != 0));
                Arc::new(BooleanArray::new(bits.finish(), nulls))
            }
            ColumnType::Int8 => number::<Int8Type>(data, len, nulls),
            ColumnType::Int16 => number::<Int16Type>(data, len, nulls),
            ColumnType::Int32 => number::<Int32Type>(data, len, nulls),
            ColumnType::Int64 => number::<Int64Type>(data, len, nulls),
            ColumnType::UInt32 => number::<UInt32Type>(data, len, nulls),
            ColumnType::Float32 => number::<Float32Type>(data, len, nulls),
            ColumnType::Float64 => number::<Float64Type>(data, len, nulls),
        })
    }
}

/// Returns the field of the items of a column of elements: path and value.
pub(crate) fn elements_field() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(element_fields()), false))
}

fn element_fields() -> Fields {
    Fields::from(vec![
        Field::new("path", DataType::Binary, false),
        Field::new("value", DataType::Binary, false),
    ])
}

/// Builds a column of elements.
#[derive(Debug)]
pub(crate) struct ElementsOut {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
    paths: ColumnOut,
    values: ColumnOut,
}

impl ElementsOut {
    pub(crate) fn new(rows: usize) -> ElementsOut {
        let part = || ColumnOut::new(ColumnType::Binary, rows);
        let nulls = NullBufferBuilder::new(rows);
        ElementsOut { ends: Vec::with_capacity(rows), nulls, paths: part(), values: part() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.paths.bytes() + self.values.bytes() + size_of_val(self.ends.as_slice())
    }

    /// Adds an element to the current row.
    pub(crate) fn push(&mut self, path: &[u8], value: &[u8]) {
        self.paths.push(Some(path));
        self.values.push(Some(value));
    }

    /// Ends a row, which is null if it had no elements.
    pub(crate) fn end_row(&mut self) {
        let before = self.ends.last().copied().unwrap_or(0);
        let end = self.paths.ends.len() as i32;
        self.ends.push(end);
        self.nulls.append(end > before);
    }

    pub(crate) fn push_nulls(&mut self, count: usize) {
        (0..count).for_each(|_| self.end_row());
    }

    /// Returns the finished array.
    pub(crate) fn finish(mut self) -> Option<ArrayRef> {
        let parts = vec![self.paths.finish()?, self.values.finish()?];
        let items = StructArray::try_new(element_fields(), parts, None).ok()?;
        let offsets = OffsetBuffer::from_lengths(lengths(&self.ends));
        Some(Arc::new(ListArray::new(elements_field(), offsets, Arc::new(items), self.nulls.finish())))
    }
}

fn lengths(ends: &[i32]) -> impl Iterator<Item = usize> {
    let starts = [0].into_iter().chain(ends.iter().copied());
    ends.iter().zip(starts).map(|(end, start)| (end - start) as usize)
}
