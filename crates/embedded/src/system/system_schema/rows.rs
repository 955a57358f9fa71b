//! Rows of each table, created from the schema and the registry on request, a few at a time, in the
//! order of the key. A reader holds definitions, which all readers share, and not their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Keyspace, RowChunks, Schema, VIRTUAL_KEYSPACES};
use schema::{
    ClusteringOrder, ColumnDef, ColumnKind, ColumnMask, CqlType, DroppedColumn, IndexDef, MaskArgument,
    TableDef, UdtType, value,
};

use super::layout::view_columns;
use super::options::{self, text_map};

/// A row: one cell per column.
pub(super) type SchemaRow = Vec<Option<Bytes>>;

/// Rows of one chunk, at most: the columns of a table may be thousands.
const CHUNK_ROWS: usize = 64;

/// Texts of a definition whose row takes long to create, bytes.
const LONG_BYTES: usize = 64 << 10;

/// Definitions for one query.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) schema: Arc<Schema>,
    pub(super) registry_defs: Arc<[Arc<TableDef>]>,
    /// Defaults of the options of `system_schema.tables`, in the order of [`options::ALL`].
    pub(super) option_defaults: Arc<[Option<Bytes>]>,
}

const LOCATOR: &str = "org.apache.cassandra.locator";

pub(super) fn keyspaces(snapshot: &Snapshot) -> RowChunks {
    let row = |name: &str, durable_writes: bool, replication: &BTreeMap<String, String>| -> SchemaRow {
        vec![
            text(name),
            Some(Bytes::copy_from_slice(&[u8::from(durable_writes)])),
            Some(text_map(replication)),
        ]
    };
    let schema = &snapshot.schema;
    let local = BTreeMap::from([("class".to_owned(), format!("{LOCATOR}.LocalStrategy"))]);
    let mut all: BTreeMap<String, Option<Arc<Keyspace>>> =
        schema.keyspaces.iter().map(|(name, keyspace)| (name.clone(), Some(keyspace.clone()))).collect();
    for def in snapshot.registry_defs.iter().filter(|def| !is_virtual(&def.keyspace)) {
        all.entry(def.keyspace.clone()).or_insert(None);
    }
    Box::new(all.into_iter().map(move |(name, keyspace)| match keyspace {
        Some(keyspace) => {
            let def = &keyspace.def;
            vec![row(&def.name, def.durable_writes, &replication(&def.replication))]
        }
        None => vec![row(&name, true, &local)],
    }))
}

/// Returns the replication options with the full class name. Without a class, it is
/// `SimpleStrategy` with one replica.
fn replication(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut options = options.clone();
    if options.is_empty() {
        options.insert("replication_factor".to_owned(), "1".to_owned());
    }
    let class = options.entry("class".to_owned()).or_insert_with(|| "SimpleStrategy".to_owned());
    if !class.contains('.') {
        *class = format!("{LOCATOR}.{class}");
    }
    options
}

pub(super) fn tables(snapshot: &Snapshot) -> RowChunks {
    let defaults = snapshot.option_defaults.clone();
    Box::new(real_defs(snapshot).flat_map(move |def| {
        let defaults = defaults.clone();
        row_of(def.options.comment.len(), move || {
            let mut row = vec![text(&def.keyspace), text(&def.name)];
            row.extend(options::cells(&def, &defaults));
            row
        })
    }))
}

pub(super) fn columns(snapshot: &Snapshot) -> RowChunks {
    Box::new(with_views(snapshot).flat_map(column_rows))
}

pub(super) fn types(snapshot: &Snapshot) -> RowChunks {
    let row = |udt: &UdtType| {
        let names: Vec<&[u8]> = udt.fields.iter().map(|(name, _)| name.as_bytes()).collect();
        let types: Vec<String> = udt.fields.iter().map(|(_, ty)| ty.to_string()).collect();
        vec![
            text(&udt.keyspace),
            text(&udt.name),
            Some(value::encode_list(names.into_iter()).into()),
            Some(value::encode_list(types.iter().map(String::as_bytes)).into()),
        ]
    };
    Box::new(
        of_keyspaces(&snapshot.schema, |keyspace| &keyspace.types).flat_map(move |udt| {
            row_of(udt.fields.iter().map(|(name, _)| name.len()).sum(), move || row(&udt))
        }),
    )
}

