//! Printer of statements about roles, permissions and service levels. Passwords are masked by
//! default.

use std::fmt::{self, Display, Formatter, Write};

use super::parts::{IfExists, IfNotExists, Secrets, joined, option_map, types_in_parentheses, with_options};
use crate::ast::{
    AlterUser, CreateUser, Datacenters, Grant, ListPermissions, ListRoles, ListServiceLevels, Permissions,
    Resource, RoleOptions, Statement,
};
use crate::words::{Identifier, Quoted};

/// Writes any statement that is not about data or the schema.
pub(super) fn statement(f: &mut Formatter<'_>, statement: &Statement, secrets: Secrets) -> fmt::Result {
    match statement {
        Statement::CreateRole(s) => {
            write!(f, "CREATE ROLE {}{}", IfNotExists(s.if_not_exists), Identifier(&s.name))?;
            role_options(f, &s.options, secrets)
        }
        Statement::AlterRole(s) => {
            write!(f, "ALTER ROLE {}{}", IfExists(s.if_exists), Identifier(&s.name))?;
            role_options(f, &s.options, secrets)
        }
        Statement::DropRole(s) => write!(f, "DROP ROLE {}{}", IfExists(s.if_exists), Identifier(&s.name)),
        Statement::CreateUser(s) => create_user(f, s, secrets),
        Statement::AlterUser(s) => alter_user(f, s, secrets),
        Statement::DropUser(s) => write!(f, "DROP USER {}{}", IfExists(s.if_exists), UserName(&s.name)),
        Statement::GrantRole(s) => write!(f, "GRANT {} TO {}", Identifier(&s.role), Identifier(&s.grantee)),
        Statement::RevokeRole(s) => {
            write!(f, "REVOKE {} FROM {}", Identifier(&s.role), Identifier(&s.grantee))
        }
        Statement::Grant(Grant { permissions, resource, grantee }) => {
            write!(f, "GRANT {permissions} ON {resource} TO {}", Identifier(grantee))
        }
        Statement::Revoke(Grant { permissions, resource, grantee }) => {
            write!(f, "REVOKE {permissions} ON {resource} FROM {}", Identifier(grantee))
        }
        Statement::ListRoles(s) => list_roles(f, s),
        Statement::ListUsers => f.write_str("LIST USERS"),
        Statement::ListPermissions(s) => list_permissions(f, s),
        Statement::CreateServiceLevel(s) => {
            write!(f, "CREATE SERVICE LEVEL {}{}", IfNotExists(s.if_not_exists), Identifier(&s.name))?;
            with_options(f, &s.options)
        }
        Statement::AlterServiceLevel(s) => {
            write!(f, "ALTER SERVICE LEVEL {}", Identifier(&s.name))?;
            with_options(f, &s.options)
        }
        Statement::DropServiceLevel(s) => {
            write!(f, "DROP SERVICE LEVEL {}{}", IfExists(s.if_exists), Identifier(&s.name))
        }
        Statement::AttachServiceLevel(s) => {
            write!(f, "ATTACH SERVICE LEVEL {} TO {}", Identifier(&s.level), Identifier(&s.role))
        }
        Statement::DetachServiceLevel(role) => write!(f, "DETACH SERVICE LEVEL FROM {}", Identifier(role)),
        Statement::ListServiceLevels(s) => s.fmt(f),
        Statement::CancelStatement(id) => write!(f, "CANCEL STATEMENT {}", Quoted(id)),
        Statement::CancelSession(id) => write!(f, "CANCEL SESSION {}", Quoted(id)),
        _ => unreachable!("statements about data and the schema are printed elsewhere"),
    }
}

/// Display of a secret: the secret in single quotes, or asterisks.
struct Secret<'a>(&'a str, Secrets);

impl Display for Secret<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Secrets::Shown => Quoted(self.0).fmt(f),
            Secrets::Masked => f.write_str("'*****'"),
        }
    }
}

fn role_options(f: &mut Formatter<'_>, options: &RoleOptions, secrets: Secrets) -> fmt::Result {
    let mut before = " WITH ";
    let mut next = |f: &mut Formatter<'_>| f.write_str(std::mem::replace(&mut before, " AND "));
    if let Some(password) = &options.password {
        next(f)?;
        write!(f, "PASSWORD = {}", Secret(password, secrets))?;
    }
    if let Some(hash) = &options.hashed_password {
        next(f)?;
        write!(f, "HASHED PASSWORD = {}", Secret(hash, secrets))?;
    }
    if let Some(login) = options.login {
        next(f)?;
        write!(f, "LOGIN = {login}")?;
    }
    if let Some(superuser) = options.superuser {
        next(f)?;
        write!(f, "SUPERUSER = {superuser}")?;
    }
    if let Some(entries) = &options.options {
        next(f)?;
        f.write_str("OPTIONS = ")?;
        match secrets {
            Secrets::Shown => option_map(f, entries)?,
            // Authenticators have credentials in them, under keys of their own.
            Secrets::Masked => {
                f.write_char('{')?;
                joined(f, entries, ", ", |f, (key, _)| {
                    write!(f, "{}: {}", Quoted(key), Secret("", secrets))
                })?;
                f.write_char('}')?;
            }
        }
    }
    match &options.datacenters {
        None => Ok(()),
        Some(Datacenters::All) => {
            next(f)?;
            f.write_str("ACCESS TO ALL DATACENTERS")
        }
        Some(Datacenters::Only(names)) => {
            next(f)?;
            f.write_str("ACCESS TO DATACENTERS {")?;
            joined(f, names, ", ", |f, name| Quoted(name).fmt(f))?;
            f.write_char('}')
        }
    }
}

