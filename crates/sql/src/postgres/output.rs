//! Encodes rows for a client: Arrow's types as Postgres', batches as DataRow messages. Types that
//! Postgres lacks (maps, lists of lists) are sent as JSON.

use std::sync::Arc;

use arrow_pg::datatypes::{arrow_schema_to_pg_fields, encode_recordbatch, field_into_pg_type};
use bytes::BytesMut;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, Schema};
use datafusion::arrow::json::LineDelimitedWriter;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::messages::Message;
use pgwire::messages::data::{DataRow, RowDescription};

use crate::catalog::types::{has_postgres_type, numeric_type, wide, wide_field};
use crate::engine::parse::column_names;
use crate::engine::types::{interval, text_form};
use crate::failure::{Failure, state};
use crate::postgres::numeric;
use datafusion::error::DataFusionError;

/// Bytes of answers that are buffered before they are written.
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;

/// The columns of a result, in the formats that one client requested.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The columns as described to the client.
    fields: Arc<Vec<FieldInfo>>,
    /// The columns as encoded. An array formatted here is a single value, and must not be quoted
    /// again.
    encoded: Arc<Vec<FieldInfo>>,
    /// Columns that are converted before encoding, by index.
    converted: Vec<(usize, To)>,
}

/// Target of a column's conversion.
#[derive(Clone, PartialEq, Eq, Debug)]
enum To {
    /// Numerics of Postgres, or arrays of them.
    Numeric(Type),
    /// Intervals of Postgres.
    Interval,
    /// The same type with 16-bit integers for 8-bit ones, which Postgres lacks.
    Wide(DataType),
    /// Texts in Postgres' form, for types that Arrow formats differently.
    Text(Type),
    /// JSON, for types that Postgres lacks.
    Json,
}

impl To {
    fn of(field: &Arc<Field>, format: FieldFormat) -> Option<To> {
        let ty = field.data_type();
        if let Some(own) = numeric_type(ty) {
            return Some(To::Numeric(own));
        }
        match ty {
            ty if format == FieldFormat::Text && is_written(ty) && has_postgres_type(ty) => {
                Some(To::Text(field_into_pg_type(&wide_field(field)).ok()?))
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => Some(To::Interval),
            ty if !has_postgres_type(ty) => Some(To::Json),
            ty => Some(wide(ty)).filter(|wide| wide != ty).map(To::Wide),
        }
    }
}

/// Returns true if a type's texts are formatted by `text_form`.
fn is_written(ty: &DataType) -> bool {
    match ty {
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_) => {
            true
        }
        ty => {
            ty.is_floating()
                || matches!(ty, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_))
        }
    }
}

impl Shape {
    /// Describes the columns of a schema in the requested formats: none for text, one for all
    /// columns, or one for each.
    ///
    /// # Errors
    /// The number of formats is neither 0, 1 nor the number of columns.
    pub(crate) fn new(schema: &Schema, formats: &[i16]) -> Result<Shape, Failure> {
        let columns = schema.fields().len();
        if formats.len() > 1 && formats.len() != columns {
            return Err(Failure::new(
                state::PROTOCOL,
                format!("bind message has {} result formats but query has {columns} columns", formats.len()),
            ));
        }
        let format = match formats {
            [] => Format::UnifiedText,
            [one] => Format::from(*one),
            each => Format::Individual(each.to_vec()),
        };
        let format_of = |place: usize| match formats {
            [] => FieldFormat::Text,
            [one] => FieldFormat::from(*one),
            each => FieldFormat::from(each[place]),
        };
        let to = |(place, field): (usize, &Arc<Field>)| Some((place, To::of(field, format_of(place))?));
        let converted: Vec<(usize, To)> = schema.fields().iter().enumerate().filter_map(to).collect();
        let mut fields = arrow_schema_to_pg_fields(&as_converted(schema, &converted), &format, None)?;
        let mut encoded = fields.clone();
        for (place, to) in &converted {
            let (name, format) = (fields[*place].name().to_owned(), fields[*place].format());
            let (one, own) = match to {
                To::Wide(_) => continue,
                To::Numeric(own) => (Type::NUMERIC, own.clone()),
                To::Interval => (Type::NUMERIC, Type::INTERVAL),
                To::Text(own) => (Type::JSON, own.clone()),
                To::Json => (Type::JSON, Type::JSON),
            };
            encoded[*place] = FieldInfo::new(name.clone(), None, None, one, format);
            fields[*place] = FieldInfo::new(name, None, None, own, format);
        }
        // Postgres resolves an unknown type to text.
        for (place, field) in schema.fields().iter().enumerate() {
            if *field.data_type() == DataType::Null {
                let (name, format) = (fields[place].name().to_owned(), fields[place].format());
                fields[place] = FieldInfo::new(name, None, None, Type::TEXT, format);
            }
        }
        Ok(Shape { fields: Arc::new(fields), encoded: Arc::new(encoded), converted })
    }

    /// Returns the shape of one text column.
    pub(crate) fn text(name: &str) -> Shape {
        Shape::texts(&[name])
    }

    /// Returns the shape of text columns.
    pub(crate) fn texts(names: &[&str]) -> Shape {
        let field = |name: &&str| FieldInfo::new((*name).into(), None, None, Type::TEXT, FieldFormat::Text);
        let fields: Arc<Vec<FieldInfo>> = Arc::new(names.iter().map(field).collect());
        Shape { encoded: fields.clone(), fields, converted: Vec::new() }
    }

    /// Returns the RowDescription message.
    pub(crate) fn description(&self) -> RowDescription {
        RowDescription::new(self.fields.iter().map(Into::into).collect())
    }

