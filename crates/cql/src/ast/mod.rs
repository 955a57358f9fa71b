//! Syntax tree: one struct per statement, owned and comparable.
//!
//! The tree is unresolved. A name is the text of the statement, folded to lower case unless it is
//! quoted. A number is a string of digits. An option is a name with an unchecked value. Both
//! engines therefore share one tree, and the printer can return a text that parses to an equal
//! tree.

mod access;
mod data;
mod describe;
mod markers;
mod options;
mod schema;
mod service_level;
mod term;

pub use access::*;
pub use data::*;
pub use describe::*;
pub use options::*;
pub use schema::*;
pub use service_level::*;
pub use term::*;

/// A statement.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "each variant is named after the statement, and its struct documents it")]
pub enum Statement {
    // Data.
    Select(Select),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    Batch(Batch),
    Truncate(Truncate),
    // Storage.
    Compact(TableName),
    Flush(TableName),
    Scrub(TableName),
    // Schema.
    Use(String),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    AlterTable(AlterTable),
    DropTable(DropObject),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropObject),
    CreateIndex(CreateIndex),
    DropIndex(DropObject),
    CreateMaterializedView(CreateMaterializedView),
    AlterMaterializedView(AlterMaterializedView),
    DropMaterializedView(DropObject),
    CreateFunction(CreateFunction),
    DropFunction(DropFunction),
    CreateAggregate(CreateAggregate),
    DropAggregate(DropFunction),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    // Roles and permissions.
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    CreateUser(CreateUser),
    AlterUser(AlterUser),
    DropUser(DropRole),
    GrantRole(GrantRole),
    RevokeRole(GrantRole),
    Grant(Grant),
    Revoke(Grant),
    ListRoles(ListRoles),
    ListUsers,
    ListPermissions(ListPermissions),
    // Service levels.
    CreateServiceLevel(CreateServiceLevel),
    AlterServiceLevel(AlterServiceLevel),
    DropServiceLevel(DropServiceLevel),
    AttachServiceLevel(AttachServiceLevel),
    /// The role that is detached from its level.
    DetachServiceLevel(String),
    ListServiceLevels(ListServiceLevels),
    /// The id of a running statement.
    CancelStatement(String),
    /// The id of a session.
    CancelSession(String),
    // Schema as text, for cqlsh.
    Describe(Describe),
}

/// Name of a table, a type, a function or an index, with an optional keyspace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QualifiedName {
    /// The keyspace, if the text names it.
    pub keyspace: Option<String>,
    /// The name in the keyspace.
    pub name: String,
}

/// Name of a table.
pub type TableName = QualifiedName;
