//! The schema as it stands on one core, and whether plans still fit it: each remembers the
//! definitions that it was bound to. So a change of one table leaves the plans of all others as
//! they are.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use engine::Schema;
use schema::TableDef;

/// The schema of one core.
#[derive(Default)]
pub(crate) struct Current {
    schema: RefCell<Arc<Schema>>,
    /// Goes up with every change.
    epoch: Cell<u64>,
}

impl Current {
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    /// Puts a schema into the place of the one before, which it gives.
    pub(crate) fn replace(&self, schema: Arc<Schema>) -> Arc<Schema> {
        self.epoch.set(self.epoch.get() + 1);
        self.schema.replace(schema)
    }
}

/// An epoch that no schema reaches.
const NEVER: u64 = u64::MAX;

/// The definitions that a plan was bound to. Virtual tables do not change.
pub(crate) struct BoundTo {
    current: Rc<Current>,
    tables: Box<[Arc<TableDef>]>,
    /// The last change of the schema after which the plan was found to fit.
    seen: Cell<u64>,
}

impl BoundTo {
    /// A plan that was bound to these definitions, perhaps a while ago: the first question compares them with the schema.
    pub(crate) fn new(current: Rc<Current>, tables: Vec<Arc<TableDef>>) -> BoundTo {
        BoundTo { current, tables: tables.into(), seen: Cell::new(NEVER) }
    }

    /// Whether all of them stand. Looks at them once after each change of the schema.
    pub(crate) fn is_current(&self) -> bool {
        let now = self.current.epoch.get();
        if self.seen.get() == now {
            return true;
        }
        let schema = self.current.schema.borrow();
        let stands = |def: &Arc<TableDef>| {
            schema.table(&def.keyspace, &def.name).is_some_and(|found| Arc::ptr_eq(found, def))
        };
        let is_current = self.tables.iter().all(stands);
        if is_current {
            self.seen.set(now);
        }
        is_current
    }
}
