//! Tables as Parquet files, `TABLE.parquet`, for comparison with engines that read them.
//!
//! 1. Collect rows into columns, one batch at a time.
//! 2. Pass a full batch to the writer. It keeps the batch encoded and compressed until its row
//!    group is full.
//! 3. Write the footer, which lists the row groups. A file without a footer is unreadable, so an
//!    unfinished file is removed.
//!
//! Existing files are never overwritten: they may be part of an experiment that took hours. No
//! column has nulls.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::csv::failed;
use super::fill::FillState;
use super::{Cell, CellType, Decimals, Table, TableSource, chunks};
use crate::LoadError;

/// Rows in a batch, a few milliseconds of work. The stop flag is checked between batches.
const BATCH_ROWS: usize = 8192;
/// Rows in a row group, the unit that readers distribute over threads. Columns compress well at
/// this size, and at scale 1 `lineitem` has 46 groups. The encoded group stays in memory, about 10
/// MB for `lineitem`.
const GROUP_ROWS: usize = 16 * BATCH_ROWS;
/// Precision and scale of decimals, as in TPC-H and in `schema.sql`.
const DIGITS: (u8, i8) = (15, 2);

fn path(folder: &Path, table: &Table) -> PathBuf {
    folder.join(format!("{}.parquet", table.name))
}

/// Creates the folder, and checks that it has no file of these tables.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn begin(folder: &Path, tables: &[&Table]) -> Result<(), LoadError> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    match tables.iter().map(|table| path(folder, table)).find(|path| path.exists()) {
        Some(there) => Err(LoadError::File {
            path: there.display().to_string(),
            reason: "the file exists and is not overwritten; remove it, or leave out its table (--tables)"
                .into(),
        }),
        None => Ok(()),
    }
}

/// Writes one table as a file of the folder. A stop removes the file and its counts.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn write(
    source: &dyn TableSource,
    index: usize,
    folder: &Path,
    decimals: Decimals,
    shared: &FillState,
) -> Result<(), LoadError> {
    let path = path(folder, &source.tables()[index]);
    let file = File::create_new(&path).map_err(|error| failed(&path, &error))?;
    let written = write_rows(source, index, file, decimals, shared);
    if !matches!(written, Ok(true)) {
        shared.reset(index);
        // Report the first error. Failing to remove the file usually has the same cause.
        drop(std::fs::remove_file(&path));
    }
    let file_error =
        |error: ParquetError| LoadError::File { path: path.display().to_string(), reason: error.to_string() };
    written.map(|_complete| ()).map_err(file_error)
}

