//! Postgres' types of columns, as results are described to clients and as `information_schema`
//! lists them.

use std::sync::Arc;

use arrow_pg::datatypes::field_into_pg_type;
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit};
use postgres_types::Type;

/// Returns the type of a column in a result. `None`: Postgres has no such type.
pub(crate) fn type_of(field: &Arc<Field>) -> Option<Type> {
    match field.data_type() {
        // Postgres resolves an unknown type to text.
        DataType::Null => Some(Type::TEXT),
        DataType::Interval(IntervalUnit::MonthDayNano) => Some(Type::INTERVAL),
        ty if numeric_type(ty).is_some() => numeric_type(ty),
        ty if !has_postgres_type(ty) => Some(Type::JSON),
        _ => field_into_pg_type(&wide_field(field)).ok(),
    }
}

/// Returns the Postgres type of a column of decimals or of lists of them. `None` for other
/// columns.
pub(crate) fn numeric_type(ty: &DataType) -> Option<Type> {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_decimal().then_some(Type::NUMERIC_ARRAY)
        }
        single => single.is_decimal().then_some(Type::NUMERIC),
    }
}

/// Returns true if Postgres has the type: single values, arrays of them, and rows of them.
pub(crate) fn has_postgres_type(ty: &DataType) -> bool {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            !matches!(item.data_type(), DataType::Struct(_)) && is_single(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_single(field.data_type())),
        single => is_single(single),
    }
}

fn is_single(ty: &DataType) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal256, Float16};
    !ty.is_nested() && !matches!(ty, Decimal32(..) | Decimal64(..) | Decimal256(..) | Float16)
}

pub(crate) fn wide_field(field: &Arc<Field>) -> Arc<Field> {
    let wide = Field::new(field.name(), wide(field.data_type()), field.is_nullable());
    Arc::new(wide.with_metadata(field.metadata().clone()))
}

/// Returns the type with 16-bit integers for 8-bit ones, and signed 64-bit integers for unsigned
/// ones.
pub(crate) fn wide(ty: &DataType) -> DataType {
    match ty {
        DataType::Int8 => DataType::Int16,
        DataType::UInt64 => DataType::Int64,
        DataType::List(item) => DataType::List(wide_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(wide_field).collect()),
        other => other.clone(),
    }
}
