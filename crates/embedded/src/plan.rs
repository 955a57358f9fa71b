//! Plans: a statement bound to the schema of the moment.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use cql::ast::{self, Statement};
use engine::{Action, BatchKind, Columns, Error, Guardrail, Plan, Target};
use schema::TableDef;
use uuid::Uuid;

use crate::Embedded;
use crate::current::BoundTo;
use crate::definition::{keyspace_of, no_keyspace, no_table};
use crate::names::Names;
use crate::select::{SelectPlan, select};
use crate::term::{Binder, Counted};
use crate::write::{self, WritePlan};
use crate::writing::check_kind;

/// What a plan does.
#[derive(Debug)]
pub(crate) enum Kind {
    /// SELECT.
    Select(Arc<SelectPlan>),
    /// INSERT, UPDATE and DELETE; a BATCH has several.
    Write(Arc<[WritePlan]>),
    /// TRUNCATE.
    Truncate(Arc<TableDef>),
    /// CREATE, ALTER and DROP, with the keyspace in use.
    Define(Rc<Statement>, Option<String>),
}

/// A prepared statement.
pub(crate) struct EmbeddedPlan {
    pub(crate) kind: Kind,
    binds: Columns,
    /// Markers whose values have elements, to be counted before anything is done with them.
    pub(crate) counted: Box<[Counted]>,
    key_binds: Vec<u16>,
    targets: Vec<Target>,
    bound_to: BoundTo,
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
            Kind::Select(plan) => Some(&plan.columns),
            _ => None,
        }
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn is_current(&self) -> bool {
        self.bound_to.is_current()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Tables of a batch that the next one is compared with, so that one that comes again is not remembered again.
const TABLES_COMPARED: usize = 8;

/// What the statements of a batch have in common: bind markers, targets, and the columns of their tables.
struct Binding {
    binder: Binder,
    targets: Vec<Target>,
    named: HashSet<(Uuid, bool)>,
    /// The tables that are not virtual.
    tables: Vec<Arc<TableDef>>,
    names: HashMap<Uuid, Rc<Names>>,
}

impl Binding {
    /// Adds a target, unless it is there: a batch of thousands is about one table.
    fn target(&mut self, def: &Arc<TableDef>, action: Action) {
        if self.named.insert((def.id, action == Action::Select)) {
            self.targets.push(target(def, action));
        }
    }

    /// Remembers that the plan is bound to a table.
    fn bound_to(&mut self, def: &Arc<TableDef>) {
        if !self.tables.iter().rev().take(TABLES_COMPARED).any(|known| known.id == def.id) {
            self.tables.push(def.clone());
        }
    }

    fn names(&mut self, def: Arc<TableDef>) -> Rc<Names> {
        self.names.entry(def.id).or_insert_with(|| Rc::new(Names::of(def))).clone()
    }
}

/// Relations, assignments, conditions and columns to set in a statement.
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

impl Embedded {
    /// Binds a statement to the schema of this core.
    pub(crate) fn plan(&self, statement: &Rc<Statement>, used: Option<&str>) -> Result<EmbeddedPlan, Error> {
        let guardrails = self.registry.guardrails().clone();
        let mut binding = Binding {
            binder: Binder::new(guardrails, statement.bind_marker_count()),
            targets: Vec::with_capacity(1),
            named: HashSet::new(),
            tables: Vec::new(),
            names: HashMap::new(),
        };
        let (kind, key_binds) = match &**statement {
            Statement::Select(asked) => {
                binding.binder.check(Guardrail::StatementRelations, relations(statement))?;
                let (def, is_virtual) = self.readable(&asked.from, used)?;
                binding.binder.about(&def.keyspace, &def.name);
                binding.target(&def, Action::Select);
                if !is_virtual {
                    binding.bound_to(&def);
                }
                let plan = select(&Names::of(def), asked, &mut binding.binder, is_virtual)?;
                let markers = write::key_markers(&plan.restrictions);
                (Kind::Select(Arc::new(plan)), markers)
            }
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                let plan = self.write_plan(statement, used, &mut binding)?;
                let markers = plan.key_markers();
                (Kind::Write(Arc::from([plan])), markers)
            }
            Statement::Batch(batch) => {
                binding.binder.check(Guardrail::BatchStatements, batch.statements.len())?;
                let plans = batch.statements.iter().map(|s| self.write_plan(s, used, &mut binding));
                let mut plans = plans.collect::<Result<Vec<_>, _>>()?;
                write::timestamp_of_all(&mut plans, &batch.using, &mut binding.binder)?;
                let kind = match batch.kind {
                    ast::BatchKind::Logged => BatchKind::Logged,
                    ast::BatchKind::Unlogged => BatchKind::Unlogged,
                    ast::BatchKind::Counter => BatchKind::Counter,
                };
                check_kind(kind, plans.iter())?;
                (Kind::Write(plans.into()), Vec::new())
            }
            Statement::Truncate(name) => {
                let def = self.writable(name, used)?;
                binding.target(&def, Action::Modify);
                binding.bound_to(&def);
                (Kind::Truncate(def), Vec::new())
            }
            _ => {
                binding.targets.push(define_target(statement, used)?);
                (Kind::Define(statement.clone(), used.map(str::to_owned)), Vec::new())
            }
        };
        let Binding { binder, targets, tables, .. } = binding;
        let (binds, counted) = binder.finish()?;
        let bound_to = BoundTo::new(self.current.clone(), tables);
        Ok(EmbeddedPlan { kind, binds, counted, key_binds, targets, bound_to })
    }

    fn write_plan(
        &self,
        statement: &Statement,
        used: Option<&str>,
        binding: &mut Binding,
    ) -> Result<WritePlan, Error> {
        let name = match statement {
            Statement::Insert(s) => &s.table,
            Statement::Update(s) => &s.table,
            Statement::Delete(s) => &s.table,
            _ => {
                return Err(Error::Invalid(
                    "A batch can hold INSERT, UPDATE and DELETE statements only".into(),
                ));
            }
        };
        binding.binder.check(Guardrail::StatementRelations, relations(statement))?;
        let def = self.writable(name, used)?;
        binding.binder.about(&def.keyspace, &def.name);
        binding.target(&def, Action::Modify);
        binding.bound_to(&def);
        let names = binding.names(def);
        let plan = match statement {
            Statement::Insert(s) => write::insert(&names, s, &mut binding.binder),
            Statement::Update(s) => write::update(&names, s, &mut binding.binder),
            Statement::Delete(s) => write::delete(&names, s, &mut binding.binder),
            _ => unreachable!("the name was taken from one of these"),
        }?;
        if plan.is_conditional() {
            // A condition that does not hold is answered with what is stored.
            binding.target(&plan.def, Action::Select);
        }
        Ok(plan)
    }

    fn writable(&self, name: &ast::TableName, used: Option<&str>) -> Result<Arc<TableDef>, Error> {
        let (def, is_virtual) = self.readable(name, used)?;
        match is_virtual {
            true => Err(Error::Invalid(format!(
                "{}.{} is made by the server and cannot be written",
                def.keyspace, def.name
            ))),
            false => Ok(def),
        }
    }

    /// The table of that name, and whether it is virtual.
    fn readable(&self, name: &ast::TableName, used: Option<&str>) -> Result<(Arc<TableDef>, bool), Error> {
        let keyspace = keyspace_of(name, used)?;
        // The server's own tables first: nobody's table stands before them.
        if let Some(table) = self.registry.get(&keyspace, &name.name) {
            return Ok((table.def, true));
        }
        let schema = self.current.schema();
        if let Some(def) = schema.table(&keyspace, &name.name) {
            return Ok((def.clone(), false));
        }
        let known = schema.keyspaces.contains_key(&keyspace)
            || self.registry.all().iter().any(|table| table.def.keyspace == keyspace);
        Err(if known { no_table(&keyspace, &name.name) } else { no_keyspace(&keyspace) })
    }
}

