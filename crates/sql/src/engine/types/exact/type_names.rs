//! PostgreSQL's names of types, and the errors of this folder.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;

use crate::failure::{refusal, state};

/// Returns a failure in the form that DataFusion passes on unchanged.
pub(crate) fn refused<T>(code: &'static str, message: impl Into<String>) -> Result<T> {
    Err(refusal(code, message))
}

/// Returns PostgreSQL's name of a type.
pub(crate) fn type_name(ty: &DataType) -> String {
    let name = match ty {
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint",
        DataType::Int32 | DataType::UInt16 => "integer",
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Boolean => "boolean",
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Null => "unknown",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea"
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            return format!("{}[]", type_name(item.data_type()));
        }
        DataType::Struct(_) => "record",
        ty if is_text(ty) => "text",
        ty if ty.is_decimal() => "numeric",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// Refuses an operator that PostgreSQL lacks for these types.
pub(crate) fn no_operator<T>(left: &DataType, op: Operator, right: &DataType) -> Result<T> {
    let types = format!("{} {op} {}", type_name(left), type_name(right));
    refused(state::NO_FUNCTION, format!("operator does not exist: {types}"))
}

/// Returns the type of arrays of a type.
pub(crate) fn list_of(ty: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(ty.clone(), true)))
}

pub(crate) fn is_int(ty: &DataType) -> bool {
    ty.is_integer()
}

pub(crate) fn is_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
