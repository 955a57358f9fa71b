//! CREATE, ALTER and DROP of roles and users, and GRANT and REVOKE of roles.

use std::sync::Arc;

use cql::Statement;
use cql::ast::{AlterUser, CreateUser, Datacenters, DropRole, GrantRole, RoleOptions};
use engine::Error;

use super::levels::has_guarantee;
use super::{Planner, check_name};
use crate::needs::NeedKind;
use crate::resource::Resource;
use crate::roles::Edit;
use crate::verifier::Verifier;

/// Converts the options of CREATE USER. A user is a role that may log in.
pub(super) fn of_create_user(user: &CreateUser) -> RoleOptions {
    RoleOptions {
        password: user.password.clone(),
        hashed_password: user.hashed_password.clone(),
        login: Some(true),
        superuser: Some(user.superuser),
        ..RoleOptions::default()
    }
}

pub(super) fn of_alter_user(user: &AlterUser) -> RoleOptions {
    RoleOptions {
        password: user.password.clone(),
        hashed_password: user.hashed_password.clone(),
        superuser: user.superuser,
        ..RoleOptions::default()
    }
}

/// Error for an empty password. Clients send an empty one if none is configured.
pub(crate) const EMPTY_PASSWORD: &str = "The password must not be empty: give at least one character, or leave the \
                                         option out for a role without a password";

fn invalid<T>(message: &str) -> Result<T, Error> {
    Err(Error::Invalid(message.to_owned()))
}

fn unauthorized<T>(message: &str) -> Result<T, Error> {
    Err(Error::Unauthorized(message.to_owned()))
}

/// Rejects unsupported options.
fn check_options(options: &RoleOptions) -> Result<(), Error> {
    if options.options.as_ref().is_some_and(|options| !options.is_empty()) {
        return invalid("OPTIONS of roles are not supported");
    }
    if let Some(Datacenters::Only(_)) = options.datacenters {
        return invalid("ACCESS TO DATACENTERS is not supported: a role may log in everywhere");
    }
    if options.password.as_deref() == Some("") {
        return invalid(EMPTY_PASSWORD);
    }
    if options.password.is_some() && options.hashed_password.is_some() {
        return invalid("Options 'password' and 'hashed password' are mutually exclusive");
    }
    Ok(())
}

