//! Statements about roles, users and permissions.

use super::{OptionList, QualifiedName, TableName, TypeName};

/// `CREATE ROLE`.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateRole {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH`.
    pub options: RoleOptions,
}

/// `ALTER ROLE`.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH`.
    pub options: RoleOptions,
}

/// `DROP ROLE` or `DROP USER`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
}

/// Options of a role. `None` if the text does not set the option.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoleOptions {
    /// `PASSWORD = '…'`. Display shows it as `*****`.
    pub password: Option<String>,
    /// `HASHED PASSWORD = '…'`. Display shows it as `*****`.
    pub hashed_password: Option<String>,
    /// `LOGIN`.
    pub login: Option<bool>,
    /// `SUPERUSER`.
    pub superuser: Option<bool>,
    /// `OPTIONS = {…}`. Display shows its values as `*****`.
    pub options: Option<OptionList>,
    /// `ACCESS TO …`.
    pub datacenters: Option<Datacenters>,
}

/// Datacenters in which a role may log in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datacenters {
    /// `ACCESS TO ALL DATACENTERS`.
    All,
    /// `ACCESS TO DATACENTERS {'a', 'b'}`.
    Only(Vec<String>),
}

/// `CREATE USER`, the older spelling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateUser {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH PASSWORD '…'`. Display shows it as `*****`.
    pub password: Option<String>,
    /// `WITH HASHED PASSWORD '…'`. Display shows it as `*****`.
    pub hashed_password: Option<String>,
    /// `SUPERUSER`. False for `NOSUPERUSER` and by default.
    pub superuser: bool,
}

/// `ALTER USER`, the older spelling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterUser {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: String,
    /// `WITH PASSWORD '…'`. Display shows it as `*****`.
    pub password: Option<String>,
    /// `WITH HASHED PASSWORD '…'`. Display shows it as `*****`.
    pub hashed_password: Option<String>,
    /// `SUPERUSER` or `NOSUPERUSER`.
    pub superuser: Option<bool>,
}

/// `GRANT role TO role`, or `REVOKE role FROM role`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantRole {
    /// The role to grant or revoke.
    pub role: String,
    /// The role that gains or loses it.
    pub grantee: String,
}

/// `GRANT permissions ON resource TO role`, or `REVOKE … FROM role`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The permissions to grant or revoke.
    pub permissions: Permissions,
    /// The resource of the permissions.
    pub resource: Resource,
    /// The role that gains or loses them.
    pub grantee: String,
}

/// One or all permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Permissions {
    /// `ALL [PERMISSIONS]`.
    All,
    /// At least one.
    Some(Vec<Permission>),
}

/// A permission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the variants are CQL's own names")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

impl Permission {
    /// Every permission, in the order of `LIST PERMISSIONS`.
    pub const ALL: [Permission; 10] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
    ];

    /// Returns the name, as in the permission tables and in listings.
    pub fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }
}

/// Resource of a permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// `ALL KEYSPACES`.
    AllKeyspaces,
    /// `KEYSPACE k`.
    Keyspace(String),
    /// `ALL TABLES IN KEYSPACE k`.
    AllTables(String),
    /// `[TABLE] t`.
    Table(TableName),
    /// `ALL ROLES`.
    AllRoles,
    /// `ROLE r`.
    Role(String),
    /// `ALL SERVICE LEVELS`.
    AllServiceLevels,
    /// `SERVICE LEVEL s`.
    ServiceLevel(String),
    /// `ALL FUNCTIONS`.
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE k`.
    AllFunctionsIn(String),
    /// `FUNCTION f(t, …)`.
    Function(QualifiedName, Vec<TypeName>),
    /// `ALL MBEANS`.
    AllMBeans,
    /// `MBEAN 'm'` or `MBEANS 'pattern'`.
    MBeans(String),
}

/// `LIST ROLES`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListRoles {
    /// `OF role`.
    pub of: Option<String>,
    /// False with `NORECURSIVE`.
    pub recursive: bool,
}

/// `LIST ALL PERMISSIONS`, `LIST SELECT ON t OF r`, ….
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPermissions {
    /// The permissions to list.
    pub permissions: Permissions,
    /// `ON resource`.
    pub resource: Option<Resource>,
    /// `OF role`.
    pub of: Option<String>,
    /// False with `NORECURSIVE`.
    pub recursive: bool,
}
