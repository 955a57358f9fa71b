//! Builder of Arrow columns from serialized values. Each value is read once, and checked at the
//! same time.

use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int8Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder, StringBuilder,
    Time64NanosecondBuilder, TimestampMillisecondBuilder,
};
use arrow_array::types::{Decimal128Type, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef, BinaryArray, ListArray, MapArray, PrimitiveArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, OffsetBufferBuilder};
use arrow_schema::{FieldRef, Fields};
use num_bigint::BigInt;
use schema::value::{self, Duration};
use schema::{CqlType, ValueError};
use uuid::Uuid;

use crate::error::Error;
use crate::{DIGITS, arrow_type, entries, entry_fields, item, tuple_fields};

/// Bit of 2³¹, the `date` of 1970-01-01. Inverting it gives signed days.
const EPOCH_BIT: u32 = 1 << 31;

/// Builder of a column.
#[derive(Debug)]
pub struct ColumnBuilder {
    ty: CqlType,
    /// Scale of decimals in the column.
    scale: i8,
    out: Builder,
    rows: usize,
}

#[derive(Debug)]
enum Builder {
    Boolean(BooleanBuilder),
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Utf8(StringBuilder),
    Binary(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64NanosecondBuilder),
    Timestamp(TimestampMillisecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Decimal(Decimal128Builder),
    List(FieldRef, Box<ColumnBuilder>, OffsetBufferBuilder<i32>, NullBufferBuilder),
    Map(FieldRef, Fields, Box<[ColumnBuilder; 2]>, OffsetBufferBuilder<i32>, NullBufferBuilder),
    Struct(Fields, Vec<ColumnBuilder>, NullBufferBuilder),
}

impl ColumnBuilder {
    /// Creates a column of [`arrow_type`]`(ty, scale)` with capacity for `rows` rows.
    pub fn new(ty: &CqlType, scale: i8, rows: usize) -> ColumnBuilder {
        let ty = ty.thawed().clone();
        let inner = |ty: &CqlType| Box::new(ColumnBuilder::new(ty, scale, rows));
        let out = match &ty {
            CqlType::Boolean => Builder::Boolean(BooleanBuilder::with_capacity(rows)),
            CqlType::TinyInt => Builder::Int8(Int8Builder::with_capacity(rows)),
            CqlType::SmallInt => Builder::Int16(Int16Builder::with_capacity(rows)),
            CqlType::Int => Builder::Int32(Int32Builder::with_capacity(rows)),
            CqlType::BigInt | CqlType::Counter => Builder::Int64(Int64Builder::with_capacity(rows)),
            CqlType::Float => Builder::Float32(Float32Builder::with_capacity(rows)),
            CqlType::Double => Builder::Float64(Float64Builder::with_capacity(rows)),
            CqlType::Ascii
            | CqlType::Text
            | CqlType::Varint
            | CqlType::Uuid
            | CqlType::TimeUuid
            | CqlType::Inet => Builder::Utf8(StringBuilder::with_capacity(rows, 0)),
            CqlType::Blob => Builder::Binary(BinaryBuilder::with_capacity(rows, 0)),
            CqlType::Date => Builder::Date(Date32Builder::with_capacity(rows)),
            CqlType::Time => Builder::Time(Time64NanosecondBuilder::with_capacity(rows)),
            CqlType::Timestamp => Builder::Timestamp(
                TimestampMillisecondBuilder::with_capacity(rows).with_data_type(arrow_type(&ty, scale)),
            ),
            CqlType::Duration => Builder::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
            CqlType::Decimal => Builder::Decimal(
                Decimal128Builder::with_capacity(rows).with_data_type(arrow_type(&ty, scale)),
            ),
            CqlType::List(element) | CqlType::Set(element) | CqlType::Vector(element, _) => Builder::List(
                item(element, scale),
                inner(element),
                OffsetBufferBuilder::new(rows),
                nulls(rows),
            ),
            CqlType::Map(key, value) => Builder::Map(
                entries(key, value, scale),
                entry_fields(key, value, scale),
                Box::new([key, value].map(|ty| *inner(ty))),
                OffsetBufferBuilder::new(rows),
                nulls(rows),
            ),
            CqlType::Tuple(types) => Builder::Struct(
                tuple_fields(types, scale),
                types.iter().map(|ty| *inner(ty)).collect(),
                nulls(rows),
            ),
            CqlType::Udt(udt) => {
                let arrow_schema::DataType::Struct(fields) = arrow_type(&ty, scale) else {
                    unreachable!("user types are structs")
                };
                Builder::Struct(fields, udt.fields.iter().map(|(_, ty)| *inner(ty)).collect(), nulls(rows))
            }
            CqlType::Frozen(_) => unreachable!("frozen was removed above"),
        };
        ColumnBuilder { ty, scale, out, rows: 0 }
    }

