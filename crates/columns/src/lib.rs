//! Mapping of CQL types to Arrow types, and conversion of serialized values to Arrow columns and
//! back.
//!
//! ```text
//! boolean                    Boolean
//! tinyint … bigint, counter  Int8 … Int64
//! float, double              Float32, Float64
//! ascii, text                Utf8
//! blob                       Binary
//! date                       Date32              CQL counts days from 2³¹ days before 1970
//! time                       Time64(ns)
//! timestamp                  Timestamp(ms, UTC)
//! duration                   Interval(month, day, nano)
//! decimal                    Decimal128(38, d)   other numbers are an error: no type holds any size
//! varint                     Utf8                digits: any size, exact
//! uuid, timeuuid, inet       Utf8                CQL text: SQL clients compare it with plain constants
//! list, set, vector          List                not FixedSizeList, which holds nulls in full size
//! map                        Map
//! tuple, user type           Struct              fields of tuples are f1, f2, …
//! ```
//!
//! The default scale (`d`) is 6. A product of three such numbers has scale 18, which leaves 20
//! digits for a sum.

mod build;
mod error;
mod serialize;

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use schema::CqlType;

pub use build::{ColumnBuilder, decimal_column};
pub use error::Error;
pub use serialize::serialized;

/// Precision of a CQL `decimal` as an Arrow number, in digits.
pub const DIGITS: u8 = 38;
/// Default scale.
pub const SCALE_DEFAULT: i8 = 6;
/// Largest scale. It leaves 8 digits before the decimal point.
pub const SCALE_MAX: i8 = 30;

/// Returns the Arrow type of a CQL type. `scale` is that of each `decimal`, 0 to [`SCALE_MAX`].
pub fn arrow_type(ty: &CqlType, scale: i8) -> DataType {
    match ty {
        CqlType::Boolean => DataType::Boolean,
        CqlType::TinyInt => DataType::Int8,
        CqlType::SmallInt => DataType::Int16,
        CqlType::Int => DataType::Int32,
        CqlType::BigInt | CqlType::Counter => DataType::Int64,
        CqlType::Float => DataType::Float32,
        CqlType::Double => DataType::Float64,
        CqlType::Ascii
        | CqlType::Text
        | CqlType::Varint
        | CqlType::Uuid
        | CqlType::TimeUuid
        | CqlType::Inet => DataType::Utf8,
        CqlType::Blob => DataType::Binary,
        CqlType::Date => DataType::Date32,
        CqlType::Time => DataType::Time64(TimeUnit::Nanosecond),
        CqlType::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        CqlType::Duration => DataType::Interval(IntervalUnit::MonthDayNano),
        CqlType::Decimal => DataType::Decimal128(DIGITS, scale),
        CqlType::List(element) | CqlType::Set(element) | CqlType::Vector(element, _) => {
            DataType::List(item(element, scale))
        }
        CqlType::Map(key, value) => DataType::Map(entries(key, value, scale), false),
        CqlType::Tuple(types) => DataType::Struct(tuple_fields(types, scale)),
        CqlType::Udt(udt) => DataType::Struct(
            udt.fields.iter().map(|(name, ty)| Field::new(name, arrow_type(ty, scale), true)).collect(),
        ),
        CqlType::Frozen(inner) => arrow_type(inner, scale),
    }
}

/// Returns true if Arrow orders values of the type as CQL does (`schema::value::compare`).
/// Otherwise a filter on such a column can only express equality.
pub fn keeps_order(ty: &CqlType) -> bool {
    match ty {
        CqlType::Boolean
        | CqlType::TinyInt
        | CqlType::SmallInt
        | CqlType::Int
        | CqlType::BigInt
        | CqlType::Counter
        | CqlType::Float
        | CqlType::Double
        | CqlType::Ascii
        | CqlType::Text
        | CqlType::Blob
        | CqlType::Date
        | CqlType::Time
        | CqlType::Timestamp
        | CqlType::Decimal => true,
        CqlType::Frozen(inner) => keeps_order(inner),
        _ => false,
    }
}

fn item(element: &CqlType, scale: i8) -> FieldRef {
    Arc::new(Field::new_list_field(arrow_type(element, scale), true))
}

fn entries(key: &CqlType, value: &CqlType, scale: i8) -> FieldRef {
    Arc::new(Field::new("entries", DataType::Struct(entry_fields(key, value, scale)), false))
}

fn entry_fields(key: &CqlType, value: &CqlType, scale: i8) -> Fields {
    Fields::from(vec![
        Field::new("key", arrow_type(key, scale), false),
        Field::new("value", arrow_type(value, scale), true),
    ])
}

fn tuple_fields(types: &[CqlType], scale: i8) -> Fields {
    let field = |(at, ty)| Field::new(format!("f{}", at + 1), arrow_type(ty, scale), true);
    types.iter().enumerate().map(field).collect()
}

#[cfg(test)]
mod tests;
