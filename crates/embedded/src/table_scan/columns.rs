//! Conversion of storage's columns to the columns of a scan.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, Time64NanosecondType, TimestampMillisecondType,
    UInt32Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use engine::Error;
use engine::scan::arrow::{ColumnBuilder, decimal_column};
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, token, value};
use storage::{ColumnType, ScanColumn};

use crate::bind::elements;
use crate::bind::slice::descending;

/// Values built between two yields: at about 100 ns each, 0.2 ms.
pub(super) const VALUES_PER_YIELD: usize = 2048;

/// 2³¹, the `date` value of 1970-01-01: the bit to flip.
const EPOCH_BIT: u32 = 1 << 31;

/// Method of building a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// From storage's array, or with small changes to it.
    Plain,
    /// From the encoding of the only clustering column, an integer.
    ClusteringNumber,
    /// From serialized decimals.
    Decimals,
    /// From other serialized values.
    Values,
    /// From a component of the partition key.
    KeyPart(usize),
    /// From a component of the clustering key.
    ClusteringPart(usize),
    /// From elements.
    Elements,
}

/// Column of the scan.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Index in the table's columns.
    column: usize,
    /// Index of storage's column that it is built from.
    from: usize,
    method: Method,
}

/// Returns the storage columns that these columns of a table are built from, each once, and the
/// methods of building them.
pub(super) fn of_storage(def: &TableDef, columns: &[usize]) -> (Vec<ScanColumn>, Vec<Shown>) {
    let mut wanted: Vec<ScanColumn> = Vec::new();
    let shown = columns.iter().map(|at| {
        let (column, method) = source(def, &def.columns[*at]);
        let from = wanted.iter().position(|own| *own == column).unwrap_or_else(|| {
            wanted.push(column);
            wanted.len() - 1
        });
        Shown { column: *at, from, method }
    });
    let shown = shown.collect();
    (wanted, shown)
}

fn source(def: &TableDef, column: &ColumnDef) -> (ScanColumn, Method) {
    let plain = plain_type(&column.ty);
    let kind = plain.unwrap_or(ColumnType::Binary);
    let method = match column.ty.thawed() {
        _ if plain.is_some() => Method::Plain,
        CqlType::Decimal => Method::Decimals,
        _ => Method::Values,
    };
    match column.kind {
        ColumnKind::PartitionKey(_) if def.partition_key().count() == 1 => (ScanColumn::Key(kind), method),
        ColumnKind::PartitionKey(at) => (ScanColumn::Key(ColumnType::Binary), Method::KeyPart(at)),
        ColumnKind::Clustering(at, _) => match clustering_number(&column.ty) {
            Some(kind) if def.clustering().count() == 1 => {
                (ScanColumn::Clustering(kind), Method::ClusteringNumber)
            }
            _ => (ScanColumn::Clustering(ColumnType::Binary), Method::ClusteringPart(at)),
        },
        ColumnKind::Static if column.ty.is_multi_cell() => {
            (ScanColumn::StaticElements(column.id), Method::Elements)
        }
        ColumnKind::Regular if column.ty.is_multi_cell() => {
            (ScanColumn::Elements(column.id), Method::Elements)
        }
        ColumnKind::Static => (ScanColumn::Static(column.id, kind), method),
        ColumnKind::Regular => (ScanColumn::Cell(column.id, kind), method),
    }
}

/// Returns the Arrow type of values that differ from Arrow's layout only in byte order.
pub(crate) fn plain_type(ty: &CqlType) -> Option<ColumnType> {
    Some(match ty.thawed() {
        CqlType::Boolean => ColumnType::Boolean,
        CqlType::TinyInt => ColumnType::Int8,
        CqlType::SmallInt => ColumnType::Int16,
        CqlType::Int => ColumnType::Int32,
        CqlType::BigInt | CqlType::Counter | CqlType::Timestamp | CqlType::Time => ColumnType::Int64,
        CqlType::Date => ColumnType::UInt32,
        CqlType::Float => ColumnType::Float32,
        CqlType::Double => ColumnType::Float64,
        CqlType::Ascii | CqlType::Text => ColumnType::Utf8,
        CqlType::Blob => ColumnType::Binary,
        _ => return None,
    })
}

/// Returns the conversion of clustering keys that are one integer. They are big-endian with a
/// flipped sign bit (a date has it by itself), and with all bits flipped in descending order.
fn clustering_number(ty: &CqlType) -> Option<ColumnType> {
    Some(match ty.thawed() {
        CqlType::TinyInt => ColumnType::Int8,
        CqlType::SmallInt => ColumnType::Int16,
        CqlType::Int | CqlType::Date => ColumnType::Int32,
        CqlType::BigInt | CqlType::Timestamp | CqlType::Time => ColumnType::Int64,
        _ => return None,
    })
}