    /// Returns the number of rows so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns true if there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a value. `None` is null, and so are empty values.
    ///
    /// # Errors
    /// Returned if the bytes are not a value of the type, or the Arrow type cannot hold it. The
    /// builder must not be used any more then.
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<(), Error> {
        self.rows += 1;
        match value.filter(|bytes| !value::is_empty(&self.ty, bytes)) {
            Some(bytes) => self.push_value(bytes),
            None => {
                self.push_null();
                Ok(())
            }
        }
    }

    fn push_null(&mut self) {
        match &mut self.out {
            Builder::Boolean(out) => out.append_null(),
            Builder::Int8(out) => out.append_null(),
            Builder::Int16(out) => out.append_null(),
            Builder::Int32(out) => out.append_null(),
            Builder::Int64(out) => out.append_null(),
            Builder::Float32(out) => out.append_null(),
            Builder::Float64(out) => out.append_null(),
            Builder::Utf8(out) => out.append_null(),
            Builder::Binary(out) => out.append_null(),
            Builder::Date(out) => out.append_null(),
            Builder::Time(out) => out.append_null(),
            Builder::Timestamp(out) => out.append_null(),
            Builder::Interval(out) => out.append_null(),
            Builder::Decimal(out) => out.append_null(),
            Builder::List(_, _, offsets, nulls) | Builder::Map(_, _, _, offsets, nulls) => {
                offsets.push_length(0);
                nulls.append_null();
            }
            Builder::Struct(_, fields, nulls) => {
                for field in fields {
                    field.rows += 1;
                    field.push_null();
                }
                nulls.append_null();
            }
        }
    }

