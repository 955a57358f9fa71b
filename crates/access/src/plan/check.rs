//! Checks of the permissions that statements about roles, grants or levels need, by the table of
//! needs.

use cql::Statement;
use cql::ast::{ListServiceLevels, Permissions};
use engine::Error;

use super::{Planner, denied};
use crate::needs::{Need, NeedKind, On, Right, Unless};
use crate::resource::{PermissionSet, Resource};

impl Planner<'_> {
    /// Checks the permissions that a statement needs. This check comes first: without permissions,
    /// the response must not reveal which objects exist.
    pub(crate) fn check(&self, statement: &Statement) -> Result<(), Error> {
        NeedKind::of(statement).map_or(Ok(()), |kind| self.check_kind(kind, statement))
    }

    /// Checks the permissions of `kind`. For kinds that the statement alone does not determine.
    pub(crate) fn check_kind(&self, kind: NeedKind, statement: &Statement) -> Result<(), Error> {
        if self.is_superuser() {
            return Ok(());
        }
        let Need { all_of, unless, .. } = kind.need();
        let is_excepted = role_of(statement).is_some_and(|role| match unless {
            Unless::Never => false,
            Unless::Same => *self.actor.role == *role,
            Unless::Member => self.roles.has_role(&self.actor.role, role),
        });
        if is_excepted {
            return Ok(());
        }
        all_of.iter().try_for_each(|ways| {
            // The error names the last alternative.
            let mut refusal = Ok(());
            for way in *ways {
                refusal = self.check_right(*way, statement);
                if refusal.is_ok() {
                    break;
                }
            }
            refusal
        })
    }

    fn check_right(&self, right: Right, statement: &Statement) -> Result<(), Error> {
        let (permissions, on) = match right {
            Right::May(permission, on) => (PermissionSet::of(&[permission]), on),
            Right::Holds => (granted_by(statement, &self.resource_of(On::Granted, statement)?), On::Granted),
            Right::Any(_) => unreachable!("only statements about data need `Any`"),
        };
        let resource = self.resource_of(on, statement)?;
        permissions.iter().try_for_each(|permission| match self.may(permission, &resource) {
            true => Ok(()),
            false => Err(denied(&self.actor.role, permission, &resource)),
        })
    }

    /// Returns the resource of a statement.
    fn resource_of(&self, on: On, statement: &Statement) -> Result<Resource, Error> {
        Ok(match (on, statement) {
            (On::AllRoles, _) => Resource::AllRoles,
            (On::AllLevels, _) => Resource::AllServiceLevels,
            (On::Role, _) => {
                Resource::Role(role_of(statement).expect("the statement names a role").to_owned())
            }
            (On::Grantee, Statement::GrantRole(s) | Statement::RevokeRole(s)) => {
                Resource::Role(s.grantee.clone())
            }
            (On::Granted, Statement::Grant(s) | Statement::Revoke(s)) => {
                Resource::of(&s.resource, self.keyspace, self.table_id)?
            }
            (On::Level, Statement::DetachServiceLevel(role)) => {
                match self.roles.get(role.as_str()).and_then(|role| role.level.as_deref()) {
                    Some(level) => Resource::ServiceLevel(level.to_owned()),
                    None => Resource::AllServiceLevels,
                }
            }
            (On::Level, _) => {
                Resource::ServiceLevel(level_of(statement).expect("the statement names a level").to_owned())
            }
            _ => unreachable!("{on:?} is not a resource of statements about roles or levels"),
        })
    }
}

/// Returns the role that a statement is about.
fn role_of(statement: &Statement) -> Option<&str> {
    Some(match statement {
        Statement::AlterRole(s) => &s.name,
        Statement::AlterUser(s) => &s.name,
        Statement::DropRole(s) | Statement::DropUser(s) => &s.name,
        Statement::GrantRole(s) | Statement::RevokeRole(s) => &s.role,
        Statement::ListRoles(s) => s.of.as_deref()?,
        Statement::ListPermissions(s) => s.of.as_deref()?,
        Statement::AttachServiceLevel(s) => &s.role,
        Statement::DetachServiceLevel(role) => role,
        Statement::ListServiceLevels(
            ListServiceLevels::AttachedTo(role) | ListServiceLevels::EffectiveOf(role),
        ) => role,
        _ => return None,
    })
}

/// Returns the level that a statement names.
fn level_of(statement: &Statement) -> Option<&str> {
    Some(match statement {
        Statement::CreateServiceLevel(s) => &s.name,
        Statement::AlterServiceLevel(s) => &s.name,
        Statement::DropServiceLevel(s) => &s.name,
        Statement::AttachServiceLevel(s) => &s.level,
        Statement::ListServiceLevels(ListServiceLevels::One(level)) => level,
        _ => return None,
    })
}

/// Returns the permissions that a statement grants or revokes.
fn granted_by(statement: &Statement, resource: &Resource) -> PermissionSet {
    match statement {
        Statement::Grant(s) | Statement::Revoke(s) => match &s.permissions {
            Permissions::All => resource.applicable(),
            Permissions::Some(permissions) => PermissionSet::of(permissions),
        },
        _ => PermissionSet::NONE,
    }
}
