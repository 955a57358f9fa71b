//! Materialized views: the keys of their rows, and the entries that name rows of the base table.
//!
//! A view is a table of storage like an index. Its partitions are those of the view, so that a scan
//! of it has the order of the view's tokens. Its rows are entries. An entry has no cells: a reader
//! takes them from the row of the base table, which is on the same core.
//!
//! ```text
//! partition key   that of the view
//! clustering key  view's clustering columns │ partition key of the base │ its clustering key │
//!                 bytes of the first part u32 │ bytes of the second part u16 │ class u32
//! ```
//!
//! All but the class is the *place* of a row: its position in the order of the view. The lengths
//! belong to it, because one key of the base may be the beginning of another.
//! The base's keys are in the entry in full. Not every value can be restored from a clustering key
//! bit by bit: `1.0` and `1.00` are equal decimals, but different partitions.
//!
//! A write knows the key of the view. All columns of the base's key are in it, and at most one
//! other. A write that sets that column writes an entry. If there is none, each write of a row
//! does.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use schema::{ClusteringOrder, ColumnKind, CqlType, KeyCondition, TableDef, ViewDef, token, value};
use storage::{CellRef, TableId};

use crate::index::entry::{CLASS_BYTES, Place};

/// Bytes of a row's key and value up to which a view can have it. In a clustering key they are at
/// most twice as long, which is a quarter of what a key may have.
const SHORT_BYTES_MAX: usize = 8 << 10;

/// Source of a column of the view's key in the base table.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Component of the partition key.
    PartitionKey(usize),
    /// Component of the clustering key.
    Clustering(usize),
    /// The column outside the key.
    Value,
}

/// Clustering column of a view.
#[derive(Clone, Debug)]
struct Clustering {
    source: Source,
    ty: CqlType,
    is_descending: bool,
}

/// Condition of a view.
#[derive(Clone, Debug)]
struct Condition {
    test: KeyCondition,
    columns: Vec<(Source, CqlType)>,
}

/// Keys of a view's rows.
#[derive(Clone, Debug)]
pub(crate) struct ViewKeys {
    /// The data of the view.
    pub(crate) data: TableId,
    partition: Box<[Source]>,
    clustering: Box<[Clustering]>,
    /// Number of the base's column outside its key that is in the view's key.
    pub(crate) value: Option<u32>,
    conditions: Box<[Condition]>,
    /// True if no condition and no type leaves out a row with short values that are not empty.
    takes_short: bool,
}

/// Partition key, and place of a row in the view.
type ViewKey = (Vec<u8>, Vec<u8>);

impl ViewKeys {
    /// Returns the keys of a view of `base`.
    pub(crate) fn of(base: &TableDef, view: &ViewDef) -> ViewKeys {
        let column = |id: u32| base.columns.iter().find(move |column| column.id == id);
        let source = |id: u32| match column(id).map(|column| column.kind) {
            Some(ColumnKind::PartitionKey(at)) => Source::PartitionKey(at),
            Some(ColumnKind::Clustering(at, _)) => Source::Clustering(at),
            _ => Source::Value,
        };
        let ty = |id: u32| column(id).map_or(CqlType::Blob, |column| column.ty.clone());
        let clustering = |(id, order): &(u32, ClusteringOrder)| Clustering {
            source: source(*id),
            ty: ty(*id),
            is_descending: *order == ClusteringOrder::Desc,
        };
        let condition = |test: &KeyCondition| {
            let columns = test.columns.iter().map(|id| (source(*id), ty(*id))).collect();
            Condition { test: test.clone(), columns }
        };
        let keys = || view.partition_key.iter().copied().chain(view.clustering.iter().map(|(id, _)| *id));
        // Parts of a composite key may be empty.
        let may_be_empty = |id: u32| {
            let is_part = matches!(source(id), Source::PartitionKey(_)) && base.partition_key().count() > 1;
            is_part && value::is_empty(&ty(id), &[])
        };
        let takes = |id: u32| is_scalar(&ty(id)) && !may_be_empty(id);
        ViewKeys {
            data: TableId(view.data.as_u128()),
            partition: view.partition_key.iter().map(|id| source(*id)).collect(),
            clustering: view.clustering.iter().map(clustering).collect(),
            value: keys().find(|id| matches!(source(*id), Source::Value)),
            conditions: view.conditions.iter().map(condition).collect(),
            takes_short: view.conditions.is_empty() && keys().all(takes),
        }
    }

