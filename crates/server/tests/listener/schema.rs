//! Schema statements in a server with many definitions and many clients: no task poll is long.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::common::{ADMIN, Answer, TestServer, assert_short_polls, settings};
use embedded::Embedded;
use engine::{
    Acks, BatchKind, Engine, Error, Execution, Keyspace, ParsedTree, Plan, Registry,
    Request as EngineRequest, Schema, SchemaListener, Value,
};
use schema::{ColumnDef, ColumnKind, CqlType, KeyspaceDef, TableDef, TableOptions};
use server::ServerConfig;
use wire::*;

const TABLES: usize = 300;
const COLUMNS: usize = 20;

/// An engine that reports many tables.
struct Wide {
    engine: Rc<Embedded>,
    schema: Arc<Schema>,
}

fn table(name: String) -> TableDef {
    let column = |at: usize| ColumnDef {
        id: at as u32,
        name: format!("c{at}"),
        ty: CqlType::Text,
        kind: if at == 0 { ColumnKind::PartitionKey(0) } else { ColumnKind::Regular },
    };
    TableDef {
        id: uuid::Uuid::nil(),
        keyspace: "wide".into(),
        name,
        next_column_id: COLUMNS as u32,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        columns: (0..COLUMNS).map(column).collect(),
        options: TableOptions::default(),
    }
}

fn wide() -> Arc<Schema> {
    let tables = (0..TABLES).map(|at| (format!("t{at:04}"), Arc::new(table(format!("t{at:04}")))));
    let keyspace = Keyspace {
        def: KeyspaceDef { name: "wide".into(), replication: BTreeMap::new(), durable_writes: true },
        tables: tables.collect(),
        types: BTreeMap::new(),
    };
    Arc::new(Schema { keyspaces: BTreeMap::from([("wide".into(), Arc::new(keyspace))]), ..Schema::default() })
}

impl Engine for Wide {
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        self.engine.prepare(statement, keyspace)
    }
    fn execute(&self, plan: &Rc<dyn Plan>, request: &EngineRequest<'_>) -> Execution {
        self.engine.execute(plan, request)
    }
    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &EngineRequest<'_>,
    ) -> Execution {
        self.engine.execute_batch(kind, parts, request)
    }
    fn acks(&self) -> Box<dyn Acks> {
        self.engine.acks()
    }
    fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }
    fn on_schema_change(&self, listener: SchemaListener) {
        self.engine.on_schema_change(listener);
    }
    fn registry(&self) -> &Registry {
        self.engine.registry()
    }
}

#[test]
fn description_of_many_tables_keeps_task_polls_short() {
    let wrap = |engine| Rc::new(Wide { engine, schema: wide() }) as Rc<dyn Engine>;
    let server = TestServer::start_with(1, settings(), Arc::new(wrap));
    let mut client = server.client(Version::V5, ADMIN);
    for (text, rows) in
        [("DESCRIBE KEYSPACE wide", 1 + TABLES), ("DESCRIBE SCHEMA", 1 + TABLES), ("DESCRIBE wide.t0007", 1)]
    {
        assert_eq!(client.run(text).texts().len(), rows, "{text}");
    }
    let tables = client.run("DESCRIBE TABLES").texts();
    assert_eq!(tables.iter().filter(|row| row[0] == "wide").count(), TABLES);
    assert_short_polls(&server);
}

#[test]
fn schema_change_reaches_many_clients_in_short_polls() {
    const CLIENTS: usize = 400;
    let config = ServerConfig { authenticate: false, ..settings() };
    let server = TestServer::start(1, config);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.startup(Version::V4, Compression::None), Answer::Ready);
        assert_eq!(client.ask(&Request::Register(vec!["SCHEMA_CHANGE"])), Answer::Ready);
    }
    let mut other = server.connect();
    other.startup(Version::V4, Compression::None);
    other.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    for client in &mut clients {
        let event = client.receive();
        assert!(matches!(event, Some((EVENT_STREAM, Answer::Event(Event::Schema(_))))), "{event:?}");
    }
    assert_short_polls(&server);
}
