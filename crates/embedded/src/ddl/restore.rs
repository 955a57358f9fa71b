//! Restore of a table from a snapshot while the server runs.
//!
//! 1. Core 0 reads the schema of the snapshot.
//! 2. The table's definition in the snapshot is compared with the current one. The restore is
//!    rejected if values of the snapshot could not be values of the current columns. A table that
//!    no longer exists is defined again, and so are its keyspace and its user types if they are
//!    missing.
//! 3. Every core imports its part of the table into data with a new identity (storage's `import`).
//!    Batches that are only in the batch log of the snapshot are applied to it.
//! 4. As in a truncation, one log record makes this the table's data. The old data is dropped.
//!
//! The table then has exactly the data of the snapshot: its earlier data is replaced. Until step 4
//! nothing has changed, even after a crash or an error.

use std::path::Path;
use std::sync::Arc;

use engine::{Error, Keyspace, Schema, SchemaChange, SchemaTarget};
use schema::{ColumnDef, ColumnKind, KeyspaceDef, TableDef};
use storage::TableId;
use uuid::Uuid;

use crate::bind::term;
use crate::ddl::catalog::{Defined, drop_data};
use crate::ddl::definition::DefinitionStep;
use crate::system::own_tables::{BATCH_TABLE, FLOORS, SCHEMA_TABLE};
use crate::write::batch_log::{by_core, mutations_of};
use crate::{Embedded, storage_error};

impl Embedded {
    /// Restores a table from a snapshot of everything or of that table. Runs on any core. Reads and
    /// writes continue. Those of the table see the restored data once this returns.
    ///
    /// # Errors
    /// Returns an error if the folder is no snapshot or damaged, if it does not have the table, if
    /// the columns differ, or if a write fails. The table is then unchanged.
    pub fn restore_table<'a>(
        from: &'a Path,
        keyspace: &'a str,
        table: &'a str,
    ) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let (from, keyspace, table) = (from.to_owned(), keyspace.to_owned(), table.to_owned());
            lanes::call(0, move || async move {
                let engine = Embedded::local();
                let guard = engine.definitions.lock().await;
                let snapshot = engine.schema_of(&from).await?;
                let now = engine.current.schema();
                let data = term::random_uuid();
                let step = restored(&now, &snapshot, &keyspace, &table, data)?;
                let def = step.schema.table(&keyspace, &table).expect("the step adds the table").clone();
                let old = snapshot.table(&keyspace, &table).expect("checked").data_id();
                let made = async {
                    engine.import(&from, old, def).await?;
                    engine.snapshot_dropped_data(&step).await
                };
                if let Err(error) = made.await {
                    drop(drop_data([TableId(data.as_u128())].into()).await);
                    return Err(error);
                }
                // The restored definition may have another weight.
                engine.definitions.forget_bytes();
                // If this fails, its record may be in the log nevertheless. The next start then
                // drops one of the two data identities.
                engine.make_or_stop(Defined::new(&now, step)).await?;
                drop(guard);
                engine.wait_for_builds(&keyspace, &table).await;
                Ok(())
            })
            .await
        })
    }

    /// Reads the schema of a snapshot. Runs on core 0, and raises its clock to the timestamps of
    /// the snapshot.
    async fn schema_of(&self, from: &Path) -> Result<Schema, Error> {
        let (definitions, floors) = (random_table(), random_table());
        let read = async {
            self.import_whole(from, SCHEMA_TABLE, definitions).await?;
            self.import_whole(from, FLOORS, floors).await?;
            let mut scan = self.shard.scan(floors, i64::MIN..=i64::MAX, None, 0);
            while let Some((_, _, view)) = scan.next().await.map_err(storage_error)? {
                let times = view.rows().filter_map(|row| row.cell(0).map(|cell| cell.timestamp));
                times.max().into_iter().for_each(|time| self.timestamps.raise(time));
            }
            self.read_schema(definitions).await
        };
        let read = read.await;
        drop(self.shard.drop_tables(&[definitions, floors]).await);
        match read? {
            Some(schema) => Ok(schema),
            None => Err(Error::Invalid(format!("{} has no schema: it is no whole snapshot", from.display()))),
        }
    }

    async fn import_whole(&self, from: &Path, table: TableId, into: TableId) -> Result<(), Error> {
        self.shard.import(from, table, into, true).await.map_err(storage_error)
    }

    /// Imports a table's data from a snapshot on all cores, into the data of a definition.
    async fn import(&self, from: &Path, old: Uuid, def: Arc<TableDef>) -> Result<(), Error> {
        let (old, new) = (TableId(old.as_u128()), TableId(def.data_id().as_u128()));
        for core in 0..lanes::cores() {
            let (from, def) = (from.to_owned(), def.clone());
            let import = move || async move {
                let engine = Embedded::local();
                engine.configure_tables(std::iter::once(&def));
                engine.shard.import(&from, old, new, false).await
            };
            lanes::call(core, import).await.map_err(storage_error)?;
        }
        let batches = random_table();
        let applied = async {
            self.import_whole(from, BATCH_TABLE, batches).await?;
            for entry in self.entries_of(batches).await? {
                let mut all = mutations_of(&entry)?;
                all.retain(|mutation| mutation.table == old);
                all.iter_mut().for_each(|mutation| mutation.table = new);
                self.apply_by_core(by_core(all, self.sharding)).await?;
            }
            Ok(())
        };
        let applied = applied.await;
        drop(self.shard.drop_tables(&[batches]).await);
        applied
    }
}

