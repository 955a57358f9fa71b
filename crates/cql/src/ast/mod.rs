//! The syntax tree: one struct a statement, owned, comparable, and free of meaning.
//!
//! Nothing here is resolved: a name is what the text said (folded to lower case unless it was quoted), a number
//! is still its digits, and an option is a name with a value that somebody else checks. That keeps the tree the
//! same for both engines, and lets the printer give back text that parses to an equal tree.

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
    Truncate(TableName),
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
    /// The role that loses its level.
    DetachServiceLevel(String),
    ListServiceLevels(ListServiceLevels),
    /// The id of a statement that runs.
    CancelStatement(String),
    /// The id of a session.
    CancelSession(String),
    // The schema as text, asked by cqlsh.
    Describe(Describe),
}

/// A name that may say its keyspace: of a table, a type, a function, an index.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QualifiedName {
    /// The keyspace, where the text names it.
    pub keyspace: Option<String>,
    /// The name itself.
    pub name: String,
}

/// A table's name.
pub type TableName = QualifiedName;
