//! Resources of permissions, and sets of permissions. Resources form trees. A permission on a
//! resource holds for every resource below it:
//!
//! ```text
//!   data ─ data/ks ─ data/ks/* ─ data/ks/table/id       roles ─ roles/r          service_levels ─ service_levels/s
//! ```
//!
//! A table resource contains the identity of the table as well as its name. A grant on a dropped
//! table therefore never holds for a later table of the same name.

use std::fmt;

use cql::ast::{self, Permission};
use engine::Error;

/// A set of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PermissionSet(u16);

impl PermissionSet {
    pub(crate) const NONE: PermissionSet = PermissionSet(0);

    pub(crate) const fn of(permissions: &[Permission]) -> PermissionSet {
        let mut bits = 0;
        let mut i = 0;
        while i < permissions.len() {
            bits |= 1 << permissions[i] as u16;
            i += 1;
        }
        PermissionSet(bits)
    }

    pub(crate) fn contains(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u16) != 0
    }

    pub(crate) fn union(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 | other.0)
    }

    pub(crate) fn without(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates in the order of listings.
    pub(crate) fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |&permission| self.contains(permission))
    }
}

/// Resource of a permission.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Resource {
    AllKeyspaces,
    Keyspace(String),
    AllTables(String),
    /// Keyspace, name and identity. [`NO_TABLE`] if the table does not exist.
    Table(String, String, u128),
    AllRoles,
    Role(String),
    AllServiceLevels,
    ServiceLevel(String),
}

/// Identity of a table that does not exist.
pub(crate) const NO_TABLE: u128 = 0;

/// Keyspaces that every role may read, because drivers read them on connecting.
const READABLE: [&str; 3] = ["system", "system_schema", "system_virtual_schema"];

/// Tables that every role may read. Each role sees only rows about its own tables and statements.
const READABLE_TABLES: [(&str, &str); 3] =
    [("system_traces", "events"), ("system_traces", "sessions"), ("system_views", "sstable_tasks")];

/// Returns true if every role may read a table of the server.
pub(crate) fn is_readable(keyspace: &str, table: Option<&str>) -> bool {
    READABLE.contains(&keyspace) || table.is_some_and(|table| READABLE_TABLES.contains(&(keyspace, table)))
}

use Permission::{Alter, Authorize, Create, Describe, Drop, Execute, Modify, Select, SelectMasked, Unmask};

impl Resource {
    /// Returns the bytes of the names in it.
    pub(crate) fn name_bytes(&self) -> usize {
        match self {
            Resource::Keyspace(name)
            | Resource::AllTables(name)
            | Resource::Role(name)
            | Resource::ServiceLevel(name) => name.len(),
            Resource::Table(keyspace, table, _) => keyspace.len() + table.len(),
            Resource::AllKeyspaces | Resource::AllRoles | Resource::AllServiceLevels => 0,
        }
    }

    /// Resolves the resource of a statement. `keyspace` is that of the session. `table_id` looks up
    /// tables.
    pub(crate) fn of(
        resource: &ast::Resource,
        keyspace: Option<&str>,
        table_id: impl Fn(&str, &str) -> Option<u128>,
    ) -> Result<Resource, Error> {
        Ok(match resource {
            ast::Resource::AllKeyspaces => Resource::AllKeyspaces,
            ast::Resource::Keyspace(name) => Resource::Keyspace(name.clone()),
            ast::Resource::AllTables(keyspace) => Resource::AllTables(keyspace.clone()),
            ast::Resource::Table(table) => match table.keyspace.as_deref().or(keyspace) {
                Some(keyspace) => {
                    let id = table_id(keyspace, &table.name).unwrap_or(NO_TABLE);
                    Resource::Table(keyspace.to_owned(), table.name.clone(), id)
                }
                None => return Err(Error::Invalid(NO_KEYSPACE.to_owned())),
            },
            ast::Resource::AllRoles => Resource::AllRoles,
            ast::Resource::Role(name) => Resource::Role(name.clone()),
            ast::Resource::AllServiceLevels => Resource::AllServiceLevels,
            ast::Resource::ServiceLevel(name) => Resource::ServiceLevel(name.clone()),
            ast::Resource::AllFunctions | ast::Resource::AllFunctionsIn(_) | ast::Resource::Function(..) => {
                return Err(Error::Invalid(
                    "Functions are not supported yet, nor permissions on them".to_owned(),
                ));
            }
            ast::Resource::AllMBeans | ast::Resource::MBeans(_) => {
                return Err(Error::Invalid("MBeans are not supported, nor permissions on them".to_owned()));
            }
        })
    }

    /// Returns the resource above. Its permissions hold here too.
    pub(crate) fn parent(&self) -> Option<Resource> {
        match self {
            Resource::AllKeyspaces | Resource::AllRoles | Resource::AllServiceLevels => None,
            Resource::Keyspace(_) => Some(Resource::AllKeyspaces),
            Resource::AllTables(keyspace) => Some(Resource::Keyspace(keyspace.clone())),
            Resource::Table(keyspace, ..) => Some(Resource::AllTables(keyspace.clone())),
            Resource::Role(_) => Some(Resource::AllRoles),
            Resource::ServiceLevel(_) => Some(Resource::AllServiceLevels),
        }
    }

