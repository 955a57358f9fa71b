//! What a role is shown of virtual tables and by DESCRIBE: facts about what it has any right on.
//!
//! | about | shown to |
//! |---|---|
//! | a keyspace | roles with any permission on it, above it, or on a table in it; the server's own keyspaces to all |
//! | a table | roles with any permission on it or above it |
//! | what is in a table | roles with SELECT on it or above it; of the server's own keyspaces superusers |
//! | a role | the role itself and all it is granted to; roles with DESCRIBE on all roles |
//! | a service level | roles whose statements have it, or with a permission on it; roles with DESCRIBE on all levels |
//!
//! Superusers are shown everything. Cassandra and Postgres show every role the names of all
//! keyspaces; both hide the statements of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::Permission;
use engine::{About, Error, Viewer};

use crate::access::{Access, is_system};
use crate::login::{Login, Rights};
use crate::resource::Resource;
use crate::roles::RoleName;

/// The rights of a role, as far as they decide what it is shown.
#[derive(Debug)]
pub(crate) struct Sight {
    is_superuser: bool,
    /// Has a permission on all keyspaces.
    has_all_keyspaces: bool,
    keyspaces: BTreeSet<String>,
    /// Has SELECT on all keyspaces.
    selects_all: bool,
    /// Keyspaces with a permission on all of their tables, and whether SELECT is among them.
    wholes: BTreeMap<String, bool>,
    /// Likewise, tables by keyspace, name and identity.
    tables: BTreeMap<(String, String, u128), bool>,
    describes_roles: bool,
    roles: BTreeSet<RoleName>,
    describes_levels: bool,
    levels: BTreeSet<String>,
}

impl Sight {
    /// What a role with these rights is shown, whose statements have that level.
    pub(crate) fn of(rights: &Rights, level: &str) -> Sight {
        let mut sight = Sight {
            is_superuser: rights.is_superuser,
            has_all_keyspaces: false,
            keyspaces: BTreeSet::new(),
            selects_all: false,
            wholes: BTreeMap::new(),
            tables: BTreeMap::new(),
            describes_roles: false,
            roles: rights.roles().iter().map(|(name, _)| name.clone()).collect(),
            describes_levels: false,
            levels: BTreeSet::from([level.to_owned()]),
        };
        for (_, role) in rights.roles() {
            sight.levels.extend(role.level.as_deref().map(str::to_owned));
            for (resource, permissions) in &role.grants {
                let describes = permissions.contains(Permission::Describe);
                let selects = permissions.contains(Permission::Select);
                match resource {
                    Resource::Keyspace(keyspace) | Resource::AllTables(keyspace) => {
                        *sight.wholes.entry(keyspace.clone()).or_default() |= selects;
                    }
                    Resource::Table(keyspace, table, id) => {
                        let table = (keyspace.clone(), table.clone(), *id);
                        *sight.tables.entry(table).or_default() |= selects;
                    }
                    _ => {}
                }
                match resource {
                    Resource::AllKeyspaces => {
                        sight.has_all_keyspaces = true;
                        sight.selects_all |= selects;
                    }
                    Resource::Keyspace(keyspace)
                    | Resource::AllTables(keyspace)
                    | Resource::Table(keyspace, ..) => {
                        if !sight.keyspaces.contains(keyspace) {
                            sight.keyspaces.insert(keyspace.clone());
                        }
                    }
                    Resource::AllRoles => sight.describes_roles |= describes,
                    Resource::AllServiceLevels => sight.describes_levels |= describes,
                    Resource::ServiceLevel(level) => drop(sight.levels.insert(level.clone())),
                    Resource::Role(_) => {}
                }
            }
        }
        sight
    }
}

impl Viewer for Sight {
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
                About::AllData => self.selects_all,
                About::AllRoles => self.describes_roles,
                About::Role(role) => self.describes_roles || self.roles.contains(role),
                About::Level(level) => self.describes_levels || self.levels.contains(level),
                About::AllLevels => self.describes_levels,
            }
    }
}

impl Sight {
    /// Whether there is a permission on a table, or on all tables of its keyspace: `Some(true)` if SELECT is among them.
    fn right_on(&self, keyspace: &str, table: &str, id: u128) -> Option<bool> {
        let whole = self.wholes.get(keyspace).copied();
        let table = self.tables.get(&(keyspace.to_owned(), table.to_owned(), id)).copied();
        whole.max(table)
    }
}

/// Whether the tables of a keyspace are the same in every server, and so no secret.
fn is_public(keyspace: &str) -> bool {
    is_system(keyspace) || engine::system_schema::VIRTUAL_KEYSPACES.contains(&keyspace)
}

impl Access {
    /// Returns what decides which rows of virtual tables the session is shown.
    #[must_use]
    pub fn viewer(&self, login: &Login) -> Arc<dyn Viewer> {
        self.view(login).sight()
    }

    /// Checks whether the session is shown a keyspace, whether or not there is one of that name.
    ///
    /// # Errors
    /// [`Error::Unauthorized`].
    pub fn authorize_sight(&self, login: &Login, keyspace: &str) -> Result<(), Error> {
        if self.viewer(login).sees(About::Keyspace(keyspace)) {
            return Ok(());
        }
        Err(Error::Unauthorized(format!(
            "User {} has no permission on {} or any of its parents",
            login.role(),
            Resource::Keyspace(keyspace.to_owned())
        )))
    }
}
