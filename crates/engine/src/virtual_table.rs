//! Virtual tables: their rows are created on request, such as `system.local`. One registry per core
//! is filled at start. A table that may have many rows creates them in chunks and yields in
//! between.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use ::schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, TableDef, TableOptions};
use bytes::Bytes;
use uuid::Uuid;

use crate::guardrails::Guardrails;
use crate::metric::{Measure, TableMeasures};
use crate::viewer::{Subject, Viewer};

/// Keyspaces shown to clients as virtual. All others are shown as real.
pub const VIRTUAL_KEYSPACES: [&str; 3] = ["fairlane", "system_views", "system_virtual_schema"];

/// Returns true if a keyspace is the server's own. Clients create none with such a name.
#[must_use]
pub fn is_of_server(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_") || VIRTUAL_KEYSPACES.contains(&keyspace)
}

/// A row of a virtual table: one cell per column, in the order of the definition.
pub type VirtualRow = Vec<Option<Bytes>>;

/// Function that creates the rows of a virtual table.
pub type RowSource = dyn Fn() -> Vec<VirtualRow>;

/// Future of rows that are created in chunks.
pub type LaterRows = Pin<Box<dyn Future<Output = Vec<VirtualRow>>>>;

/// Function that creates the rows of a virtual table in chunks, on a fast lane. It may omit rows
/// that are invisible to the viewer.
pub type ChunkedSource = dyn Fn(Option<Arc<dyn Viewer>>) -> LaterRows;

/// Rows of a virtual table in the order of its key, a few at a time, each created on request. An
/// empty chunk comes before a row that takes long to create, which a heavy lane does.
pub type RowChunks = Box<dyn Iterator<Item = Vec<VirtualRow>> + Send>;

/// Snapshot of a virtual table whose rows are streamed. Each call begins a stream, on any lane.
pub type StreamedRows = Arc<dyn Fn() -> RowChunks + Send + Sync>;

/// Source of the rows of a virtual table.
#[derive(Clone)]
pub enum VirtualSource {
    /// Creates all rows at once, for tables with few rows.
    AtOnce(Rc<RowSource>),
    /// Creates rows in chunks, for tables whose number of rows depends on clients.
    Chunked(Rc<ChunkedSource>),
    /// Takes a snapshot of rows that are streamed, for tables as large as the schema: no reader has
    /// all rows in memory.
    Streamed(Rc<dyn Fn() -> StreamedRows>),
}

/// A virtual table.
#[derive(Clone)]
pub struct VirtualTable {
    /// Definition. Rows need not be sorted.
    pub def: Arc<TableDef>,
    /// Source of the rows for each query.
    pub source: VirtualSource,
    /// True if each core has rows of its own, and the table consists of the rows of all cores.
    pub of_every_core: bool,
    /// Objects of the rows, which decide their visibility ([`VirtualTable::show`]).
    pub subject: Subject,
}

impl VirtualTable {
    /// Creates a virtual table with `columns` as (name, type): first `partition` partition key
    /// columns, then `clustering` clustering columns, then regular ones. Key order is ascending.
    pub fn new(
        keyspace: &str,
        name: &str,
        partition: usize,
        clustering: usize,
        columns: &[(&str, CqlType)],
        rows: impl Fn() -> Vec<VirtualRow> + 'static,
    ) -> VirtualTable {
        let columns: Vec<ColumnDef> = columns
            .iter()
            .enumerate()
            .map(|(i, (name, ty))| ColumnDef {
                id: i as u32,
                name: (*name).to_owned(),
                ty: ty.clone(),
                kind: match i {
                    i if i < partition => ColumnKind::PartitionKey(i),
                    i if i < partition + clustering => {
                        ColumnKind::Clustering(i - partition, ClusteringOrder::Asc)
                    }
                    _ => ColumnKind::Regular,
                },
            })
            .collect();
        let def = TableDef {
            id: VirtualTable::id_of(keyspace, name),
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            next_column_id: columns.len() as u32,
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: Vec::new(),
            columns,
            options: TableOptions::default(),
        };
        VirtualTable {
            def: Arc::new(def),
            source: VirtualSource::AtOnce(Rc::new(rows)),
            of_every_core: false,
            subject: Subject::Server,
        }
    }

    /// Sets the comment, which DESCRIBE and `system_virtual_schema.tables` show.
    #[must_use]
    pub fn commented(mut self, comment: &str) -> VirtualTable {
        comment.clone_into(&mut Arc::make_mut(&mut self.def).options.comment);
        self
    }

    /// Returns the identity of the virtual table of this name, registered or not.
    #[must_use]
    pub fn id_of(keyspace: &str, name: &str) -> Uuid {
        Uuid::from_u128(u128::from(fnv(keyspace)) << 64 | u128::from(fnv(name)))
    }

    /// Replaces the rows by rows that are created in chunks.
    #[must_use]
    pub fn in_chunks(self, rows: impl Fn(Option<Arc<dyn Viewer>>) -> LaterRows + 'static) -> VirtualTable {
        VirtualTable { source: VirtualSource::Chunked(Rc::new(rows)), ..self }
    }

    /// Replaces the rows by rows that are streamed in the order of the key.
    #[must_use]
    pub fn streamed(self, rows: impl Fn() -> StreamedRows + 'static) -> VirtualTable {
        VirtualTable { source: VirtualSource::Streamed(Rc::new(rows)), ..self }
    }