/// Returns the identity of a temporary table for a restore. If a crash leaves its data behind, the
/// next start drops it.
fn random_table() -> TableId {
    TableId(term::random_uuid().as_u128())
}

/// Returns the step that puts a table of another schema into this one, with data of its own.
fn restored(
    now: &Schema,
    snapshot: &Schema,
    keyspace: &str,
    table: &str,
    data: Uuid,
) -> Result<DefinitionStep, Error> {
    let missing = || Error::Invalid(format!("the snapshot has no table {keyspace}.{table}"));
    let from = snapshot.keyspaces.get(keyspace).ok_or_else(missing)?;
    let old = from.tables.get(table).ok_or_else(missing)?;
    if let Some(def) = now.table(keyspace, table) {
        check_columns(def, old)?;
        let new = def.with_data(data, term::random_uuid);
        return Ok(with_table(now, new, None, vec![def.clone()]));
    }
    if now.view(keyspace, table).is_some() {
        return Err(Error::Invalid(format!(
            "expected a free name for the table, got {keyspace}.{table}, which is a materialized view: drop it first"
        )));
    }
    let mut schema = now.clone();
    let has_keyspace = schema.keyspaces.contains_key(keyspace);
    let target = if has_keyspace { SchemaTarget::Table } else { SchemaTarget::Keyspace };
    let empty = |def: &KeyspaceDef| Keyspace {
        def: def.clone(),
        tables: Default::default(),
        types: Default::default(),
    };
    let to = schema.keyspaces.entry(keyspace.to_owned()).or_insert_with(|| Arc::new(empty(&from.def)));
    let to = Arc::make_mut(to);
    let uses = |name: &str| old.columns.iter().any(|column| column.ty.mentions_user_type(keyspace, name));
    for (name, udt) in from.types.iter().filter(|(name, _)| uses(name)) {
        match to.types.get(name) {
            Some(today) if **today != **udt => {
                return Err(Error::Invalid(format!(
                    "expected type {keyspace}.{name} as the snapshot has it, got another one: restore the \
                     whole snapshot \
                     into another folder"
                )));
            }
            Some(_) => {}
            None => drop(to.types.insert(name.clone(), udt.clone())),
        }
    }
    let change = SchemaChange {
        change: "CREATED",
        target,
        keyspace: keyspace.into(),
        name: if has_keyspace { table.into() } else { String::new() },
        table_id: has_keyspace.then_some(old.id),
    };
    schema.version = data;
    let mut new = old.with_data(data, term::random_uuid);
    // Others may have got the names of its views meanwhile.
    let is_free =
        |name: &str| schema.table(keyspace, name).is_none() && schema.view(keyspace, name).is_none();
    new.views.retain(|view| is_free(&view.name));
    Ok(with_table(&schema, new, Some(change), Vec::new()))
}

/// Returns the step that puts a definition into the schema.
pub(crate) fn with_table(
    now: &Schema,
    def: TableDef,
    change: Option<SchemaChange>,
    dropped: Vec<Arc<TableDef>>,
) -> DefinitionStep {
    let mut schema = now.clone();
    let keyspace = schema.keyspaces.get_mut(&def.keyspace).expect("the caller checked the keyspace");
    Arc::make_mut(keyspace).tables.insert(def.name.clone(), Arc::new(def));
    DefinitionStep { schema, change, dropped, dropped_indexes: Vec::new() }
}

/// Checks that every value of the snapshot is valid for the column of the same name, and belongs to
/// no other column.
fn check_columns(now: &TableDef, old: &TableDef) -> Result<(), Error> {
    let refused = |what: String| {
        Err(Error::Invalid(format!(
            "{what}: the snapshot's table {}.{} was defined otherwise; drop the table to restore it as it was, or \
             restore the whole snapshot into another folder",
            now.keyspace, now.name
        )))
    };
    for column in &old.columns {
        // Key values are not stored under the column's number.
        let is_key = matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..));
        let same = |today: &ColumnDef| {
            let same_cells =
                today.id == column.id && now.dropped.get(&column.name) == old.dropped.get(&column.name);
            (is_key || same_cells) && today.ty == column.ty && today.kind == column.kind
        };
        match now.column(&column.name) {
            Some((_, today)) if same(today) => {}
            Some((_, today)) if today.ty != column.ty => {
                return refused(format!(
                    "expected column {} of type {}, got {}",
                    column.name, column.ty, today.ty
                ));
            }
            Some(_) => {
                return refused(format!(
                    "column {} was dropped and added again, or is another part of the key",
                    column.name
                ));
            }
            None if now.id == old.id => {} // It was dropped, and its values stay hidden.
            None => return refused(format!("column {} of the snapshot is missing", column.name)),
        }
    }
    let may_hold = |column: &&ColumnDef| {
        matches!(column.kind, ColumnKind::Static | ColumnKind::Regular)
            && old.column(&column.name).is_none()
            && column.id < old.next_column_id
    };
    match now.columns.iter().find(may_hold) {
        Some(column) if now.id != old.id => {
            refused(format!("column {} is missing in the snapshot", column.name))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
