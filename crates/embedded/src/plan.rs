//! Plans: statements bound to the current schema.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use cql::ast::{self, Statement};
use engine::{
    Action, BatchKind, Columns, Error, Guardrail, Guardrails, Latencies, ParsedTree, Plan, Prepared, Schema,
    StatementTarget,
};
use functions::Function;
use schema::TableDef;
use uuid::Uuid;

use crate::Embedded;
use crate::bind::names::TableNames;
use crate::bind::select::{SelectPlan, select};
use crate::bind::term::operand::{Moment, failed};
use crate::bind::term::{Binder, Counted};
use crate::current::BoundTo;
use crate::ddl::definition::{indexes, keyspace_of, no_table, unsupported, views};
use crate::ddl::maintenance;
use crate::heavy_lane::heavy;
use crate::index::view::{ViewKeys, ViewSource};
use crate::write::batch::check_kind;
use crate::write::mutations::{self, WritePlan};

/// Action of a plan.
#[derive(Debug)]
pub(crate) enum PlanKind {
    /// SELECT.
    Select(Arc<SelectPlan>),
    /// INSERT, UPDATE or DELETE; a BATCH has several. Only an UNLOGGED batch is not atomic.
    Write { plans: Arc<[WritePlan]>, is_atomic: bool },
    /// TRUNCATE.
    Truncate(Arc<TableDef>),
    /// COMPACT: merges all runs of a table on every core.
    Compact(Arc<TableDef>),
    /// FLUSH: writes the memtables of every core to table files.
    Flush,
    /// SCRUB: rewrites the readable data of damaged files on every core. With the columns of its
    /// result.
    Scrub(Arc<TableDef>, Columns),
    /// CREATE, ALTER or DROP, with the keyspace in use.
    Define(Arc<ParsedTree>, Option<String>),
}

/// Prepared statement.
pub(crate) struct EmbeddedPlan {
    pub(crate) kind: PlanKind,
    binds: Columns,
    /// Markers whose values have elements, which are counted before the values are used.
    pub(crate) counted: Box<[Counted]>,
    key_binds: Vec<u16>,
    targets: Vec<StatementTarget>,
    bound_to: BoundTo,
    pub(crate) added: Added,
    /// True for a SELECT of one row and for one write, without anything that few statements have.
    pub(crate) is_plain: bool,
    /// Number of bound terms.
    terms: u32,
    /// Bytes of names and types of bind markers and result columns.
    metadata_bytes: usize,
    /// True if it can answer with rows.
    shows_rows: bool,
    latencies: Option<Rc<Latencies>>,
}

/// Values that each execution adds behind those of the client.
#[derive(Default)]
pub(crate) struct Added {
    /// Number of values that are read from texts of JSON.
    pub(crate) from_json: usize,
    /// Calls whose results are the last values.
    pub(crate) calls: Box<[Function]>,
}

impl Added {
    /// Returns the number of values.
    pub(crate) fn count(&self) -> usize {
        self.from_json + self.calls.len()
    }

    /// Returns the results of the calls, which an execution makes once, at one time.
    ///
    /// # Errors
    /// Returns the errors of the functions.
    pub(crate) fn call_once(&self) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let moment = Moment::now();
        self.calls.iter().map(|function| function.call(&[], &moment).map_err(failed)).collect()
    }
}

impl Plan for EmbeddedPlan {
    fn binds(&self) -> &Columns {
        &self.binds
    }

    fn partition_key_binds(&self) -> &[u16] {
        &self.key_binds
    }

    fn result(&self) -> Option<&Columns> {
        match &self.kind {
            PlanKind::Select(plan) => Some(plan.json.as_ref().unwrap_or(&plan.columns)),
            PlanKind::Scrub(_, columns) => Some(columns),
            _ => None,
        }
    }

    fn targets(&self) -> &[StatementTarget] {
        &self.targets
    }

    fn is_current(&self) -> bool {
        self.bound_to.is_current()
    }