    /// Returns an encoder of a converted batch's rows, one at a time.
    pub(crate) fn rows(&self, batch: RecordBatch) -> BatchRows {
        BatchRows(encode_recordbatch(self.encoded.clone(), batch))
    }

    /// Returns true if some columns are converted.
    pub(crate) fn converts(&self) -> bool {
        !self.converted.is_empty()
    }

    /// Replaces converted columns by their texts or binary values.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub(crate) fn convert(&self, batch: RecordBatch) -> Result<RecordBatch, Failure> {
        if !self.converts() {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        for (place, to) in &self.converted {
            let (column, format) = (&columns[*place], self.fields[*place].format());
            columns[*place] = match to {
                To::Numeric(_) => numeric::encoded(column, format).map_err(internal)?,
                To::Interval => interval::encoded(column, format),
                To::Wide(ty) => cast(column, ty).map_err(internal)?,
                To::Text(_) => Arc::new(text_form::texts(column).map_err(internal)?),
                To::Json => json(column)?,
            };
        }
        let given = batch.schema();
        let field = |(field, column): (&Arc<Field>, &ArrayRef)| {
            Field::new(field.name(), column.data_type().clone(), true).with_metadata(field.metadata().clone())
        };
        let fields: Vec<Field> = given.fields().iter().zip(&columns).map(field).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(internal)
    }
}

/// Converts rows of texts to a batch.
///
/// # Errors
/// The rows have different lengths.
pub(crate) fn texts(rows: &[Vec<String>]) -> Result<RecordBatch, Failure> {
    let width = rows.first().map_or(0, Vec::len);
    let column = |place: usize| rows.iter().map(|row| row.get(place)).collect::<StringArray>();
    let columns = (0..width).map(|place| (format!("c{place}"), Arc::new(column(place)) as ArrayRef));
    RecordBatch::try_from_iter(columns).map_err(internal)
}

/// Rows of one batch, to be encoded.
pub(crate) struct BatchRows(Box<dyn Iterator<Item = pgwire::error::PgWireResult<DataRow>> + Send>);

impl BatchRows {
    /// Appends one row. Returns false if none is left.
    ///
    /// # Errors
    /// A value cannot be written in the requested format.
    pub(crate) fn encode_next(&mut self, out: &mut BytesMut) -> Result<bool, Failure> {
        let Some(row) = self.0.next() else { return Ok(false) };
        row?.encode(out)?;
        Ok(true)
    }
}

/// Returns the failure of a value without a form for clients. Any other error is a broken
/// invariant.
fn internal(error: datafusion::arrow::error::ArrowError) -> Failure {
    let failure = Failure::from(DataFusionError::from(error));
    let code = if failure.code == state::DATA { state::INTERNAL } else { failure.code };
    Failure { code, ..failure }
}

/// Returns the schema as clients see it. Converted columns have their target type if it is an
/// Arrow type, or else text.
fn as_converted(schema: &Schema, converted: &[(usize, To)]) -> Schema {
    let one = |(place, field): (usize, &Arc<Field>)| {
        let name = column_names::shown(field.name());
        match converted.iter().find(|(converted, _)| *converted == place) {
            Some((_, To::Wide(ty))) => Field::new(name, ty.clone(), true),
            Some(_) => Field::new(name, DataType::Utf8, true),
            None => field.as_ref().clone().with_name(name),
        }
    };
    Schema::new(schema.fields().iter().enumerate().map(one).collect::<Vec<_>>())
}

/// Converts a column to JSON texts.
fn json(column: &ArrayRef) -> Result<ArrayRef, Failure> {
    let schema = Arc::new(Schema::new(vec![Field::new("v", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema, vec![column.clone()]).map_err(internal)?;
    let mut written = Vec::new();
    let mut writer = LineDelimitedWriter::new(&mut written);
    writer.write(&batch).and_then(|()| writer.finish()).map_err(internal)?;
    drop(writer);
    // A line is `{"v":…}`, or `{}` for null.
    let texts = String::from_utf8_lossy(&written);
    let value = |line: &str| line.strip_prefix("{\"v\":")?.strip_suffix('}').map(str::to_owned);
    Ok(Arc::new(texts.lines().map(value).collect::<StringArray>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn described_types_match_the_catalog() {
        use DataType::{
            Boolean, Decimal128, FixedSizeBinary, Int8, Int64, Interval, Map, Null, Timestamp, UInt64, Utf8,
        };
        let item = |ty: DataType| Arc::new(Field::new_list_field(ty, true));
        let entries = Field::new("key", Utf8, false);
        let entries = DataType::Struct(vec![entries, Field::new("value", Int64, true)].into());
        let map = Map(Arc::new(Field::new("entries", entries, false)), false);
        let row = DataType::Struct(vec![Field::new("a", Int8, true)].into());
        let zone = Some(Arc::from("UTC"));
        let types = [
            Null,
            Boolean,
            Int8,
            Int64,
            UInt64,
            DataType::Float32,
            DataType::Date32,
            Utf8,
            FixedSizeBinary(16),
            DataType::Binary,
            Decimal128(38, 6),
            Interval(IntervalUnit::MonthDayNano),
            Timestamp(datafusion::arrow::datatypes::TimeUnit::Millisecond, zone),
            DataType::List(item(Int8)),
            DataType::List(item(Decimal128(38, 6))),
            DataType::List(item(DataType::List(item(Int64)))),
            map,
            row,
        ];
        for ty in types {
            let field = Arc::new(Field::new("a", ty.clone(), true));
            let described = Shape::new(&Schema::new(vec![field.clone()]), &[]);
            let described = described.map(|shape| shape.fields[0].datatype().clone()).ok();
            assert_eq!(described, crate::catalog::types::type_of(&field), "{ty}");
        }
    }
}
