//! Entries of what is written: from the changes of a partition, or from a row that is stored, to
//! the mutations of its indexes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use schema::{Analysis, ClusteringOrder, ColumnKind, CqlType, IndexDef, IndexedPart, TableDef, token, value};
use storage::{CellRef, Change, Liveness, Mutation, TableId};
use uuid::Uuid;

use crate::index::entry::{
    Life, NewEntry, Place, VALUE_BYTES_MAX, bucket_key, longer, new, new_ordered, value_key, with_class,
    written,
};
use crate::index::vectors::{VectorColumn, columns_of, similarity_of};
use crate::index::view::{ViewKeys, ViewSource};

/// Cells whose entries are made in one task poll, at most: 50 µs, and 8 MiB of entries with keys of
/// 64 KiB.
pub(crate) const CELLS_AT_ONCE: usize = 64;

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
            let (finds_ranges, analysis) = (index.finds_ranges(&column.ty), index.analysis(&column.ty));
            let skips_empty = index.skips_empty(&column.ty);
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

    /// Returns true if an index or a view of the table has this data.
    pub(crate) fn has(&self, data: TableId) -> bool {
        self.indexes.iter().any(|own| own.data == data) || self.views.iter().any(|view| view.data == data)
    }

    /// Returns true if the index with this data has entries in the order of values, too.
    pub(crate) fn finds_ranges(&self, data: TableId) -> bool {
        self.indexes.iter().any(|own| own.data == data && own.finds_ranges)
    }

    /// Returns the view with this data. `None`: it is an index.
    pub(crate) fn view(&self, data: TableId) -> Option<Arc<ViewSource>> {
        let keys = self.views.iter().find(|view| view.data == data)?.clone();
        Some(Arc::new(ViewSource { base: self.def.clone(), keys }))
    }

    /// Returns true if its first index is on a component of the partition key.
    pub(crate) fn is_of_partition_key(&self) -> bool {
        self.indexes.first().is_some_and(|index| matches!(index.source, Source::PartitionKey(_)))
    }
}

/// Appends a value as the key of an index. An empty value, and one with empty values inside, has no
/// encoding as a key. All of them have one key, because equal ones may differ in their bytes, and
/// each row is checked.
pub(crate) fn key_of(ty: &CqlType, bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if value::encode_key_part(ty, bytes, false, out).is_err() {
        out.truncate(start);
        out.push(0);
    }
}

/// Appends the term of a value as the key of an index with this analysis.
pub(crate) fn term_of(analysis: Analysis, ty: &CqlType, bytes: &[u8], out: &mut Vec<u8>) {
    match analysis.is_none() {
        true => key_of(ty, bytes, out),
        false => key_of(ty, &analysis.value(bytes), out),
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
                term_of(self.analysis, &self.ty, part, &mut out);
            }
            Source::Clustering(at) => {
                let mut rest = place.row.filter(|row| !row.is_empty())?;
                for column in def.clustering().take(at + 1) {
                    bytes.clear();
                    let is_descending =
                        matches!(column.kind, ColumnKind::Clustering(_, ClusteringOrder::Desc));
                    value::decode_key_part(&column.ty, is_descending, &mut rest, &mut bytes).ok()?;
                }
                term_of(self.analysis, &self.ty, &bytes, &mut out);
            }
            Source::Static(_) | Source::Regular(_) => return None,
        }
        Some(out)
    }
}

/// Occurrence of a row, or of a partition, in an index or a view.
enum Named<'a> {
    Value(&'a Index, Vec<u8>),
    /// With the value of the column outside the base's key.
    Row(&'a ViewKeys, Option<&'a [u8]>),
}

