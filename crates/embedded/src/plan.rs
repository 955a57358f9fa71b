//! Plans: a statement bound to the schema of the moment.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use cql::ast::{self, Statement};
use engine::{Action, Columns, Error, Plan, Target};
use schema::TableDef;

use crate::Embedded;
use crate::definition::{keyspace_of, no_keyspace, no_table};
use crate::select::{SelectPlan, select};
use crate::term::Binder;
use crate::write::{self, WritePlan};

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
    key_binds: Vec<u16>,
    targets: Vec<Target>,
    epoch: u64,
    now: Rc<Cell<u64>>,
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
        self.epoch == self.now.get()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Embedded {
    /// Binds a statement to the schema of this core.
    pub(crate) fn plan(&self, statement: &Rc<Statement>, used: Option<&str>) -> Result<EmbeddedPlan, Error> {
        let mut binder = Binder::new("", "", statement.bind_marker_count());
        let mut targets = Vec::with_capacity(1);
        let (kind, key_binds) = match &**statement {
            Statement::Select(asked) => {
                let (def, is_virtual) = self.readable(&asked.from, used)?;
                binder.about(&def.keyspace, &def.name);
                targets.push(target(&def, Action::Select));
                let plan = select(&def, asked, &mut binder, is_virtual)?;
                let markers = write::key_markers(&plan.restrictions);
                (Kind::Select(Arc::new(plan)), markers)
            }
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => {
                let plan = self.write_plan(statement, used, &mut binder, &mut targets)?;
                let markers = plan.key_markers();
                (Kind::Write(Arc::from([plan])), markers)
            }
            Statement::Batch(batch) => {
                let plans =
                    batch.statements.iter().map(|s| self.write_plan(s, used, &mut binder, &mut targets));
                let mut plans = plans.collect::<Result<Vec<_>, _>>()?;
                write::timestamp_of_all(&mut plans, &batch.using, &mut binder)?;
                let (counter, logged) =
                    (batch.kind == ast::BatchKind::Counter, batch.kind == ast::BatchKind::Logged);
                write::check_batch(counter, logged, plans.iter())?;
                (Kind::Write(plans.into()), Vec::new())
            }
            Statement::Truncate(name) => {
                let def = self.writable(name, used)?;
                targets.push(target(&def, Action::Modify));
                (Kind::Truncate(def), Vec::new())
            }
            _ => {
                targets.push(define_target(statement, used)?);
                (Kind::Define(statement.clone(), used.map(str::to_owned)), Vec::new())
            }
        };
        let binds = binder.finish()?;
        Ok(EmbeddedPlan { kind, binds, key_binds, targets, epoch: self.epoch.get(), now: self.epoch.clone() })
    }

    fn write_plan(
        &self,
        statement: &Statement,
        used: Option<&str>,
        binder: &mut Binder,
        targets: &mut Vec<Target>,
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
        let def = self.writable(name, used)?;
        binder.about(&def.keyspace, &def.name);
        targets.push(target(&def, Action::Modify));
        match statement {
            Statement::Insert(s) => write::insert(&def, s, binder),
            Statement::Update(s) => write::update(&def, s, binder),
            Statement::Delete(s) => write::delete(&def, s, binder),
            _ => unreachable!("the name was taken from one of these"),
        }
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
        let schema = self.schema.borrow();
        if let Some(def) = schema.table(&keyspace, &name.name) {
            return Ok((def.clone(), false));
        }
        if let Some(table) = self.registry.get(&keyspace, &name.name) {
            return Ok((table.def, true));
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