    fn push_value(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (ty, scale) = (&self.ty, self.scale);
        match &mut self.out {
            Builder::Boolean(out) => out.append_value(fixed::<1>(ty, bytes)? != [0]),
            Builder::Int8(out) => out.append_value(i8::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Int16(out) => out.append_value(i16::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Int32(out) => out.append_value(i32::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Int64(out) => out.append_value(i64::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Float32(out) => out.append_value(f32::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Float64(out) => out.append_value(f64::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Utf8(out) => push_text(ty, bytes, out)?,
            Builder::Binary(out) => out.append_value(bytes),
            Builder::Date(out) => {
                out.append_value((u32::from_be_bytes(fixed(ty, bytes)?) ^ EPOCH_BIT).cast_signed());
            }
            Builder::Time(out) => {
                value::check(ty, bytes).map_err(damaged)?;
                out.append_value(i64::from_be_bytes(fixed(ty, bytes)?));
            }
            Builder::Timestamp(out) => out.append_value(i64::from_be_bytes(fixed(ty, bytes)?)),
            Builder::Interval(out) => {
                let Duration { months, days, nanoseconds } = Duration::from_bytes(bytes).map_err(damaged)?;
                out.append_value(IntervalMonthDayNanoType::make_value(months, days, nanoseconds));
            }
            Builder::Decimal(out) => out.append_value(decimal(ty, scale, bytes)?),
            Builder::List(_, inner, offsets, nulls) => {
                let before = inner.rows;
                match ty {
                    CqlType::Vector(element, dimension) => {
                        push_all(inner, value::vector_elements(element, *dimension, bytes))?;
                    }
                    _ => push_all(inner, value::elements(bytes))?,
                }
                offsets.push_length(inner.rows - before);
                nulls.append_non_null();
            }
            Builder::Map(_, _, inner, offsets, nulls) => {
                let [keys, values] = &mut **inner;
                let before = keys.rows;
                for pair in value::pairs(bytes) {
                    let (key, value) = pair.map_err(damaged)?;
                    if value::is_empty(&keys.ty, key) {
                        let message =
                            format!("expected a map without an empty {}, read it with CQL", keys.ty);
                        return Err(Error::Unfit(message));
                    }
                    keys.push(Some(key))?;
                    values.push(Some(value))?;
                }
                offsets.push_length(keys.rows - before);
                nulls.append_non_null();
            }
            Builder::Struct(_, fields, nulls) => {
                push_fields(ty, bytes, fields)?;
                nulls.append_non_null();
            }
        }
        Ok(())
    }

    /// Returns the column and clears the builder.
    pub fn finish(&mut self) -> ArrayRef {
        let rows = std::mem::take(&mut self.rows);
        match &mut self.out {
            Builder::Boolean(out) => Arc::new(out.finish()),
            Builder::Int8(out) => Arc::new(out.finish()),
            Builder::Int16(out) => Arc::new(out.finish()),
            Builder::Int32(out) => Arc::new(out.finish()),
            Builder::Int64(out) => Arc::new(out.finish()),
            Builder::Float32(out) => Arc::new(out.finish()),
            Builder::Float64(out) => Arc::new(out.finish()),
            Builder::Utf8(out) => Arc::new(out.finish()),
            Builder::Binary(out) => Arc::new(out.finish()),
            Builder::Date(out) => Arc::new(out.finish()),
            Builder::Time(out) => Arc::new(out.finish()),
            Builder::Timestamp(out) => Arc::new(out.finish()),
            Builder::Interval(out) => Arc::new(out.finish()),
            Builder::Decimal(out) => Arc::new(out.finish()),
            Builder::List(field, inner, offsets, nulls) => {
                let inner = inner.finish();
                Arc::new(ListArray::new(field.clone(), taken(offsets), inner, nulls.finish()))
            }
            Builder::Map(field, fields, inner, offsets, nulls) => {
                let inner = inner.iter_mut().map(ColumnBuilder::finish).collect();
                let pairs = StructArray::new(fields.clone(), inner, None);
                Arc::new(MapArray::new(field.clone(), taken(offsets), pairs, nulls.finish(), false))
            }
            Builder::Struct(fields, inner, nulls) => {
                let inner: Vec<ArrayRef> = inner.iter_mut().map(ColumnBuilder::finish).collect();
                let nulls = nulls.finish();
                debug_assert!(
                    inner.iter().all(|field| field.len() == rows),
                    "fields are as long as the rows"
                );
                match inner.is_empty() {
                    true => Arc::new(StructArray::new_empty_fields(rows, nulls)),
                    false => Arc::new(StructArray::new(fields.clone(), inner, nulls)),
                }
            }
        }
    }
}

fn push_all<'a>(
    inner: &mut ColumnBuilder,
    mut elements: impl Iterator<Item = Result<&'a [u8], ValueError>>,
) -> Result<(), Error> {
    elements.try_for_each(|element| inner.push(Some(element.map_err(damaged)?)))
}

fn nulls(rows: usize) -> NullBufferBuilder {
    NullBufferBuilder::new(rows)
}

fn taken(offsets: &mut OffsetBufferBuilder<i32>) -> OffsetBuffer<i32> {
    std::mem::replace(offsets, OffsetBufferBuilder::new(0)).finish()
}

fn push_text(ty: &CqlType, bytes: &[u8], out: &mut StringBuilder) -> Result<(), Error> {
    match ty {
        CqlType::Uuid | CqlType::TimeUuid => {
            let uuid = Uuid::from_bytes(fixed(ty, bytes)?);
            out.append_value(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        }
        CqlType::Varint => {
            value::check(ty, bytes).map_err(damaged)?;
            out.append_value(match short_number(bytes) {
                Some(number) => number.to_string(),
                None => BigInt::from_signed_bytes_be(bytes).to_string(),
            });
        }
        CqlType::Inet => {
            let address = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = address.or_else(|_| fixed::<16>(ty, bytes).map(IpAddr::from))?;
            out.append_value(address.to_string());
        }
        _ => {
            let text = std::str::from_utf8(bytes);
            out.append_value(text.map_err(|_| Error::Damaged(format!("A stored {ty} is not UTF-8")))?);
        }
    }
    Ok(())
}

fn push_fields(ty: &CqlType, bytes: &[u8], fields: &mut [ColumnBuilder]) -> Result<(), Error> {
    let mut parts = value::components(bytes);
    for field in fields.iter_mut() {
        // Fields that ALTER TYPE added later are missing at the end.
        field.push(parts.next().transpose().map_err(damaged)?.flatten())?;
    }
    match parts.next() {
        None => Ok(()),
        Some(_) => Err(Error::Damaged(format!("A stored {} has too many fields", ty.kind_name()))),
    }
}

fn fixed<const N: usize>(ty: &CqlType, bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| match value::check(ty, bytes) {
        Err(error) => damaged(error),
        Ok(()) => Error::Damaged(format!("A stored {ty} has {} bytes", bytes.len())),
    })
}

fn damaged(error: ValueError) -> Error {
    Error::Damaged(format!("A stored value is damaged: {error}"))
}

/// Returns a two's-complement number of up to 16 bytes. `None`: it is empty or longer.
fn short_number(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let sign = if first >= 0x80 { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(sign, |number, byte| (number << 8) | i128::from(*byte)))
}

/// Converts a column of serialized decimals, with the result of [`ColumnBuilder`].
///
/// # Errors
/// Those of [`ColumnBuilder::push`].
pub fn decimal_column(from: &BinaryArray, scale: i8) -> Result<ArrayRef, Error> {
    let mut numbers = Vec::with_capacity(from.len());
    let mut nulls = from.nulls().cloned();
    for (row, ends) in from.value_offsets().windows(2).enumerate() {
        let (start, end) = (ends[0] as usize, ends[1] as usize);
        numbers.push(match short_decimal(&from.value_data()[start..], end - start, scale) {
            Some(number) => number,
            None if from.is_null(row) => 0,
            None if start == end => {
                // An empty value. There are few of them.
                let valid = |at| !(at == row || nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)));
                nulls = Some((0..from.len()).map(valid).collect::<Vec<_>>().into());
                0
            }
            None => decimal(&CqlType::Decimal, scale, from.value(row))?,
        });
    }
    let array = PrimitiveArray::<Decimal128Type>::new(numbers.into(), nulls);
    Ok(Arc::new(array.with_data_type(arrow_type(&CqlType::Decimal, scale))))
}

/// Powers of ten. The product of one of these with a 64-bit number has at most 38 digits.
const UNITS: [i64; 19] = {
    let mut units = [1; 19];
    let mut power = 1;
    while power < units.len() {
        units[power] = units[power - 1] * 10;
        power += 1;
    }
    units
};

/// Returns the [`decimal`] in the first `len` bytes, in the fast path for most numbers. `None`: the
/// number has more than 8 bytes or a larger scale, or too few bytes follow. The read covers 8
/// bytes, and the bytes after the number are shifted out.
#[inline]
fn short_decimal(bytes: &[u8], len: usize, scale: i8) -> Option<i128> {
    let (own_scale, rest) = bytes.split_first_chunk::<4>()?;
    let missing = i64::from(scale) - i64::from(i32::from_be_bytes(*own_scale));
    let unit = UNITS.get(usize::try_from(missing).ok()?)?;
    let behind = 8_usize.checked_sub(len.checked_sub(4)?).filter(|behind| *behind < 8)?;
    let number = i64::from_be_bytes(*rest.first_chunk()?) >> (8 * behind);
    Some(i128::from(number) * i128::from(*unit))
}

/// Returns the number with this scale. It is exact, or an error with the number.
fn decimal(ty: &CqlType, scale: i8, bytes: &[u8]) -> Result<i128, Error> {
    value::check(ty, bytes).map_err(damaged)?;
    let (own_scale, unscaled) = bytes.split_first_chunk::<4>().expect("checked above");
    let missing = i64::from(scale) - i64::from(i32::from_be_bytes(*own_scale));
    let number = match (short_number(unscaled), missing) {
        (Some(0), _) => Some(0),
        (Some(number), 0..=38) => number.checked_mul(10_i128.pow(missing as u32)),
        (Some(number), -38..0) => {
            let unit = 10_i128.pow(missing.unsigned_abs() as u32);
            (number % unit == 0).then(|| number / unit)
        }
        // A number that would lose more digits than that does not fit 38 digits: a decimal has at
        // most about 2,500.
        (None, -2600..0) => {
            let (number, unit) =
                (BigInt::from_signed_bytes_be(unscaled), BigInt::from(10).pow(missing.unsigned_abs() as u32));
            (&number % &unit == BigInt::ZERO).then(|| i128::try_from(number / unit).ok()).flatten()
        }
        _ => None,
    };
    let most = 10_i128.pow(u32::from(DIGITS)) - 1;
    number.filter(|number| (-most..=most).contains(number)).ok_or_else(|| {
        Error::Unfit(format!(
            "expected a decimal that fits {DIGITS} digits with scale {scale}, got {}: change --sql-decimals, or \
             read it with CQL",
            value::to_text(ty, bytes)
        ))
    })
}
