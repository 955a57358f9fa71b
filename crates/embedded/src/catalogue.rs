//! The schema: kept as one JSON value in a table of its own on core 0, changed there one statement at a time, and
//! handed to every core before the statement answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::Statement;
use engine::{Error, Keyspace, Outcome, Schema, SchemaChange};
use schema::{KeyspaceDef, TableDef, UdtType};
use serde::{Deserialize, Serialize};
use storage::{CellRef, Liveness, RowBuilder, TableId};
use uuid::Uuid;

use crate::definition::{self, Step, storage_options};
use crate::table_scan::bounds::layouts;
use crate::{Embedded, storage_error, term};

/// The table that keeps the schema. No user's table has this identity: theirs are random.
const SCHEMA_TABLE: TableId = TableId(1);
const SCHEMA_KEY: &[u8] = b"schema";

/// A schema as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: Uuid,
    keyspaces: Vec<KeptKeyspace>,
}

#[derive(Serialize, Deserialize)]
struct KeptKeyspace {
    def: KeyspaceDef,
    tables: Vec<TableDef>,
    types: Vec<UdtType>,
}

fn keep(schema: &Schema) -> Vec<u8> {
    let keyspaces = schema.keyspaces.values().map(|keyspace| KeptKeyspace {
        def: keyspace.def.clone(),
        tables: keyspace.tables.values().map(|t| TableDef::clone(t)).collect(),
        types: keyspace.types.values().map(|t| UdtType::clone(t)).collect(),
    });
    let kept = Kept { version: schema.version, keyspaces: keyspaces.collect() };
    serde_json::to_vec(&kept).expect("definitions have no maps with keys other than text")
}

fn revive(bytes: &[u8]) -> Result<Schema, Error> {
    let kept: Kept = serde_json::from_slice(bytes)
        .map_err(|e| Error::Server(format!("the stored schema is damaged: {e}")))?;
    let keyspaces = kept.keyspaces.into_iter().map(|keyspace| {
        let tables: BTreeMap<_, _> =
            keyspace.tables.into_iter().map(|t| (t.name.clone(), Arc::new(t))).collect();
        let types: BTreeMap<_, _> =
            keyspace.types.into_iter().map(|t| (t.name.clone(), Arc::new(t))).collect();
        (keyspace.def.name.clone(), Arc::new(Keyspace { def: keyspace.def, tables, types }))
    });
    Ok(Schema { version: kept.version, keyspaces: keyspaces.collect() })
}

impl Embedded {
    /// The schema as core 0's shard has it.
    pub(crate) async fn load_schema(&self) -> Result<Arc<Schema>, Error> {
        let token = schema::token::token(SCHEMA_KEY);
        let row = self
            .shard
            .read_row(SCHEMA_TABLE, token, SCHEMA_KEY, &[], storage::Pick::columns(&[0]), 0)
            .wait()
            .await
            .map_err(storage_error)?;
        match row.as_ref().and_then(|row| row.cell(0)).and_then(|cell| cell.value()) {
            Some(bytes) => revive(bytes).map(Arc::new),
            None => Ok(Arc::new(Schema { version: term::random_uuid(), ..Schema::default() })),
        }
    }

    /// Runs a definition statement; on core 0, whoever asks.
    pub(crate) async fn define(statement: Statement, keyspace: Option<String>) -> Result<Outcome, Error> {
        lanes::call(0, move || async move {
            let engine = Embedded::local();
            while engine.defining.replace(true) {
                engine.defined.notified().await;
            }
            let _turn = Turn(&engine);
            engine.define_here(&statement, keyspace.as_deref()).await
        })
        .await
    }

    async fn define_here(&self, statement: &Statement, keyspace: Option<&str>) -> Result<Outcome, Error> {
        let now = self.schema.borrow().clone();
        let Some(Step { schema, change, dropped }) =
            definition::apply(&now, statement, keyspace, term::random_uuid())?
        else {
            return Ok(Outcome::Void);
        };
        let timestamp = self.next_us();
        let mut row = RowBuilder::new(SCHEMA_KEY, &[], timestamp);
        row.marker(Some(Liveness { timestamp, expiry: None }));
        row.push(CellRef::live(0, timestamp, &keep(&schema)));
        let token = schema::token::token(SCHEMA_KEY);
        let written = self.shard.put(SCHEMA_TABLE, token, SCHEMA_KEY, &row.draft());
        written.map_err(storage_error)?.await.map_err(storage_error)?;
        let schema = Arc::new(schema);
        for core in 0..lanes::cores() {
            let (schema, change, dropped) = (schema.clone(), change.clone(), dropped.clone());
            lanes::call(core, move || async move { Embedded::local().adopt(schema, &change, dropped).await })
                .await?;
        }
        Ok(Outcome::SchemaChange(change))
    }

    /// Tells storage the options of tables and how their numbers lie, of those that changed since the schema `before`.
    pub(crate) fn configure_tables(&self, before: Option<&Schema>) {
        let schema = self.schema.borrow();
        for def in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            let known = before.and_then(|before| before.table(&def.keyspace, &def.name));
            if !known.is_some_and(|known| Arc::ptr_eq(known, def)) {
                let table = TableId(def.id.as_u128());
                self.shard.configure(table, storage_options::of_table(def));
                self.shard.describe(table, layouts(def));
            }
        }
    }

    /// Takes over a new schema on this core.
    async fn adopt(
        &self,
        schema: Arc<Schema>,
        change: &SchemaChange,
        dropped: Vec<Uuid>,
    ) -> Result<(), Error> {
        let before = self.schema.replace(schema);
        self.configure_tables(Some(&before));
        self.epoch.set(self.epoch.get() + 1);
        let listeners = self.listeners.borrow().clone();
        listeners.iter().for_each(|listener| listener(change));
        for table in dropped {
            self.shard.drop_table(TableId(table.as_u128())).await.map_err(storage_error)?;
        }
        Ok(())
    }
}

/// Ends a definition statement's turn, however it ends.
struct Turn<'a>(&'a Embedded);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.defining.set(false);
        self.0.defined.notify();
    }
}