    fn needs_viewer(&self) -> bool {
        match &self.kind {
            PlanKind::Select(plan) => plan.needs_viewer(),
            PlanKind::Write { plans, .. } => self.shows_rows && plans.iter().any(WritePlan::may_test_masked),
            _ => false,
        }
    }

    fn shows_rows(&self) -> bool {
        self.shows_rows
    }

    fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    fn latencies(&self) -> Option<&Rc<Latencies>> {
        self.latencies.as_ref()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Tables that a batch's next table is compared with, so that most repeated tables are recorded
/// once.
const TABLES_COMPARED: usize = 8;

/// State shared by the statements of a batch: bind markers, targets, and the columns of their
/// tables.
struct Binding {
    binder: Binder,
    targets: Vec<StatementTarget>,
    named: HashSet<(Uuid, Action)>,
    /// Bound tables that are not virtual.
    tables: Vec<Arc<TableDef>>,
    names: HashMap<Uuid, Rc<TableNames>>,
}

impl Binding {
    /// Adds a target unless it exists: a batch of thousands of statements is usually about one
    /// table.
    fn target(&mut self, def: &Arc<TableDef>, action: Action) {
        if self.named.insert((def.id, action)) {
            self.targets.push(target(def, action));
        }
    }

    /// Records that the plan is bound to a table.
    fn bound_to(&mut self, def: &Arc<TableDef>) {
        if !self.tables.iter().rev().take(TABLES_COMPARED).any(|known| known.id == def.id) {
            self.tables.push(def.clone());
        }
    }

    fn names(&mut self, def: Arc<TableDef>) -> Rc<TableNames> {
        self.names.entry(def.id).or_insert_with(|| Rc::new(TableNames::of(def))).clone()
    }
}

/// Returns the number of relations, assignments, conditions and set columns in a statement.
fn relations(statement: &Statement) -> usize {
    let conditions = |clause: &ast::IfClause| match clause {
        ast::IfClause::Columns(conditions) => conditions.len(),
        ast::IfClause::None | ast::IfClause::Exists => 0,
    };
    match statement {
        Statement::Select(s) => s.relations.len(),
        Statement::Insert(s) => s.columns.len(),
        Statement::Update(s) => s.relations.len() + s.assignments.len() + conditions(&s.condition),
        Statement::Delete(s) => s.relations.len() + s.targets.len() + conditions(&s.condition),
        _ => 0,
    }
}

/// Returns true if an execution of the statement reads JSON texts.
fn reads_json(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(insert) => insert.json.is_some(),
        Statement::Batch(batch) => batch.statements.iter().any(reads_json),
        _ => false,
    }
}

/// Bound statement about data, before it becomes a plan of one core.
pub(crate) struct Bound {
    kind: BoundKind,
    key_binds: Vec<u16>,
    binder: Binder,
    targets: Vec<StatementTarget>,
    tables: Vec<Arc<TableDef>>,
}

/// Action of a bound statement. It can be sent to another thread.
enum BoundKind {
    Select(Arc<SelectPlan>),
    Write { plans: Arc<[WritePlan]>, is_atomic: bool },
}

/// Source of table definitions, for looking up names.
pub(crate) trait Definitions {
    /// Returns the server's own table with that name.
    fn own(&self, keyspace: &str, table: &str) -> Option<Arc<TableDef>>;
    /// Returns true if the server has its own tables in a keyspace.
    fn has_own(&self, keyspace: &str) -> bool;
    /// Returns the tables that clients created.
    fn schema(&self) -> Arc<Schema>;
}

impl Definitions for Embedded {
    fn own(&self, keyspace: &str, table: &str) -> Option<Arc<TableDef>> {
        self.registry.get(keyspace, table).map(|table| table.def)
    }

    fn has_own(&self, keyspace: &str) -> bool {
        self.registry.all().iter().any(|table| table.def.keyspace == keyspace)
    }

    fn schema(&self) -> Arc<Schema> {
        self.current.schema()
    }
}

/// Definitions at one moment, for binding on a heavy lane.
pub(crate) struct Snapshot {
    own: HashMap<(String, String), Arc<TableDef>>,
    schema: Arc<Schema>,
}

impl Definitions for Snapshot {
    fn own(&self, keyspace: &str, table: &str) -> Option<Arc<TableDef>> {
        self.own.get(&(keyspace.to_owned(), table.to_owned())).cloned()
    }