    /// Returns true if the view's key has the value of this cell.
    pub(crate) fn is_keyed_by(&self, cell: &CellRef<'_>) -> bool {
        self.value == Some(cell.column) && cell.path.is_none()
    }

    /// Returns true if no key may have the values of a row, other than that outside its key.
    pub(crate) fn may_refuse(base: &TableDef, place: Place<'_>) -> bool {
        let row = place.row.unwrap_or_default();
        let count = base.partition_key().count();
        let mut parts = token::partition_key_components(count, place.key);
        // The key of a view has two copies of these bytes, with up to three more for each.
        place.key.len() + row.len() > usize::from(u16::MAX) / 8
            || count > 1 && parts.any(|part| part.is_ok_and(<[u8]>::is_empty))
    }

    /// Returns true if the view has a row of `base`: [`ViewKeys::entry`] returns an entry. Most
    /// rows of most views need no composed key for this, which takes about 300 ns.
    pub(crate) fn has_row(&self, base: &TableDef, place: Place<'_>, value: Option<&[u8]>) -> bool {
        let bytes = value.unwrap_or_default();
        let is_valued = self.value.is_none() || !bytes.is_empty();
        let is_short = |row: &[u8]| place.key.len() + row.len() + bytes.len() <= SHORT_BYTES_MAX;
        self.takes_short && is_valued && place.row.is_some_and(is_short)
            || self.entry(base, place, value).is_some()
    }

    /// Returns the entry of a row of `base`, without its class. `value` is that of the column
    /// outside the key. `None`: the view does not have the row, or no key can have its values.
    pub(crate) fn entry(&self, base: &TableDef, place: Place<'_>, value: Option<&[u8]>) -> Option<ViewKey> {
        self.checked_entry(base, place, value).ok().flatten()
    }

    /// Returns an entry as [`ViewKeys::entry`] does.
    ///
    /// # Errors
    /// No key can have the values of the row. The text says why.
    pub(crate) fn checked_entry(
        &self,
        base: &TableDef,
        place: Place<'_>,
        value: Option<&[u8]>,
    ) -> Result<Option<ViewKey>, String> {
        let Some(row) = place.row else { return Ok(None) };
        let parts = token::split_partition_key(base.partition_key().count(), place.key).ok();
        let Some((parts, rows)) = parts.zip(clustering_parts(base, row)) else { return Ok(None) };
        let part = |source: &Source| match source {
            Source::PartitionKey(at) => parts.get(*at).copied(),
            Source::Clustering(at) => rows.get(*at).map(Vec::as_slice),
            Source::Value => value,
        };
        for Condition { test, columns } in &self.conditions {
            let columns = columns.iter().map(|(source, ty)| Some((ty, part(source)?)));
            if !columns.collect::<Option<Vec<_>>>().is_some_and(|columns| test.passes(&columns)) {
                return Ok(None);
            }
        }
        let components = self.partition.iter().map(part).collect::<Option<Vec<_>>>();
        let others = self.clustering.iter().map(|column| Some((column, part(&column.source)?)));
        let Some((components, others)) = components.zip(others.collect::<Option<Vec<_>>>()) else {
            return Ok(None);
        };
        let (mut key, mut out) = (Vec::new(), Vec::new());
        token::compose_partition_key(components.into_iter(), &mut key).map_err(|error| error.to_string())?;
        for (column, part) in others {
            value::encode_key_part(&column.ty, part, column.is_descending, &mut out)
                .map_err(|error| error.to_string())?;
        }
        let names = place.key.len() + row.len();
        if out.len() > usize::from(u16::MAX) || names > 2 * usize::from(u16::MAX) {
            return Err(format!("Key length of {} is longer than maximum of {}", out.len(), u16::MAX));
        }
        let first = (out.len() as u32).to_be_bytes();
        out.extend_from_slice(place.key);
        out.extend_from_slice(row);
        out.extend_from_slice(&first);
        out.extend_from_slice(&(place.key.len() as u16).to_be_bytes());
        Ok(Some((key, out)))
    }
}

