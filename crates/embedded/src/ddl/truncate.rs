//! TRUNCATE: the table gets data with a new identity, and the old data is dropped.
//!
//! 1. Core 0 logs the table's definition with the new identity. From then on the table is empty on
//!    all cores after any crash, because a start drops data that no definition names. Before that,
//!    nothing has changed.
//! 2. Each core adopts the definition.
//! 3. When all cores have, each drops the old data. The statement returns when all cores are done.
//!
//! Concurrent writes: a write bound to the old identity is dropped with the old data, a write bound
//! to the new one stays. A statement that finds the old data dropped is bound again. Everything
//! acknowledged before the TRUNCATE is gone, and everything sent after its result stays. For writes
//! in between to different cores, a later one may be gone and an earlier one not, as in Cassandra.

use std::sync::Arc;

use engine::{Error, Schema, StatementOutcome};
use schema::TableDef;
use uuid::Uuid;

use crate::Embedded;
use crate::bind::term;
use crate::ddl::catalog::Defined;
use crate::ddl::restore::with_table;

impl Embedded {
    /// Empties a table. Runs on core 0, called from any core.
    pub(crate) async fn truncate(def: Arc<TableDef>) -> Result<StatementOutcome, Error> {
        let truncate = move || async move {
            let engine = Embedded::local();
            let guard = engine.definitions.lock().await;
            let now = engine.current.schema();
            let data = term::random_uuid();
            let (keyspace, table) = (def.keyspace.clone(), def.name.clone());
            let emptied = engine.change(async move { emptied(&now, &def, data).map(Some) }).await;
            drop(guard);
            engine.wait_for_builds(&keyspace, &table).await;
            emptied
        };
        lanes::call(0, truncate).await
    }
}

/// Returns the change that gives a table new data. It is no schema change to clients.
fn emptied(now: &Schema, def: &TableDef, data: Uuid) -> Result<Defined, Error> {
    let table = now.table(&def.keyspace, &def.name).filter(|table| table.id == def.id);
    let Some(table) = table else { return Err(Error::Stale) };
    let new = table.with_data(data, term::random_uuid);
    let step = with_table(now, new, None, vec![table.clone()]);
    Ok(Defined::new(now, step))
}

#[cfg(test)]
mod tests;
