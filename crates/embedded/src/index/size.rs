//! Limits of indexed values, which writes keep before anything is applied. As in Cassandra, indexes
//! without a class refuse large ones, and storage-attached ones accept them.

use engine::Error;
use schema::{ColumnDef, ColumnKind, CqlType, IndexDef, IndexedPart, TableDef, value};
use storage::{CellRef, Change};

use crate::index::vectors::check_vectors;

/// Bytes of a value from which an index without a class refuses it.
const VALUE_BYTES_END: usize = 65_535;

/// Bytes of a cell, with its path, below which no value is too large. A path has at most twice the
/// bytes of its element.
const SMALL_BYTES: usize = VALUE_BYTES_END - 100;

/// Bytes of the lengths and ends in an entry of a map, as Cassandra counts it.
const ENTRY_BYTES: usize = 6;

/// Checks the changes of a write to a table with indexes.
///
/// # Errors
/// An indexed value is too large, or a vector has no place among others.
pub(crate) fn check_indexed(def: &TableDef, changes: &[Change]) -> Result<(), Error> {
    check_sizes(def, changes)?;
    check_vectors(def, changes)
}

fn check_sizes(def: &TableDef, changes: &[Change]) -> Result<(), Error> {
    for change in changes {
        let (Change::Row(row) | Change::Static(row)) = change else { continue };
        for cell in row.cells() {
            let Some(bytes) = cell.value() else { continue };
            if bytes.len() + cell.path.map_or(0, <[u8]>::len) > SMALL_BYTES {
                check_cell(def, &cell, bytes)?;
            }
        }
    }
    Ok(())
}

fn check_cell(def: &TableDef, cell: &CellRef<'_>, bytes: &[u8]) -> Result<(), Error> {
    let has_cells = |column: &&ColumnDef| matches!(column.kind, ColumnKind::Regular | ColumnKind::Static);
    let mut columns = def.columns.iter().filter(has_cells);
    let Some(column) = columns.find(|column| column.id == cell.column) else { return Ok(()) };
    let is_own = |index: &&IndexDef| index.column == column.name && !index.is_storage_attached();
    for index in def.indexes.iter().filter(is_own) {
        let size = indexed_bytes(column, index.part, cell.path.unwrap_or_default(), bytes);
        if size >= VALUE_BYTES_END {
            return Err(Error::Invalid(format!(
                "Cannot index value of size {size} for index {} on {}.{}({}) (maximum allowed size={VALUE_BYTES_END})",
                index.name, def.keyspace, def.name, column.name
            )));
        }
    }
    Ok(())
}

/// Returns the size of the indexed part of a cell in bytes.
fn indexed_bytes(column: &ColumnDef, part: IndexedPart, path: &[u8], bytes: &[u8]) -> usize {
    let of_path = |ty: &CqlType| {
        let (mut rest, mut out) = (path, Vec::new());
        let decoded = value::decode_key_part(ty, false, &mut rest, &mut out);
        decoded.map_or(path.len(), |()| out.len())
    };
    match (part, column.ty.thawed()) {
        (IndexedPart::Keys, CqlType::Map(of, _)) | (IndexedPart::Values, CqlType::Set(of)) => of_path(of),
        (IndexedPart::Entries, CqlType::Map(of, _)) => of_path(of) + bytes.len() + ENTRY_BYTES,
        _ => bytes.len(),
    }
}
