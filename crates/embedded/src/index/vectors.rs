//! Columns of vectors with an index: their values, and the vectors of rows that are written.

use std::rc::Rc;

use bytes::Bytes;
use engine::Error;
use functions::Similarity;
use schema::{ColumnKind, CqlType, IndexDef, TableDef};
use storage::{Change, Mutation, TableId};

use crate::index::entry::{self, Place};
use crate::index::graph::VectorGraph;

/// Option with the measure of an index on vectors.
pub(crate) const SIMILARITY_OPTION: &str = "similarity_function";

/// A column of vectors whose rows are found by a graph.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct VectorColumn {
    /// Data of the table.
    pub(crate) table: TableId,
    /// Data of the index, by which the graph is known.
    pub(crate) data: TableId,
    /// Number of the column.
    pub(crate) column: u32,
    pub(crate) dimension: usize,
    pub(crate) similarity: Similarity,
}

/// Returns true for vectors of floats.
pub(crate) fn is_of_floats(ty: &CqlType) -> bool {
    matches!(ty.thawed(), CqlType::Vector(element, _) if **element == CqlType::Float)
}

/// Returns the measure with a name of the option. `None`: there is none of this name.
pub(crate) fn similarity_named(name: &str) -> Option<Similarity> {
    match name.to_ascii_uppercase().as_str() {
        "COSINE" => Some(Similarity::Cosine),
        "DOT_PRODUCT" => Some(Similarity::DotProduct),
        "EUCLIDEAN" => Some(Similarity::Euclidean),
        _ => None,
    }
}

/// Returns the measure of an index on vectors. `None`: it is another index.
pub(crate) fn similarity_of(def: &TableDef, index: &IndexDef) -> Option<Similarity> {
    let (_, column) = def.column(&index.column)?;
    if !index.is_storage_attached() || !is_of_floats(&column.ty) {
        return None;
    }
    match index.options.get(SIMILARITY_OPTION) {
        Some(name) => similarity_named(name),
        None => Some(Similarity::Cosine),
    }
}

/// Returns the columns of a table that have graphs. Vectors of static columns and of keys are
/// searched exactly: each of them belongs to many rows, or to one.
pub(crate) fn columns_of(def: &TableDef) -> Vec<VectorColumn> {
    let column = |index: &IndexDef| {
        let similarity = similarity_of(def, index)?;
        let (_, column) = def.column(&index.column)?;
        let CqlType::Vector(_, dimension) = column.ty.thawed() else { return None };
        (column.kind == ColumnKind::Regular).then(|| VectorColumn {
            table: TableId(def.data_id().as_u128()),
            data: TableId(index.data.as_u128()),
            column: column.id,
            dimension: *dimension as usize,
            similarity,
        })
    };
    def.indexes.iter().filter_map(column).collect()
}

/// Returns the floats of a serialized vector.
pub(crate) fn floats(vector: &[u8]) -> impl Iterator<Item = f32> {
    vector.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes))
}

/// Checks a vector that is stored or searched under an index.
///
/// # Errors
/// It has a number that is not finite, or no direction to take the cosine of.
pub(crate) fn check_vector(similarity: Similarity, vector: &[u8]) -> Result<(), Error> {
    for (at, number) in floats(vector).enumerate() {
        if !number.is_finite() {
            let shown = match number {
                _ if number.is_nan() => "NaN",
                _ if number > 0.0 => "Infinity",
                _ => "-Infinity",
            };
            return Err(Error::Invalid(format!("non-finite value at vector[{at}]={shown}")));
        }
    }
    if similarity == Similarity::Cosine && floats(vector).map(|x| x * x).sum::<f32>() == 0.0 {
        return Err(Error::Invalid(
            "Zero vectors cannot be indexed or queried with cosine similarity".into(),
        ));
    }
    Ok(())
}

/// Checks the vectors in changes of a table, if it has indexes on vectors.
///
/// # Errors
/// Returns the errors of [`check_vector`].
pub(super) fn check_vectors(def: &TableDef, changes: &[Change]) -> Result<(), Error> {
    for index in &def.indexes {
        let Some(similarity) = similarity_of(def, index) else { continue };
        let Some((_, column)) = def.column(&index.column) else { continue };
        for change in changes {
            let (Change::Row(row) | Change::Static(row)) = change else { continue };
            for cell in row.cells().filter(|cell| cell.column == column.id) {
                cell.value().map_or(Ok(()), |vector| check_vector(similarity, vector))?;
            }
        }
    }
    Ok(())
}

/// Vector of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WrittenVector {
    /// Place of the row, encoded as an entry without a class.
    pub(crate) place: Bytes,
    /// The vector, serialized. `None`: the row may have lost the one it had.
    pub(crate) vector: Option<Bytes>,
}

impl WrittenVector {
    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<WrittenVector>() + self.place.len() + self.vector.as_ref().map_or(0, Bytes::len)
    }
}

/// Returns the encoded place of a row.
pub(crate) fn place_of(token: i64, key: &[u8], row: &[u8]) -> Bytes {
    entry::new(Place { token, key, row: Some(row) }, None).0.into()
}

/// Vectors of a write that is being applied. When it is dropped, the write was applied or has
/// failed, and the graphs learn of the rows. They read them before they believe it.
#[derive(Default)]
pub(crate) struct Writing(Vec<(Rc<VectorGraph>, Option<WrittenVector>)>);

impl Writing {
    /// Adds the rows of a mutation whose vector changes.
    pub(crate) fn add(&mut self, graph: &Rc<VectorGraph>, mutation: &Mutation) {
        let (token, key, column) = (mutation.token, &mutation.key[..], graph.column.column);
        for change in &mutation.changes {
            let Change::Row(row) = change else {
                // A search that finds rows of a deleted partition or range reports them.
                self.0.push((graph.clone(), None));
                continue;
            };
            let cell = row.cells().find(|cell| cell.column == column);
            if cell.is_none() && row.deletion().is_none() {
                continue;
            }
            let vector = cell.and_then(|cell| cell.value().map(Bytes::copy_from_slice));
            let place = place_of(token, key, row.clustering());
            self.0.push((graph.clone(), Some(WrittenVector { place, vector })));
            lanes::count(1);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        for (graph, written) in self.0.drain(..) {
            match written {
                Some(written) => graph.push(written),
                None => graph.note_write(),
            }
        }
    }
}
