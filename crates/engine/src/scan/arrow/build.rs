//! Arrow columns built from serialized values, one after the other. A value is read once, and checked while it is.

use std::net::IpAddr;
use std::sync::Arc;

use ::schema::value::{self, Duration};
use ::schema::{CqlType, ValueError};
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
use uuid::Uuid;

use super::{DIGITS, arrow_type, entries, entry_fields, item, tuple_fields};
use crate::Error;

/// 2³¹, where `date` has 1970-01-01, as a bit to be turned.
const EPOCH_BIT: u32 = 1 << 31;

/// A column being built.
#[derive(Debug)]
pub struct ColumnBuilder {
    ty: CqlType,
    /// Of numbers in it.
    decimals: i8,
    out: Out,
    rows: usize,
}

#[derive(Debug)]
enum Out {
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
    /// A column of [`arrow_type`]`(ty, decimals)`, with room for so many rows.
    pub fn new(ty: &CqlType, decimals: i8, rows: usize) -> ColumnBuilder {
        let ty = ty.thawed().clone();
        let inner = |ty: &CqlType| Box::new(ColumnBuilder::new(ty, decimals, rows));
        let out = match &ty {
            CqlType::Boolean => Out::Boolean(BooleanBuilder::with_capacity(rows)),
            CqlType::TinyInt => Out::Int8(Int8Builder::with_capacity(rows)),
            CqlType::SmallInt => Out::Int16(Int16Builder::with_capacity(rows)),
            CqlType::Int => Out::Int32(Int32Builder::with_capacity(rows)),
            CqlType::BigInt | CqlType::Counter => Out::Int64(Int64Builder::with_capacity(rows)),
            CqlType::Float => Out::Float32(Float32Builder::with_capacity(rows)),
            CqlType::Double => Out::Float64(Float64Builder::with_capacity(rows)),
            CqlType::Ascii
            | CqlType::Text
            | CqlType::Varint
            | CqlType::Uuid
            | CqlType::TimeUuid
            | CqlType::Inet => Out::Utf8(StringBuilder::with_capacity(rows, 0)),
            CqlType::Blob => Out::Binary(BinaryBuilder::with_capacity(rows, 0)),
            CqlType::Date => Out::Date(Date32Builder::with_capacity(rows)),
            CqlType::Time => Out::Time(Time64NanosecondBuilder::with_capacity(rows)),
            CqlType::Timestamp => Out::Timestamp(
                TimestampMillisecondBuilder::with_capacity(rows).with_data_type(arrow_type(&ty, decimals)),
            ),
            CqlType::Duration => Out::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
            CqlType::Decimal => {
                Out::Decimal(Decimal128Builder::with_capacity(rows).with_data_type(arrow_type(&ty, decimals)))
            }
            CqlType::List(element) | CqlType::Set(element) => Out::List(
                item(element, decimals),
                inner(element),
                OffsetBufferBuilder::new(rows),
                nulls(rows),
            ),
            CqlType::Map(key, value) => Out::Map(
                entries(key, value, decimals),
                entry_fields(key, value, decimals),
                Box::new([key, value].map(|ty| *inner(ty))),
                OffsetBufferBuilder::new(rows),
                nulls(rows),
            ),
            CqlType::Tuple(types) => Out::Struct(
                tuple_fields(types, decimals),
                types.iter().map(|ty| *inner(ty)).collect(),
                nulls(rows),
            ),
            CqlType::Udt(udt) => {
                let arrow_schema::DataType::Struct(fields) = arrow_type(&ty, decimals) else {
                    unreachable!("user types are structs")
                };
                Out::Struct(fields, udt.fields.iter().map(|(_, ty)| *inner(ty)).collect(), nulls(rows))
            }
            CqlType::Frozen(_) => unreachable!("it was thawed"),
        };
        ColumnBuilder { ty, decimals, out, rows: 0 }
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a value; `None` is null.
    ///
    /// # Errors
    /// The bytes are no value of the type, or one that the Arrow type cannot hold. The builder is of no more use then.
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<(), Error> {
        self.rows += 1;
        match value {
            Some(bytes) => self.push_value(bytes),
            None => {
                self.push_null();
                Ok(())
            }
        }
    }

    fn push_null(&mut self) {
        match &mut self.out {
            Out::Boolean(out) => out.append_null(),
            Out::Int8(out) => out.append_null(),
            Out::Int16(out) => out.append_null(),
            Out::Int32(out) => out.append_null(),
            Out::Int64(out) => out.append_null(),
            Out::Float32(out) => out.append_null(),
            Out::Float64(out) => out.append_null(),
            Out::Utf8(out) => out.append_null(),
            Out::Binary(out) => out.append_null(),
            Out::Date(out) => out.append_null(),
            Out::Time(out) => out.append_null(),
            Out::Timestamp(out) => out.append_null(),
            Out::Interval(out) => out.append_null(),
            Out::Decimal(out) => out.append_null(),
            Out::List(_, _, offsets, nulls) | Out::Map(_, _, _, offsets, nulls) => {
                offsets.push_length(0);
                nulls.append_null();
            }
            Out::Struct(_, fields, nulls) => {
                for field in fields {
                    field.rows += 1;
                    field.push_null();
                }
                nulls.append_null();
            }
        }
    }

    fn push_value(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (ty, decimals) = (&self.ty, self.decimals);
        match &mut self.out {
            Out::Boolean(out) => out.append_value(fixed::<1>(ty, bytes)? != [0]),
            Out::Int8(out) => out.append_value(i8::from_be_bytes(fixed(ty, bytes)?)),
            Out::Int16(out) => out.append_value(i16::from_be_bytes(fixed(ty, bytes)?)),
            Out::Int32(out) => out.append_value(i32::from_be_bytes(fixed(ty, bytes)?)),
            Out::Int64(out) => out.append_value(i64::from_be_bytes(fixed(ty, bytes)?)),
            Out::Float32(out) => out.append_value(f32::from_be_bytes(fixed(ty, bytes)?)),
            Out::Float64(out) => out.append_value(f64::from_be_bytes(fixed(ty, bytes)?)),
            Out::Utf8(out) => push_text(ty, bytes, out)?,
            Out::Binary(out) => out.append_value(bytes),
            Out::Date(out) => {
                out.append_value((u32::from_be_bytes(fixed(ty, bytes)?) ^ EPOCH_BIT).cast_signed());
            }
            Out::Time(out) => {
                value::check(ty, bytes).map_err(damaged)?;
                out.append_value(i64::from_be_bytes(fixed(ty, bytes)?));
            }
            Out::Timestamp(out) => out.append_value(i64::from_be_bytes(fixed(ty, bytes)?)),
            Out::Interval(out) => {
                let Duration { months, days, nanoseconds } = Duration::from_bytes(bytes).map_err(damaged)?;
                out.append_value(IntervalMonthDayNanoType::make_value(months, days, nanoseconds));
            }
            Out::Decimal(out) => out.append_value(decimal(ty, decimals, bytes)?),
            Out::List(_, inner, offsets, nulls) => {
                let before = inner.rows;
                for element in value::elements(bytes) {
                    inner.push(Some(element.map_err(damaged)?))?;
                }
                offsets.push_length(inner.rows - before);
                nulls.append_non_null();
            }
            Out::Map(_, _, inner, offsets, nulls) => {
                let [keys, values] = &mut **inner;
                let before = keys.rows;
                for pair in value::pairs(bytes) {
                    let (key, value) = pair.map_err(damaged)?;
                    keys.push(Some(key))?;
                    values.push(Some(value))?;
                }
                offsets.push_length(keys.rows - before);
                nulls.append_non_null();
            }
            Out::Struct(_, fields, nulls) => {
                push_fields(ty, bytes, fields)?;
                nulls.append_non_null();
            }
        }
        Ok(())
    }

    /// The column; the builder is empty again.
    pub fn finish(&mut self) -> ArrayRef {
        let rows = std::mem::take(&mut self.rows);
        match &mut self.out {
            Out::Boolean(out) => Arc::new(out.finish()),
            Out::Int8(out) => Arc::new(out.finish()),
            Out::Int16(out) => Arc::new(out.finish()),
            Out::Int32(out) => Arc::new(out.finish()),
            Out::Int64(out) => Arc::new(out.finish()),
            Out::Float32(out) => Arc::new(out.finish()),
            Out::Float64(out) => Arc::new(out.finish()),
            Out::Utf8(out) => Arc::new(out.finish()),
            Out::Binary(out) => Arc::new(out.finish()),
            Out::Date(out) => Arc::new(out.finish()),
            Out::Time(out) => Arc::new(out.finish()),
            Out::Timestamp(out) => Arc::new(out.finish()),
            Out::Interval(out) => Arc::new(out.finish()),
            Out::Decimal(out) => Arc::new(out.finish()),
            Out::List(field, inner, offsets, nulls) => {
                let inner = inner.finish();
                Arc::new(ListArray::new(field.clone(), taken(offsets), inner, nulls.finish()))
            }
            Out::Map(field, fields, inner, offsets, nulls) => {
                let inner = inner.iter_mut().map(ColumnBuilder::finish).collect();
                let pairs = StructArray::new(fields.clone(), inner, None);
                Arc::new(MapArray::new(field.clone(), taken(offsets), pairs, nulls.finish(), false))
            }
            Out::Struct(fields, inner, nulls) => {
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
            out.append_value(match small(bytes) {
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
            out.append_value(text.map_err(|_| Error::Server(format!("A stored {ty} is not UTF-8")))?);
        }
    }
    Ok(())
}

fn push_fields(ty: &CqlType, bytes: &[u8], fields: &mut [ColumnBuilder]) -> Result<(), Error> {
    let mut parts = value::components(bytes);
    for field in fields.iter_mut() {
        // Fields that were added later are missing at the end.
        field.push(parts.next().transpose().map_err(damaged)?.flatten())?;
    }
    match parts.next() {
        None => Ok(()),
        Some(_) => Err(Error::Server(format!("A stored {} has too many fields", ty.kind_name()))),
    }
}

fn fixed<const N: usize>(ty: &CqlType, bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| match value::check(ty, bytes) {
        Err(error) => damaged(error),
        Ok(()) => Error::Server(format!("A stored {ty} has {} bytes", bytes.len())),
    })
}

fn damaged(error: ValueError) -> Error {
    Error::Server(format!("A stored value is damaged: {error}"))
}

/// A two's-complement number of up to 16 bytes.
fn small(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let sign = if first >= 0x80 { -1 } else { 0 };
    (bytes.len() <= 16).then(|| bytes.iter().fold(sign, |number, byte| (number << 8) | i128::from(*byte)))
}

/// A column of decimals out of their serialized values, as [`ColumnBuilder`] builds it.
///
/// # Errors
/// As of [`ColumnBuilder::push`].
pub fn decimal_column(from: &BinaryArray, decimals: i8) -> Result<ArrayRef, Error> {
    let mut numbers = Vec::with_capacity(from.len());
    for (row, ends) in from.value_offsets().windows(2).enumerate() {
        let (start, end) = (ends[0] as usize, ends[1] as usize);
        numbers.push(match short_decimal(&from.value_data()[start..], end - start, decimals) {
            Some(number) => number,
            None if from.is_null(row) => 0,
            None => decimal(&CqlType::Decimal, decimals, from.value(row))?,
        });
    }
    let array = PrimitiveArray::<Decimal128Type>::new(numbers.into(), from.nulls().cloned());
    Ok(Arc::new(array.with_data_type(arrow_type(&CqlType::Decimal, decimals))))
}

/// The powers of ten that a number of 64 bits can be multiplied by to have 38 digits at most.
const UNITS: [i64; 19] = {
    let mut units = [1; 19];
    let mut power = 1;
    while power < units.len() {
        units[power] = units[power - 1] * 10;
        power += 1;
    }
    units
};

/// [`decimal`] of the first `len` bytes, if they are a number of up to eight bytes with no more decimals than are kept, as most are, and not
/// the last ones: whatever comes behind the number is read with it and shifted out.
#[inline]
fn short_decimal(bytes: &[u8], len: usize, decimals: i8) -> Option<i128> {
    let (scale, rest) = bytes.split_first_chunk::<4>()?;
    let missing = i64::from(decimals) - i64::from(i32::from_be_bytes(*scale));
    let unit = UNITS.get(usize::try_from(missing).ok()?)?;
    let behind = 8_usize.checked_sub(len.checked_sub(4)?).filter(|behind| *behind < 8)?;
    let number = i64::from_be_bytes(*rest.first_chunk()?) >> (8 * behind);
    Some(i128::from(number) * i128::from(*unit))
}

/// The number with so many decimals; exactly, or an error that says which number it is.
fn decimal(ty: &CqlType, decimals: i8, bytes: &[u8]) -> Result<i128, Error> {
    value::check(ty, bytes).map_err(damaged)?;
    let (scale, unscaled) = bytes.split_first_chunk::<4>().expect("it was checked");
    let missing = i64::from(decimals) - i64::from(i32::from_be_bytes(*scale));
    let number = match (small(unscaled), missing) {
        (Some(0), _) => Some(0),
        (Some(number), 0..=38) => number.checked_mul(10_i128.pow(missing as u32)),
        (Some(number), -38..0) => {
            let unit = 10_i128.pow(missing.unsigned_abs() as u32);
            (number % unit == 0).then(|| number / unit)
        }
        // What has more digits than that to lose is no number of 38 digits: a decimal has at most some 2,500.
        (None, -2600..0) => {
            let (number, unit) =
                (BigInt::from_signed_bytes_be(unscaled), BigInt::from(10).pow(missing.unsigned_abs() as u32));
            (&number % &unit == BigInt::ZERO).then(|| i128::try_from(number / unit).ok()).flatten()
        }
        _ => None,
    };
    let most = 10_i128.pow(u32::from(DIGITS)) - 1;
    number.filter(|number| (-most..=most).contains(number)).ok_or_else(|| {
        Error::Invalid(format!(
            "The decimal {} cannot be read as a number of {DIGITS} digits, {decimals} of them behind the point, as this \
             server's --sql-decimals says; CQL reads it",
            value::to_text(ty, bytes)
        ))
    })
}