/// Writes every row. Returns false if it was stopped before the last.
fn write_rows(
    source: &dyn TableSource,
    index: usize,
    file: File,
    decimals: Decimals,
    shared: &FillState,
) -> Result<bool, ParquetError> {
    let table = &source.tables()[index];
    let mut batch = ParquetRows::new(table, decimals);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(file, batch.schema.clone(), Some(properties))?;
    shared.add(index, 0, writer.bytes_written() as u64, 0);
    for chunk in 0..chunks(table) {
        let mut outcome = Ok(());
        source.make(index, chunk, chunks(table), &mut |row| {
            batch.push(row);
            if batch.rows < BATCH_ROWS {
                return ControlFlow::Continue(());
            }
            outcome = batch.write(&mut writer, index, shared);
            if outcome.is_err() || shared.stopped() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        outcome?;
        if shared.stopped() {
            return Ok(false);
        }
    }
    batch.write(&mut writer, index, shared)?;
    let before = writer.bytes_written();
    writer.finish()?;
    shared.add(index, 0, (writer.bytes_written() - before) as u64, 0);
    Ok(true)
}

/// Rows for a file, column by column.
struct ParquetRows {
    schema: SchemaRef,
    columns: Vec<Values>,
    rows: usize,
}

impl ParquetRows {
    fn new(table: &Table, decimals: Decimals) -> ParquetRows {
        let field = |name: &str, kind: CellType| Field::new(name, data_type(kind, decimals), false);
        let fields: Vec<Field> = table.columns.iter().map(|column| field(column.name, column.kind)).collect();
        let columns = table.columns.iter().map(|column| Values::of(column.kind, decimals)).collect();
        ParquetRows { schema: Arc::new(Schema::new(fields)), columns, rows: 0 }
    }

    fn push(&mut self, row: &[Cell<'_>]) {
        self.columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(*cell));
        self.rows += 1;
    }

    /// Writes and counts the rows, and empties the batch.
    fn write(
        &mut self,
        writer: &mut ArrowWriter<File>,
        index: usize,
        shared: &FillState,
    ) -> Result<(), ParquetError> {
        let columns = self.columns.iter_mut().map(Values::take).collect();
        let before = writer.bytes_written();
        writer.write(&RecordBatch::try_new(self.schema.clone(), columns)?)?;
        let rows = std::mem::take(&mut self.rows);
        shared.add(index, rows as u64, (writer.bytes_written() - before) as u64, 0);
        Ok(())
    }
}

/// Returns the Arrow type of a column. It determines the Parquet type.
fn data_type(kind: CellType, decimals: Decimals) -> DataType {
    match (kind, decimals) {
        (CellType::Small, _) => DataType::Int16,
        (CellType::Int, _) => DataType::Int32,
        (CellType::Big, _) => DataType::Int64,
        (CellType::Hundredths, Decimals::Decimal) => DataType::Decimal128(DIGITS.0, DIGITS.1),
        (CellType::Hundredths, Decimals::Double) => DataType::Float64,
        (CellType::Date, _) => DataType::Date32,
        (CellType::Timestamp, _) => DataType::Timestamp(TimeUnit::Millisecond, None),
        (CellType::Text, _) => DataType::Utf8,
    }
}

/// Collected values of a column.
enum Values {
    Small(Vec<i16>),
    Int(Vec<i32>),
    Big(Vec<i64>),
    Decimal(Vec<i128>),
    Double(Vec<f64>),
    Date(Vec<i32>),
    Timestamp(Vec<i64>),
    Text(StringBuilder),
}

impl Values {
    fn of(kind: CellType, decimals: Decimals) -> Values {
        match (kind, decimals) {
            (CellType::Small, _) => Values::Small(Vec::new()),
            (CellType::Int, _) => Values::Int(Vec::new()),
            (CellType::Big, _) => Values::Big(Vec::new()),
            (CellType::Hundredths, Decimals::Decimal) => Values::Decimal(Vec::new()),
            (CellType::Hundredths, Decimals::Double) => Values::Double(Vec::new()),
            (CellType::Date, _) => Values::Date(Vec::new()),
            (CellType::Timestamp, _) => Values::Timestamp(Vec::new()),
            (CellType::Text, _) => Values::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Values::Small(values), Cell::Small(value)) => values.push(value),
            (Values::Int(values), Cell::Int(value)) => values.push(value),
            (Values::Big(values), Cell::Big(value)) => values.push(value),
            (Values::Decimal(values), Cell::Hundredths(value)) => values.push(i128::from(value)),
            (Values::Double(values), Cell::Hundredths(value)) => values.push(value as f64 / 100.0),
            (Values::Date(values), Cell::Date(days)) => values.push(days),
            (Values::Timestamp(values), Cell::Timestamp(ms)) => values.push(ms),
            (Values::Text(values), Cell::Text(text)) => values.append_value(text),
            (_, cell) => unreachable!("{cell:?} in a column of another kind"),
        }
    }

    /// Returns the column as an Arrow array, and empties it.
    fn take(&mut self) -> ArrayRef {
        use std::mem::take;
        match self {
            Values::Small(values) => Arc::new(Int16Array::from(take(values))),
            Values::Int(values) => Arc::new(Int32Array::from(take(values))),
            Values::Big(values) => Arc::new(Int64Array::from(take(values))),
            Values::Decimal(values) => {
                let array = Decimal128Array::from(take(values)).with_precision_and_scale(DIGITS.0, DIGITS.1);
                Arc::new(array.expect("precision 15 and scale 2 are valid"))
            }
            Values::Double(values) => Arc::new(Float64Array::from(take(values))),
            Values::Date(values) => Arc::new(Date32Array::from(take(values))),
            Values::Timestamp(values) => Arc::new(TimestampMillisecondArray::from(take(values))),
            Values::Text(values) => Arc::new(values.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fill::{Fill, FillTarget};
    use super::super::{Column, Each};
    use super::*;
    use crate::run::StopFlag;

    /// A table without an end, whose second row sets the stop flag.
    struct Endless {
        stop: StopFlag,
        tables: [Table; 1],
    }

    impl TableSource for Endless {
        fn tables(&self) -> &[Table] {
            &self.tables
        }

        fn make(&self, _table: usize, _chunk: u64, _chunks: u64, each: Each<'_>) {
            while each(&[Cell::Timestamp(0)]).is_continue() {
                self.stop.set();
            }
        }
    }

    #[test]
    fn unfinished_file_is_removed() {
        let folder = std::env::temp_dir().join(format!("fairlane-unfinished-{}", std::process::id()));
        let columns = &[Column { name: "at", kind: CellType::Timestamp }];
        let table = Table { name: "endless", columns, key: "at", rows: 1, batch_columns: 0 };
        let source = Endless { stop: StopFlag::new(), tables: [table] };
        let target = FillTarget::Parquet(folder.clone());
        let fill = Fill { source: &source, tables: vec![0], target, decimals: Decimals::default() };
        let (filled, failure) = fill.run(&source.stop, |_, _, _| ());
        assert!(failure.is_none() && !filled.complete);
        assert_eq!((filled.tables[0].rows, filled.tables[0].bytes), (0, 0));
        assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
        std::fs::remove_dir(&folder).expect("the folder is empty");
    }
}
