//! Tables of the cluster, as `system_schema` describes them. Pure: `schema_tables.rs` reads the
//! rows.
//!
//! A column of a type that this crate does not know (custom classes, user types beyond the bounds
//! of `schema`) is *opaque*: its values are binary, and no condition on it goes to
//! nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::scan::TableStatistics;
use engine::{Keyspace, Relation, Schema};
use rustc_hash::{FxHashMap, FxHashSet};
use schema::types::{TYPE_DEPTH_MAX, TYPE_PARTS_MAX};
use schema::{
    ClusteringOrder, ColumnDef, ColumnKind, CqlType, KeyspaceDef, TableDef, TableOptions, UdtType, ViewDef,
};
use uuid::Uuid;

/// Estimated contents of tables, by id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSizes(pub(crate) FxHashMap<Uuid, TableStatistics>);

impl TableSizes {
    /// Returns the estimated contents of a table on all nodes. `None`: unknown.
    #[must_use]
    pub fn of(&self, table: Uuid) -> Option<TableStatistics> {
        self.0.get(&table).copied()
    }
}

/// User tables of the cluster.
#[derive(Debug, Default)]
pub struct Catalog {
    schema: Arc<Schema>,
    /// Indexes of the opaque columns, by table.
    opaque: FxHashMap<Uuid, Vec<usize>>,
}

impl Catalog {
    /// Creates a catalog without opaque columns.
    #[must_use]
    pub fn new(schema: Schema) -> Catalog {
        Catalog { schema: Arc::new(schema), opaque: FxHashMap::default() }
    }

    /// Returns the keyspaces.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns a table or materialized view.
    pub(crate) fn table(&self, keyspace: &str, table: &str) -> Option<ClusterTable> {
        let Relation { def, base } = self.schema.relation(keyspace, table)?;
        let of_base = self.opaque.get(&base.as_ref().unwrap_or(&def).id);
        // The number of a column is its index in the table.
        let is_opaque = |column: &ColumnDef| of_base.is_some_and(|of| of.contains(&(column.id as usize)));
        let opaque =
            (0..).zip(&def.columns).filter(|(_, column)| is_opaque(column)).map(|(at, _)| at).collect();
        Some(ClusterTable { def, base, opaque })
    }
}

/// A table of the cluster, or a materialized view, which nodes keep as a table.
#[derive(Clone, Debug)]
pub(crate) struct ClusterTable {
    pub(crate) def: Arc<TableDef>,
    /// Table of the view.
    base: Option<Arc<TableDef>>,
    /// Indexes of its opaque columns.
    opaque: Vec<usize>,
}

impl ClusterTable {
    /// Returns true if values of the column are binary because its type is not known.
    pub(crate) fn is_opaque(&self, column: usize) -> bool {
        self.opaque.contains(&column)
    }

    /// Returns true for a view.
    pub(crate) fn is_view(&self) -> bool {
        self.base.is_some()
    }

    pub(crate) fn relation(&self) -> Relation {
        Relation { def: self.def.clone(), base: self.base.clone() }
    }

    #[cfg(test)]
    pub(crate) fn of(def: TableDef, opaque: Vec<usize>) -> ClusterTable {
        ClusterTable { def: Arc::new(def), base: None, opaque }
    }

    #[cfg(test)]
    pub(crate) fn into_view(self) -> ClusterTable {
        ClusterTable { base: Some(self.def.clone()), ..self }
    }
}

/// Row of `system_schema.keyspaces`.
#[derive(Clone, Debug)]
pub(crate) struct KeyspaceRow {
    pub(crate) name: String,
    pub(crate) durable_writes: bool,
    pub(crate) replication: BTreeMap<String, String>,
}

/// Row of `system_schema.tables`.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub(crate) id: Uuid,
}

/// Row of `system_schema.views`.
#[derive(Clone, Debug)]
pub(crate) struct ViewRow {
    /// The view.
    pub(crate) row: TableRow,
    /// Name of its table.
    pub(crate) base: String,
}

/// Row of `system_schema.columns`.
#[derive(Clone, Debug)]
pub(crate) struct ColumnRow {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) position: i32,
    pub(crate) order: String,
    pub(crate) ty: String,
}

/// Row of `system_schema.types`.
#[derive(Clone, Debug)]
pub(crate) struct TypeRow {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub(crate) field_names: Vec<String>,
    pub(crate) field_types: Vec<String>,
}

/// Rows of `system_schema`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaRows {
    pub(crate) version: Uuid,
    pub(crate) keyspaces: Vec<KeyspaceRow>,
    pub(crate) tables: Vec<TableRow>,
    pub(crate) views: Vec<ViewRow>,
    pub(crate) columns: Vec<ColumnRow>,
    pub(crate) types: Vec<TypeRow>,
}

