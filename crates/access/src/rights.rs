//! Rights of a role, with a cache of its permissions on tables.

use std::cell::RefCell;
use std::sync::Arc;

use cql::ast::Permission;
use rustc_hash::FxHashMap;

use crate::published::Snapshot;
use crate::resource::{PermissionSet, Resource};
use crate::roles::{Role, RoleName, Roles};

/// Most tables whose permissions are cached, per role and core. Above that, the cache is cleared.
const TABLES_MAX: usize = 10_000;

/// Identity of a table and the permissions on it, by table name.
type ByTable = FxHashMap<String, (u128, PermissionSet)>;

/// A table, and its identity: one that is created again has another.
#[derive(Clone, Copy)]
pub(crate) struct TableId<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) table: &'a str,
    pub(crate) id: u128,
}

/// Rights of a role, derived from itself and its granted roles.
pub(crate) struct Rights {
    /// A number that no other rights have had on this core.
    pub(crate) number: u64,
    pub(crate) is_superuser: bool,
    /// The role and all roles granted to it. Empty for a session without a role.
    roles: Vec<(RoleName, Arc<Role>)>,
    /// Cached permissions, by keyspace and table, with the identity of the table.
    tables: RefCell<FxHashMap<String, ByTable>>,
}

impl Rights {
    pub(crate) fn new(number: u64, is_superuser: bool, roles: Vec<(RoleName, Arc<Role>)>) -> Rights {
        Rights { number, is_superuser, roles, tables: RefCell::default() }
    }

    pub(crate) fn of(number: u64, role: &str, roles: &Roles) -> Rights {
        let own = roles.with_granted(role).into_iter().map(|(name, role)| (name.clone(), role.clone()));
        Rights::new(number, roles.is_superuser(role), own.collect())
    }

    /// Returns the role and all roles granted to it.
    pub(crate) fn roles(&self) -> &[(RoleName, Arc<Role>)] {
        &self.roles
    }

    /// True if none of the roles has changed since.
    pub(crate) fn is_current(&self, roles: &Roles) -> bool {
        let same =
            |(name, role): &(RoleName, Arc<Role>)| roles.get(name).is_some_and(|now| Arc::ptr_eq(now, role));
        self.roles.iter().all(same)
    }

    /// Returns the permissions on a table. Calls `roles` only if they are not cached.
    pub(crate) fn on_table(
        &self,
        role: &str,
        TableId { keyspace, table, id }: TableId<'_>,
        roles: impl FnOnce() -> Arc<Snapshot>,
    ) -> PermissionSet {
        let known = self.tables.borrow().get(keyspace).and_then(|tables| tables.get(table)).copied();
        if let Some((_, permissions)) = known.filter(|(of, _)| *of == id) {
            return permissions;
        }
        let resource = Resource::Table(keyspace.to_owned(), table.to_owned(), id);
        let permissions = roles().roles.permissions(role, &resource);
        let mut known = self.tables.borrow_mut();
        if known.values().map(FxHashMap::len).sum::<usize>() >= TABLES_MAX {
            known.clear();
        }
        known.entry(keyspace.to_owned()).or_default().insert(table.to_owned(), (id, permissions));
        permissions
    }

    /// True if these rights include a permission on a table.
    pub(crate) fn may(
        &self,
        role: &str,
        permission: Permission,
        table: TableId<'_>,
        roles: impl FnOnce() -> Arc<Snapshot>,
    ) -> bool {
        self.is_superuser || self.on_table(role, table, roles).contains(permission)
    }
}
