//! `information_schema`, where programs look for tables, columns and keys. Types have Postgres'
//! names, and positions begin at 1. Materialized views are views here, without constraints. Views
//! about objects that do not exist here (foreign keys, routines) are empty. Rows are made from the
//! table definitions when a statement runs.

use std::sync::{Arc, PoisonError, RwLock};

use ::schema::TableDef;
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use engine::Relation;
use engine::scan::schema_of_relation;
use postgres_types::Type;

use crate::catalog::types::type_of;
use crate::catalog::{CATALOG, Tables, reads, shows};

/// Name of the schema.
pub(crate) const NAME: &str = "information_schema";

/// A value.
#[derive(Clone)]
enum Cell {
    Null,
    Text(String),
    Number(i32),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

type ViewRow = Vec<Cell>;

/// A view. The names of numeric columns begin with `#`.
#[derive(Debug)]
struct View {
    name: &'static str,
    columns: &'static [&'static str],
    rows: fn(&InformationSchema) -> Vec<ViewRow>,
}

const NOTHING: fn(&InformationSchema) -> Vec<ViewRow> = |_| Vec::new();

static VIEWS: [View; 14] = [
    View {
        name: "schemata",
        columns: &[
            "catalog_name",
            "schema_name",
            "schema_owner",
            "default_character_set_catalog",
            "default_character_set_schema",
            "default_character_set_name",
            "sql_path",
        ],
        rows: InformationSchema::schemata,
    },
    View {
        name: "tables",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "table_type",
            "self_referencing_column_name",
            "reference_generation",
            "user_defined_type_catalog",
            "user_defined_type_schema",
            "user_defined_type_name",
            "is_insertable_into",
            "is_typed",
            "commit_action",
        ],
        rows: InformationSchema::tables,
    },
    View {
        name: "columns",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "#ordinal_position",
            "column_default",
            "is_nullable",
            "data_type",
            "#character_maximum_length",
            "#character_octet_length",
            "#numeric_precision",
            "#numeric_precision_radix",
            "#numeric_scale",
            "#datetime_precision",
            "interval_type",
            "#interval_precision",
            "character_set_catalog",
            "character_set_schema",
            "character_set_name",
            "collation_catalog",
            "collation_schema",
            "collation_name",
            "domain_catalog",
            "domain_schema",
            "domain_name",
            "udt_catalog",
            "udt_schema",
            "udt_name",
            "dtd_identifier",
            "is_self_referencing",
            "is_identity",
            "identity_generation",
            "identity_start",
            "identity_increment",
            "is_generated",
            "generation_expression",
            "is_updatable",
        ],
        rows: InformationSchema::columns,
    },
    View {
        name: "table_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "constraint_type",
            "is_deferrable",
            "initially_deferred",
            "enforced",
            "nulls_distinct",
        ],
        rows: InformationSchema::constraints,
    },
    View {
        name: "key_column_usage",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "#ordinal_position",
            "#position_in_unique_constraint",
        ],
        rows: InformationSchema::key_columns,
    },
    View {
        name: "constraint_column_usage",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
        ],
        rows: |schema| {
            let row = |row: ViewRow| [&row[3..7], &row[..3]].concat();
            schema.key_columns().into_iter().map(row).collect()
        },
    },
    View {
        name: "character_sets",
        columns: &[
            "character_set_catalog",
            "character_set_schema",
            "character_set_name",
            "character_repertoire",
            "form_of_use",
            "default_collate_catalog",
            "default_collate_schema",
            "default_collate_name",
        ],
        rows: |_| {
            let (null, utf8) = (Cell::Null, Cell::from("UTF8"));
            let collation = [Cell::from(CATALOG), "pg_catalog".into(), "C".into()];
            vec![[&[null.clone(), null, utf8.clone(), "UCS".into(), utf8][..], &collation].concat()]
        },
    },
    View {
        name: "views",
        columns: &[
            "table_catalog",
            "table_schema",
            "table_name",
            "view_definition",
            "check_option",
            "is_updatable",
            "is_insertable_into",
        ],
        rows: InformationSchema::views,
    },
    View {
        name: "referential_constraints",
        columns: &[
            "constraint_catalog",
            "constraint_schema",
            "constraint_name",
            "unique_constraint_catalog",
            "unique_constraint_schema",
            "unique_constraint_name",
            "match_option",
            "update_rule",
            "delete_rule",
        ],
        rows: NOTHING,
    },
    View {
        name: "routines",
        columns: &[
            "specific_catalog",
            "specific_schema",
            "specific_name",
            "routine_catalog",
            "routine_schema",
            "routine_name",
            "routine_type",
            "data_type",
            "type_udt_name",
            "routine_definition",
        ],
        rows: NOTHING,
    },
    View {
        name: "sequences",
        columns: &[
            "sequence_catalog",
            "sequence_schema",
            "sequence_name",
            "data_type",
            "start_value",
            "increment",
        ],
        rows: NOTHING,
    },
    View {
        name: "triggers",
        columns: &[
            "trigger_catalog",
            "trigger_schema",
            "trigger_name",
            "event_manipulation",
            "event_object_schema",
            "event_object_table",
            "action_statement",
        ],
        rows: NOTHING,
    },
    View {
        name: "table_privileges",
        columns: &[
            "grantor",
            "grantee",
            "table_catalog",
            "table_schema",
            "table_name",
            "privilege_type",
            "is_grantable",
            "with_hierarchy",
        ],
        rows: NOTHING,
    },
    View {
        name: "column_privileges",
        columns: &[
            "grantor",
            "grantee",
            "table_catalog",
            "table_schema",
            "table_name",
            "column_name",
            "privilege_type",
            "is_grantable",
        ],
        rows: NOTHING,
    },
];