/// User types of a keyspace, by name.
type Types = BTreeMap<String, Arc<UdtType>>;

impl SchemaRows {
    /// Creates the catalog. Tables whose key is not complete are left out, and their views.
    pub(crate) fn catalog(self) -> Catalog {
        let mut types: FxHashMap<String, Vec<TypeRow>> = FxHashMap::default();
        self.types.into_iter().for_each(|row| types.entry(row.keyspace.clone()).or_default().push(row));
        let mut columns: FxHashMap<(String, String), Vec<ColumnRow>> = FxHashMap::default();
        for row in self.columns {
            columns.entry((row.keyspace.clone(), row.table.clone())).or_default().push(row);
        }
        let mut keyspaces: BTreeMap<String, Keyspace> = BTreeMap::new();
        for KeyspaceRow { name, durable_writes, replication } in self.keyspaces {
            let types = user_types(&name, types.remove(&name).unwrap_or_default());
            let def = KeyspaceDef { name: name.clone(), replication, durable_writes };
            keyspaces.insert(name, Keyspace { def, tables: BTreeMap::new(), types });
        }
        let mut opaque = FxHashMap::default();
        for row in self.tables {
            let Some(keyspace) = keyspaces.get_mut(&row.keyspace) else { continue };
            let columns = columns.remove(&(row.keyspace.clone(), row.name.clone())).unwrap_or_default();
            if let Some((def, unknown)) = table(row, columns, &keyspace.types) {
                if !unknown.is_empty() {
                    opaque.insert(def.id, unknown);
                }
                keyspace.tables.insert(def.name.clone(), Arc::new(def));
            }
        }
        for ViewRow { row, base } in self.views {
            let Some(keyspace) = keyspaces.get_mut(&row.keyspace) else { continue };
            let columns = columns.remove(&(row.keyspace.clone(), row.name.clone())).unwrap_or_default();
            let Some(base) = keyspace.tables.get_mut(&base) else { continue };
            let found = table(row, columns, &keyspace.types);
            if let Some(view) = found.and_then(|(def, _)| view(&def, base)) {
                Arc::make_mut(base).views.push(view);
            }
        }
        let keyspaces = keyspaces.into_iter().map(|(name, keyspace)| (name, Arc::new(keyspace))).collect();
        Catalog { schema: Arc::new(Schema { version: self.version, keyspaces }), opaque }
    }
}

/// Creates the user types of a keyspace. Types may refer to others, in any order. Those that refer
/// to a type that is not known are left out.
fn user_types(keyspace: &str, mut rows: Vec<TypeRow>) -> Types {
    let mut types = Types::new();
    // Each pass adds the types of one more level.
    for _ in 0..TYPE_DEPTH_MAX {
        let before = rows.len();
        rows.retain(|row| match user_type(keyspace, row, &types) {
            Some(udt) => {
                types.insert(row.name.clone(), Arc::new(udt));
                false
            }
            None => true,
        });
        if rows.len() == before {
            break;
        }
    }
    types
}

fn user_type(keyspace: &str, row: &TypeRow, types: &Types) -> Option<UdtType> {
    if row.field_names.len() != row.field_types.len() {
        return None;
    }
    let field = |(name, ty): (&String, &String)| Some((name.clone(), parsed(ty, types)?));
    let fields = row.field_names.iter().zip(&row.field_types).map(field).collect::<Option<_>>()?;
    let udt = UdtType::new(keyspace, &row.name, fields);
    // Bounds the size of the types that refer to it as well.
    udt.validate().is_ok().then_some(udt)
}

/// Parses a type. `None`: it is not known, or too large.
fn parsed(text: &str, types: &Types) -> Option<CqlType> {
    let ty = CqlType::parse(text, &|name| types.get(name).cloned()).ok()?;
    let (depth, parts) = ty.size();
    (depth <= TYPE_DEPTH_MAX && parts <= TYPE_PARTS_MAX).then_some(ty)
}