    fn has_own(&self, keyspace: &str) -> bool {
        self.own.keys().any(|(own, _)| own == keyspace)
    }

    fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }
}

/// Binds a SELECT, INSERT, UPDATE, DELETE or BATCH. The time is proportional to the length of the
/// statement.
pub(crate) fn bind(
    definitions: &dyn Definitions,
    guardrails: Arc<Guardrails>,
    statement: &Statement,
    used: Option<&str>,
) -> Result<Bound, Error> {
    let binder = Binder::new(guardrails, statement.bind_marker_count()).with_schema(definitions.schema());
    let mut binding = Binding {
        binder: if reads_json(statement) { binder } else { binder.with_calls() },
        targets: Vec::with_capacity(1),
        named: HashSet::new(),
        tables: Vec::new(),
        names: HashMap::new(),
    };
    let (kind, key_binds) = match statement {
        Statement::Select(asked) => {
            binding.binder.check(Guardrail::StatementRelations, relations(statement))?;
            let view = view_of(definitions, &asked.from, used)?;
            let (def, is_virtual) = match &view {
                Some((_, def)) => (def.clone(), false),
                None => readable(definitions, &asked.from, used)?,
            };
            binding.binder.about(&def.keyspace, &def.name);
            // A view shows data of its base table, whose permissions decide.
            let stored = view.as_ref().map_or(&def, |(source, _)| &source.base).clone();
            binding.target(&stored, Action::Select);
            if !is_virtual {
                binding.bound_to(&stored);
            }
            let plan = select(&TableNames::of(def), asked, &mut binding.binder, is_virtual)?;
            let plan = match view {
                Some((source, _)) => plan.of_view(source),
                None => plan,
            };
            let markers = mutations::key_markers(&plan.restrictions);
            (BoundKind::Select(Arc::new(plan)), markers)
        }
        Statement::Batch(batch) => {
            binding.binder.check(Guardrail::BatchStatements, batch.statements.len())?;
            let plans = batch.statements.iter().map(|s| write_plan(definitions, s, used, &mut binding));
            let mut plans = plans.collect::<Result<Vec<_>, _>>()?;
            mutations::timestamp_of_all(&mut plans, &batch.using, &mut binding.binder)?;
            let kind = match batch.kind {
                ast::BatchKind::Logged => BatchKind::Logged,
                ast::BatchKind::Unlogged => BatchKind::Unlogged,
                ast::BatchKind::Counter => BatchKind::Counter,
            };
            check_kind(kind, plans.iter())?;
            let is_atomic = kind == BatchKind::Logged;
            (BoundKind::Write { plans: plans.into(), is_atomic }, Vec::new())
        }
        write => {
            let plan = write_plan(definitions, write, used, &mut binding)?;
            // The client cannot know the key in a JSON text.
            let markers = if plan.json.is_some() { Vec::new() } else { plan.key_markers() };
            (BoundKind::Write { plans: Arc::from([plan]), is_atomic: true }, markers)
        }
    };
    let Binding { binder, targets, tables, .. } = binding;
    let _ = lanes::spend(binder.terms());
    binder.check(Guardrail::StatementTerms, binder.terms() as usize)?;
    Ok(Bound { kind, key_binds, binder, targets, tables })
}