/// See the head of this file.
#[derive(Clone, Debug)]
pub(crate) struct InformationSchema {
    tables: Arc<RwLock<Tables>>,
    decimal_scale: i8,
    owner: Arc<str>,
}

impl InformationSchema {
    /// Creates the schema over `tables`, which belong to `owner`. `decimal_scale` is the scale of
    /// CQL `decimal` columns.
    pub(crate) fn new(tables: Arc<RwLock<Tables>>, decimal_scale: i8, owner: Arc<str>) -> InformationSchema {
        InformationSchema { tables, decimal_scale, owner }
    }

    fn now(&self) -> Tables {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the tables and views that the statement may read, as standard SQL has it.
    fn shown(&self) -> impl Iterator<Item = Relation> {
        let tables = self.now();
        let shown = tables.all().filter(reads);
        shown.collect::<Vec<_>>().into_iter()
    }

    /// Returns the tables among them.
    fn shown_tables(&self) -> impl Iterator<Item = Arc<TableDef>> {
        self.shown().filter(|relation| relation.base.is_none()).map(|relation| relation.def)
    }

    fn schemata(&self) -> Vec<ViewRow> {
        let row = |name: String| {
            let (catalog, owner) = (Cell::from(CATALOG), Cell::from(&*self.owner));
            let nulls = [const { Cell::Null }; 4];
            [&[catalog, Cell::Text(name), owner][..], &nulls].concat()
        };
        let others = [NAME, "pg_catalog"].map(str::to_owned);
        let keyspaces = self.now().keyspaces().into_iter().filter(|name| shows(name));
        keyspaces.chain(others).map(row).collect()
    }

    fn tables(&self) -> Vec<ViewRow> {
        let row = |Relation { def, base }: Relation| {
            let kind = if base.is_some() { "VIEW" } else { "BASE TABLE" };
            let nulls = [const { Cell::Null }; 5];
            let end = [Cell::from("NO"), "NO".into(), Cell::Null];
            [&located(&def)[..], &[Cell::from(kind)], &nulls, &end].concat()
        };
        self.shown().map(row).collect()
    }

    /// Returns the materialized views. Standard SQL shows their definitions to the owner only, and
    /// CQL has no owners.
    fn views(&self) -> Vec<ViewRow> {
        let end = [Cell::Null, "NONE".into(), "NO".into(), "NO".into()];
        let views = self.shown().filter(|relation| relation.base.is_some());
        views.map(|view| [&located(&view.def)[..], &end].concat()).collect()
    }

    fn columns(&self) -> Vec<ViewRow> {
        self.shown().flat_map(|relation| self.columns_of(&relation)).collect()
    }

    fn columns_of(&self, relation: &Relation) -> Vec<ViewRow> {
        let (table, schema) = (&relation.def, schema_of_relation(relation, self.decimal_scale));
        let row = |(place, field): (usize, &Arc<Field>)| {
            let ty = type_of(field).unwrap_or(Type::UNKNOWN);
            let udt_name = ty.name();
            let type_name = type_name(udt_name);
            let (precision, radix, scale) = number_of(udt_name);
            let time = match udt_name {
                "date" => Cell::Number(0),
                "time" | "timestamp" | "timestamptz" | "interval" => Cell::Number(6),
                _ => Cell::Null,
            };
            let is_nullable = if field.is_nullable() { "YES" } else { "NO" };
            let nulls = |count: usize| vec![Cell::Null; count];
            [
                located(table),
                vec![field.name().as_str().into(), position(place), Cell::Null, is_nullable.into()],
                vec![type_name.into(), Cell::Null, Cell::Null, precision, radix, scale, time],
                nulls(11),
                vec![CATALOG.into(), "pg_catalog".into(), udt_name.into()],
                vec![Cell::Text((place + 1).to_string()), "NO".into(), "NO".into()],
                nulls(3),
                vec!["NEVER".into(), Cell::Null, "NO".into()],
            ]
            .concat()
        };
        schema.fields().iter().enumerate().map(row).collect()
    }

    /// Returns the constraints: the primary key of each table.
    fn constraints(&self) -> Vec<ViewRow> {
        let row = |table: Arc<TableDef>| {
            let end = ["PRIMARY KEY", "NO", "NO", "YES", "NO"].map(Cell::from);
            [&constraint(&table)[..], &located(&table), &end].concat()
        };
        self.shown_tables().map(row).collect()
    }

    fn key_columns(&self) -> Vec<ViewRow> {
        let of = |table: Arc<TableDef>| {
            let keys = table.partition_key().chain(table.clustering()).enumerate();
            let row = |(place, column): (usize, &::schema::ColumnDef)| {
                let end = [column.name.as_str().into(), position(place), Cell::Null];
                [&constraint(&table)[..], &located(&table), &end].concat()
            };
            keys.map(row).collect::<Vec<ViewRow>>()
        };
        self.shown_tables().flat_map(of).collect()
    }
}

/// Returns an index as SQL's position, which counts from 1.
fn position(place: usize) -> Cell {
    Cell::Number(i32::try_from(place + 1).unwrap_or(i32::MAX))
}

fn located(table: &TableDef) -> ViewRow {
    vec![CATALOG.into(), table.keyspace.as_str().into(), table.name.as_str().into()]
}

fn constraint(table: &TableDef) -> ViewRow {
    vec![CATALOG.into(), table.keyspace.as_str().into(), Cell::Text(format!("{}_pkey", table.name))]
}

/// Returns the name in standard SQL of a type with Postgres' name `udt_name`.
fn type_name(udt_name: &str) -> &str {
    match udt_name {
        "bool" => "boolean",
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "float4" => "real",
        "float8" => "double precision",
        "varchar" => "character varying",
        "time" => "time without time zone",
        "timestamp" => "timestamp without time zone",
        "timestamptz" => "timestamp with time zone",
        array if array.starts_with('_') => "ARRAY",
        "record" => "USER-DEFINED",
        other => other,
    }
}

/// Returns precision, base and scale of a numeric type. Null for other types.
fn number_of(udt_name: &str) -> (Cell, Cell, Cell) {
    let whole = |bits| (Cell::Number(bits), Cell::Number(2), Cell::Number(0));
    let floating = |bits| (Cell::Number(bits), Cell::Number(2), Cell::Null);
    match udt_name {
        "int2" => whole(16),
        "int4" => whole(32),
        "int8" => whole(64),
        "float4" => floating(24),
        "float8" => floating(53),
        // Unbounded, as in Postgres.
        "numeric" => (Cell::Null, Cell::Number(10), Cell::Null),
        _ => (Cell::Null, Cell::Null, Cell::Null),
    }
}

fn batch(view: &View, rows: &[ViewRow]) -> Result<RecordBatch> {
    let (mut fields, mut arrays): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (place, column) in view.columns.iter().enumerate() {
        let cells = rows.iter().map(|row| &row[place]);
        let (name, array): (&str, ArrayRef) = match column.strip_prefix('#') {
            Some(name) => {
                let number = |cell: &Cell| if let Cell::Number(number) = cell { Some(*number) } else { None };
                (name, Arc::new(cells.map(number).collect::<Int32Array>()))
            }
            None => {
                let text = |cell: &Cell| if let Cell::Text(text) = cell { Some(text.clone()) } else { None };
                (column, Arc::new(cells.map(text).collect::<StringArray>()))
            }
        };
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    debug_assert!(rows.iter().all(|row| row.len() == view.columns.len()), "{}", view.name);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

/// A view as a table.
#[derive(Debug)]
struct ViewTable {
    view: &'static View,
    of: InformationSchema,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for ViewTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = batch(self.view, &(self.view.rows)(&self.of))?;
        let rows = MemTable::try_new(self.schema.clone(), vec![vec![batch]])?;
        rows.scan(state, projection, filters, limit).await
    }
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        VIEWS.iter().map(|view| view.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(view) = VIEWS.iter().find(|view| view.name == name) else { return Ok(None) };
        let schema = batch(view, &[])?.schema();
        Ok(Some(Arc::new(ViewTable { view, of: self.clone(), schema })))
    }

    fn table_exist(&self, name: &str) -> bool {
        VIEWS.iter().any(|view| view.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tasks;

    #[derive(Debug)]
    struct SeesAll;

    impl engine::Viewer for SeesAll {
        fn sees(&self, _about: engine::About<'_>) -> bool {
            true
        }
    }

    #[test]
    fn every_row_has_a_value_for_each_column() {
        let columns = [("id", ::schema::CqlType::Int), ("at", ::schema::CqlType::Timestamp)];
        let table = engine::VirtualTable::new("shop", "orders", 1, 0, &columns, Vec::new).def;
        let tables = Tables { schema: Arc::default(), virtuals: Arc::new([table]) };
        let schema = InformationSchema::new(Arc::new(RwLock::new(tables)), 6, "admin".into());
        let rows_of = |view: &View, viewer| tasks::shown_to(viewer, || (view.rows)(&schema));
        assert!(rows_of(&VIEWS[1], None).is_empty(), "outside of statements all tables are hidden");
        let viewer: Arc<dyn engine::Viewer> = Arc::new(SeesAll);
        for view in &VIEWS {
            let rows = rows_of(view, Some(viewer.clone()));
            assert!(rows.iter().all(|row| row.len() == view.columns.len()), "{}", view.name);
            assert_eq!(batch(view, &rows).expect(view.name).num_rows(), rows.len());
        }
        let columns = rows_of(&VIEWS[2], Some(viewer));
        let shown = |row: &ViewRow, place: usize| match &row[place] {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => number.to_string(),
            Cell::Null => "-".to_owned(),
        };
        let shown: Vec<String> =
            columns.iter().map(|row| [3, 4, 6, 7, 27].map(|at| shown(row, at)).join(" ")).collect();
        assert_eq!(shown, ["id 1 NO integer int4", "at 2 YES timestamp with time zone timestamptz"]);
    }
}