/// Creates a table, with its opaque columns. `None`: its key is not complete.
fn table(row: TableRow, columns: Vec<ColumnRow>, types: &Types) -> Option<(TableDef, Vec<usize>)> {
    let mut unknown: FxHashSet<String> = FxHashSet::default();
    let mut defs = Vec::with_capacity(columns.len());
    for column in columns {
        let position = usize::try_from(column.position).ok();
        let kind = match &*column.kind {
            "partition_key" => ColumnKind::PartitionKey(position?),
            "clustering" if column.order == "desc" => {
                ColumnKind::Clustering(position?, ClusteringOrder::Desc)
            }
            "clustering" => ColumnKind::Clustering(position?, ClusteringOrder::Asc),
            "static" => ColumnKind::Static,
            "regular" => ColumnKind::Regular,
            _ => return None,
        };
        let ty = parsed(&column.ty, types).unwrap_or_else(|| {
            unknown.insert(column.name.clone());
            CqlType::Blob
        });
        defs.push(ColumnDef { id: 0, name: column.name, ty, kind });
    }
    let mut def = TableDef {
        id: row.id,
        keyspace: row.keyspace,
        name: row.name,
        next_column_id: u32::try_from(defs.len()).ok()?,
        columns: defs,
        options: TableOptions::default(),
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
    };
    def.sort_columns();
    (0..).zip(&mut def.columns).for_each(|(id, column)| column.id = id);
    let is_in_order = |(at, column): (usize, &ColumnDef)| match column.kind {
        ColumnKind::PartitionKey(own) | ColumnKind::Clustering(own, _) => own == at,
        ColumnKind::Static | ColumnKind::Regular => true,
    };
    let is_complete = def.partition_key().next().is_some()
        && def.partition_key().enumerate().all(is_in_order)
        && def.clustering().enumerate().all(is_in_order);
    let at = |name: &String| def.column(name).map(|(at, _)| at);
    let unknown = unknown.iter().filter_map(at).collect();
    is_complete.then_some((def, unknown))
}