impl IndexedTable {
    /// Calls `found` with each occurrence of a row, or of static cells, in the indexes and views.
    fn each<'c>(
        &self,
        facts: RowFacts<'_>,
        cells: impl Iterator<Item = CellRef<'c>>,
        mut found: impl FnMut(Named<'_>, Place<'_>, Life),
    ) {
        let RowFacts { place, marker } = facts;
        let mut life: Option<Life> = marker.map(|marker| marker.expiry);
        let is_static = place.row.is_none();
        for cell in cells {
            let Some(bytes) = cell.value() else { continue };
            life = Some(life.map_or(cell.expiry(), |life| longer(life, cell.expiry())));
            let of = if is_static { Source::Static(cell.column) } else { Source::Regular(cell.column) };
            for index in self.indexes.iter().filter(|index| index.source == of) {
                if let Some(value) = index.value_of(&cell, bytes) {
                    found(Named::Value(index, value), place, cell.expiry());
                }
            }
            let is_value = |view: &&ViewKeys| view.is_keyed_by(&cell) && !is_static;
            for view in self.views.iter().filter(is_value) {
                found(Named::Row(view, Some(bytes)), place, cell.expiry());
            }
        }
        let Some(life) = life else { return };
        for index in &self.indexes {
            let place = match index.source {
                Source::PartitionKey(_) => Place { row: None, ..place },
                Source::Clustering(_) => place,
                Source::Static(_) | Source::Regular(_) => continue,
            };
            if let Some(value) = index.key_value(&self.def, &place) {
                found(Named::Value(index, value), place, life);
            }
        }
        for view in self.views.iter().filter(|view| view.value.is_none()) {
            found(Named::Row(view, None), place, life);
        }
    }

    /// Removes the values that the table's only index has of a row, or of static cells, from
    /// `wanted`. Yields if there are many cells.
    pub(crate) async fn remove_values<'c>(
        &self,
        facts: RowFacts<'_>,
        cells: impl Iterator<Item = CellRef<'c>>,
        wanted: &mut HashSet<Vec<u8>>,
    ) {
        let mut cells = cells.peekable();
        loop {
            self.each(facts, cells.by_ref().take(CELLS_AT_ONCE), |named, _, _| {
                if let Named::Value(_, mut value) = named {
                    value.truncate(VALUE_BYTES_MAX);
                    wanted.remove(&value);
                }
            });
            if cells.peek().is_none() || wanted.is_empty() {
                return;
            }
            if lanes::spend(CELLS_AT_ONCE as u32) {
                lanes::yield_now().await;
            }
        }
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

/// Returns the facts of a changed row, or of changed static cells, with its cells.
pub(crate) fn changed_row<'m>(
    mutation: &'m Mutation,
    change: &'m Change,
) -> Option<(RowFacts<'m>, impl Iterator<Item = CellRef<'m>>)> {
    let (row, is_static) = match change {
        Change::Row(row) => (row, false),
        Change::Static(row) => (row, true),
        Change::DeletePartition(_) | Change::DeleteRange { .. } => return None,
    };
    let place = Place {
        token: mutation.token,
        key: &mutation.key,
        row: if is_static { None } else { Some(row.clustering()) },
    };
    let marker = if is_static { None } else { row.marker() };
    Some((RowFacts { place, marker }, row.cells()))
}

impl Entries {
    /// Adds the entries of a mutation.
    pub(crate) fn add(&mut self, table: &IndexedTable, mutation: &Mutation) {
        for change in &mutation.changes {
            if let Some((facts, cells)) = changed_row(mutation, change) {
                self.row(table, facts, cells);
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
        table.each(facts, cells, |named, place, life| match named {
            Named::Value(index, value) => self.push(index, &value, place, life),
            Named::Row(view, value) => {
                if let Some((key, clustering)) = view.entry(&table.def, place, value) {
                    self.insert(view.data, key, with_class(clustering, life));
                }
            }
        });
    }

    fn push(&mut self, index: &Index, value: &[u8], place: Place<'_>, life: Life) {
        if index.finds_ranges {
            let value = &value[..value.len().min(VALUE_BYTES_MAX)];
            let entry = new_ordered(value, place, life);
            self.insert(index.data, bucket_key(place.token).to_vec(), entry);
        }
        self.insert(index.data, value_key(value, index.finds_ranges), new(place, life));
    }

    fn insert(&mut self, data: TableId, partition: Vec<u8>, entry: NewEntry) {
        self.count += 1;
        self.bytes += partition.len() + entry.0.len();
        self.found.entry((data, partition)).or_default().push(entry);
        lanes::count(1);
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
