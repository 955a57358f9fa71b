//! Which columns of storage the columns of a table come from, and how.

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

use crate::elements;
use crate::slice::descending;

/// 2³¹, where `date` has 1970-01-01: a bit to be turned.
const EPOCH_BIT: u32 = 1 << 31;

/// Values built between looks at the scheduler: at some 100 ns each, a fifth of a millisecond.
const A_TURN: usize = 2048;

/// How a column is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// As storage gives it, or nearly so.
    Plain,
    /// Out of the encoding of the only clustering column, a whole number.
    ClusteringNumber,
    /// Out of serialized decimals.
    Decimals,
    /// Out of other serialized values.
    Values,
    /// A part of the partition key.
    KeyPart(usize),
    /// A part of the clustering key.
    ClusteringPart(usize),
    /// Out of elements.
    Elements,
}

/// A column of the scan.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Its place in the table's columns.
    column: usize,
    /// The column of storage it is made from.
    from: usize,
    how: How,
}

/// The columns of storage that these columns of a table are made from, each once, and how they are.
pub(super) fn of_storage(def: &TableDef, columns: &[usize]) -> (Vec<ScanColumn>, Vec<Shown>) {
    let mut wanted: Vec<ScanColumn> = Vec::new();
    let shown = columns.iter().map(|at| {
        let (column, how) = source(def, &def.columns[*at]);
        let from = wanted.iter().position(|own| *own == column).unwrap_or_else(|| {
            wanted.push(column);
            wanted.len() - 1
        });
        Shown { column: *at, from, how }
    });
    let shown = shown.collect();
    (wanted, shown)
}

fn source(def: &TableDef, column: &ColumnDef) -> (ScanColumn, How) {
    let plain = plain(&column.ty);
    let kind = plain.unwrap_or(ColumnType::Binary);
    let how = match column.ty.thawed() {
        _ if plain.is_some() => How::Plain,
        CqlType::Decimal => How::Decimals,
        _ => How::Values,
    };
    match column.kind {
        ColumnKind::PartitionKey(_) if def.partition_key().count() == 1 => (ScanColumn::Key(kind), how),
        ColumnKind::PartitionKey(at) => (ScanColumn::Key(ColumnType::Binary), How::KeyPart(at)),
        ColumnKind::Clustering(at, _) => match clustering_number(&column.ty) {
            Some(kind) if def.clustering().count() == 1 => {
                (ScanColumn::Clustering(kind), How::ClusteringNumber)
            }
            _ => (ScanColumn::Clustering(ColumnType::Binary), How::ClusteringPart(at)),
        },
        ColumnKind::Static if column.ty.is_multi_cell() => {
            (ScanColumn::StaticElements(column.id), How::Elements)
        }
        ColumnKind::Regular if column.ty.is_multi_cell() => (ScanColumn::Elements(column.id), How::Elements),
        ColumnKind::Static => (ScanColumn::Static(column.id, kind), how),
        ColumnKind::Regular => (ScanColumn::Cell(column.id, kind), how),
    }
}

/// What storage is to make of values that are Arrow's but for their bytes' order.
fn plain(ty: &CqlType) -> Option<ColumnType> {
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

/// What storage is to make of clustering keys that are one whole number: big-endian, its sign bit turned (that of a date is so by
/// itself), and all bits where the order is descending.
fn clustering_number(ty: &CqlType) -> Option<ColumnType> {
    Some(match ty.thawed() {
        CqlType::TinyInt => ColumnType::Int8,
        CqlType::SmallInt => ColumnType::Int16,
        CqlType::Int | CqlType::Date => ColumnType::Int32,
        CqlType::BigInt | CqlType::Timestamp | CqlType::Time => ColumnType::Int64,
        _ => return None,
    })
}

/// The columns of the scan out of a batch of storage. Gives way between pieces of the work.
pub(super) async fn made(
    def: &TableDef,
    decimals: i8,
    shown: &[Shown],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>, Error> {
    let mut arrays = Vec::with_capacity(shown.len());
    for column in shown {
        let (own, from) = (&def.columns[column.column], batch.column(column.from));
        arrays.push(match column.how {
            How::Plain => plainly(&own.ty, from),
            How::ClusteringNumber => numbers(own, from),
            How::Decimals => {
                let numbers = decimal_column(from.as_binary(), decimals)?;
                lanes::heavy_yield().await;
                numbers
            }
            how => {
                let mut builder = ColumnBuilder::new(&own.ty, decimals, batch.num_rows());
                let mut start = 0;
                while start < batch.num_rows() {
                    let end = (start + A_TURN).min(batch.num_rows());
                    build(def, own, how, &from.slice(start, end - start), &mut builder)?;
                    start = end;
                    lanes::heavy_yield().await;
                }
                builder.finish()
            }
        });
    }
    Ok(arrays)
}

fn plainly(ty: &CqlType, from: &ArrayRef) -> ArrayRef {
    match ty.thawed() {
        CqlType::Date => {
            let days = from.as_primitive::<UInt32Type>();
            Arc::new(days.unary::<_, Date32Type>(|raw| (raw ^ EPOCH_BIT).cast_signed()))
        }
        CqlType::Time | CqlType::Timestamp => named(ty, from),
        _ => from.clone(),
    }
}

/// Whole numbers as what they stand for.
fn named(ty: &CqlType, from: &ArrayRef) -> ArrayRef {
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

/// Clustering encodings of whole numbers, turned back.
fn numbers(column: &ColumnDef, from: &ArrayRef) -> ArrayRef {
    fn turned<T: ArrowPrimitiveType>(from: &ArrayRef, turn: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        Arc::new(from.as_primitive::<T>().unary::<_, T>(turn) as PrimitiveArray<T>)
    }
    // All bits of a descending one, and the sign bit back.
    let down = descending(column);
    let numbers = match clustering_number(&column.ty) {
        Some(ColumnType::Int8) => turned::<Int8Type>(from, |n| if down { !n } else { n } ^ i8::MIN),
        Some(ColumnType::Int16) => turned::<Int16Type>(from, |n| if down { !n } else { n } ^ i16::MIN),
        Some(ColumnType::Int32) => turned::<Int32Type>(from, |n| if down { !n } else { n } ^ i32::MIN),
        _ => turned::<Int64Type>(from, |n| if down { !n } else { n } ^ i64::MIN),
    };
    named(&column.ty, &numbers)
}

/// Adds rows to a column that is built value by value.
fn build(
    def: &TableDef,
    column: &ColumnDef,
    how: How,
    from: &ArrayRef,
    builder: &mut ColumnBuilder,
) -> Result<(), Error> {
    if how == How::Elements {
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
        match (value, how) {
            (Some(bytes), How::KeyPart(at)) => {
                let mut parts = token::partition_key_components(def.partition_key().count(), bytes);
                let part = parts.nth(at).and_then(Result::ok).ok_or_else(|| damaged("partition key"))?;
                builder.push(Some(part))?;
            }
            (Some(bytes), How::ClusteringPart(at)) => {
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