/// Returns the row of a definition with texts of `bytes`, behind an empty chunk if it takes long to
/// create.
fn row_of(bytes: usize, row: impl FnOnce() -> SchemaRow) -> impl Iterator<Item = Vec<SchemaRow>> {
    let long = (bytes > LONG_BYTES).then(Vec::new);
    long.into_iter().chain(std::iter::once_with(move || vec![row()]))
}

pub(super) fn virtual_keyspaces(snapshot: &Snapshot) -> RowChunks {
    let names: BTreeSet<String> = virtual_defs(snapshot).map(|def| def.keyspace.clone()).collect();
    Box::new(names.into_iter().map(|name| vec![vec![text(&name)]]))
}

pub(super) fn virtual_tables(snapshot: &Snapshot) -> RowChunks {
    let row =
        |def: Arc<TableDef>| vec![vec![text(&def.keyspace), text(&def.name), text(&def.options.comment)]];
    Box::new(virtual_defs(snapshot).map(row))
}

pub(super) fn virtual_columns(snapshot: &Snapshot) -> RowChunks {
    Box::new(virtual_defs(snapshot).flat_map(column_rows))
}

fn is_virtual(keyspace: &str) -> bool {
    VIRTUAL_KEYSPACES.contains(&keyspace)
}

fn virtual_defs(snapshot: &Snapshot) -> impl Iterator<Item = Arc<TableDef>> + use<> {
    let mut defs: Vec<_> =
        snapshot.registry_defs.iter().filter(|def| is_virtual(&def.keyspace)).cloned().collect();
    defs.sort_by(|a, b| name_of(a).cmp(&name_of(b)));
    defs.into_iter()
}

/// Returns the tables of the engine and the registry's tables that count as real. For a name in
/// both, the engine has precedence.
fn real_defs(snapshot: &Snapshot) -> impl Iterator<Item = Arc<TableDef>> + use<> {
    let schema = &snapshot.schema;
    let is_only_in_registry =
        |def: &&Arc<TableDef>| !is_virtual(&def.keyspace) && schema.table(&def.keyspace, &def.name).is_none();
    let mut of_server: Vec<_> = snapshot.registry_defs.iter().filter(is_only_in_registry).cloned().collect();
    of_server.sort_by(|a, b| name_of(a).cmp(&name_of(b)));
    let mut of_server = of_server.into_iter().peekable();
    let mut of_clients = of_keyspaces(schema, |keyspace| &keyspace.tables).peekable();
    std::iter::from_fn(move || match (of_clients.peek(), of_server.peek()) {
        (Some(client), Some(server)) if name_of(server) < name_of(client) => of_server.next(),
        (Some(_), _) => of_clients.next(),
        (None, _) => of_server.next(),
    })
}

/// Returns the views of the engine with their base tables, by name.
fn all_views(snapshot: &Snapshot) -> impl Iterator<Item = (Arc<TableDef>, usize)> + use<> {
    let of_table = |def: &Arc<TableDef>| (0..def.views.len()).map(|at| (def.clone(), at)).collect::<Vec<_>>();
    let tables = snapshot.schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let mut views: Vec<_> = tables.filter(|def| !def.views.is_empty()).flat_map(of_table).collect();
    views.sort_by(|a, b| view_name(a).cmp(&view_name(b)));
    views.into_iter()
}

fn view_name((def, at): &(Arc<TableDef>, usize)) -> (&str, &str) {
    (&def.keyspace, &def.views[*at].name)
}

/// Returns the tables that count as real, and the views as tables.
fn with_views(snapshot: &Snapshot) -> impl Iterator<Item = Arc<TableDef>> + use<> {
    let mut views = all_views(snapshot).peekable();
    let mut tables = real_defs(snapshot).peekable();
    std::iter::from_fn(move || {
        let is_first = match (views.peek(), tables.peek()) {
            (Some(view), Some(table)) => view_name(view) < name_of(table),
            (Some(_), None) => true,
            (None, _) => false,
        };
        match is_first {
            true => views.next().map(|(def, at)| Arc::new(def.views[at].table(&def))),
            false => tables.next(),
        }
    })
}

