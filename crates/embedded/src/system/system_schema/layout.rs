//! Columns of each table, and the function that creates its rows. Key columns are first, the others
//! are sorted by name.

use engine::RowChunks;

use super::options;
use super::rows::{self, Snapshot};

/// A table that shows the schema. Its partition key is the first column.
pub(super) struct Layout {
    pub(super) keyspace: &'static str,
    pub(super) name: &'static str,
    /// Number of clustering columns.
    pub(super) clustering: usize,
    /// Name and CQL type.
    pub(super) columns: Vec<(&'static str, &'static str)>,
    pub(super) rows: fn(&Snapshot) -> RowChunks,
}

const TEXT_MAP: &str = "frozen<map<text, text>>";
const TEXT_LIST: &str = "frozen<list<text>>";

const COLUMNS: [(&str, &str); 8] = [
    ("keyspace_name", "text"),
    ("table_name", "text"),
    ("column_name", "text"),
    ("clustering_order", "text"),
    ("column_name_bytes", "blob"),
    ("kind", "text"),
    ("position", "int"),
    ("type", "text"),
];

/// Returns all tables.
pub(super) fn layouts() -> Vec<Layout> {
    let mut layouts = filled();
    layouts.extend(always_empty());
    layouts.extend(of_virtual_keyspaces());
    layouts
}

fn real(
    name: &'static str,
    clustering: usize,
    columns: &[(&'static str, &'static str)],
    rows: fn(&Snapshot) -> RowChunks,
) -> Layout {
    Layout { keyspace: "system_schema", name, clustering, columns: columns.to_vec(), rows }
}

fn filled() -> Vec<Layout> {
    let mut tables = vec![("keyspace_name", "text"), ("table_name", "text")];
    tables.extend(options::ALL.iter().map(|option| (option.name, option.ty)));
    vec![
        real(
            "keyspaces",
            0,
            &[("keyspace_name", "text"), ("durable_writes", "boolean"), ("replication", TEXT_MAP)],
            rows::keyspaces,
        ),
        real("tables", 1, &tables, rows::tables),
        real("columns", 2, &COLUMNS, rows::columns),
        real(
            "column_masks",
            2,
            &[
                ("keyspace_name", "text"),
                ("table_name", "text"),
                ("column_name", "text"),
                ("function_argument_nulls", "frozen<list<boolean>>"),
                ("function_argument_types", TEXT_LIST),
                ("function_argument_values", TEXT_LIST),
                ("function_keyspace", "text"),
                ("function_name", "text"),
            ],
            rows::column_masks,
        ),
        real(
            "dropped_columns",
            2,
            &[
                ("keyspace_name", "text"),
                ("table_name", "text"),
                ("column_name", "text"),
                ("dropped_time", "timestamp"),
                ("kind", "text"),
                ("type", "text"),
            ],
            rows::dropped_columns,
        ),
        real(
            "indexes",
            2,
            &[
                ("keyspace_name", "text"),
                ("table_name", "text"),
                ("index_name", "text"),
                ("kind", "text"),
                ("options", TEXT_MAP),
            ],
            rows::indexes,
        ),
        real(
            "types",
            1,
            &[
                ("keyspace_name", "text"),
                ("type_name", "text"),
                ("field_names", TEXT_LIST),
                ("field_types", TEXT_LIST),
            ],
            rows::types,
        ),
        real("views", 1, &of_views(), rows::views),
    ]
}

fn of_views() -> Vec<(&'static str, &'static str)> {
    let mut columns = vec![("keyspace_name", "text"), ("view_name", "text")];
    columns.extend(view_columns());
    columns
}

/// Returns tables of objects that do not exist here, or that are not recorded.
fn always_empty() -> Vec<Layout> {
    let empty = |name, key: &[&'static str], others: &[(&'static str, &'static str)]| -> Layout {
        let mut columns = vec![("keyspace_name", "text")];
        let of_key = |name| (name, if name == "argument_types" { TEXT_LIST } else { "text" });
        columns.extend(key.iter().copied().map(of_key));
        columns.extend(others);
        real(name, key.len(), &columns, |_| Box::new(std::iter::empty()))
    };
    vec![
        empty(
            "functions",
            &["function_name", "argument_types"],
            &[
                ("argument_names", TEXT_LIST),
                ("body", "text"),
                ("called_on_null_input", "boolean"),
                ("language", "text"),
                ("return_type", "text"),
            ],
        ),
        empty(
            "aggregates",
            &["aggregate_name", "argument_types"],
            &[
                ("final_func", "text"),
                ("initcond", "text"),
                ("return_type", "text"),
                ("state_func", "text"),
                ("state_type", "text"),
            ],
        ),
        empty("triggers", &["table_name", "trigger_name"], &[("options", TEXT_MAP)]),
    ]
}

/// Returns the columns of a view: the options of a table, except for its flags, and the base table.
pub(super) fn view_columns() -> Vec<(&'static str, &'static str)> {
    let mut columns = vec![
        ("base_table_id", "uuid"),
        ("base_table_name", "text"),
        ("include_all_columns", "boolean"),
        ("where_clause", "text"),
    ];
    columns.extend(options::ALL.iter().filter(|o| o.name != "flags").map(|o| (o.name, o.ty)));
    columns.sort_unstable();
    columns
}

fn of_virtual_keyspaces() -> Vec<Layout> {
    let layout = |name, clustering, columns: &[(&'static str, &'static str)], rows| Layout {
        keyspace: "system_virtual_schema",
        name,
        clustering,
        columns: columns.to_vec(),
        rows,
    };
    vec![
        layout("keyspaces", 0, &[("keyspace_name", "text")], rows::virtual_keyspaces),
        layout(
            "tables",
            1,
            &[("keyspace_name", "text"), ("table_name", "text"), ("comment", "text")],
            rows::virtual_tables,
        ),
        layout("columns", 2, &COLUMNS, rows::virtual_columns),
    ]
}
