//! Conversion of one value of an Arrow column to a serialized CQL value, for conditions from SQL.

use std::net::IpAddr;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64NanosecondType, TimestampMillisecondType,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_schema::DataType;
use bytes::Bytes;
use schema::CqlType;
use schema::value::{self, Duration};

use crate::{SCALE_DEFAULT, arrow_type};

/// Returns the serialized value in `row` of a column of [`arrow_type`]`(ty, any)`. `None`: the
/// value is null, the array has another type, or CQL has no such value (for instance text that is
/// not a UUID). Also `None` for collections, tuples and user types.
///
/// # Panics
/// Panics if the array has no such row.
pub fn serialized(ty: &CqlType, array: &dyn Array, row: usize) -> Option<Bytes> {
    let ty = ty.thawed();
    let scale = match array.data_type() {
        DataType::Decimal128(_, scale) if *ty == CqlType::Decimal => *scale,
        other if *other == arrow_type(ty, SCALE_DEFAULT) => SCALE_DEFAULT,
        _ => return None,
    };
    if array.is_null(row) {
        return None;
    }
    let bytes = match ty {
        CqlType::Boolean => vec![u8::from(array.as_boolean().value(row))],
        CqlType::TinyInt => number::<Int8Type>(array, row).to_be_bytes().to_vec(),
        CqlType::SmallInt => number::<Int16Type>(array, row).to_be_bytes().to_vec(),
        CqlType::Int => number::<Int32Type>(array, row).to_be_bytes().to_vec(),
        CqlType::BigInt | CqlType::Counter => number::<Int64Type>(array, row).to_be_bytes().to_vec(),
        CqlType::Float => number::<Float32Type>(array, row).to_be_bytes().to_vec(),
        CqlType::Double => number::<Float64Type>(array, row).to_be_bytes().to_vec(),
        CqlType::Ascii | CqlType::Text => array.as_string::<i32>().value(row).as_bytes().to_vec(),
        CqlType::Varint | CqlType::Uuid | CqlType::TimeUuid => {
            value::parse_text(ty, array.as_string::<i32>().value(row)).ok()?
        }
        CqlType::Inet => match array.as_string::<i32>().value(row).parse().ok()? {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        },
        CqlType::Blob => array.as_binary::<i32>().value(row).to_vec(),
        CqlType::Date => {
            let days = number::<Date32Type>(array, row);
            (days.cast_unsigned() ^ (1 << 31)).to_be_bytes().to_vec()
        }
        CqlType::Time => number::<Time64NanosecondType>(array, row).to_be_bytes().to_vec(),
        CqlType::Timestamp => number::<TimestampMillisecondType>(array, row).to_be_bytes().to_vec(),
        CqlType::Duration => {
            let interval = number::<IntervalMonthDayNanoType>(array, row);
            Duration { months: interval.months, days: interval.days, nanoseconds: interval.nanoseconds }
                .to_bytes()
        }
        CqlType::Decimal => {
            let unscaled = number::<Decimal128Type>(array, row).to_be_bytes();
            let sign = if unscaled[0] >= 0x80 { 0xff } else { 0 };
            let redundant =
                unscaled.windows(2).take_while(|two| two[0] == sign && (two[1] ^ sign) < 0x80).count();
            [&i32::from(scale).to_be_bytes()[..], &unscaled[redundant..]].concat()
        }
        _ => return None,
    };
    value::check(ty, &bytes).is_ok().then(|| Bytes::from(bytes))
}

fn number<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}