impl Planner<'_> {
    /// Returns the verifier that the options specify, if any.
    fn new_verifier(&self, options: &RoleOptions) -> Result<Option<Arc<Verifier>>, Error> {
        if let Some(text) = &options.hashed_password {
            return match Verifier::parse(text) {
                Some(verifier) => Ok(Some(Arc::new(verifier))),
                None => invalid(
                    "The hashed password must be a SCRAM-SHA-256 verifier: \
                     'SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey', with 4096 to 65536 iterations; \
                     or a bcrypt hash: '$2a$cost$...', with a cost from 4 to 14",
                ),
            };
        }
        Ok(options.password.as_ref().and(self.verifier.cloned()))
    }

    pub(super) fn create_role(
        &self,
        name: &str,
        if_not_exists: bool,
        options: &RoleOptions,
    ) -> Result<Vec<Edit>, Error> {
        if options.superuser == Some(true) && !self.is_superuser() {
            return unauthorized("Only superusers can create a role with superuser status");
        }
        check_name("Role", name)?;
        check_options(options)?;
        if self.roles.get(name).is_some() {
            return if if_not_exists { Ok(Vec::new()) } else { invalid(&format!("{name} already exists")) };
        }
        let role = Edit::PutRole {
            role: name.into(),
            can_login: options.login.unwrap_or(false),
            is_superuser: options.superuser.unwrap_or(false),
            verifier: self.new_verifier(options)?,
        };
        Ok([role].into_iter().chain(self.permit_creator(Resource::Role(name.to_owned()))).collect())
    }

    pub(super) fn alter_role(
        &self,
        name: &str,
        if_exists: bool,
        options: &RoleOptions,
    ) -> Result<Vec<Edit>, Error> {
        if *options == RoleOptions::default() {
            return invalid("ALTER [ROLE|USER] can't be empty");
        }
        self.check_alter(name, options)?;
        check_options(options)?;
        let Some(role) = self.roles.get(name) else {
            return if if_exists { Ok(Vec::new()) } else { invalid(&format!("Role {name} doesn't exist")) };
        };
        Ok(vec![Edit::PutRole {
            role: name.into(),
            can_login: options.login.unwrap_or(role.can_login),
            is_superuser: options.superuser.unwrap_or(role.is_superuser),
            verifier: self.new_verifier(options)?.or_else(|| role.verifier.clone()),
        }])
    }

    fn check_alter(&self, name: &str, options: &RoleOptions) -> Result<(), Error> {
        let own = &self.actor.role;
        if options.superuser.is_some() {
            if !self.actor.anonymous && self.roles.has_role(own, name) {
                return unauthorized(
                    "You aren't allowed to alter your own superuser status or that of a role granted to you",
                );
            }
            if !self.is_superuser() {
                return unauthorized("Only superusers are allowed to alter superuser status");
            }
        }
        if self.is_superuser() {
            return Ok(());
        }
        if self.roles.is_superuser(name) {
            return unauthorized("Only superusers can alter a role with superuser status");
        }
        match options.login {
            Some(_) if **own == *name => unauthorized("You aren't allowed to alter LOGIN"),
            _ => Ok(()),
        }
    }

    pub(super) fn drop_role(&self, statement: &DropRole) -> Result<Vec<Edit>, Error> {
        let name = &statement.name;
        let resource = Resource::Role(name.clone());
        let Some((role, dropped)) = self.roles.get_key_value(name) else {
            return if statement.if_exists {
                Ok(Vec::new())
            } else {
                invalid(&format!("{name} doesn't exist"))
            };
        };
        if *role == self.actor.role && !self.actor.anonymous {
            return invalid("Cannot DROP primary role for current login");
        }
        if self.roles.is_superuser(name) && !self.is_superuser() {
            return unauthorized("Only superusers can drop a role with superuser status");
        }
        let mut edits: Vec<Edit> = Vec::new();
        for granted in &dropped.member_of {
            edits.push(Edit::RemoveMember { role: granted.clone(), member: role.clone() });
        }
        for (member, _) in self.roles.iter().filter(|(_, member)| member.member_of.contains(role)) {
            edits.push(Edit::RemoveMember { role: role.clone(), member: member.clone() });
        }
        let mut forbidden = self.forbid_all(&resource);
        // Dropping the role removes its own grants.
        forbidden.retain(|edit| !matches!(edit, Edit::Forbid { role: of, .. } if of == role));
        edits.append(&mut forbidden);
        edits.push(Edit::DropRole(role.clone()));
        Ok(edits)
    }

    pub(super) fn grant_role(&self, statement: &GrantRole, whole: &Statement) -> Result<Vec<Edit>, Error> {
        let GrantRole { role, grantee } = statement;
        self.require_role(role)?;
        self.require_role(grantee)?;
        if self.roles.is_superuser(role) && !self.is_superuser() {
            return unauthorized("Only superusers can grant a role with superuser status");
        }
        self.check_granted_levels(role, grantee, whole)?;
        if self.roles.has_role(grantee, role) {
            return invalid(&format!("{grantee} is a member of {role}"));
        }
        if self.roles.has_role(role, grantee) {
            return invalid(&format!("{role} is a member of {grantee}"));
        }
        Ok(vec![Edit::AddMember { role: role.as_str().into(), member: grantee.as_str().into() }])
    }

    /// Checks the rights that ATTACH would need, if the granted role has a service level.
    fn check_granted_levels(&self, role: &str, grantee: &str, statement: &Statement) -> Result<(), Error> {
        let granted = self.roles.with_granted(role);
        let brought: Vec<&str> = granted.iter().filter_map(|(_, role)| role.level.as_deref()).collect();
        if brought.is_empty() {
            return Ok(());
        }
        self.check_kind(NeedKind::GrantRoleWithLevel, statement)?;
        self.check_move(grantee)?;
        let entries = brought.iter().filter_map(|level| self.levels.get(level));
        match entries.into_iter().find(|entry| has_guarantee(&entry.spec)) {
            Some(entry) => self.check_guarantee(grantee, &entry.spec.name),
            None => Ok(()),
        }
    }

    pub(super) fn revoke_role(&self, statement: &GrantRole) -> Result<Vec<Edit>, Error> {
        let GrantRole { role, grantee } = statement;
        self.require_role(role)?;
        self.require_role(grantee)?;
        if !self.roles.get(grantee).is_some_and(|grantee| grantee.member_of.contains(role.as_str())) {
            return invalid(&format!("{grantee} is not a member of {role}"));
        }
        Ok(vec![Edit::RemoveMember { role: role.as_str().into(), member: grantee.as_str().into() }])
    }
}
