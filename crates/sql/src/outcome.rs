//! Rows that a statement about roles or levels gives, made by the same code as over CQL, as a batch.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use engine::Rows;
use engine::scan::arrow::{ColumnBuilder, DECIMALS, arrow_type};

use crate::failure::{Failure, state};

/// The rows as a batch.
///
/// # Errors
/// A value has no place in Arrow's type.
pub(crate) fn batch(rows: &Rows) -> Result<RecordBatch, Failure> {
    let count = rows.count as usize;
    let mut builders: Vec<ColumnBuilder> =
        rows.columns.iter().map(|column| ColumnBuilder::new(&column.ty, DECIMALS, count)).collect();
    for row in rows.decoded() {
        for (builder, cell) in builders.iter_mut().zip(row) {
            builder.push(cell)?;
        }
    }
    let field =
        |column: &engine::ColumnSpec| Field::new(&column.name, arrow_type(&column.ty, DECIMALS), true);
    let fields: Vec<Field> = rows.columns.iter().map(field).collect();
    let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| Failure::new(state::INTERNAL, error.to_string()))
}