/// Builds the columns of the scan from a batch of storage. Yields between chunks of the work.
pub(super) async fn build_columns(
    def: &TableDef,
    scale: i8,
    shown: &[Shown],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>, Error> {
    let mut arrays = Vec::with_capacity(shown.len());
    for column in shown {
        let (own, from) = (&def.columns[column.column], batch.column(column.from));
        arrays.push(match column.method {
            Method::Plain => cast_plain(&own.ty, from),
            Method::ClusteringNumber => decode_clustering_numbers(own, from),
            Method::Decimals => {
                let numbers = decimal_column(from.as_binary(), scale)?;
                lanes::heavy_yield().await;
                numbers
            }
            method => {
                let mut builder = ColumnBuilder::new(&own.ty, scale, batch.num_rows());
                let mut start = 0;
                while start < batch.num_rows() {
                    let end = (start + VALUES_PER_YIELD).min(batch.num_rows());
                    build(def, own, method, &from.slice(start, end - start), &mut builder)?;
                    start = end;
                    lanes::heavy_yield().await;
                }
                builder.finish()
            }
        });
    }
    Ok(arrays)
}

fn cast_plain(ty: &CqlType, from: &ArrayRef) -> ArrayRef {
    match ty.thawed() {
        CqlType::Date => {
            let days = from.as_primitive::<UInt32Type>();
            Arc::new(days.unary::<_, Date32Type>(|raw| (raw ^ EPOCH_BIT).cast_signed()))
        }
        CqlType::Time | CqlType::Timestamp => with_logical_type(ty, from),
        _ => from.clone(),
    }
}

/// Gives integers their logical Arrow type.
fn with_logical_type(ty: &CqlType, from: &ArrayRef) -> ArrayRef {
    match ty.thawed() {
        CqlType::Date => Arc::new(from.as_primitive::<Int32Type>().reinterpret_cast::<Date32Type>()),
        CqlType::Time => {
            Arc::new(from.as_primitive::<Int64Type>().reinterpret_cast::<Time64NanosecondType>())
        }
        CqlType::Timestamp => {
            let milliseconds =
                from.as_primitive::<Int64Type>().reinterpret_cast::<TimestampMillisecondType>();
            Arc::new(milliseconds.with_timezone("UTC"))
        }
        _ => from.clone(),
    }
}

/// Decodes the clustering encoding of integers.
fn decode_clustering_numbers(column: &ColumnDef, from: &ArrayRef) -> ArrayRef {
    fn map_values<T: ArrowPrimitiveType>(
        from: &ArrayRef,
        decode: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        Arc::new(from.as_primitive::<T>().unary::<_, T>(decode) as PrimitiveArray<T>)
    }
    // Flip all bits if descending, and flip the sign bit back.
    let down = descending(column);
    let numbers = match clustering_number(&column.ty) {
        Some(ColumnType::Int8) => map_values::<Int8Type>(from, |n| if down { !n } else { n } ^ i8::MIN),
        Some(ColumnType::Int16) => map_values::<Int16Type>(from, |n| if down { !n } else { n } ^ i16::MIN),
        Some(ColumnType::Int32) => map_values::<Int32Type>(from, |n| if down { !n } else { n } ^ i32::MIN),
        _ => map_values::<Int64Type>(from, |n| if down { !n } else { n } ^ i64::MIN),
    };
    with_logical_type(&column.ty, &numbers)
}

/// Appends rows to a column that is built value by value.
fn build(
    def: &TableDef,
    column: &ColumnDef,
    method: Method,
    from: &ArrayRef,
    builder: &mut ColumnBuilder,
) -> Result<(), Error> {
    if method == Method::Elements {
        for list in from.as_list::<i32>().iter() {
            let Some(list) = list else {
                builder.push(None)?;
                continue;
            };
            let parts = list.as_struct();
            let (paths, values) = (parts.column(0).as_binary::<i32>(), parts.column(1).as_binary::<i32>());
            let elements = (0..parts.len()).map(|at| (paths.value(at), values.value(at)));
            builder.push(elements::to_value(&column.ty, elements)?.as_deref())?;
        }
        return Ok(());
    }
    let mut scratch = Vec::new();
    for value in from.as_binary::<i32>().iter() {
        match (value, method) {
            (Some(bytes), Method::KeyPart(at)) => {
                let mut parts = token::partition_key_components(def.partition_key().count(), bytes);
                let part = parts.nth(at).and_then(Result::ok).ok_or_else(|| damaged("partition key"))?;
                builder.push(Some(part))?;
            }
            (Some(bytes), Method::ClusteringPart(at)) => {
                clustering_part(def, bytes, at, &mut scratch)?;
                builder.push(Some(&scratch))?;
            }
            (value, _) => builder.push(value)?,
        }
    }
    Ok(())
}

fn clustering_part(def: &TableDef, mut key: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    for column in def.clustering().take(at + 1) {
        out.clear();
        value::decode_key_part(&column.ty, descending(column), &mut key, out)
            .map_err(|_| damaged("clustering key"))?;
    }
    Ok(())
}

fn damaged(what: &str) -> Error {
    Error::Server(format!("a stored {what} is damaged"))
}
