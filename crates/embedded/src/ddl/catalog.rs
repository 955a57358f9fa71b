//! The schema, stored in a table of its own on core 0 with a row per definition. Statements change
//! it one at a time, and every core adopts a change before the statement returns.
//!
//! The edits of a statement are computed and serialized on a heavy lane, in the group of its role.

mod rows;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use cql::ast::{self, Statement};
use engine::{
    Error, Guardrail, Guardrails, ParsedTree, Schema, SchemaChange, SchemaTarget, StatementOutcome, Warnings,
};
use schema::TableDef;
use storage::{DroppedCells, Event, Mutation, TableId};

use crate::bind::term;
use crate::ddl::definition::{self, DefinitionStep, Revived, storage_options};
use crate::ddl::maintenance;
use crate::heavy_lane::heavy;
use crate::system::own_tables::{OWN_TABLES, SCHEMA_TABLE};
use crate::table_scan::bounds::layouts;
use crate::write::times::Times;
use crate::{Embedded, storage_error};

/// Partition of the rows.
const ROWS_KEY: &[u8] = b"definitions";

/// Effect of a definition statement, computed before any change is made.
pub(crate) struct Defined {
    step: DefinitionStep,
    edits: Vec<rows::Edit>,
    changed: Arc<[Arc<TableDef>]>,
}

impl Defined {
    /// Returns the change from the schema `now` to that of `step`.
    pub(crate) fn new(now: &Schema, step: DefinitionStep) -> Defined {
        let edits = rows::edits(now, &step.schema);
        let changed = rows::changed_tables(now, &step.schema).into();
        Defined { step, edits, changed }
    }