fn write_plan(
    definitions: &dyn Definitions,
    statement: &Statement,
    used: Option<&str>,
    binding: &mut Binding,
) -> Result<WritePlan, Error> {
    let name = match statement {
        Statement::Insert(s) => &s.table,
        Statement::Update(s) => &s.table,
        Statement::Delete(s) => &s.table,
        _ => {
            return Err(Error::Invalid("A batch can hold INSERT, UPDATE and DELETE statements only".into()));
        }
    };
    binding.binder.check(Guardrail::StatementRelations, relations(statement))?;
    let def = writable(definitions, name, used)?;
    binding.binder.about(&def.keyspace, &def.name);
    binding.target(&def, Action::Modify);
    binding.bound_to(&def);
    let names = binding.names(def);
    let plan = match statement {
        Statement::Insert(s) => mutations::insert(&names, s, &mut binding.binder),
        Statement::Update(s) => mutations::update(&names, s, &mut binding.binder),
        Statement::Delete(s) => mutations::delete(&names, s, &mut binding.binder),
        _ => unreachable!("the name was taken from one of these"),
    }?;
    if plan.is_conditional() {
        // The result of a failed condition shows stored data, so the statement needs the right to
        // read it.
        binding.target(&plan.def, Action::Select);
    }
    Ok(plan)
}

/// Returns the materialized view of that name, and its definition as a table. `None`: it is the
/// name of something else, or of nothing.
///
/// # Errors
/// The view is not built. A part of an answer would be a wrong answer.
fn view_of(
    definitions: &dyn Definitions,
    name: &ast::TableName,
    used: Option<&str>,
) -> Result<Option<(ViewSource, Arc<TableDef>)>, Error> {
    let keyspace = keyspace_of(name, used)?;
    if definitions.own(&keyspace, &name.name).is_some() {
        return Ok(None);
    }
    let schema = definitions.schema();
    let Some((base, view)) = schema.view(&keyspace, &name.name) else { return Ok(None) };
    if !view.is_built {
        return Err(Error::Invalid(format!(
            "The materialized view '{}' is not yet available as it is building",
            view.name
        )));
    }
    let keys = ViewKeys::of(base, view);
    Ok(Some((ViewSource { base: base.clone(), keys }, Arc::new(view.table(base)))))
}

/// Returns an error with this text if the name is that of a materialized view.
fn check_no_view(
    definitions: &dyn Definitions,
    name: &ast::TableName,
    used: Option<&str>,
    text: &str,
) -> Result<(), Error> {
    let schema = definitions.schema();
    let keyspace = keyspace_of(name, used)?;
    match schema.view(&keyspace, &name.name).is_some() {
        true => Err(Error::Invalid(text.to_owned())),
        false => Ok(()),
    }
}

fn writable(
    definitions: &dyn Definitions,
    name: &ast::TableName,
    used: Option<&str>,
) -> Result<Arc<TableDef>, Error> {
    check_no_view(definitions, name, used, "Cannot directly modify a materialized view")?;
    let (def, is_virtual) = readable(definitions, name, used)?;
    match is_virtual {
        true => Err(Error::Invalid(format!(
            "{}.{} is made by the server and cannot be written",
            def.keyspace, def.name
        ))),
        false => Ok(def),
    }
}

/// Returns the table with that name, and true if it is virtual.
fn readable(
    definitions: &dyn Definitions,
    name: &ast::TableName,
    used: Option<&str>,
) -> Result<(Arc<TableDef>, bool), Error> {
    let keyspace = keyspace_of(name, used)?;
    // The server's own tables first: a client's table cannot hide them.
    if let Some(def) = definitions.own(&keyspace, &name.name) {
        return Ok((def, true));
    }
    let schema = definitions.schema();
    if let Some(def) = schema.table(&keyspace, &name.name) {
        return Ok((def.clone(), false));
    }
    let known = schema.keyspaces.contains_key(&keyspace) || definitions.has_own(&keyspace);
    Err(match known {
        true => no_table(&name.name),
        false => Error::Invalid(format!("keyspace {keyspace} does not exist")),
    })
}

