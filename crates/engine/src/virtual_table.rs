//! Virtual tables: rows made when asked for, such as `system.local`. One registry a core, filled at
//! start. A table that may have many rows makes them in chunks and yields in between.

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

/// A row of a virtual table: a cell a column, in the order of the definition's `columns`.
pub type VirtualRow = Vec<Option<Bytes>>;

/// Makes the rows of a virtual table.
pub type RowSource = dyn Fn() -> Vec<VirtualRow>;

/// Rows that are being made in chunks.
pub type LaterRows = Pin<Box<dyn Future<Output = Vec<VirtualRow>>>>;

/// Makes the rows of a virtual table in chunks, on a fast lane. May leave out rows that the viewer is not shown.
pub type ChunkedSource = dyn Fn(Option<Arc<dyn Viewer>>) -> LaterRows;

/// The way in which a virtual table makes its rows.
#[derive(Clone)]
pub enum Source {
    /// In one go: few rows.
    AtOnce(Rc<RowSource>),
    /// In chunks: as many rows as clients can cause.
    Chunked(Rc<ChunkedSource>),
}

/// A virtual table.
#[derive(Clone)]
pub struct VirtualTable {
    /// Its definition. Rows need not be sorted.
    pub def: Arc<TableDef>,
    /// Makes its rows for every query.
    pub source: Source,
    /// Whether each core has rows of its own, and the table is all of them.
    pub of_every_core: bool,
    /// What its rows are about, which decides to whom they are shown ([`VirtualTable::show`]).
    pub subject: Subject,
}

impl VirtualTable {
    /// A virtual table with the columns given as (name, type): first `partition` partition-key
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
            columns,
            options: TableOptions::default(),
        };
        VirtualTable {
            def: Arc::new(def),
            source: Source::AtOnce(Rc::new(rows)),
            of_every_core: false,
            subject: Subject::Server,
        }
    }

    /// Returns the identity of a virtual table of that name, whether or not it is registered.
    #[must_use]
    pub fn id_of(keyspace: &str, name: &str) -> Uuid {
        Uuid::from_u128(u128::from(fnv(keyspace)) << 64 | u128::from(fnv(name)))
    }

    /// The same table with other rows, which are made in chunks.
    #[must_use]
    pub fn in_chunks(self, rows: impl Fn(Option<Arc<dyn Viewer>>) -> LaterRows + 'static) -> VirtualTable {
        VirtualTable { source: Source::Chunked(Rc::new(rows)), ..self }
    }

    /// This core's rows; `None` where they are made in chunks ([`VirtualTable::rows`]).
    #[must_use]
    pub fn rows_at_once(&self) -> Option<Vec<VirtualRow>> {
        match &self.source {
            Source::AtOnce(rows) => Some(rows()),
            Source::Chunked(_) => None,
        }
    }

    /// Makes this core's rows, on its fast lane. Rows that the viewer is not shown may be among them ([`VirtualTable::show`]).
    pub async fn rows(&self, viewer: Option<Arc<dyn Viewer>>) -> Vec<VirtualRow> {
        self.source.rows(viewer).await
    }

    /// The same, where each core has rows of its own.
    #[must_use]
    pub fn of_every_core(self) -> VirtualTable {
        VirtualTable { of_every_core: true, ..self }
    }
}

impl Source {
    /// The rows of one source, then those of the other.
    fn and(self, other: Source) -> Source {
        if let (Source::AtOnce(one), Source::AtOnce(other)) = (&self, &other) {
            let (one, other) = (one.clone(), other.clone());
            return Source::AtOnce(Rc::new(move || one().into_iter().chain(other()).collect()));
        }
        Source::Chunked(Rc::new(move |viewer| {
            let (one, other) = (self.clone(), other.clone());
            Box::pin(async move {
                let mut rows = one.rows(viewer.clone()).await;
                rows.extend(other.rows(viewer).await);
                rows
            })
        }))
    }

    async fn rows(&self, viewer: Option<Arc<dyn Viewer>>) -> Vec<VirtualRow> {
        match self {
            Source::AtOnce(rows) => rows(),
            Source::Chunked(rows) => rows(viewer).await,
        }
    }
}

/// FNV-1a, so that a virtual table's id is the same on every start.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Says what is counted now.
type MeasureSource = dyn Fn() -> Vec<Measure>;

/// Metrics of tables that are being gathered.
pub type LaterMeasures = Pin<Box<dyn Future<Output = Vec<TableMeasures>>>>;

/// Gathers the metrics of tables, of all cores.
type TableMeasureSource = dyn Fn() -> LaterMeasures;

/// What the parts of a server show of themselves on one core: virtual tables, and counts.
#[derive(Default)]
pub struct Registry {
    tables: RefCell<BTreeMap<(String, String), VirtualTable>>,
    measures: RefCell<Vec<Rc<MeasureSource>>>,
    table_measures: RefCell<Option<Rc<TableMeasureSource>>>,
    guardrails: OnceCell<Arc<Guardrails>>,
}

impl Registry {
    /// Adds a table, in place of one of the same name.
    pub fn add(&self, table: VirtualTable) {
        let name = (table.def.keyspace.clone(), table.def.name.clone());
        self.tables.borrow_mut().insert(name, table);
    }

    /// Adds a table's rows to those of one of the same name and columns, if there is one.
    pub fn add_rows(&self, table: VirtualTable) {
        let table = match self.get(&table.def.keyspace, &table.def.name) {
            Some(old) => VirtualTable { source: old.source.and(table.source), ..table },
            None => table,
        };
        self.add(table);
    }

    /// Adds a part's counts: always the same metrics in the same order, and on every core those of
    /// the same parts.
    pub fn add_measures(&self, measures: impl Fn() -> Vec<Measure> + 'static) {
        self.measures.borrow_mut().push(Rc::new(measures));
    }

    /// Sets the source of metrics of tables, for all cores.
    pub fn set_table_measures(&self, measures: impl Fn() -> LaterMeasures + 'static) {
        *self.table_measures.borrow_mut() = Some(Rc::new(measures));
    }

    /// Gathers the metrics of tables, of all cores.
    pub async fn table_measures(&self) -> Vec<TableMeasures> {
        let source = self.table_measures.borrow().clone();
        match source {
            Some(source) => source().await,
            None => Vec::new(),
        }
    }

    /// The limits that statements are checked against.
    pub fn guardrails(&self) -> &Arc<Guardrails> {
        self.guardrails.get_or_init(Arc::default)
    }

    /// Shares the limits of a server, one value for all of its cores. Without it a registry has
    /// defaults of its own.
    ///
    /// # Panics
    /// The limits have been used already.
    pub fn set_guardrails(&self, guardrails: Arc<Guardrails>) {
        self.guardrails.set(guardrails).expect("guardrails are set before their first use");
    }

    /// What all parts count.
    pub fn measures(&self) -> Vec<Measure> {
        let sources = self.measures.borrow().clone();
        sources.iter().flat_map(|measures| measures()).collect()
    }

    /// The table of that name.
    pub fn get(&self, keyspace: &str, table: &str) -> Option<VirtualTable> {
        self.tables.borrow().get(&(keyspace.to_owned(), table.to_owned())).cloned()
    }

    /// Every table, by keyspace and name.
    pub fn all(&self) -> Vec<VirtualTable> {
        self.tables.borrow().values().cloned().collect()
    }
}