pub(super) fn views(snapshot: &Snapshot) -> RowChunks {
    let defaults = snapshot.option_defaults.clone();
    Box::new(all_views(snapshot).flat_map(move |(def, at)| {
        let defaults = defaults.clone();
        let view = &def.views[at];
        let bytes = view.options.comment.len() + view.where_clause.len();
        row_of(bytes, move || view_row(&def, at, &defaults))
    }))
}

fn view_row(base: &TableDef, at: usize, defaults: &[Option<Bytes>]) -> SchemaRow {
    let view = &base.views[at];
    let shown = view.table(base);
    let options: BTreeMap<&str, Option<Bytes>> =
        options::ALL.iter().map(|option| option.name).zip(options::cells(&shown, defaults)).collect();
    let cell = |name: &str| match name {
        "base_table_id" => Some(Bytes::copy_from_slice(base.id.as_bytes())),
        "base_table_name" => text(&base.name),
        "include_all_columns" => Some(Bytes::copy_from_slice(&[u8::from(view.others.is_none())])),
        "where_clause" => text(&view.where_clause),
        name => options.get(name).cloned().flatten(),
    };
    let key = [text(&base.keyspace), text(&view.name)];
    key.into_iter().chain(view_columns().into_iter().map(|(name, _)| cell(name))).collect()
}

fn name_of(def: &TableDef) -> (&str, &str) {
    (&def.keyspace, &def.name)
}

/// Iterates over the definitions of one kind in all keyspaces. Each is looked up on request,
/// because clients may create thousands.
fn of_keyspaces<T: Send + Sync + 'static>(
    schema: &Schema,
    kind: fn(&Keyspace) -> &BTreeMap<String, Arc<T>>,
) -> impl Iterator<Item = Arc<T>> + use<T> {
    let keyspaces: Vec<Arc<Keyspace>> = schema.keyspaces.values().cloned().collect();
    keyspaces.into_iter().flat_map(move |keyspace| {
        let mut last: Option<String> = None;
        std::iter::from_fn(move || {
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (name, def) = kind(&keyspace).range::<str, _>((after, Bound::Unbounded)).next()?;
            let (name, def) = (name.clone(), def.clone());
            last = Some(name);
            Some(def)
        })
    })
}

/// Returns the rows of a table's columns by name, a few at a time.
fn column_rows(def: Arc<TableDef>) -> impl Iterator<Item = Vec<SchemaRow>> {
    let mut order: Vec<usize> = (0..def.columns.len()).collect();
    order.sort_by(|a, b| def.columns[*a].name.cmp(&def.columns[*b].name));
    let mut at = 0;
    std::iter::from_fn(move || {
        let end = order.len().min(at + CHUNK_ROWS);
        let chunk = &order[std::mem::replace(&mut at, end)..end];
        let rows: Vec<SchemaRow> =
            chunk.iter().map(|column| column_row(&def, &def.columns[*column])).collect();
        (!rows.is_empty()).then_some(rows)
    })
}

pub(super) fn column_masks(snapshot: &Snapshot) -> RowChunks {
    Box::new(with_views(snapshot).filter(|def| !def.masks.is_empty()).map(|def| {
        let mut masked: Vec<&ColumnDef> =
            def.columns.iter().filter(|column| def.masks.contains_key(&column.id)).collect();
        masked.sort_by(|a, b| a.name.cmp(&b.name));
        masked.into_iter().map(|column| mask_row(&def, column, &def.masks[&column.id])).collect()
    }))
}

