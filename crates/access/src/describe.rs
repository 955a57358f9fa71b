//! Statements that create roles, grants and service levels again: the part of `DESCRIBE SCHEMA WITH
//! INTERNALS` about them, as in ScyllaDB.

use std::sync::Arc;

use cql::ast;
use cql::{constant, identifier};
use engine::Error;
use workload::{Catalog, DEFAULT_LEVEL, DRIVER_LEVEL};

use crate::access::Access;
use crate::login::Login;
use crate::options;
use crate::published::Snapshot;
use crate::resource::Resource;
use crate::roles::Role;

/// Roles, grants and levels at one time.
pub struct AccessSchema {
    snapshot: Arc<Snapshot>,
    levels: Arc<Catalog>,
    with_passwords: bool,
}

/// A statement of the description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessStatement {
    /// Kind of the object: `role`, `grant_role`, `grant_permission`, `service_level` or
    /// `service_level_attachment`.
    pub kind: &'static str,
    /// Name of the role or level.
    pub name: String,
    /// The statement. It may have the hash of a password.
    pub text: String,
}

impl Access {
    /// Returns the roles, grants and levels, with the hashes of passwords if requested. `None`: the
    /// role is no superuser and sees none of them.
    ///
    /// # Errors
    /// Returns [`Error::Unauthorized`] if such a role requests passwords.
    pub fn describe(&self, login: &Login, with_passwords: bool) -> Result<Option<AccessSchema>, Error> {
        if !self.may_everything(login) {
            return match with_passwords {
                true => Err(Error::Unauthorized(
                    "DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS can only be issued by a superuser"
                        .to_owned(),
                )),
                false => Ok(None),
            };
        }
        let levels = self.levels().catalog();
        Ok(Some(AccessSchema { snapshot: self.snapshot(), levels, with_passwords }))
    }
}

impl AccessSchema {
    /// Returns the statements, each after those that it needs. They are made one at a time: there
    /// may be tens of thousands of roles.
    pub fn statements(&self) -> impl Iterator<Item = AccessStatement> + Send + '_ {
        let roles = || self.snapshot.roles.iter();
        let created = roles().map(|(name, role)| self.create_role(name, role));
        let members = roles().flat_map(|(name, role)| {
            let grant = |granted: &Arc<str>| AccessStatement {
                kind: "grant_role",
                name: granted.to_string(),
                text: format!("GRANT {} TO {};", identifier(granted), identifier(name)),
            };
            role.member_of.iter().map(grant).collect::<Vec<_>>()
        });
        let grants = roles().flat_map(|(name, role)| {
            let statements = role.grants.iter().flat_map(|(resource, permissions)| {
                let on = statement_resource(resource);
                let grant = move |permission: ast::Permission| AccessStatement {
                    kind: "grant_permission",
                    name: name.to_string(),
                    text: format!("GRANT {} ON {on} TO {};", permission.name(), identifier(name)),
                };
                permissions.iter().map(grant)
            });
            statements.collect::<Vec<_>>()
        });
        let levels = self.levels.entries().map(|entry| {
            let spec = &entry.spec;
            // These levels always exist.
            let create = match &*spec.name {
                DEFAULT_LEVEL | DRIVER_LEVEL => "ALTER SERVICE LEVEL",
                _ => "CREATE SERVICE LEVEL IF NOT EXISTS",
            };
            let text = format!("{create} {} WITH {};", identifier(&spec.name), options::to_text(spec));
            AccessStatement { kind: "service_level", name: spec.name.to_string(), text }
        });
        let attachments = roles().filter_map(|(name, role)| {
            let level = role.level.as_ref()?;
            let text = format!("ATTACH SERVICE LEVEL {} TO {};", identifier(level), identifier(name));
            Some(AccessStatement { kind: "service_level_attachment", name: level.to_string(), text })
        });
        created.chain(members).chain(grants).chain(levels).chain(attachments)
    }

    fn create_role(&self, name: &str, role: &Role) -> AccessStatement {
        let hash = role.verifier.as_ref().filter(|_| self.with_passwords);
        let hash = hash.map(|hash| format!("HASHED PASSWORD = {} AND ", constant(&hash.to_text())));
        let text = format!(
            "CREATE ROLE IF NOT EXISTS {} WITH {}LOGIN = {} AND SUPERUSER = {};",
            identifier(name),
            hash.unwrap_or_default(),
            role.can_login,
            role.is_superuser
        );
        AccessStatement { kind: "role", name: name.to_owned(), text }
    }
}

/// Returns a resource as statements write it.
fn statement_resource(resource: &Resource) -> ast::Resource {
    match resource {
        Resource::AllKeyspaces => ast::Resource::AllKeyspaces,
        Resource::Keyspace(keyspace) => ast::Resource::Keyspace(keyspace.clone()),
        Resource::AllTables(keyspace) => ast::Resource::AllTables(keyspace.clone()),
        Resource::Table(keyspace, table, _) => {
            ast::Resource::Table(ast::QualifiedName { keyspace: Some(keyspace.clone()), name: table.clone() })
        }
        Resource::AllRoles => ast::Resource::AllRoles,
        Resource::Role(role) => ast::Resource::Role(role.clone()),
        Resource::AllServiceLevels => ast::Resource::AllServiceLevels,
        Resource::ServiceLevel(level) => ast::Resource::ServiceLevel(level.clone()),
    }
}