/// Returns a view, of which `def` has the columns. `None`: its table lacks one of them.
fn view(def: &TableDef, base: &TableDef) -> Option<ViewDef> {
    let id = |column: &ColumnDef| base.column(&column.name).map(|(_, own)| own.id);
    let clustering = def.clustering().map(|column| match column.kind {
        ColumnKind::Clustering(_, order) => Some((id(column)?, order)),
        _ => None,
    });
    let others = def.columns.iter().filter(|column| column.kind == ColumnKind::Regular);
    Some(ViewDef {
        id: def.id,
        name: def.name.clone(),
        partition_key: def.partition_key().map(id).collect::<Option<_>>()?,
        clustering: clustering.collect::<Option<_>>()?,
        others: Some(others.map(id).collect::<Option<_>>()?),
        // Nodes have the rows of the view.
        where_clause: String::new(),
        conditions: Vec::new(),
        options: TableOptions::default(),
        data: def.id,
        is_built: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(types: &[(&str, &[(&str, &str)])], columns: &[(&str, &str, i32, &str)]) -> SchemaRows {
        let keyspace =
            KeyspaceRow { name: "ks".into(), durable_writes: true, replication: BTreeMap::default() };
        let type_row = |(name, fields): &(&str, &[(&str, &str)])| TypeRow {
            keyspace: "ks".into(),
            name: (*name).into(),
            field_names: fields.iter().map(|(name, _)| (*name).into()).collect(),
            field_types: fields.iter().map(|(_, ty)| (*ty).into()).collect(),
        };
        let column_row = |(name, kind, position, ty): &(&str, &str, i32, &str)| ColumnRow {
            keyspace: "ks".into(),
            table: "t".into(),
            name: (*name).into(),
            kind: (*kind).into(),
            position: *position,
            order: if *name == "down" { "desc" } else { "none" }.into(),
            ty: (*ty).into(),
        };
        SchemaRows {
            version: Uuid::from_u128(1),
            keyspaces: vec![keyspace],
            tables: vec![TableRow { keyspace: "ks".into(), name: "t".into(), id: Uuid::from_u128(2) }],
            views: Vec::new(),
            columns: columns.iter().map(column_row).collect(),
            types: types.iter().map(type_row).collect(),
        }
    }

    /// Returns the columns as texts, opaque ones with `?`.
    fn shown(rows: SchemaRows) -> Option<Vec<String>> {
        let table = rows.catalog().table("ks", "t")?;
        let mark = |at| if table.is_opaque(at) { "?" } else { "" };
        let columns = table.def.columns.iter().enumerate();
        Some(columns.map(|(at, column)| format!("{} {}{}", column.name, column.ty, mark(at))).collect())
    }

    #[test]
    fn columns_are_in_the_order_of_the_key_and_unknown_types_are_opaque() {
        let types: [(&str, &[(&str, &str)]); 4] = [
            ("outer", &[("a", "frozen<inner>"), ("b", "list<int>")]),
            ("inner", &[("x", "int")]),
            ("lost", &[("x", "frozen<nowhere>")]),
            ("loop", &[("x", "frozen<loop>")]),
        ];
        let columns = [
            ("v", "regular", -1, "vector<float, 3>"),
            ("s", "static", -1, "frozen<outer>"),
            ("l", "regular", -1, "frozen<lost>"),
            ("o", "regular", -1, "frozen<loop>"),
            ("down", "clustering", 0, "timeuuid"),
            ("k2", "partition_key", 1, "text"),
            ("k1", "partition_key", 0, "int"),
            ("u", "clustering", 1, "'org.apache.cassandra.db.marshal.Foo'"),
            ("w", "regular", -1, "map<text, frozen<list<frozen<inner>>>>"),
        ];
        let expected = [
            "k1 int",
            "k2 text",
            "down timeuuid",
            "u blob?",
            "s frozen<outer>",
            "l blob?",
            "o blob?",
            "v vector<float, 3>",
            "w map<text, frozen<list<frozen<inner>>>>",
        ];
        assert_eq!(shown(rows(&types, &columns)).expect("a table"), expected);
        let table = rows(&types, &columns).catalog().table("ks", "t").expect("a table");
        assert_eq!(table.def.columns[2].kind, ColumnKind::Clustering(0, ClusteringOrder::Desc));
    }

    #[test]
    fn views_are_shown_with_the_columns_of_their_table() {
        let columns = [
            ("k", "partition_key", 0, "int"),
            ("s", "static", -1, "text"),
            ("down", "clustering", 0, "int"),
            ("u", "regular", -1, "'org.apache.cassandra.db.marshal.Foo'"),
            ("v", "regular", -1, "text"),
        ];
        let mut rows = rows(&[], &columns);
        let of_view = [("v", "partition_key", 0), ("down", "clustering", 0), ("k", "clustering", 1)];
        for (name, kind, position) in of_view.into_iter().chain([("u", "regular", -1)]) {
            let own = rows.columns.iter().find(|column| column.name == name).expect("a column").clone();
            rows.columns.push(ColumnRow { table: "m".into(), kind: kind.into(), position, ..own });
        }
        let row =
            |name: &str, id| TableRow { keyspace: "ks".into(), name: name.into(), id: Uuid::from_u128(id) };
        rows.views.push(ViewRow { row: row("m", 3), base: "t".into() });
        // Views of nothing, and without columns.
        rows.views.push(ViewRow { row: row("n", 4), base: "nothing".into() });
        rows.views.push(ViewRow { row: row("o", 5), base: "t".into() });
        let catalog = rows.catalog();
        let view = catalog.table("ks", "m").expect("a view");
        let columns: Vec<String> = view
            .def
            .columns
            .iter()
            .map(|column| format!("{} {} {:?}", column.name, column.ty, column.kind))
            .collect();
        let expected = [
            "v text PartitionKey(0)",
            "down int Clustering(0, Desc)",
            "k int Clustering(1, Asc)",
            "u blob Regular",
        ];
        assert_eq!(columns, expected);
        assert!(
            view.is_view() && view.is_opaque(3) && !view.is_opaque(0) && view.def.id == Uuid::from_u128(3)
        );
        assert_eq!(view.relation().stored().name, "t");
        assert!(catalog.table("ks", "n").is_none() && catalog.table("ks", "o").is_none());
    }

    #[test]
    fn table_without_a_complete_key_is_left_out() {
        assert_eq!(shown(rows(&[], &[("v", "regular", -1, "int")])), None);
        assert_eq!(shown(rows(&[], &[("k", "partition_key", 1, "int")])), None);
        assert_eq!(shown(rows(&[], &[("k", "something", 0, "int")])), None);
        let gap = [("k", "partition_key", 0, "int"), ("c", "clustering", 1, "int")];
        assert_eq!(shown(rows(&[], &gap)), None);
        assert!(shown(rows(&[], &gap[..1])).is_some());
    }

    #[test]
    fn user_types_that_contain_each_other_are_bounded() {
        let field_types: Vec<String> = (0..20).map(|n| format!("frozen<t{n}>")).collect();
        let mut types = vec![("t0", vec![("x", "int"); 1])];
        let names: Vec<String> = (1..20).map(|n| format!("t{n}")).collect();
        let fields: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
        for (name, inner) in names.iter().zip(&field_types) {
            types.push((name, fields.iter().map(|field| (&**field, &**inner)).collect()));
        }
        let types: Vec<(&str, &[(&str, &str)])> = types.iter().map(|(name, of)| (*name, &of[..])).collect();
        let columns = [
            ("k", "partition_key", 0, "int"),
            ("a", "regular", -1, "frozen<t2>"),
            ("b", "regular", -1, "frozen<t19>"),
        ];
        let expected = ["k int", "a frozen<t2>", "b blob?"];
        assert_eq!(shown(rows(&types, &columns)).expect("a table"), expected);
    }
}