    /// Returns true if it changes a definition.
    pub(crate) fn has_edits(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Returns the schema after the change.
    pub(crate) fn into_schema(self) -> Schema {
        self.step.schema
    }
}

/// Checks the additions of a statement to the schema against the guardrails.
fn check(
    guardrails: &Guardrails,
    statement: &Statement,
    used: Option<&str>,
    after: &Schema,
) -> Result<(), Error> {
    let check = |guardrail, count: usize| guardrails.check(guardrail, count as u64);
    let tables = || after.keyspaces.values().map(|keyspace| keyspace.tables.len()).sum();
    match statement {
        Statement::CreateKeyspace(_) => check(Guardrail::Keyspaces, after.keyspaces.len()),
        Statement::CreateTable(_) => check(Guardrail::Tables, tables()),
        Statement::CreateType(create) => {
            let keyspace = after.keyspaces.get(&definition::keyspace_of(&create.name, used)?);
            check(Guardrail::UserTypes, keyspace.map_or(0, |keyspace| keyspace.types.len()))
        }
        _ => Ok(()),
    }
}

/// Checks the memory of all definitions, with or without guardrails. `known` is the weight of
/// `now`. Returns that of `after`, bytes.
///
/// # Errors
/// Returns an error if it is over `bytes_max` and grows.
fn check_weight(now: &Schema, after: &Schema, known: Option<u64>, bytes_max: u64) -> Result<u64, Error> {
    let before = known.unwrap_or_else(|| rows::weight(now, u64::MAX));
    let (removed, added) = rows::difference(now, after, bytes_max.saturating_add(before));
    let bytes = before.saturating_sub(removed).saturating_add(added);
    if bytes <= bytes_max || added <= removed {
        return Ok(bytes);
    }
    Err(Error::Invalid(format!(
        "expected at most {bytes_max} bytes of definitions in the whole schema, got {bytes} or more: drop tables and \
         types that are not used, shorten names and comments, or start the server with more --memory"
    )))
}

/// Checks the sizes in a statement before building anything from it.
fn check_sizes(
    guardrails: &Guardrails,
    statement: &Statement,
    used: Option<&str>,
    now: &Schema,
) -> Result<(), Error> {
    let dimensions =
        |ty: &ast::TypeName| guardrails.check(Guardrail::VectorDimensions, ty.dimension_max().into());
    let of_columns =
        |columns: &[ast::ColumnDefinition]| columns.iter().try_for_each(|column| dimensions(&column.ty));
    let options = match statement {
        Statement::CreateKeyspace(create) => return definition::check_reserved(&create.name),
        Statement::CreateType(create) => {
            return create.fields.iter().try_for_each(|(_, ty)| dimensions(ty));
        }
        Statement::AlterType(alter) => match &alter.change {
            ast::TypeChange::Add { ty, .. } => return dimensions(ty),
            _ => return Ok(()),
        },
        Statement::CreateTable(create) => {
            guardrails.check(Guardrail::Columns, create.columns.len() as u64)?;
            of_columns(&create.columns)?;
            &create.properties.options
        }
        Statement::AlterTable(alter) => match &alter.change {
            ast::TableChange::With(properties) => &properties.options,
            ast::TableChange::Add { columns, .. } => {
                of_columns(columns)?;
                let keyspace = definition::keyspace_of(&alter.table, used)?;
                let existing = now.table(&keyspace, &alter.table.name).map_or(0, |def| def.columns.len());
                return guardrails.check(Guardrail::Columns, (existing + columns.len()) as u64);
            }
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    for (name, value) in options {
        if name == "comment"
            && let ast::OptionValue::String(text) = value
        {
            guardrails.check(Guardrail::CommentBytes, text.len() as u64)?;
        }
    }
    Ok(())
}

impl Embedded {
    /// Loads the schema from core 0's shard.
    pub(crate) async fn load_schema(&self) -> Result<Arc<Schema>, Error> {
        let stored = self.read_schema(SCHEMA_TABLE).await?;
        let new = || Schema { version: term::random_uuid(), ..Schema::default() };
        Ok(Arc::new(stored.unwrap_or_else(new)))
    }

    /// Reads the schema from a table of this core, and raises the clock to its timestamps. `None`:
    /// there is none yet.
    pub(crate) async fn read_schema(&self, from: TableId) -> Result<Option<Schema>, Error> {
        let token = schema::token::token(ROWS_KEY);
        let found = self.shard.read_partition(from, token, ROWS_KEY, 0).wait().await;
        let Some(view) = found.map_err(storage_error)? else { return Ok(None) };
        if let Some((schema, last_us)) = rows::parse(&view)? {
            self.timestamps.raise(last_us);
            return Ok(Some(schema));
        }
        if view.rows().next().is_some() {
            // Do not replace an unreadable schema by an empty one.
            return Err(Error::Server("the schema has definitions but no version: it is damaged".into()));
        }
        Ok(None)
    }

    /// Runs a definition statement on core 0, called from any core.
    pub(crate) async fn define(
        statement: Arc<ParsedTree>,
        keyspace: Option<String>,
    ) -> Result<StatementOutcome, Error> {
        let define = move || {
            Warnings::collect(Warnings::NONE, async move {
                let engine = Embedded::local();
                let mut purged = Revived::default();
                loop {
                    let guard = engine.definitions.lock().await;
                    let schema = engine.current.schema();
                    let revived = definition::revived(&schema, &statement, keyspace.as_deref());
                    if revived.columns.is_empty() || revived == purged {
                        let defined = engine.define_here(statement, keyspace).await;
                        drop(guard);
                        if let Ok(StatementOutcome::SchemaChange(change)) = &defined
                            && change.target == SchemaTarget::Table
                        {
                            engine.wait_for_builds(&change.keyspace, &change.name).await;
                        }
                        return defined;
                    }
                    // A statement that is refused costs no compaction.
                    let now_us = engine.timestamps.next().now_us;
                    let used = keyspace.as_deref();
                    definition::apply(&schema, &statement, used, term::random_uuid(), now_us)?;
                    // Other definitions change meanwhile.
                    drop((guard, schema));
                    engine.purge(&revived).await?;
                    purged = revived;
                }
            })
        };
        let (defined, warnings) = lanes::call(0, define).await;
        warnings.give();
        defined
    }

    /// Removes the dropped cells of columns that are added again. Their later cells stay.
    async fn purge(&self, revived: &Revived) -> Result<(), Error> {
        if self.snapshots.dir.is_none() {
            return Err(Error::Invalid(
                "a column that was dropped USING TIMESTAMP cannot be added again while all data is in memory"
                    .into(),
            ));
        }
        maintenance::compact(TableId(revived.data.as_u128())).await.map(drop)
    }

    async fn define_here(
        &self,
        statement: Arc<ParsedTree>,
        keyspace: Option<String>,
    ) -> Result<StatementOutcome, Error> {
        let now = self.current.schema();
        let (guardrails, id) = (self.guardrails().clone(), term::random_uuid());
        let now_us = self.timestamps.next().now_us;
        let (known, bytes_max) = (self.definitions.bytes.take(), self.definitions.bytes_max.get());
        let (sender, weighed) = lanes::sync::cross::oneshot();
        let plan = async move {
            let used = keyspace.as_deref();
            check_sizes(&guardrails, &statement, used, &now)?;
            let Some(step) = definition::apply(&now, &statement, used, id, now_us)? else {
                return Ok(None);
            };
            check(&guardrails, &statement, used, &step.schema)?;
            sender.send(check_weight(&now, &step.schema, known, bytes_max)?);
            Ok(Some(Defined::new(&now, step)))
        };
        let changed = self.change(plan).await;
        // After a refused statement the schema is weighed again: most statements succeed.
        if changed.is_ok()
            && let Ok(bytes) = weighed.await
        {
            self.definitions.bytes.set(Some(bytes));
        }
        changed
    }

    /// Sets the most bytes that all definitions may take, on core 0. A larger schema stays usable,
    /// and may shrink.
    pub fn set_schema_bytes_max(&self, bytes: u64) {
        self.definitions.bytes_max.set(bytes);
    }

    /// Plans a change on a heavy lane and makes it. A panic of the plan fails only its statement.
    pub(crate) async fn change(
        &self,
        plan: impl Future<Output = Result<Option<Defined>, Error>> + Send + 'static,
    ) -> Result<StatementOutcome, Error> {
        if self.definitions.half_changed.get() {
            return Err(half_changed());
        }
        let Some(defined) = heavy(plan).await? else {
            return Ok(StatementOutcome::Void);
        };
        self.snapshot_dropped_data(&defined.step).await?;
        self.make_or_stop(defined).await
    }

    /// Makes a change. A panic meanwhile stops the server, because log and cores may differ
    /// afterwards.
    pub(crate) async fn make_or_stop(&self, defined: Defined) -> Result<StatementOutcome, Error> {
        let made = lanes::catch_panic(self.make(defined)).await;
        made.unwrap_or_else(|_| {
            self.definitions.half_changed.set(true);
            self.event_sink.send(&Event::Panicked { task: "schema" });
            Err(half_changed())
        })
    }

    /// Makes a change: first in the log, then on every core.
    async fn make(&self, mut defined: Defined) -> Result<StatementOutcome, Error> {
        self.write_change(&mut defined).await?;
        self.spread(defined).await
    }

    /// Writes a change to the log. From then on a start loads it.
    pub(crate) async fn write_change(&self, Defined { step, edits, .. }: &mut Defined) -> Result<(), Error> {
        let mut edits = std::mem::take(edits);
        edits.push((rows::FORMAT.to_vec(), Some(vec![rows::format_of(&step.schema)])));
        edits.push((rows::VERSION.to_vec(), Some(step.schema.version.as_bytes().to_vec())));
        self.write_rows(edits).await
    }

    /// Makes every core adopt a change, and drops unused data.
    async fn spread(&self, Defined { step, changed, .. }: Defined) -> Result<StatementOutcome, Error> {
        let dropped: Arc<[TableId]> = step.dropped_data().map(|data| TableId(data.as_u128())).collect();
        let DefinitionStep { schema, change, .. } = step;
        let schema = Arc::new(schema);
        for core in 0..lanes::cores() {
            let (schema, change, changed) = (schema.clone(), change.clone(), changed.clone());
            let adopt = move || async move {
                if let Some(engine) = Embedded::try_local() {
                    engine.adopt(schema, &changed, change.as_ref()).await;
                }
            };
            lanes::call(core, adopt).await;
        }
        // Drop the data only now: a statement that finds it dropped is bound again, and must find
        // the new schema on any core.
        let gone = drop_data(dropped).await;
        gone.map(|()| change.map_or(StatementOutcome::Void, StatementOutcome::SchemaChange))
    }

    /// Writes rows of the schema, all or none.
    async fn write_rows(&self, edits: Vec<rows::Edit>) -> Result<(), Error> {
        let Times { now_us: timestamp, now_s, .. } = self.timestamps.next();
        // A type may be used by every table. Then all table definitions are written.
        let build = async move { edits.iter().map(|edit| rows::change(edit, timestamp, now_s)).collect() };
        let changes = lanes::heavy(lanes::current_group(), build).await;
        let (token, key) = (schema::token::token(ROWS_KEY), Bytes::from_static(ROWS_KEY));
        let mutation = Mutation { table: SCHEMA_TABLE, token, key, changes };
        self.timestamps.keep_floor(&self.shard).map_err(storage_error)?;
        // Dropping a table frees space, so this write must succeed on a full disk.
        let written = self.shard.apply_vital(vec![mutation]).await.map_err(storage_error)?;
        written.await.map_err(storage_error)
    }

    /// Configures the options and the column layouts of tables in storage.
    pub(crate) fn configure_tables<'d>(&self, tables: impl Iterator<Item = &'d Arc<TableDef>>) {
        for def in tables {
            let table = TableId(def.data_id().as_u128());
            self.shard.name(table, format!("{}.{}", def.keyspace, def.name).into());
            self.shard.configure(table, storage_options::of_table(def));
            self.shard.describe(table, layouts(def));
            self.shard.forget_columns(table, dropped_columns(def));
            for index in &def.indexes {
                let data = TableId(index.data.as_u128());
                self.shard.name(data, format!("{}.{}", def.keyspace, index.name).into());
                self.shard.configure(data, storage_options::of_index(def));
            }
            for view in &def.views {
                let data = TableId(view.data.as_u128());
                self.shard.name(data, format!("{}.{}", def.keyspace, view.name).into());
                self.shard.configure(data, storage_options::of_index(def));
            }
        }
    }

    /// Drops tables that no schema names. They remain after a crash between a schema change and the
    /// drop on this core.
    pub(crate) fn drop_leftovers(&self, schema: &Schema) {
        let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let mut known: HashSet<TableId> =
            tables.flat_map(|def| def.all_data()).map(|data| TableId(data.as_u128())).collect();
        known.extend(OWN_TABLES.map(|(table, _)| table));
        let mut unknown = self.shard.tables();
        unknown.retain(|table| !known.contains(table));
        if unknown.is_empty() {
            return;
        }
        let engine = self.rc();
        // A full disk delays the drop, which must not delay the start.
        let drop = async move {
            let tables = unknown.len();
            if engine.shard.drop_tables(&unknown).await.is_ok() {
                engine.event_sink.send(&Event::LeftoversDropped { tables });
            }
        };
        lanes::spawn(lanes::current_group(), drop).detach();
    }

    /// Adopts a new schema on this core.
    async fn adopt(&self, schema: Arc<Schema>, changed: &[Arc<TableDef>], change: Option<&SchemaChange>) {
        self.indexes.adopt(&schema, changed);
        self.start_graphs();
        let before = self.current.replace(schema);
        // The last core frees the old schema, which takes long if there are many tables.
        lanes::heavy(lanes::current_group(), async move { drop(before) }).detach();
        for table in changed {
            self.configure_tables(std::iter::once(table));
            let columns = u32::try_from(table.columns.len()).unwrap_or(u32::MAX);
            if lanes::spend(1 + columns / COLUMNS_PER_UNIT) {
                lanes::yield_now().await;
            }
        }
        if let Some(change) = change {
            for listener in self.current.listeners() {
                listener(change).await;
            }
        }
    }
}

/// Drops the data of tables on all cores in parallel. A core that fails rejects writes, and drops
/// the data at its next start.
pub(crate) async fn drop_data(dropped: Arc<[TableId]>) -> Result<(), Error> {
    if dropped.is_empty() {
        return Ok(());
    }
    let group = lanes::current_group();
    let drop_on = |core| {
        let dropped = dropped.clone();
        let drop = move || async move { Embedded::local().shard.drop_tables(&dropped).await };
        lanes::spawn(group, lanes::call(core, drop))
    };
    let tasks: Vec<_> = (0..lanes::cores()).map(drop_on).collect();
    let mut gone = Ok(());
    for task in tasks {
        gone = gone.and(task.await);
    }
    gone.map_err(storage_error)
}

/// Returns the cells of a table's dropped columns.
fn dropped_columns(def: &TableDef) -> Vec<DroppedCells> {
    if def.next_column_id as usize == def.columns.len() {
        return Vec::new();
    }
    let mut present: Vec<u32> = def.columns.iter().map(|column| column.id).collect();
    present.sort_unstable();
    let kept = def.dropped.values().filter(|dropped| dropped.keeps_later);
    let kept: HashMap<u32, i64> = kept.map(|dropped| (dropped.column.id, dropped.dropped_us)).collect();
    let gone = (0..def.next_column_id).filter(|id| present.binary_search(id).is_err());
    let up_to_us = |id| kept.get(&id).copied().unwrap_or(i64::MAX);
    gone.map(|column| DroppedCells { column, up_to_us: up_to_us(column) }).collect()
}

fn half_changed() -> Error {
    Error::Server("a change of the schema was left half done by a panic: the server stops".to_owned())
}

/// Columns whose layouts are configured in a work unit.
const COLUMNS_PER_UNIT: u32 = 8;
