//! Conversions between points in time and local times of a zone.

use chrono::{DateTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::error::Result;

use crate::engine::types::functions::offset_of_local;

/// Converts points in time to the local times of `zone`, and these to the type `to`.
pub(super) fn local_times(column: &ArrayRef, zone: &str, to: &DataType) -> Result<ArrayRef> {
    let zone: Tz = zone.parse()?;
    let points = cast(column, &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))?;
    let points = cast(&points, &DataType::Int64)?;
    let local = |point: i64| {
        let utc = DateTime::from_timestamp(point.div_euclid(1_000_000), 0)?.naive_utc();
        let offset = zone.offset_from_utc_datetime(&utc).fix().local_minus_utc();
        point.checked_add(i64::from(offset) * 1_000_000)
    };
    let points = points.as_primitive::<Int64Type>().iter();
    let locals: Int64Array = points.map(|point| point.and_then(local)).collect();
    let locals = cast(&locals, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    Ok(cast(&locals, to)?)
}

/// Converts local times of `zone` to points in time of the type `to`.
pub(super) fn points(column: &ArrayRef, zone: &str, to: &DataType) -> Result<ArrayRef> {
    let session: Tz = zone.parse()?;
    let locals = cast(&cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?, &DataType::Int64)?;
    let point = |local: i64| {
        let naive = DateTime::from_timestamp(local.div_euclid(1_000_000), 0)?.naive_utc();
        local.checked_sub(offset_of_local(&session, naive) * 1_000_000)
    };
    let locals = locals.as_primitive::<Int64Type>().iter();
    let points: Int64Array = locals.map(|local| local.and_then(point)).collect();
    let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    Ok(cast(&cast(&points, &zoned)?, to)?)
}
