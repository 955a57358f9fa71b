//! Tables as CSV files: `TABLE.csv` with a header, and `schema.sql`, which creates and fills the
//! tables in DuckDB if run in that folder. There are no nulls. An empty text is a quoted field.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use super::fill::FillState;
use super::{Decimals, Table, TableSource, chunks};
use crate::LoadError;

/// Write buffer, bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Returns the error for a failed file or folder.
pub(crate) fn failed(path: &Path, error: &std::io::Error) -> LoadError {
    LoadError::File { path: path.display().to_string(), reason: error.to_string() }
}

/// Returns the contents of `schema.sql`.
pub(crate) fn schema(tables: &[&Table], decimals: Decimals) -> String {
    let mut out = String::new();
    for table in tables {
        let columns: Vec<String> = table
            .columns
            .iter()
            .map(|column| format!("    {} {}", column.name, column.kind.sql(decimals)))
            .collect();
        out += &format!("CREATE TABLE {} (\n{}\n);\n", table.name, columns.join(",\n"));
        out += &format!(
            "COPY {0} FROM '{0}.csv' (HEADER, DELIMITER ',', QUOTE '\"', ALLOW_QUOTED_NULLS false);\n\n",
            table.name
        );
    }
    out
}

/// Writes one table as a file of the folder.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn write(
    source: &dyn TableSource,
    index: usize,
    folder: &Path,
    shared: &FillState,
) -> Result<(), LoadError> {
    let table = &source.tables()[index];
    let path = folder.join(format!("{}.csv", table.name));
    let file = File::create(&path).map_err(|error| failed(&path, &error))?;
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let mut outcome = writeln!(file, "{}", names.join(","));
    let mut line = String::new();
    for chunk in 0..chunks(table) {
        let mut rows = 0;
        let mut bytes = 0;
        source.make(index, chunk, chunks(table), &mut |row| {
            line.clear();
            for cell in row {
                cell.print(&mut line);
                line.push(',');
            }
            line.pop();
            line.push('\n');
            if outcome.is_ok() {
                outcome = file.write_all(line.as_bytes());
            }
            (rows, bytes) = (rows + 1, bytes + line.len() as u64);
            if outcome.is_err() || shared.stopped() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        shared.add(index, rows, bytes, 0);
        if outcome.is_err() || shared.stopped() {
            break;
        }
    }
    outcome.and_then(|()| file.flush()).map_err(|error| failed(&path, &error))
}

/// Creates the folder and `schema.sql` in it.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn begin(folder: &Path, tables: &[&Table], decimals: Decimals) -> Result<(), LoadError> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let path = folder.join("schema.sql");
    std::fs::write(&path, schema(tables, decimals)).map_err(|error| failed(&path, &error))
}
