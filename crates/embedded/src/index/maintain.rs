//! Entries of what is written: from the changes of a partition, or from a row that is stored, to
//! the mutations of its indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use schema::{Analysis, ClusteringOrder, ColumnKind, CqlType, IndexDef, IndexedPart, TableDef, token, value};
use storage::{CellRef, Change, Liveness, Mutation, TableId};
use uuid::Uuid;

use crate::index::entry::{
    Entry, Life, NewEntry, Place, VALUE_BYTES_MAX, bucket_key, longer, new, new_ordered, with_class,
    without_class, written,
};
use crate::index::vectors::{VectorColumn, columns_of, similarity_of};
use crate::index::view::ViewKeys;

/// A table with indexes or views.
pub(crate) struct IndexedTable {
    pub(crate) def: Arc<TableDef>,
    indexes: Box<[Index]>,
    views: Box<[ViewKeys]>,
    /// Columns of vectors, whose indexes have graphs and no entries.
    pub(crate) vectors: Box<[VectorColumn]>,
}

/// An index, with the place of its values in rows.
struct Index {
    data: TableId,
    source: Source,
    part: IndexedPart,
    ty: CqlType,
    analysis: Analysis,
    /// True if it has entries in the order of values, too.
    finds_ranges: bool,
    /// True if it has no entries of empty numbers and the like, as Cassandra's.
    skips_empty: bool,
}

/// Place of the indexed values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// Component of the partition key.
    PartitionKey(usize),
    /// Component of the clustering key.
    Clustering(usize),
    /// Static cells of the column with this number.
    Static(u32),
    /// Cells of the column with this number.
    Regular(u32),
}

/// Contents of a row, or of the static cells of a partition.
#[derive(Clone, Copy)]
pub(crate) struct RowFacts<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) marker: Option<Liveness>,
}

impl IndexedTable {
    pub(crate) fn of(def: Arc<TableDef>) -> IndexedTable {
        let index = |index: &IndexDef| {
            let (_, column) = def.column(&index.column)?;
            if similarity_of(&def, index).is_some() {
                return None;
            }
            let source = match column.kind {
                ColumnKind::PartitionKey(at) => Source::PartitionKey(at),
                ColumnKind::Clustering(at, _) => Source::Clustering(at),
                ColumnKind::Static => Source::Static(column.id),
                ColumnKind::Regular => Source::Regular(column.id),
            };
            let data = TableId(index.data.as_u128());
            let (finds_ranges, analysis) = (index.finds_ranges(&column.ty), index.analysis());
            let has_empty = matches!(column.ty.thawed(), CqlType::Text | CqlType::Ascii);
            let skips_empty = index.is_storage_attached() && index.part == IndexedPart::Value && !has_empty;
            let (part, ty) = (index.part, column.ty.clone());
            Some(Index { data, source, part, ty, analysis, finds_ranges, skips_empty })
        };
        let indexes = def.indexes.iter().filter_map(index).collect();
        let vectors = columns_of(&def).into();
        let views = def.views.iter().map(|view| ViewKeys::of(&def, view)).collect();
        IndexedTable { def, indexes, views, vectors }
    }

    /// Returns the table with one of its indexes or views alone.
    pub(crate) fn with_only(def: &Arc<TableDef>, data: Uuid) -> IndexedTable {
        let mut table = IndexedTable::of(def.clone());
        let data = TableId(data.as_u128());
        table.indexes = table.indexes.into_iter().filter(|index| index.data == data).collect();
        table.views = table.views.into_iter().filter(|view| view.data == data).collect();
        table
    }

    /// Returns true if an index of the table has this data.
    pub(crate) fn has(&self, index: TableId) -> bool {
        self.indexes.iter().any(|own| own.data == index)
    }

    /// Returns true if its first index is on a component of the partition key.
    pub(crate) fn is_of_partition_key(&self) -> bool {
        self.indexes.first().is_some_and(|index| matches!(index.source, Source::PartitionKey(_)))
    }
}