fn target(def: &TableDef, action: Action) -> Target {
    Target { keyspace: def.keyspace.clone(), table: Some(def.name.clone()), action }
}

fn define_target(statement: &Statement, used: Option<&str>) -> Result<Target, Error> {
    let table = |name: &ast::QualifiedName, action| {
        Ok(Target { keyspace: keyspace_of(name, used)?, table: Some(name.name.clone()), action })
    };
    let keyspace = |name: &str, action| Ok(Target { keyspace: name.to_owned(), table: None, action });
    match statement {
        Statement::CreateKeyspace(s) => keyspace(&s.name, Action::Create),
        Statement::AlterKeyspace(s) => keyspace(&s.name, Action::Alter),
        Statement::DropKeyspace(s) => keyspace(&s.name, Action::Drop),
        Statement::CreateTable(s) => keyspace(&keyspace_of(&s.table, used)?, Action::Create),
        Statement::AlterTable(s) => table(&s.table, Action::Alter),
        Statement::DropTable(s) => table(&s.name, Action::Drop),
        // Rights on types are rights on their keyspace, as in Cassandra.
        Statement::CreateType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Create),
        Statement::AlterType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Alter),
        Statement::DropType(s) => keyspace(&keyspace_of(&s.name, used)?, Action::Drop),
        _ => Err(Error::Invalid("Indexes, views, functions and triggers are not supported yet".into())),
    }
}