    /// Takes a snapshot of this core's rows, if they are streamed. They include rows that are
    /// invisible to a viewer.
    #[must_use]
    pub fn stream(&self) -> Option<StreamedRows> {
        match &self.source {
            VirtualSource::Streamed(rows) => Some(rows()),
            _ => None,
        }
    }

    /// Returns this core's rows. `None`: they are created in chunks ([`VirtualTable::rows`]).
    #[must_use]
    pub fn rows_at_once(&self) -> Option<Vec<VirtualRow>> {
        match &self.source {
            VirtualSource::AtOnce(rows) => Some(rows()),
            VirtualSource::Chunked(_) | VirtualSource::Streamed(_) => None,
        }
    }

    /// Creates this core's rows on its fast lane. They may include rows that are invisible to the
    /// viewer ([`VirtualTable::show`]).
    pub async fn rows(&self, viewer: Option<Arc<dyn Viewer>>) -> Vec<VirtualRow> {
        self.source.rows(viewer).await
    }

    /// Declares that each core has rows of its own.
    #[must_use]
    pub fn of_every_core(self) -> VirtualTable {
        VirtualTable { of_every_core: true, ..self }
    }
}

impl VirtualSource {
    /// Returns a source of the rows of both.
    fn and(self, other: VirtualSource) -> VirtualSource {
        if let (VirtualSource::AtOnce(one), VirtualSource::AtOnce(other)) = (&self, &other) {
            let one = one.clone();
            let other = other.clone();
            return VirtualSource::AtOnce(Rc::new(move || one().into_iter().chain(other()).collect()));
        }
        VirtualSource::Chunked(Rc::new(move |viewer| {
            let one = self.clone();
            let other = other.clone();
            Box::pin(async move {
                let mut rows = one.rows(viewer.clone()).await;
                rows.extend(other.rows(viewer).await);
                rows
            })
        }))
    }

    async fn rows(&self, viewer: Option<Arc<dyn Viewer>>) -> Vec<VirtualRow> {
        match self {
            VirtualSource::AtOnce(rows) => rows(),
            VirtualSource::Chunked(rows) => rows(viewer).await,
            VirtualSource::Streamed(rows) => rows()().flatten().collect(),
        }
    }
}

/// Hashes a name with FNV-1a, so that the id of a virtual table is the same on every start.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Function that returns the current metrics.
type MeasureSource = dyn Fn() -> Vec<Measure>;

/// Future of the metrics of tables.
pub type LaterMeasures = Pin<Box<dyn Future<Output = Vec<TableMeasures>>>>;

/// Function that collects the metrics of tables on all cores.
type TableMeasureSource = dyn Fn() -> LaterMeasures;

/// Virtual tables and metrics of all parts of the server, on one core.
#[derive(Default)]
pub struct Registry {
    tables: RefCell<BTreeMap<(String, String), VirtualTable>>,
    measures: RefCell<Vec<Rc<MeasureSource>>>,
    table_measures: RefCell<Option<Rc<TableMeasureSource>>>,
    guardrails: OnceCell<Arc<Guardrails>>,
}

impl Registry {
    /// Adds a table. Replaces one of the same name.
    pub fn add(&self, table: VirtualTable) {
        let name = (table.def.keyspace.clone(), table.def.name.clone());
        self.tables.borrow_mut().insert(name, table);
    }

    /// Adds a table. If one of the same name and columns exists, the rows are concatenated.
    pub fn add_rows(&self, table: VirtualTable) {
        let table = match self.get(&table.def.keyspace, &table.def.name) {
            Some(old) => VirtualTable { source: old.source.and(table.source), ..table },
            None => table,
        };
        self.add(table);
    }

    /// Adds the metrics of a part of the server: always the same metrics in the same order. All
    /// cores have the same parts.
    pub fn add_measures(&self, measures: impl Fn() -> Vec<Measure> + 'static) {
        self.measures.borrow_mut().push(Rc::new(measures));
    }

    /// Sets the source of the metrics of tables on all cores.
    pub fn set_table_measures(&self, measures: impl Fn() -> LaterMeasures + 'static) {
        *self.table_measures.borrow_mut() = Some(Rc::new(measures));
    }

    /// Collects the metrics of tables on all cores.
    pub async fn table_measures(&self) -> Vec<TableMeasures> {
        let source = self.table_measures.borrow().clone();
        match source {
            Some(source) => source().await,
            None => Vec::new(),
        }
    }

    /// Returns the limits for statements.
    pub fn guardrails(&self) -> &Arc<Guardrails> {
        self.guardrails.get_or_init(Arc::default)
    }

    /// Sets the limits, which all cores of a server share. Without this call, the registry has its
    /// own default limits.
    ///
    /// # Panics
    /// Panics if the limits have been used already.
    pub fn set_guardrails(&self, guardrails: Arc<Guardrails>) {
        self.guardrails.set(guardrails).expect("guardrails are set before their first use");
    }

    /// Returns the metrics of all parts.
    pub fn measures(&self) -> Vec<Measure> {
        let sources = self.measures.borrow().clone();
        sources.iter().flat_map(|measures| measures()).collect()
    }

    /// Returns the table of this name.
    pub fn get(&self, keyspace: &str, table: &str) -> Option<VirtualTable> {
        self.tables.borrow().get(&(keyspace.to_owned(), table.to_owned())).cloned()
    }

    /// Returns all tables, sorted by keyspace and name.
    pub fn all(&self) -> Vec<VirtualTable> {
        self.tables.borrow().values().cloned().collect()
    }
}