/// Appends a value as the key of an index. An empty value, and one with empty values inside, has no
/// encoding as a key. Its bytes serve: entries are looked up by equality, and each row is checked.
pub(crate) fn key_of(ty: &CqlType, bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if value::encode_key_part(ty, bytes, false, out).is_err() {
        out.truncate(start);
        out.push(0);
        out.extend_from_slice(bytes);
    }
}

/// Appends the term of a value as the key of an index with this analysis.
pub(crate) fn term_of(analysis: Analysis, ty: &CqlType, bytes: &[u8], out: &mut Vec<u8>) {
    match analysis.is_none() {
        true => key_of(ty, bytes, out),
        false => key_of(ty, analysis.term(&String::from_utf8_lossy(bytes)).as_bytes(), out),
    }
}

/// Appends the term of a member or key, whose key encoding is `path`.
fn term_of_path(analysis: Analysis, ty: &CqlType, path: &[u8], out: &mut Vec<u8>) {
    let (mut rest, mut bytes) = (path, Vec::new());
    if analysis.is_none() || value::decode_key_part(ty, false, &mut rest, &mut bytes).is_err() {
        out.extend_from_slice(path);
    } else {
        term_of(analysis, ty, &bytes, out);
    }
}

impl Index {
    /// Returns the indexed value of a live cell of the column.
    fn value_of(&self, cell: &CellRef<'_>, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.skips_empty && bytes.is_empty() {
            return None;
        }
        let (mut out, analysis) = (Vec::new(), self.analysis);
        match (self.part, cell.path) {
            (IndexedPart::Value | IndexedPart::Full, None) => term_of(analysis, &self.ty, bytes, &mut out),
            (IndexedPart::Keys, Some(path)) => match self.ty.thawed() {
                CqlType::Map(of, _) => term_of_path(analysis, of, path, &mut out),
                _ => return None,
            },
            (IndexedPart::Values, Some(path)) => match self.ty.thawed() {
                CqlType::Set(of) => term_of_path(analysis, of, path, &mut out),
                CqlType::List(of) | CqlType::Map(_, of) => term_of(analysis, of, bytes, &mut out),
                _ => return None,
            },
            (IndexedPart::Entries, Some(path)) => {
                let CqlType::Map(_, of) = self.ty.thawed() else { return None };
                out.extend_from_slice(path);
                key_of(of, bytes, &mut out);
            }
            _ => return None,
        }
        Some(out)
    }

    /// Returns the indexed component of the row's key.
    fn key_value(&self, def: &TableDef, place: &Place<'_>) -> Option<Vec<u8>> {
        let (mut out, mut bytes) = (Vec::new(), Vec::new());
        match self.source {
            Source::PartitionKey(at) => {
                let count = def.partition_key().count();
                let part = token::partition_key_components(count, place.key).nth(at)?.ok()?;
                key_of(&self.ty, part, &mut out);
            }
            Source::Clustering(at) => {
                let mut rest = place.row.filter(|row| !row.is_empty())?;
                for column in def.clustering().take(at + 1) {
                    bytes.clear();
                    let is_descending =
                        matches!(column.kind, ColumnKind::Clustering(_, ClusteringOrder::Desc));
                    value::decode_key_part(&column.ty, is_descending, &mut rest, &mut bytes).ok()?;
                }
                key_of(&self.ty, &bytes, &mut out);
            }
            Source::Static(_) | Source::Regular(_) => return None,
        }
        Some(out)
    }
}

