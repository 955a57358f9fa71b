//! The schema of one core, and the check that plans still fit it. Each plan remembers the
//! definitions that it was bound to, so that a change of one table leaves the plans of all others
//! valid.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use engine::{Schema, SchemaListener};
use schema::TableDef;

/// Current schema of one core, and who learns of its changes.
#[derive(Default)]
pub(crate) struct Current {
    schema: RefCell<Arc<Schema>>,
    /// Number of schema changes so far.
    epoch: Cell<u64>,
    listeners: RefCell<Vec<SchemaListener>>,
}

impl Current {
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    /// Installs a schema. Returns the previous one.
    pub(crate) fn replace(&self, schema: Arc<Schema>) -> Arc<Schema> {
        self.epoch.set(self.epoch.get() + 1);
        self.schema.replace(schema)
    }

    /// Adds a function that learns of each later change of the schema.
    pub(crate) fn listen(&self, listener: SchemaListener) {
        self.listeners.borrow_mut().push(listener);
    }

    /// Returns the functions that learn of changes.
    pub(crate) fn listeners(&self) -> Vec<SchemaListener> {
        self.listeners.borrow().clone()
    }
}

/// Epoch that no schema reaches.
const NEVER: u64 = u64::MAX;

/// Definitions that a plan was bound to. Virtual tables never change.
pub(crate) struct BoundTo {
    current: Rc<Current>,
    tables: Box<[Arc<TableDef>]>,
    /// Epoch of the last schema that the plan was found to fit.
    seen: Cell<u64>,
}

impl BoundTo {
    /// Records the definitions of a plan, which may be outdated already: the first
    /// [`BoundTo::is_current`] compares them with the schema.
    pub(crate) fn new(current: Rc<Current>, tables: Vec<Arc<TableDef>>) -> BoundTo {
        BoundTo { current, tables: tables.into(), seen: Cell::new(NEVER) }
    }

    /// Returns true if all definitions are current. Compares them once after each change of the
    /// schema.
    pub(crate) fn is_current(&self) -> bool {
        let now = self.current.epoch.get();
        if self.seen.get() == now {
            return true;
        }
        let schema = self.current.schema.borrow();
        let is_unchanged = |def: &Arc<TableDef>| {
            schema.table(&def.keyspace, &def.name).is_some_and(|found| Arc::ptr_eq(found, def))
        };
        let is_current = self.tables.iter().all(is_unchanged);
        if is_current {
            self.seen.set(now);
        }
        is_current
    }
}
