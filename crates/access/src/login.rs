//! A session's role, and what holds for it. What was looked up stays with the session until roles, grants or levels
//! change, so that looking again costs one atomic load.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use cql::ast::Permission;
use rustc_hash::FxHashMap;
use workload::{Catalogue, Effective};

use crate::plan::Actor;
use crate::resource::{PermissionSet, Resource};
use crate::roles::{RoleName, Roles};

/// Tables whose permissions a view remembers; beyond it, it begins anew.
const TABLES_MAX: usize = 10_000;

/// What holds for a role, as of one version.
pub(crate) struct View {
    pub(crate) effective: Rc<Effective>,
    pub(crate) is_superuser: bool,
    /// Permissions by keyspace and table, as far as they were asked for.
    tables: RefCell<FxHashMap<String, FxHashMap<String, PermissionSet>>>,
}

impl View {
    pub(crate) fn of(actor: &Actor, roles: &Roles, levels: &Catalogue) -> View {
        let effective = roles.effective(&actor.role, levels);
        View {
            effective: Rc::new(effective.unwrap_or_else(|| Effective::of(levels.default_level()))),
            is_superuser: actor.anonymous || roles.is_superuser(&actor.role),
            tables: RefCell::default(),
        }
    }

    /// Whether the role may do that with a table; `roles` are asked once for each table.
    pub(crate) fn may(
        &self,
        actor: &Actor,
        permission: Permission,
        (keyspace, table): (&str, &str),
        roles: impl FnOnce() -> std::sync::Arc<crate::Snapshot>,
    ) -> bool {
        if self.is_superuser {
            return true;
        }
        let known = self.tables.borrow().get(keyspace).and_then(|tables| tables.get(table)).copied();
        let permissions = known.unwrap_or_else(|| {
            let resource = Resource::Table(keyspace.to_owned(), table.to_owned());
            let permissions = roles().roles.permissions(&actor.role, &resource);
            let mut known = self.tables.borrow_mut();
            if known.values().map(FxHashMap::len).sum::<usize>() >= TABLES_MAX {
                known.clear();
            }
            known.entry(keyspace.to_owned()).or_default().insert(table.to_owned(), permissions);
            permissions
        });
        permissions.contains(permission)
    }
}

/// Who a session is. It stays on its core; cheap to clone.
#[derive(Clone)]
pub struct Login {
    pub(crate) actor: Actor,
    /// What was looked up last, and the version it holds for.
    pub(crate) seen: RefCell<(u64, Rc<View>)>,
}

impl Login {
    /// The role.
    #[must_use]
    pub fn role(&self) -> &RoleName {
        &self.actor.role
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.actor.role)
    }
}