fn is_scalar(ty: &CqlType) -> bool {
    use CqlType as T;
    !matches!(ty.thawed(), T::List(_) | T::Set(_) | T::Map(..) | T::Tuple(_) | T::Udt(_) | T::Vector(..))
}

/// Returns the values of a clustering key. `None`: it is damaged.
fn clustering_parts(base: &TableDef, mut key: &[u8]) -> Option<Vec<Vec<u8>>> {
    let one = |column: &schema::ColumnDef| {
        let is_descending = matches!(column.kind, ColumnKind::Clustering(_, ClusteringOrder::Desc));
        let mut part = Vec::new();
        value::decode_key_part(&column.ty, is_descending, &mut key, &mut part).ok()?;
        Some(part)
    };
    base.clustering().map(one).collect()
}

/// Entry of a view as a reader finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ViewEntry {
    /// The place: clustering key in the view, the two keys of the base, and lengths.
    pub(crate) place: Bytes,
    /// Token and keys of the row in the base.
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) row: Bytes,
    /// Clustering key of the entry itself.
    pub(crate) clustering: Bytes,
}

impl ViewEntry {
    /// Decodes the clustering key of an entry. `None`: it is damaged.
    pub(crate) fn decode(clustering: &[u8]) -> Option<ViewEntry> {
        let clustering = Bytes::copy_from_slice(clustering);
        let place = clustering.get(..clustering.len().checked_sub(CLASS_BYTES)?)?;
        let (rest, second) = place.split_last_chunk::<2>()?;
        let (rest, first) = rest.split_last_chunk::<4>()?;
        let (_, keys) = rest.split_at_checked(u32::from_be_bytes(*first) as usize)?;
        let (key, row) = keys.split_at_checked(u16::from_be_bytes(*second).into())?;
        Some(ViewEntry {
            place: clustering.slice_ref(place),
            token: token::token(key),
            key: clustering.slice_ref(key),
            row: clustering.slice_ref(row),
            clustering: clustering.clone(),
        })
    }

    /// Returns true if it is an entry of this key of a view, of any class.
    pub(crate) fn is_of(&self, entry: &[u8]) -> bool {
        self.clustering.len() == entry.len() + CLASS_BYTES && self.clustering.starts_with(entry)
    }
}

/// A view that a query reads. It is sent to every core.
#[derive(Clone, Debug)]
pub(crate) struct ViewSource {
    pub(crate) base: Arc<TableDef>,
    pub(crate) keys: ViewKeys,
}

