//! Table of the permissions that each CQL statement needs. The checks read it, and so does the test
//! that tries every statement with every single permission.
//!
//! Some options also need superuser status. The planner (`plan`) checks them. Superusers need no
//! permission. A permission on a resource holds for every resource below it (`resource`).

use cql::Statement;
use cql::ast::{DescribeTarget, IfClause, ListServiceLevels, Permission};

/// Resource that a permission must be on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// The table that the statement names.
    Table,
    /// The keyspace that the statement names, or the keyspace of the object that it names.
    Keyspace,
    /// All keyspaces.
    AllKeyspaces,
    /// The role that the statement changes, lists or grants.
    Role,
    /// The role that gains or loses another role.
    Grantee,
    /// All roles.
    AllRoles,
    /// The service level that the statement names, or the level of the role that it names.
    Level,
    /// All service levels.
    AllLevels,
    /// The resource that the statement grants permissions on.
    Granted,
}

/// One way to satisfy a need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// A permission.
    May(Permission, On),
    /// Every permission that the statement grants or revokes, on the same resource.
    Holds,
    /// Any permission on the keyspace, above it or in it.
    Any(On),
}

/// Role that needs no permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unless {
    /// Every role needs them.
    Never,
    /// The role that the statement is about.
    Same,
    /// The role that the statement is about, and every role it is granted to.
    Member,
}

/// Permissions that a statement needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The kind of statement.
    pub kind: NeedKind,
    /// A statement of that kind.
    pub example: &'static str,
    /// All needs. Each is satisfied by any one of its rights.
    pub all_of: &'static [&'static [Right]],
    /// The role that needs no permission.
    pub unless: Unless,
}

/// Kind of statement, by needs, in the order of [`NEEDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the statements; NEEDS has an example of each")]
pub enum NeedKind {
    Select,
    Insert,
    InsertIf,
    Update,
    UpdateIf,
    Delete,
    DeleteIf,
    Truncate,
    CompactTable,
    FlushTable,
    ScrubTable,
    CreateKeyspace,
    AlterKeyspace,
    DropKeyspace,
    CreateTable,
    AlterTable,
    DropTable,
    CreateIndex,
    DropIndex,
    CreateType,
    AlterType,
    DropType,
    Describe,
    CreateRole,
    AlterRole,
    DropRole,
    GrantRole,
    GrantRoleWithLevel,
    RevokeRole,
    Grant,
    Revoke,
    ListRolesOf,
    ListPermissions,
    ListPermissionsOf,
    CreateLevel,
    ReserveLevel,
    AlterLevel,
    DropLevel,
    AttachLevel,
    DetachLevel,
    ListLevel,
    ListLevels,
    ListAttachedOf,
    UsingLevel,
}

use Permission::{Alter, Authorize, Create, Describe, Drop, Execute, Modify, Select};
use Right::{Any, Holds, May};

const SELECT: &[Right] = &[May(Select, On::Table)];
const MODIFY: &[Right] = &[May(Modify, On::Table)];
const LEVEL: &[Right] = &[May(Authorize, On::Level)];
const OVER_ROLE: &[Right] = &[May(Authorize, On::Role), May(Alter, On::Role)];
const OVER_GRANTEE: &[Right] = &[May(Authorize, On::Grantee), May(Alter, On::Grantee)];
const DESCRIBE_ROLES: &[Right] = &[May(Describe, On::AllRoles)];
const DESCRIBE_LEVELS: &[Right] = &[May(Describe, On::AllLevels)];
const GRANT: &[&[Right]] = &[&[May(Authorize, On::Granted)], &[Holds]];