    /// Returns the resource and all resources above it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = Resource> {
        std::iter::successors(Some(self.clone()), Resource::parent)
    }

    /// Returns the permissions that apply to this resource. EXECUTE on a level is the right to run
    /// statements in it.
    pub(crate) fn applicable(&self) -> PermissionSet {
        PermissionSet::of(match self {
            Resource::AllKeyspaces | Resource::Keyspace(_) | Resource::AllTables(_) => {
                &[Create, Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]
            }
            Resource::Table(..) => &[Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked],
            Resource::AllRoles => &[Create, Alter, Drop, Authorize, Describe],
            Resource::Role(_) => &[Alter, Drop, Authorize],
            Resource::AllServiceLevels => &[Create, Alter, Drop, Authorize, Describe, Execute],
            Resource::ServiceLevel(_) => &[Alter, Drop, Authorize, Describe, Execute],
        })
    }

    /// Returns the name in the tables.
    pub(crate) fn to_name(&self) -> String {
        match self {
            Resource::AllKeyspaces => "data".to_owned(),
            Resource::Keyspace(keyspace) => format!("data/{keyspace}"),
            Resource::AllTables(keyspace) => format!("data/{keyspace}/*"),
            Resource::Table(keyspace, table, NO_TABLE) => format!("data/{keyspace}/{table}"),
            Resource::Table(keyspace, table, id) => format!("data/{keyspace}/{table}/{id:032x}"),
            Resource::AllRoles => "roles".to_owned(),
            Resource::Role(role) => format!("roles/{role}"),
            Resource::AllServiceLevels => "service_levels".to_owned(),
            Resource::ServiceLevel(level) => format!("service_levels/{level}"),
        }
    }

    /// Parses a name in the tables. Names of roles and levels may contain a `/`. A
    /// table without an identity gets [`NO_TABLE`].
    pub(crate) fn from_name(name: &str) -> Option<Resource> {
        let (root, rest) = name.split_once('/').map_or((name, None), |(root, rest)| (root, Some(rest)));
        Some(match (root, rest) {
            ("data", None) => Resource::AllKeyspaces,
            ("data", Some(rest)) => match rest.split_once('/') {
                None => Resource::Keyspace(rest.to_owned()),
                Some((keyspace, "*")) => Resource::AllTables(keyspace.to_owned()),
                Some((keyspace, table)) => {
                    let (table, id) = match table.split_once('/') {
                        Some((table, id)) => (table, u128::from_str_radix(id, 16).ok()?),
                        None => (table, NO_TABLE),
                    };
                    Resource::Table(keyspace.to_owned(), table.to_owned(), id)
                }
            },
            ("roles", None) => Resource::AllRoles,
            ("roles", Some(role)) => Resource::Role(role.to_owned()),
            ("service_levels", None) => Resource::AllServiceLevels,
            ("service_levels", Some(level)) => Resource::ServiceLevel(level.to_owned()),
            _ => return None,
        })
    }
}

/// Error for a name without a keyspace in a session without one. The text is Cassandra's.
const NO_KEYSPACE: &str =
    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename";

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("<all keyspaces>"),
            Resource::Keyspace(keyspace) => write!(f, "<keyspace {keyspace}>"),
            Resource::AllTables(keyspace) => write!(f, "<all tables in {keyspace}>"),
            Resource::Table(keyspace, table, _) => write!(f, "<table {keyspace}.{table}>"),
            Resource::AllRoles => f.write_str("<all roles>"),
            Resource::Role(role) => write!(f, "<role {role}>"),
            Resource::AllServiceLevels => f.write_str("<all service levels>"),
            Resource::ServiceLevel(level) => write!(f, "<service level {level}>"),
        }
    }
}

/// True for keyspaces of the server.
pub(crate) fn is_system(keyspace: &str) -> bool {
    keyspace == "system" || keyspace.starts_with("system_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_survive_their_names() {
        let own = |text: &str| text.to_owned();
        for resource in [
            Resource::AllKeyspaces,
            Resource::Keyspace(own("ks")),
            Resource::AllTables(own("ks")),
            Resource::Table(own("ks"), own("t"), 7),
            Resource::AllRoles,
            Resource::Role(own("a/b")),
            Resource::AllServiceLevels,
            Resource::ServiceLevel(own("*/")),
        ] {
            assert_eq!(Resource::from_name(&resource.to_name()), Some(resource));
        }
        let of_version_0_1_0 = Resource::from_name("data/ks/t");
        assert_eq!(of_version_0_1_0, Some(Resource::Table(own("ks"), own("t"), NO_TABLE)));
        assert_eq!(Resource::from_name("data/ks/t/x"), None);
        assert_eq!(Resource::from_name("functions/ks"), None);
        assert_eq!(Resource::from_name(""), None);
    }

    #[test]
    fn table_has_three_resources_above_it() {
        let chain: Vec<String> =
            Resource::Table("k".into(), "t".into(), 7).chain().map(|r| r.to_string()).collect();
        assert_eq!(chain, ["<table k.t>", "<all tables in k>", "<keyspace k>", "<all keyspaces>"]);
    }
}
