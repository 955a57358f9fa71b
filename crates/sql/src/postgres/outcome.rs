//! Converts rows of statements about roles and levels to a batch. The code that makes them is
//! shared with CQL.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use engine::scan::arrow::{ColumnBuilder, SCALE_DEFAULT, arrow_type};
use engine::{Error, ResultRows};

use crate::failure::{Failure, state};

/// Returns the rows as a batch.
///
/// # Errors
/// Arrow's type cannot represent a value.
pub(crate) fn batch(rows: &ResultRows) -> Result<RecordBatch, Failure> {
    let count = rows.count as usize;
    let mut builders: Vec<ColumnBuilder> =
        rows.columns.iter().map(|column| ColumnBuilder::new(&column.ty, SCALE_DEFAULT, count)).collect();
    for row in rows.decoded() {
        for (builder, cell) in builders.iter_mut().zip(row) {
            builder.push(cell).map_err(Error::from)?;
        }
    }
    let field =
        |column: &engine::ColumnSpec| Field::new(&column.name, arrow_type(&column.ty, SCALE_DEFAULT), true);
    let fields: Vec<Field> = rows.columns.iter().map(field).collect();
    let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| Failure::new(state::INTERNAL, error.to_string()))
}