impl Embedded {
    /// Binds a statement to the schema of this core.
    pub(crate) fn plan(
        &self,
        statement: &Arc<ParsedTree>,
        used: Option<&str>,
    ) -> Result<EmbeddedPlan, Error> {
        if is_about_data(statement) {
            let guardrails = self.registry.guardrails().clone();
            return self.plan_of(bind(self, guardrails, statement, used)?);
        }
        let (kind, target, tables) = match &***statement {
            Statement::Truncate(s) => {
                let text = "Cannot TRUNCATE materialized view directly; must truncate base table instead";
                check_no_view(self, &s.table, used, text)?;
                let def = writable(self, &s.table, used)?;
                (PlanKind::Truncate(def.clone()), target(&def, Action::Modify), vec![def])
            }
            Statement::Compact(name) => {
                let def = writable(self, name, used)?;
                (PlanKind::Compact(def.clone()), target(&def, Action::Alter), vec![def])
            }
            Statement::Flush(name) => {
                let def = writable(self, name, used)?;
                (PlanKind::Flush, target(&def, Action::Alter), vec![def])
            }
            Statement::Scrub(name) => {
                let def = writable(self, name, used)?;
                let columns = maintenance::scrub_columns(&def);
                (PlanKind::Scrub(def.clone(), columns), target(&def, Action::Alter), vec![def])
            }
            _ => {
                let target = define_target(&self.current.schema(), statement, used)?;
                (PlanKind::Define(statement.clone(), used.map(str::to_owned)), target, Vec::new())
            }
        };
        let guardrails = self.registry.guardrails().clone();
        let (binds, counted) = Binder::new(guardrails, statement.bind_marker_count()).finish()?;
        let bound_to = BoundTo::new(self.current.clone(), tables);
        let targets = vec![target];
        Ok(EmbeddedPlan {
            kind,
            binds,
            counted,
            key_binds: Vec::new(),
            targets,
            bound_to,
            added: Added::default(),
            is_plain: false,
            terms: 0,
            metadata_bytes: 0,
            shows_rows: false,
            latencies: None,
        })
    }

    /// Makes a bound statement a plan of this core.
    fn plan_of(&self, bound: Bound) -> Result<EmbeddedPlan, Error> {
        let Bound { kind, key_binds, mut binder, targets, tables } = bound;
        let added = Added { from_json: binder.values_added(), calls: binder.take_calls() };
        let (terms, metadata_bytes) = (binder.terms(), binder.metadata_bytes());
        let (binds, counted) = binder.finish()?;
        let kind = match kind {
            BoundKind::Select(plan) => PlanKind::Select(plan),
            BoundKind::Write { plans, is_atomic } => PlanKind::Write { plans, is_atomic },
        };
        let latencies = match (&kind, &tables[..]) {
            (PlanKind::Select(_), [def]) => Some(self.uses.of(def, || self.current.schema()).reads.clone()),
            (PlanKind::Write { .. }, [def]) => {
                Some(self.uses.of(def, || self.current.schema()).writes.clone())
            }
            _ => None,
        };
        let shows_rows = match &kind {
            PlanKind::Write { plans, .. } => plans.iter().any(WritePlan::is_conditional),
            _ => true,
        };
        let is_plain = added.count() == 0
            && match &kind {
                PlanKind::Select(plan) => plan.is_plain_point(),
                PlanKind::Write { plans, .. } => matches!(&plans[..], [plan] if plan.is_plain()),
                _ => false,
            };
        let bound_to = BoundTo::new(self.current.clone(), tables);
        Ok(EmbeddedPlan {
            kind,
            binds,
            counted,
            key_binds,
            targets,
            bound_to,
            added,
            is_plain,
            terms,
            metadata_bytes,
            shows_rows,
            latencies,
        })
    }

    /// Binds a long statement on a heavy lane, to the current schema. A concurrent change of the
    /// schema makes the plan stale.
    pub(crate) fn plan_long(&self, statement: Arc<ParsedTree>, used: Option<&str>) -> Prepared {
        if !is_about_data(&statement) {
            let plan = self.plan(&statement, used).map(|plan| Rc::new(plan) as Rc<dyn Plan>);
            return Box::pin(std::future::ready(plan));
        }
        let own = self.registry.all().into_iter();
        let own =
            own.map(|table| ((table.def.keyspace.clone(), table.def.name.clone()), table.def)).collect();
        let definitions = Snapshot { own, schema: self.current.schema() };
        let (guardrails, used) = (self.registry.guardrails().clone(), used.map(str::to_owned));
        let engine = self.rc();
        Box::pin(async move {
            let bound =
                heavy(async move { bind(&definitions, guardrails, &statement, used.as_deref()) }).await?;
            engine.plan_of(bound).map(|plan| Rc::new(plan) as Rc<dyn Plan>)
        })
    }
}