/// Display of the name of a user, which is a string if it must be quoted.
struct UserName<'a>(&'a str);

impl fmt::Display for UserName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let identifier = Identifier(self.0).to_string();
        match identifier.starts_with('"') {
            true => Quoted(self.0).fmt(f),
            false => f.write_str(&identifier),
        }
    }
}

fn create_user(f: &mut Formatter<'_>, user: &CreateUser, secrets: Secrets) -> fmt::Result {
    write!(f, "CREATE USER {}{}", IfNotExists(user.if_not_exists), UserName(&user.name))?;
    user_password(f, user.password.as_deref(), user.hashed_password.as_deref(), secrets)?;
    f.write_str(if user.superuser { " SUPERUSER" } else { "" })
}

fn alter_user(f: &mut Formatter<'_>, user: &AlterUser, secrets: Secrets) -> fmt::Result {
    write!(f, "ALTER USER {}{}", IfExists(user.if_exists), UserName(&user.name))?;
    user_password(f, user.password.as_deref(), user.hashed_password.as_deref(), secrets)?;
    f.write_str(match user.superuser {
        Some(true) => " SUPERUSER",
        Some(false) => " NOSUPERUSER",
        None => "",
    })
}

fn user_password(
    f: &mut Formatter<'_>,
    plain: Option<&str>,
    hash: Option<&str>,
    secrets: Secrets,
) -> fmt::Result {
    match (plain, hash) {
        (Some(password), _) => write!(f, " WITH PASSWORD {}", Secret(password, secrets)),
        (None, Some(hash)) => write!(f, " WITH HASHED PASSWORD {}", Secret(hash, secrets)),
        (None, None) => Ok(()),
    }
}

impl Display for Permissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Permissions::All => f.write_str("ALL PERMISSIONS"),
            Permissions::Some(permissions) => {
                joined(f, permissions, ", ", |f, permission| f.write_str(permission.name()))
            }
        }
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("ALL KEYSPACES"),
            Resource::Keyspace(keyspace) => write!(f, "KEYSPACE {}", Identifier(keyspace)),
            Resource::AllTables(keyspace) => write!(f, "ALL TABLES IN KEYSPACE {}", Identifier(keyspace)),
            Resource::Table(table) => write!(f, "TABLE {table}"),
            Resource::AllRoles => f.write_str("ALL ROLES"),
            Resource::Role(role) => write!(f, "ROLE {}", Identifier(role)),
            Resource::AllServiceLevels => f.write_str("ALL SERVICE LEVELS"),
            Resource::ServiceLevel(level) => write!(f, "SERVICE LEVEL {}", Identifier(level)),
            Resource::AllFunctions => f.write_str("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(keyspace) => {
                write!(f, "ALL FUNCTIONS IN KEYSPACE {}", Identifier(keyspace))
            }
            Resource::Function(name, arguments) => {
                write!(f, "FUNCTION {name}")?;
                types_in_parentheses(f, arguments)
            }
            Resource::AllMBeans => f.write_str("ALL MBEANS"),
            Resource::MBeans(pattern) => write!(f, "MBEANS {}", Quoted(pattern)),
        }
    }
}

fn list_roles(f: &mut Formatter<'_>, list: &ListRoles) -> fmt::Result {
    f.write_str("LIST ROLES")?;
    of_role(f, list.of.as_deref(), list.recursive)
}

fn list_permissions(f: &mut Formatter<'_>, list: &ListPermissions) -> fmt::Result {
    write!(f, "LIST {}", list.permissions)?;
    list.resource.iter().try_for_each(|resource| write!(f, " ON {resource}"))?;
    of_role(f, list.of.as_deref(), list.recursive)
}

fn of_role(f: &mut Formatter<'_>, role: Option<&str>, recursive: bool) -> fmt::Result {
    role.iter().try_for_each(|role| write!(f, " OF {}", Identifier(role)))?;
    f.write_str(if recursive { "" } else { " NORECURSIVE" })
}

impl Display for ListServiceLevels {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ListServiceLevels::One(name) => write!(f, "LIST SERVICE LEVEL {}", Identifier(name)),
            ListServiceLevels::All => f.write_str("LIST ALL SERVICE LEVELS"),
            ListServiceLevels::AttachedTo(role) => {
                write!(f, "LIST ATTACHED SERVICE LEVEL OF {}", Identifier(role))
            }
            ListServiceLevels::AllAttached => f.write_str("LIST ALL ATTACHED SERVICE LEVELS"),
            ListServiceLevels::EffectiveOf(role) => {
                write!(f, "LIST EFFECTIVE SERVICE LEVEL OF {}", Identifier(role))
            }
        }
    }
}
