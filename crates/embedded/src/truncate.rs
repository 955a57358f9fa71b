//! TRUNCATE: the table gets data of a new identity, and the old data is dropped.
//!
//! 1. Core 0 writes the row of the table's definition, with the new identity. From then on the table is empty after
//!    any crash, on all cores: a start drops data that no definition names. Before, nothing has happened.
//! 2. Each core takes over the definition.
//! 3. When all have, each core drops the old data. The statement is answered when all have done so.
//!
//! Writes beside it: one that was bound to the old identity goes with the old data, one that was bound to the new
//! one stays. A statement that finds the old data dropped is bound anew. So all that was acknowledged before the TRUNCATE is
//! gone, and all that was sent after its answer stays. Of writes in between to different cores, a later one may be
//! gone and an earlier one not, as in Cassandra.

use std::sync::Arc;

use engine::{Error, Outcome, Schema};
use schema::TableDef;
use uuid::Uuid;

use crate::catalogue::Defined;
use crate::restore::with_table;
use crate::{Embedded, term};

impl Embedded {
    /// Empties a table; on core 0, whoever asks.
    pub(crate) async fn truncate(def: Arc<TableDef>) -> Result<Outcome, Error> {
        let truncate = move || async move {
            let engine = Embedded::local();
            let _turn = engine.definition_turns.take(()).await;
            let now = engine.current.schema();
            let data = term::random_uuid();
            engine.change(async move { emptied(&now, &def, data).map(Some) }).await
        };
        lanes::call(0, truncate).await
    }
}

/// The change that gives a table new data. To clients nothing of the schema changes.
fn emptied(now: &Schema, def: &TableDef, data: Uuid) -> Result<Defined, Error> {
    let table = now.table(&def.keyspace, &def.name).filter(|table| table.id == def.id);
    let Some(table) = table else { return Err(Error::Stale) };
    let new = TableDef { data: Some(data), ..TableDef::clone(table) };
    let step = with_table(now, new, None, vec![table.clone()]);
    Ok(Defined::new(now, step))
}

#[cfg(test)]
mod tests;