fn is_about_data(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Select(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Batch(_)
    )
}

/// Plans with more terms are freed on a heavy lane, because freeing them would block the fast lane
/// too long.
const TERMS_FREED_HERE: u32 = 500;

impl Drop for EmbeddedPlan {
    fn drop(&mut self) {
        if self.terms <= TERMS_FREED_HERE || !lanes::on_lane() {
            return;
        }
        let kind =
            std::mem::replace(&mut self.kind, PlanKind::Write { plans: Arc::from([]), is_atomic: false });
        let group = lanes::current_group();
        match kind {
            PlanKind::Select(plan) => lanes::heavy(group, async move { drop(plan) }).detach(),
            PlanKind::Write { plans, .. } => lanes::heavy(group, async move { drop(plans) }).detach(),
            PlanKind::Truncate(_)
            | PlanKind::Compact(_)
            | PlanKind::Flush
            | PlanKind::Scrub(..)
            | PlanKind::Define(..) => {}
        }
    }
}

fn target(def: &TableDef, action: Action) -> StatementTarget {
    StatementTarget { keyspace: def.keyspace.clone(), table: Some(def.name.clone()), action }
}

fn define_target(
    schema: &Schema,
    statement: &Statement,
    used: Option<&str>,
) -> Result<StatementTarget, Error> {
    let table = |name: &ast::QualifiedName, action| {
        Ok(StatementTarget { keyspace: keyspace_of(name, used)?, table: Some(name.name.clone()), action })
    };
    let keyspace =
        |name: &str, action| Ok(StatementTarget { keyspace: name.to_owned(), table: None, action });
    match statement {
        Statement::CreateKeyspace(s) => keyspace(&s.name, Action::Create),
        Statement::AlterKeyspace(s) => keyspace(&s.name, Action::Alter),
        Statement::DropKeyspace(s) => keyspace(&s.name, Action::Drop),
        Statement::CreateTable(s) => keyspace(&keyspace_of(&s.table, used)?, Action::Create),
        Statement::AlterTable(s) => table(&s.table, Action::Alter),
        Statement::DropTable(s) => table(&s.name, Action::Drop),
        // Permissions on types are those on their keyspace, as in Cassandra.
        Statement::CreateType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Create),
        Statement::AlterType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Alter),
        Statement::DropType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Drop),
        Statement::CreateIndex(s) => {
            let (keyspace, table) = (indexes::keyspace_of(s, used)?, Some(s.table.name.clone()));
            Ok(StatementTarget { keyspace, table, action: Action::Alter })
        }
        Statement::DropIndex(s) => {
            let keyspace = keyspace_of(&s.name, used)?;
            let table = indexes::table_of(schema, &keyspace, &s.name.name).map(|def| def.name.clone());
            Ok(StatementTarget { keyspace, table, action: Action::Alter })
        }
        Statement::CreateMaterializedView(s) => {
            let (keyspace, table) = (keyspace_of(&s.name, used)?, Some(s.from.name.clone()));
            views::check_keyspace(s, &keyspace)?;
            Ok(StatementTarget { keyspace, table, action: Action::Alter })
        }
        Statement::AlterMaterializedView(ast::AlterMaterializedView { name, .. })
        | Statement::DropMaterializedView(ast::DropObject { name, .. }) => {
            let keyspace = keyspace_of(name, used)?;
            let table = schema.view(&keyspace, &name.name).map(|(base, _)| base.name.clone());
            Ok(StatementTarget { keyspace, table, action: Action::Alter })
        }
        Statement::DropFunction(s) | Statement::DropAggregate(s) => {
            keyspace(&keyspace_of(&s.name, used)?, Action::Drop)
        }
        Statement::DropTrigger(s) => table(&s.table, Action::Alter),
        other => Err(unsupported(other)),
    }
}
