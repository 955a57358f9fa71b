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

/// Bytes of places in the entries of one row that a write makes, at most: as many as a batch may
/// write. A key of 64 KiB and 65,535 elements would have 4 GiB of them.
const PLACE_BYTES_MAX: usize = 64 << 20;

/// Bytes of the lengths and ends in an entry of a map, as Cassandra counts it.
const ENTRY_BYTES: usize = 6;

/// Checks the changes of a write to a partition of a table with indexes.
///
/// # Errors
/// An indexed value is too large, the entries of a row are, or a vector has no place among others.
pub(crate) fn check_indexed(def: &TableDef, key: &[u8], changes: &[Change]) -> Result<(), Error> {
    for change in changes {
        let (Change::Row(row) | Change::Static(row)) = change else { continue };
        let mut count = 0;
        for cell in row.cells() {
            let Some(bytes) = cell.value() else { continue };
            count += 1;
            if bytes.len() + cell.path.map_or(0, <[u8]>::len) > SMALL_BYTES {
                check_cell(def, &cell, bytes)?;
            }
        }
        let place = key.len() + row.clustering().len();
        if place * count > PLACE_BYTES_MAX {
            check_places(def, place, row.cells())?;
        }
    }
    check_vectors(def, changes)
}

/// Checks the entries of a row whose place has this many bytes.
fn check_places<'c>(
    def: &TableDef,
    place: usize,
    cells: impl Iterator<Item = CellRef<'c>>,
) -> Result<(), Error> {
    let indexed = |index: &IndexDef| Some(def.column(&index.column)?.1.id);
    let indexed: Vec<u32> = def.indexes.iter().filter_map(indexed).collect();
    let entries = |cell: CellRef<'_>| indexed.iter().filter(|id| **id == cell.column).count();
    let bytes = place * cells.filter(|cell| cell.value().is_some()).map(entries).sum::<usize>();
    if bytes > PLACE_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "expected at most {PLACE_BYTES_MAX} bytes of index entries for the elements of one row, got {bytes}: write \
             fewer elements at a time, or use a shorter key"
        )));
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
