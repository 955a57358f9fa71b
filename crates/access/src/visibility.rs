//! Visibility of rows in virtual tables and in DESCRIBE. A role sees facts about objects on which
//! it has a right.
//!
//! - A keyspace is visible to roles with any permission on it, above it, or on a table in it. The
//!   server's own keyspaces are visible to all roles.
//! - A table is visible to roles with any permission on it or above it.
//! - Data of a table is visible to roles with SELECT on it or above it. In the server's own
//!   keyspaces, it is visible to superusers only.
//! - Rows of a table may be read by roles with SELECT on it or above it. Every role may read its
//!   own rows of some tables of the server.
//! - A role is visible to itself and to every role that it is granted to, and to roles with
//!   DESCRIBE on all roles.
//! - A service level is visible to roles whose statements run in it, to roles with a permission on
//!   it, and to roles with DESCRIBE on all levels.
//!
//! Superusers see everything. Cassandra and Postgres show the names of all keyspaces to every role.
//! Both hide the statements of other roles.

use std::collections::{BTreeMap, BTreeSet};

use cql::ast::Permission;
use engine::{About, Viewer};

use crate::resource::{Resource, is_readable};
use crate::rights::Rights;
use crate::roles::RoleName;
use crate::store::KEYSPACES;

/// Rights of a role that decide visibility.
#[derive(Debug)]
pub(crate) struct Visibility {
    is_superuser: bool,
    /// True with a permission on all keyspaces.
    has_all_keyspaces: bool,
    keyspaces: BTreeSet<String>,
    /// True with SELECT on all keyspaces.
    selects_all: bool,
    /// Keyspaces with a permission on all of their tables. The value is true if SELECT is one.
    whole_keyspaces: BTreeMap<String, bool>,
    /// Tables with a permission, by keyspace, name and identity. The value is true if SELECT is
    /// one.
    tables: BTreeMap<(String, String, u128), bool>,
    describes_roles: bool,
    roles: BTreeSet<RoleName>,
    describes_levels: bool,
    levels: BTreeSet<String>,
}

impl Visibility {
    /// Derives the visibility for a role with these rights. `level` is that of its statements.
    pub(crate) fn of(rights: &Rights, level: &str) -> Visibility {
        let mut visibility = Visibility {
            is_superuser: rights.is_superuser,
            has_all_keyspaces: false,
            keyspaces: BTreeSet::new(),
            selects_all: false,
            whole_keyspaces: BTreeMap::new(),
            tables: BTreeMap::new(),
            describes_roles: false,
            roles: rights.roles().iter().map(|(name, _)| name.clone()).collect(),
            describes_levels: false,
            levels: BTreeSet::from([level.to_owned()]),
        };
        for (_, role) in rights.roles() {
            visibility.levels.extend(role.level.as_deref().map(str::to_owned));
            for (resource, permissions) in &role.grants {
                let describes = permissions.contains(Permission::Describe);
                let selects = permissions.contains(Permission::Select);
                match resource {
                    Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) => {
                        *visibility.whole_keyspaces.entry(keyspace.clone()).or_default() |= selects;
                    }
                    Resource::Table(keyspace, table, id) => {
                        let table = (keyspace.clone(), table.clone(), *id);
                        *visibility.tables.entry(table).or_default() |= selects;
                    }
                    _ => {}
                }
                match resource {
                    Resource::AllKeyspaces => {
                        visibility.has_all_keyspaces = true;
                        visibility.selects_all |= selects;
                    }
                    Resource::Keyspace(keyspace)
                    | Resource::AllTables(keyspace)
                    | Resource::Table(keyspace, ..) => {
                        if !visibility.keyspaces.contains(keyspace) {
                            visibility.keyspaces.insert(keyspace.clone());
                        }
                    }
                    Resource::AllRoles => visibility.describes_roles |= describes,
                    Resource::AllServiceLevels => visibility.describes_levels |= describes,
                    Resource::ServiceLevel(level) => drop(visibility.levels.insert(level.clone())),
                    Resource::Role(_) => {}
                }
            }
        }
        visibility
    }
}

impl Viewer for Visibility {
    fn sees(&self, about: About<'_>) -> bool {
        self.is_superuser
            || match about {
                About::Keyspace(keyspace) => {
                    self.has_all_keyspaces || is_public(keyspace) || self.keyspaces.contains(keyspace)
                }
                About::AllKeyspaces => self.has_all_keyspaces,
                About::Table(keyspace, table, id) => {
                    self.has_all_keyspaces || self.right_on(keyspace, table, id).is_some()
                }
                About::Data(keyspace, table, id) => {
                    let selects = self.selects_all || self.right_on(keyspace, table, id) == Some(true);
                    selects && !is_public(keyspace)
                }
                About::Rows(keyspace, table, id) => {
                    let selects = self.selects_all || self.right_on(keyspace, table, id) == Some(true);
                    is_readable(keyspace, Some(table)) || selects && !KEYSPACES.contains(&keyspace)
                }
                About::AllData => self.selects_all,
                About::AllRoles => self.describes_roles,
                About::Role(role) => self.describes_roles || self.roles.contains(role),
                About::Level(level) => self.describes_levels || self.levels.contains(level),
                About::AllLevels => self.describes_levels,
            }
    }
}

impl Visibility {
    /// Returns `Some` if there is a permission on the table or on all tables of its keyspace. The
    /// value is true if SELECT is one.
    fn right_on(&self, keyspace: &str, table: &str, id: u128) -> Option<bool> {
        let whole = self.whole_keyspaces.get(keyspace).copied();
        let table = self.tables.get(&(keyspace.to_owned(), table.to_owned(), id)).copied();
        whole.max(table)
    }
}

/// True for keyspaces whose tables are the same in every server, and therefore not secret.
fn is_public(keyspace: &str) -> bool {
    engine::is_of_server(keyspace)
}