fn mask_row(def: &TableDef, column: &ColumnDef, mask: &ColumnMask) -> SchemaRow {
    let nulls: Vec<[u8; 1]> =
        mask.arguments.iter().map(|argument| [u8::from(argument.value.is_none())]).collect();
    let types: Vec<String> = mask.arguments.iter().map(|argument| argument.ty.to_string()).collect();
    let value = |argument: &MaskArgument| {
        argument.value.as_ref().map_or_else(String::new, |value| match argument.ty.thawed() {
            CqlType::Ascii | CqlType::Text => String::from_utf8_lossy(value).into_owned(),
            ty => value::to_text(ty, value),
        })
    };
    let values: Vec<String> = mask.arguments.iter().map(value).collect();
    // As in Cassandra, a list that is empty is null.
    let texts = |all: &[String]| {
        (!all.is_empty()).then(|| value::encode_list(all.iter().map(String::as_bytes)).into())
    };
    vec![
        text(&def.keyspace),
        text(&def.name),
        text(&column.name),
        (!nulls.is_empty()).then(|| value::encode_list(nulls.iter().map(|null| &null[..])).into()),
        texts(&types),
        texts(&values),
        text("system"),
        text(&mask.function),
    ]
}

pub(super) fn indexes(snapshot: &Snapshot) -> RowChunks {
    let row = |def: &TableDef, index: &IndexDef| {
        let kind = if index.is_custom() { "CUSTOM" } else { "COMPOSITES" };
        vec![
            text(&def.keyspace),
            text(&def.name),
            text(&index.name),
            text(kind),
            Some(text_map(&index.options)),
        ]
    };
    Box::new(real_defs(snapshot).filter(|def| !def.indexes.is_empty()).flat_map(move |def| {
        let rows = def.indexes.iter().map(|index| row(&def, index)).collect::<Vec<_>>();
        let mut chunks = Vec::with_capacity(rows.len() / CHUNK_ROWS + 1);
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            chunks.push(rows.by_ref().take(CHUNK_ROWS).collect());
        }
        chunks
    }))
}

pub(super) fn dropped_columns(snapshot: &Snapshot) -> RowChunks {
    Box::new(real_defs(snapshot).flat_map(|def| {
        let mut last: Option<String> = None;
        std::iter::from_fn(move || {
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let chunk = def.dropped.range::<str, _>((after, Bound::Unbounded)).take(CHUNK_ROWS);
            let rows: Vec<SchemaRow> = chunk.map(|(_, dropped)| dropped_row(&def, dropped)).collect();
            last = def
                .dropped
                .range::<str, _>((after, Bound::Unbounded))
                .take(CHUNK_ROWS)
                .last()
                .map(|(name, _)| name.clone());
            (!rows.is_empty()).then_some(rows)
        })
    }))
}

fn dropped_row(def: &TableDef, dropped: &DroppedColumn) -> SchemaRow {
    let column = &dropped.column;
    let kind = if column.kind == ColumnKind::Static { "static" } else { "regular" };
    vec![
        text(&def.keyspace),
        text(&def.name),
        text(&column.name),
        Some(Bytes::copy_from_slice(&(dropped.dropped_us / 1000).to_be_bytes())),
        text(kind),
        text(&column.ty.without_user_types().to_string()),
    ]
}

fn column_row(def: &TableDef, column: &ColumnDef) -> SchemaRow {
    let (kind, position, order) = match column.kind {
        ColumnKind::PartitionKey(at) => ("partition_key", Some(at), "none"),
        ColumnKind::Clustering(at, ClusteringOrder::Asc) => ("clustering", Some(at), "asc"),
        ColumnKind::Clustering(at, ClusteringOrder::Desc) => ("clustering", Some(at), "desc"),
        ColumnKind::Static => ("static", None, "none"),
        ColumnKind::Regular => ("regular", None, "none"),
    };
    // Columns outside the key have no position. Cassandra shows −1.
    let position = position.map_or(-1, |at| i32::try_from(at).expect("a key has few columns"));
    vec![
        text(&def.keyspace),
        text(&def.name),
        text(&column.name),
        text(order),
        text(&column.name),
        text(kind),
        Some(Bytes::copy_from_slice(&position.to_be_bytes())),
        text(&column.ty.to_string()),
    ]
}

fn text(value: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value.as_bytes()))
}