impl ViewSource {
    /// Returns the partition key of the base if that of the view, `key`, determines it. All rows of
    /// the partition are then on one core.
    pub(crate) fn base_key(&self, key: &[u8]) -> Option<Vec<u8>> {
        let parts = token::split_partition_key(self.keys.partition.len(), key).ok()?;
        let place = |wanted: usize| {
            let is_it = |source: &Source| matches!(source, Source::PartitionKey(at) if *at == wanted);
            self.keys.partition.iter().position(is_it)
        };
        let count = self.base.partition_key().count();
        let components = (0..count).map(|at| parts.get(place(at)?).copied().map(Cow::Borrowed));
        let components: Vec<Cow<'_, [u8]>> = components.collect::<Option<_>>()?;
        let mut out = Vec::new();
        token::compose_partition_key(components.iter().map(|part| &part[..]), &mut out).ok()?;
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use schema::{ColumnDef, TableOptions};
    use uuid::Uuid;

    use super::*;

    /// Returns a table `(a, b)` with a value, and a view of it by value.
    fn table() -> (TableDef, ViewDef) {
        let column = |id, name: &str, kind| ColumnDef { id, name: name.into(), ty: CqlType::Int, kind };
        let view = ViewDef {
            id: Uuid::nil(),
            name: "v".into(),
            partition_key: vec![0],
            clustering: vec![(2, ClusteringOrder::Desc), (1, ClusteringOrder::Asc)],
            others: None,
            where_clause: String::new(),
            conditions: Vec::new(),
            options: TableOptions::default(),
            data: Uuid::nil(),
            is_built: true,
        };
        let def = TableDef {
            id: Uuid::nil(),
            keyspace: "ks".into(),
            name: "t".into(),
            columns: vec![
                column(1, "a", ColumnKind::PartitionKey(0)),
                column(2, "b", ColumnKind::Clustering(0, ClusteringOrder::Asc)),
                column(0, "c", ColumnKind::Regular),
            ],
            next_column_id: 3,
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: vec![view.clone()],
            options: TableOptions::default(),
        };
        (def, view)
    }

    fn number(n: i32) -> [u8; 4] {
        n.to_be_bytes()
    }

    fn row(n: i32) -> Vec<u8> {
        let mut out = Vec::new();
        value::encode_key_part(&CqlType::Int, &number(n), false, &mut out).unwrap();
        out
    }

    fn entry(keys: &ViewKeys, def: &TableDef, key: [i32; 2], value: i32) -> Option<ViewKey> {
        let (partition, row) = (number(key[0]), row(key[1]));
        let place = Place { token: 0, key: &partition, row: Some(&row) };
        keys.entry(def, place, Some(&number(value)))
    }

    #[test]
    fn entries_have_the_order_of_the_view_and_name_their_rows() {
        let (def, view) = table();
        let keys = ViewKeys::of(&def, &view);
        assert_eq!(keys.value, Some(0));
        let rows = [[7, 9], [8, 9], [-1, 2], [5, 2], [5, 1]];
        let entries: Vec<_> = rows.map(|key| entry(&keys, &def, key, 3).unwrap()).to_vec();
        assert!(entries.iter().is_sorted_by_key(|(_, clustering)| clustering));
        for (key, (partition, clustering)) in rows.iter().zip(entries) {
            assert_eq!(partition, number(3));
            let (full, _) = crate::index::entry::with_class(clustering.clone(), None);
            let found = ViewEntry::decode(&full).unwrap();
            assert_eq!((&found.key[..], &found.row[..]), (&number(key[0])[..], &row(key[1])[..]));
            assert_eq!(found.token, token::token(&number(key[0])));
            assert!(found.is_of(&clustering) && clustering.starts_with(&found.place));
            assert!((0..10).all(|cut| ViewEntry::decode(&full[..cut]).is_none()));
        }
    }

    #[test]
    fn rows_that_fail_a_condition_have_no_entry() {
        let (def, mut view) = table();
        let test = schema::KeyTest::GreaterEq;
        view.conditions = vec![KeyCondition { columns: vec![2], test, values: vec![vec![number(5).into()]] }];
        let keys = ViewKeys::of(&def, &view);
        assert!(entry(&keys, &def, [1, 4], 0).is_none());
        assert!(entry(&keys, &def, [1, 5], 0).is_some());
    }

    #[test]
    fn base_partition_is_known_if_the_view_has_all_of_its_key() {
        let (def, mut view) = table();
        let source =
            |view: &ViewDef| ViewSource { base: Arc::new(def.clone()), keys: ViewKeys::of(&def, view) };
        assert_eq!(source(&view).base_key(&number(3)), None);
        view.partition_key = vec![0, 1];
        let mut key = Vec::new();
        token::compose_partition_key([&number(3)[..], &number(6)[..]].into_iter(), &mut key).unwrap();
        assert_eq!(source(&view).base_key(&key), Some(number(6).to_vec()));
    }
}