/// Entries to write, by index and partition of the index.
#[derive(Default)]
pub(crate) struct Entries {
    found: BTreeMap<(TableId, Vec<u8>), Vec<NewEntry>>,
    /// Number of entries, and bytes of their keys.
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

impl Entries {
    /// Adds the entries of a mutation.
    pub(crate) fn add(&mut self, table: &IndexedTable, mutation: &Mutation) {
        let (token, key) = (mutation.token, &mutation.key[..]);
        for change in &mutation.changes {
            match change {
                Change::Row(row) => {
                    let place = Place { token, key, row: Some(row.clustering()) };
                    self.row(table, RowFacts { place, marker: row.marker() }, row.cells());
                }
                Change::Static(row) => {
                    let place = Place { token, key, row: None };
                    self.row(table, RowFacts { place, marker: None }, row.cells());
                }
                Change::DeletePartition(_) | Change::DeleteRange { .. } => {}
            }
        }
    }

    /// Adds the entries of a row, or of static cells.
    pub(crate) fn row<'c>(
        &mut self,
        table: &IndexedTable,
        facts: RowFacts<'_>,
        cells: impl Iterator<Item = CellRef<'c>>,
    ) {
        let RowFacts { place, marker } = facts;
        let mut life: Option<Life> = marker.map(|marker| marker.expiry);
        let is_static = place.row.is_none();
        for cell in cells {
            let Some(bytes) = cell.value() else { continue };
            life = Some(life.map_or(cell.expiry(), |life| longer(life, cell.expiry())));
            let of = if is_static { Source::Static(cell.column) } else { Source::Regular(cell.column) };
            for index in table.indexes.iter().filter(|index| index.source == of) {
                if let Some(value) = index.value_of(&cell, bytes) {
                    self.push(index, value, place, cell.expiry());
                }
            }
            let is_value = |view: &&ViewKeys| view.is_keyed_by(&cell) && !is_static;
            for view in table.views.iter().filter(is_value) {
                self.view(table, view, place, Some(bytes), cell.expiry());
            }
        }
        let Some(life) = life else { return };
        for index in &table.indexes {
            let place = match index.source {
                Source::PartitionKey(_) => Place { row: None, ..place },
                Source::Clustering(_) => place,
                Source::Static(_) | Source::Regular(_) => continue,
            };
            if let Some(value) = index.key_value(&table.def, &place) {
                self.push(index, value, place, life);
            }
        }
        for view in table.views.iter().filter(|view| view.value.is_none()) {
            self.view(table, view, place, None, life);
        }
    }

    /// Adds the entry of a row in a view, if the view has the row.
    fn view(
        &mut self,
        table: &IndexedTable,
        view: &ViewKeys,
        place: Place<'_>,
        value: Option<&[u8]>,
        life: Life,
    ) {
        let Some((key, clustering)) = view.entry(&table.def, place, value) else { return };
        self.insert(view.data, key, with_class(clustering, life));
    }

    fn push(&mut self, index: &Index, mut value: Vec<u8>, place: Place<'_>, life: Life) {
        value.truncate(VALUE_BYTES_MAX);
        if index.finds_ranges {
            let entry = new_ordered(&value, place, life);
            self.insert(index.data, bucket_key(place.token).to_vec(), entry);
        }
        self.insert(index.data, value, new(place, life));
    }

    fn insert(&mut self, data: TableId, partition: Vec<u8>, entry: NewEntry) {
        self.count += 1;
        self.bytes += partition.len() + entry.0.len();
        self.found.entry((data, partition)).or_default().push(entry);
        lanes::count(1);
    }

    /// Returns true if an entry of the index is among them, perhaps in another class.
    pub(crate) fn has(&self, index: TableId, entry: &Entry) -> bool {
        let found = self.found.get(&(index, entry.partition.to_vec()));
        found.is_some_and(|all| all.iter().any(|(own, _)| without_class(own) == entry.without_class()))
    }

    /// Adds the mutations that write the entries at `timestamp`, in microseconds.
    pub(crate) fn finish(self, timestamp: i64, out: &mut Vec<Mutation>) {
        out.extend(self.found.into_iter().map(|((table, value), entries)| Mutation {
            table,
            token: token::token(&value),
            key: Bytes::from(value),
            changes: entries.iter().map(|(clustering, life)| written(clustering, *life, timestamp)).collect(),
        }));
    }
}
