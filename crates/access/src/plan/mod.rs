//! Planner: converts a statement to edits. It is pure: it reads roles, levels and schema, and
//! returns an error or the edits. It writes nothing. Without edits, there is nothing to do.

mod check;
mod copies;
mod grants;
mod levels;
mod roles;

use std::sync::Arc;

use cluster::Topology;
use cql::Statement;
use cql::ast::Permission;
use engine::Error;
use workload::Catalog;

use crate::resource::Resource;
use crate::roles::{Edit, RoleName, Roles};
use crate::verifier::Verifier;

pub(crate) use copies::{copy_edits, drop_edits, unused_copies};
pub(crate) use levels::missing_level;
pub(crate) use roles::EMPTY_PASSWORD;

/// Longest name of a role or level, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The role that runs a statement.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) role: RoleName,
    /// The role's id. A later role of the same name has another id.
    pub(crate) id: u64,
    /// True if authentication is off. Everything is then permitted.
    pub(crate) anonymous: bool,
}

/// Planner: the state against which it plans a statement.
pub(crate) struct Planner<'a> {
    pub(crate) roles: &'a Roles,
    pub(crate) levels: &'a Catalog,
    /// Returns true if a keyspace or table exists.
    pub(crate) has_data: &'a dyn Fn(&Resource) -> bool,
    /// Returns the identity of the table with that name, virtual tables included.
    pub(crate) table_id: &'a dyn Fn(&str, &str) -> Option<u128>,
    pub(crate) actor: &'a Actor,
    /// The keyspace of the session.
    pub(crate) keyspace: Option<&'a str>,
    /// The verifier of the password in the statement, if it has one.
    pub(crate) verifier: Option<&'a Arc<Verifier>>,
    /// Nodes of the cluster of whose roles these are copies. `None`: there is no cluster.
    pub(crate) cluster: Option<&'a Topology>,
}

impl Planner<'_> {
    /// Plans a statement.
    pub(crate) fn plan(&self, statement: &Statement) -> Result<Vec<Edit>, Error> {
        self.check(statement)?;
        match statement {
            Statement::CreateRole(s) => self.create_role(&s.name, s.if_not_exists, &s.options),
            Statement::CreateUser(s) => self.create_role(&s.name, s.if_not_exists, &roles::of_create_user(s)),
            Statement::AlterRole(s) => self.alter_role(&s.name, s.if_exists, &s.options),
            Statement::AlterUser(s) => self.alter_role(&s.name, s.if_exists, &roles::of_alter_user(s)),
            Statement::DropRole(s) | Statement::DropUser(s) => self.drop_role(s),
            Statement::GrantRole(s) => self.grant_role(s, statement),
            Statement::RevokeRole(s) => self.revoke_role(s),
            Statement::Grant(s) => self.grant(s),
            Statement::Revoke(s) => self.revoke(s),
            Statement::CreateServiceLevel(s) => self.create_level(s, statement),
            Statement::AlterServiceLevel(s) => self.alter_level(s, statement),
            Statement::DropServiceLevel(s) => self.drop_level(s),
            Statement::AttachServiceLevel(s) => self.attach_level(s),
            Statement::DetachServiceLevel(role) => self.detach_level(role),
            _ => Err(Error::Invalid("expected a statement that changes roles or service levels".to_owned())),
        }
    }

    /// True if the actor's role still exists and is not a later one of the same name.
    pub(crate) fn has_actor(&self) -> bool {
        self.actor.anonymous || self.roles.get(&self.actor.role).is_some_and(|role| role.id == self.actor.id)
    }

    pub(crate) fn is_superuser(&self) -> bool {
        self.actor.anonymous || self.roles.is_superuser(&self.actor.role)
    }

    pub(crate) fn may(&self, permission: Permission, resource: &Resource) -> bool {
        self.actor.anonymous || self.roles.may(&self.actor.role, permission, resource)
    }

    pub(crate) fn require(&self, permission: Permission, resource: &Resource) -> Result<(), Error> {
        if self.may(permission, resource) {
            Ok(())
        } else {
            Err(denied(&self.actor.role, permission, resource))
        }
    }

    /// Checks that a role exists whose rights or roles are listed.
    pub(crate) fn require_listed(&self, role: &str) -> Result<(), Error> {
        self.require_role(role).map_err(|_| Error::Invalid(format!("<role {role}> doesn't exist")))
    }

    pub(crate) fn require_role(&self, role: &str) -> Result<(), Error> {
        match self.roles.get(role) {
            Some(_) => Ok(()),
            None => Err(Error::Invalid(format!("{role} doesn't exist"))),
        }
    }

    /// Grants every permission on a new resource to its creator.
    pub(crate) fn permit_creator(&self, resource: Resource) -> Option<Edit> {
        let role = self.actor.role.clone();
        let permissions = resource.applicable();
        // A cluster knows nothing of such a grant, so that it could not be revoked there.
        let is_kept = !self.actor.anonymous && self.cluster.is_none() && self.has_actor();
        is_kept.then_some(Edit::Permit { role, resource, permissions })
    }

    /// Removes every grant on a dropped resource and on the resources below it.
    pub(crate) fn forbid_all(&self, dropped: &Resource) -> Vec<Edit> {
        self.forbid_where(|resource| resource.chain().any(|above| above == *dropped))
    }

    /// Removes every grant in a keyspace on tables that no longer exist. With `keyspace_too`, also
    /// removes grants on the keyspace itself, even if a keyspace of that name exists now.
    pub(crate) fn forbid_dropped(&self, keyspace: &str, keyspace_too: bool) -> Vec<Edit> {
        self.forbid_where(|resource| match resource {
            Resource::Keyspace(of) | Resource::AllTables(of) => of == keyspace && keyspace_too,
            Resource::Table(of, table, id) => of == keyspace && (self.table_id)(of, table) != Some(*id),
            _ => false,
        })
    }

    fn forbid_where(&self, is_dropped: impl Fn(&Resource) -> bool) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (name, role) in self.roles.iter() {
            for (resource, &permissions) in role.grants.iter().filter(|(resource, _)| is_dropped(resource)) {
                edits.push(Edit::Forbid { role: name.clone(), resource: resource.clone(), permissions });
            }
        }
        edits
    }
}

/// Returns the error for a missing permission.
pub(crate) fn denied(role: &str, permission: Permission, resource: &Resource) -> Error {
    let permission = permission.name();
    Error::Unauthorized(format!(
        "User {role} has no {permission} permission on {resource} or any of its parents"
    ))
}

fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::Invalid(format!("{what} name can't be an empty string")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::Invalid(format!("{what} name can't be longer than {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes() {
        for (bytes, is_valid) in [(0, false), (1, true), (255, true), (256, false)] {
            assert_eq!(check_name("Role", &"x".repeat(bytes)).is_ok(), is_valid, "{bytes} bytes");
        }
    }
}