/// Creates a need without an exempt role.
const fn need(kind: NeedKind, example: &'static str, all_of: &'static [&'static [Right]]) -> Need {
    Need { kind, example, all_of, unless: Unless::Never }
}

impl Need {
    const fn unless(self, unless: Unless) -> Need {
        Need { unless, ..self }
    }
}

/// Needs of every statement. Statements that are not listed need no permission. They show or change
/// only objects of the role: USE, LIST ROLES, LIST USERS, CANCEL STATEMENT, CANCEL SESSION, and
/// DESCRIBE of everything.
#[rustfmt::skip]
pub const NEEDS: [Need; 44] = [
    need(NeedKind::Select, "SELECT * FROM ks.t", &[SELECT]),
    need(NeedKind::Insert, "INSERT INTO ks.t (k, v) VALUES (1, 1)", &[MODIFY]),
    // The response to a condition shows stored data.
    need(NeedKind::InsertIf, "INSERT INTO ks.t (k, v) VALUES (1, 1) IF NOT EXISTS", &[MODIFY, SELECT]),
    need(NeedKind::Update, "UPDATE ks.t SET v = 1 WHERE k = 1", &[MODIFY]),
    need(NeedKind::UpdateIf, "UPDATE ks.t SET v = 1 WHERE k = 1 IF v = 2", &[MODIFY, SELECT]),
    need(NeedKind::Delete, "DELETE FROM ks.t WHERE k = 1", &[MODIFY]),
    need(NeedKind::DeleteIf, "DELETE FROM ks.t WHERE k = 1 IF EXISTS", &[MODIFY, SELECT]),
    need(NeedKind::Truncate, "TRUNCATE ks.t", &[MODIFY]),
    need(NeedKind::CompactTable, "COMPACT ks.t", &[&[May(Alter, On::Table)]]),
    need(NeedKind::FlushTable, "FLUSH ks.t", &[&[May(Alter, On::Table)]]),
    need(NeedKind::ScrubTable, "SCRUB ks.t", &[&[May(Alter, On::Table)]]),
    need(
        NeedKind::CreateKeyspace,
        "CREATE KEYSPACE new WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        &[&[May(Create, On::AllKeyspaces)]],
    ),
    need(NeedKind::AlterKeyspace, "ALTER KEYSPACE ks WITH durable_writes = true", &[&[May(Alter, On::Keyspace)]]),
    need(NeedKind::DropKeyspace, "DROP KEYSPACE ks", &[&[May(Drop, On::Keyspace)]]),
    need(NeedKind::CreateTable, "CREATE TABLE ks.new (k int PRIMARY KEY)", &[&[May(Create, On::Keyspace)]]),
    need(NeedKind::AlterTable, "ALTER TABLE ks.t WITH comment = 'x'", &[&[May(Alter, On::Table)]]),
    need(NeedKind::DropTable, "DROP TABLE ks.t", &[&[May(Drop, On::Table)]]),
    need(NeedKind::CreateIndex, "CREATE INDEX ON ks.t (v)", &[&[May(Alter, On::Table)]]),
    need(NeedKind::DropIndex, "DROP INDEX ks.i", &[&[May(Alter, On::Table)]]),
    // Permissions on a type are those on its keyspace, as in Cassandra.
    need(NeedKind::CreateType, "CREATE TYPE ks.new (x int)", &[&[May(Create, On::Keyspace)]]),
    need(NeedKind::AlterType, "ALTER TYPE ks.ty RENAME x TO x", &[&[May(Alter, On::Keyspace)]]),
    need(NeedKind::DropType, "DROP TYPE ks.ty", &[&[May(Drop, On::Keyspace)]]),
    need(NeedKind::Describe, "DESCRIBE KEYSPACE ks", &[&[Any(On::Keyspace)]]),
    need(NeedKind::CreateRole, "CREATE ROLE new", &[&[May(Create, On::AllRoles)]]),
    // A role may change its own password.
    need(NeedKind::AlterRole, "ALTER ROLE someone WITH LOGIN = true", &[&[May(Alter, On::Role)]]).unless(Unless::Same),
    need(NeedKind::DropRole, "DROP ROLE someone", &[&[May(Drop, On::Role)]]),
    need(NeedKind::GrantRole, "GRANT someone TO friend", &[&[May(Authorize, On::Role)]]),
    need(NeedKind::GrantRoleWithLevel, "GRANT leveled TO friend", &[&[May(Authorize, On::Role)], OVER_GRANTEE]),
    need(NeedKind::RevokeRole, "REVOKE granted FROM friend", &[&[May(Authorize, On::Role)]]),
    need(NeedKind::Grant, "GRANT SELECT ON ks.t TO friend", GRANT),
    need(NeedKind::Revoke, "REVOKE SELECT ON ks.t FROM friend", GRANT),
    need(NeedKind::ListRolesOf, "LIST ROLES OF someone", &[DESCRIBE_ROLES]).unless(Unless::Member),
    need(NeedKind::ListPermissions, "LIST ALL PERMISSIONS", &[DESCRIBE_ROLES]),
    need(NeedKind::ListPermissionsOf, "LIST ALL PERMISSIONS OF someone", &[DESCRIBE_ROLES]).unless(Unless::Member),
    need(NeedKind::CreateLevel, "CREATE SERVICE LEVEL new", &[&[May(Create, On::AllLevels)]]),
    // A guarantee takes resources from all other levels. CREATE with a guarantee needs this right
    // too.
    need(NeedKind::ReserveLevel, "ALTER SERVICE LEVEL lvl WITH cpu_min = '1%'", &[&[May(Alter, On::AllLevels)]]),
    need(NeedKind::AlterLevel, "ALTER SERVICE LEVEL lvl WITH shares = 7", &[&[May(Alter, On::Level)]]),
    need(NeedKind::DropLevel, "DROP SERVICE LEVEL lvl", &[&[May(Drop, On::Level)]]),
    need(NeedKind::AttachLevel, "ATTACH SERVICE LEVEL lvl TO someone", &[LEVEL, OVER_ROLE]),
    need(NeedKind::DetachLevel, "DETACH SERVICE LEVEL FROM leveled", &[OVER_ROLE, LEVEL]),
    need(NeedKind::ListLevel, "LIST SERVICE LEVEL lvl", &[&[May(Describe, On::Level)]]),
    need(NeedKind::ListLevels, "LIST ALL SERVICE LEVELS", &[DESCRIBE_LEVELS]),
    need(NeedKind::ListAttachedOf, "LIST ATTACHED SERVICE LEVEL OF leveled", &[DESCRIBE_LEVELS]).unless(Unless::Member),
    // The second right is not needed for a level of the role itself.
    need(NeedKind::UsingLevel, "SELECT * FROM ks.t USING SERVICE LEVEL lvl", &[SELECT, &[May(Execute, On::Level)]]),
];

const _: () = {
    let mut at = 0;
    while at < NEEDS.len() {
        assert!(NEEDS[at].kind as usize == at, "NEEDS is in the order of NeedKind");
        at += 1;
    }
};

impl NeedKind {
    /// Returns the needs of statements of this kind.
    #[must_use]
    pub fn need(self) -> &'static Need {
        &NEEDS[self as usize]
    }

    /// Returns the kind of a statement. `None` for statements without needs, and for batches: check
    /// each of their statements instead.
    pub(crate) fn of(statement: &Statement) -> Option<NeedKind> {
        let conditional =
            |clause: &IfClause, with, without| if *clause == IfClause::None { without } else { with };
        Some(match statement {
            Statement::Select(_) => NeedKind::Select,
            Statement::Insert(s) if s.if_not_exists => NeedKind::InsertIf,
            Statement::Insert(_) => NeedKind::Insert,
            Statement::Update(s) => conditional(&s.condition, NeedKind::UpdateIf, NeedKind::Update),
            Statement::Delete(s) => conditional(&s.condition, NeedKind::DeleteIf, NeedKind::Delete),
            Statement::Truncate(_) => NeedKind::Truncate,
            Statement::Compact(_) => NeedKind::CompactTable,
            Statement::Flush(_) => NeedKind::FlushTable,
            Statement::Scrub(_) => NeedKind::ScrubTable,
            Statement::CreateKeyspace(_) => NeedKind::CreateKeyspace,
            Statement::AlterKeyspace(_) => NeedKind::AlterKeyspace,
            Statement::DropKeyspace(_) => NeedKind::DropKeyspace,
            Statement::CreateTable(_) => NeedKind::CreateTable,
            Statement::AlterTable(_) => NeedKind::AlterTable,
            Statement::DropTable(_) => NeedKind::DropTable,
            Statement::CreateIndex(_) => NeedKind::CreateIndex,
            Statement::DropIndex(_) => NeedKind::DropIndex,
            Statement::CreateType(_) => NeedKind::CreateType,
            Statement::AlterType(_) => NeedKind::AlterType,
            Statement::DropType(_) => NeedKind::DropType,
            Statement::Describe(describe) => match describe.target {
                DescribeTarget::Keyspace { .. } | DescribeTarget::Table(_) | DescribeTarget::Type(_) => {
                    NeedKind::Describe
                }
                // The lookup of the name considers only objects that the role may see.
                _ => return None,
            },
            Statement::CreateRole(_) | Statement::CreateUser(_) => NeedKind::CreateRole,
            Statement::AlterRole(_) | Statement::AlterUser(_) => NeedKind::AlterRole,
            Statement::DropRole(_) | Statement::DropUser(_) => NeedKind::DropRole,
            Statement::GrantRole(_) => NeedKind::GrantRole,
            Statement::RevokeRole(_) => NeedKind::RevokeRole,
            Statement::Grant(_) => NeedKind::Grant,
            Statement::Revoke(_) => NeedKind::Revoke,
            Statement::ListRoles(s) => return s.of.is_some().then_some(NeedKind::ListRolesOf),
            Statement::ListPermissions(s) if s.of.is_some() => NeedKind::ListPermissionsOf,
            Statement::ListPermissions(_) => NeedKind::ListPermissions,
            Statement::CreateServiceLevel(_) => NeedKind::CreateLevel,
            Statement::AlterServiceLevel(_) => NeedKind::AlterLevel,
            Statement::DropServiceLevel(_) => NeedKind::DropLevel,
            Statement::AttachServiceLevel(_) => NeedKind::AttachLevel,
            Statement::DetachServiceLevel(_) => NeedKind::DetachLevel,
            Statement::ListServiceLevels(list) => match list {
                ListServiceLevels::One(_) => NeedKind::ListLevel,
                ListServiceLevels::All | ListServiceLevels::AllAttached => NeedKind::ListLevels,
                ListServiceLevels::AttachedTo(_) | ListServiceLevels::EffectiveOf(_) => {
                    NeedKind::ListAttachedOf
                }
            },
            // Unsupported, and rejected for every role.
            Statement::CreateMaterializedView(_)
            | Statement::AlterMaterializedView(_)
            | Statement::DropMaterializedView(_)
            | Statement::CreateFunction(_)
            | Statement::DropFunction(_)
            | Statement::CreateAggregate(_)
            | Statement::DropAggregate(_)
            | Statement::CreateTrigger(_)
            | Statement::DropTrigger(_) => return None,
            Statement::Batch(_) | Statement::Use(_) | Statement::ListUsers => return None,
            Statement::CancelStatement(_) | Statement::CancelSession(_) => return None,
        })
    }
}
