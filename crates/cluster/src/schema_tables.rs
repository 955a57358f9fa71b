//! Reader of `system_schema`: keyspaces, tables, views, columns and user types of the cluster, from
//! one node with the driver. Every role may read these tables. Keyspaces of the server itself are
//! left out.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::PagingState;
use scylla::statement::unprepared::Statement;
use uuid::Uuid;

use crate::catalog::{Catalog, ColumnRow, KeyspaceRow, SchemaRows, TableRow, TypeRow, ViewRow};
use crate::nodes::at_node;
use crate::refused::one_line;

/// Rows of a page.
const PAGE_ROWS: i32 = 1_000;

/// Rows of all five tables, at most: 10,000 tables of 50 columns. Those beyond are left out.
const ROWS_MAX: usize = 1 << 19;

/// Bytes of the names and types in them, at most.
const BYTES_MAX: usize = 64 << 20;

const KEYSPACES: &str = "SELECT keyspace_name, durable_writes, replication FROM system_schema.keyspaces";
const TABLES: &str = "SELECT keyspace_name, table_name, id FROM system_schema.tables";
const VIEWS: &str = "SELECT keyspace_name, view_name, base_table_name, id FROM system_schema.views";
const COLUMNS: &str = "SELECT keyspace_name, table_name, column_name, kind, position, clustering_order, type \
                       FROM system_schema.columns";
const TYPES: &str = "SELECT keyspace_name, type_name, field_names, field_types FROM system_schema.types";

/// Reads the catalog from a node. `version`: of the schema.
///
/// # Errors
/// One sentence.
pub(crate) async fn catalog(session: &Session, node: &Arc<Node>, version: Uuid) -> Result<Catalog, String> {
    let mut reader = TableReader::new(session, node, ROWS_MAX, BYTES_MAX);
    let rows = reader.read_schema(version).await;
    rows.map(SchemaRows::catalog)
        .map_err(|error| format!("the node {} does not show its schema: {error}", node.address))
}

/// Reader of system tables of one node.
pub(crate) struct TableReader<'a> {
    session: &'a Session,
    profile: ExecutionProfileHandle,
    /// Rows and bytes that may still be read.
    left: usize,
    left_bytes: usize,
}

impl<'a> TableReader<'a> {
    /// Creates a reader of at most `rows_max` rows with `bytes_max` bytes, of all its tables.
    pub(crate) fn new(
        session: &'a Session,
        node: &Arc<Node>,
        rows_max: usize,
        bytes_max: usize,
    ) -> TableReader<'a> {
        TableReader { session, profile: at_node(node), left: rows_max, left_bytes: bytes_max }
    }

    /// Returns the number of rows that may still be read.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    async fn read_schema(&mut self, version: Uuid) -> Result<SchemaRows, String> {
        let mut read = SchemaRows { version, ..SchemaRows::default() };
        type OfKeyspace = (String, Option<bool>, Option<HashMap<String, String>>);
        self.rows(KEYSPACES, |(name, durable_writes, replication): OfKeyspace| {
            let replication: BTreeMap<String, String> = replication.unwrap_or_default().into_iter().collect();
            let bytes = replication.iter().map(|(key, value)| key.len() + value.len()).sum();
            let durable_writes = durable_writes.unwrap_or(true);
            keep(&mut read.keyspaces, bytes, &name.clone(), KeyspaceRow { name, durable_writes, replication })
        })
        .await?;
        self.rows(TABLES, |(keyspace, name, id): (String, String, Uuid)| {
            keep(&mut read.tables, name.len(), &keyspace.clone(), TableRow { keyspace, name, id })
        })
        .await?;
        type OfView = (String, String, String, Uuid);
        self.rows(VIEWS, |(keyspace, name, base, id): OfView| {
            let of = keyspace.clone();
            let bytes = name.len() + base.len();
            keep(&mut read.views, bytes, &of, ViewRow { row: TableRow { keyspace, name, id }, base })
        })
        .await?;
        type OfType = (String, String, Option<Vec<String>>, Option<Vec<String>>);
        self.rows(TYPES, |(keyspace, name, names, types): OfType| {
            let (field_names, field_types) = (names.unwrap_or_default(), types.unwrap_or_default());
            let bytes = field_names.iter().chain(&field_types).map(String::len).sum();
            keep(
                &mut read.types,
                bytes,
                &keyspace.clone(),
                TypeRow { keyspace, name, field_names, field_types },
            )
        })
        .await?;
        type OfColumn = (String, String, String, String, i32, Option<String>, String);
        let is_whole = self
            .rows(COLUMNS, |(keyspace, table, name, kind, position, order, ty): OfColumn| {
                let (bytes, order) = (name.len() + ty.len(), order.unwrap_or_default());
                let of = keyspace.clone();
                keep(
                    &mut read.columns,
                    bytes,
                    &of,
                    ColumnRow { keyspace, table, name, kind, position, order, ty },
                )
            })
            .await?;
        if !is_whole && let Some(last) = read.columns.last() {
            // Rows are in the order of tables: all but the last one have all of their columns.
            let (keyspace, table) = (last.keyspace.clone(), last.table.clone());
            let is_whole = |row: &TableRow| (&row.keyspace, &row.name) != (&keyspace, &table);
            read.tables.retain(is_whole);
            read.views.retain(|view| is_whole(&view.row));
        }
        Ok(read)
    }

    /// Reads a table. `keep` returns the bytes of a row. Returns false if the bounds were reached.
    ///
    /// # Errors
    /// One line with the reason.
    pub(crate) async fn rows<R>(
        &mut self,
        text: &str,
        mut keep: impl FnMut(R) -> usize,
    ) -> Result<bool, String>
    where
        R: for<'f, 'm> DeserializeRow<'f, 'm>,
    {
        let mut statement = Statement::new(text).with_page_size(PAGE_ROWS);
        statement.set_execution_profile_handle(Some(self.profile.clone()));
        let mut state = PagingState::start();
        loop {
            let page = self.session.query_single_page(statement.clone(), &[], state).await;
            let (page, next) = page.map_err(|error| one_line(&error))?;
            let page = page.into_rows_result().map_err(|error| one_line(&error))?;
            for row in page.rows::<R>().map_err(|error| one_line(&error))? {
                let bytes = keep(row.map_err(|error| one_line(&error))?);
                self.left = self.left.saturating_sub(1);
                self.left_bytes = self.left_bytes.saturating_sub(bytes);
                if self.left == 0 || self.left_bytes == 0 {
                    return Ok(false);
                }
            }
            match next.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(true),
                ControlFlow::Continue(next) => state = next,
            }
        }
    }
}

/// Stores a row unless its keyspace is one of the server. Returns its bytes.
fn keep<R>(rows: &mut Vec<R>, bytes: usize, keyspace: &str, row: R) -> usize {
    if engine::is_of_server(keyspace) {
        return 0;
    }
    rows.push(row);
    bytes + keyspace.len()
}
