//! Parser of statements about roles, users and permissions.

use super::{Parser, Result};
use crate::ast::{
    AlterRole, AlterUser, CreateRole, CreateUser, Datacenters, DropRole, Grant, GrantRole, ListPermissions,
    ListRoles, Permission, Permissions, Resource, RoleOptions, Statement,
};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses the rest of CREATE ROLE.
    pub(super) fn create_role(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::CreateRole(CreateRole { if_not_exists, name, options }))
    }

    /// Parses the rest of ALTER ROLE.
    pub(super) fn alter_role(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        let options = self.role_options()?;
        Ok(Statement::AlterRole(AlterRole { if_exists, name, options }))
    }

    /// Parses the rest of DROP ROLE.
    pub(super) fn drop_role(&mut self) -> Result<DropRole> {
        let if_exists = self.if_exists()?;
        Ok(DropRole { if_exists, name: self.role_name()? })
    }

    /// Parses the rest of DROP USER.
    pub(super) fn drop_user(&mut self) -> Result<DropRole> {
        let if_exists = self.if_exists()?;
        Ok(DropRole { if_exists, name: self.user_name()? })
    }

    fn role_options(&mut self) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        if self.eat_word("WITH") {
            self.role_option(&mut options)?;
            while self.eat_word("AND") {
                self.role_option(&mut options)?;
            }
        }
        Ok(options)
    }

    fn role_option(&mut self, options: &mut RoleOptions) -> Result<()> {
        let start = *self;
        let is_repeated = if self.eat_word("PASSWORD") {
            self.expect(TokenKind::Equal, "'='")?;
            options.password.replace(self.string()?).is_some()
        } else if self.eat_hashed()? {
            self.expect(TokenKind::Equal, "'='")?;
            options.hashed_password.replace(self.string()?).is_some()
        } else if self.eat_word("LOGIN") {
            self.expect(TokenKind::Equal, "'='")?;
            options.login.replace(self.boolean()?).is_some()
        } else if self.eat_word("SUPERUSER") {
            self.expect(TokenKind::Equal, "'='")?;
            options.superuser.replace(self.boolean()?).is_some()
        } else if self.eat_word("OPTIONS") {
            self.expect(TokenKind::Equal, "'='")?;
            options.options.replace(self.option_map()?).is_some()
        } else if self.eat_word("ACCESS") {
            self.expect_word("TO")?;
            options.datacenters.replace(self.datacenters()?).is_some()
        } else {
            return Err(self.expected("PASSWORD, HASHED PASSWORD, LOGIN, SUPERUSER, OPTIONS or ACCESS TO"));
        };
        if is_repeated {
            let name = start.current.text.to_uppercase();
            return Err(Parser::repeated(format!("Multiple definition for property '{name}'")));
        }
        Ok(())
    }

    /// Skips `HASHED PASSWORD`, or `SALTED HASH` in ScyllaDB's syntax. Returns false if neither is
    /// next.
    fn eat_hashed(&mut self) -> Result<bool> {
        if self.eat_word("HASHED") {
            self.expect_word("PASSWORD")?;
            return Ok(true);
        }
        if self.eat_word("SALTED") {
            self.expect_word("HASH")?;
            return Ok(true);
        }
        Ok(false)
    }

    fn boolean(&mut self) -> Result<bool> {
        if self.eat_word("TRUE") {
            Ok(true)
        } else if self.eat_word("FALSE") {
            Ok(false)
        } else {
            Err(self.expected("true or false"))
        }
    }

    fn datacenters(&mut self) -> Result<Datacenters> {
        if self.eat_word("ALL") {
            self.expect_word("DATACENTERS")?;
            return Ok(Datacenters::All);
        }
        self.expect_word("DATACENTERS")?;
        self.expect(TokenKind::LeftBrace, "'{'")?;
        let names = self.comma_separated(Parser::string)?;
        self.expect(TokenKind::RightBrace, "'}'")?;
        Ok(Datacenters::Only(names))
    }

    /// Parses the name of a user. As in Cassandra, it is no name in double quotes.
    fn user_name(&mut self) -> Result<String> {
        match self.at(TokenKind::QuotedName) {
            true => Err(Parser::repeated(
                "Quoted strings are are not supported for user names and USER is deprecated, please use ROLE"
                    .to_owned(),
            )),
            false => self.role_name(),
        }
    }

    /// Parses the rest of CREATE USER.
    pub(super) fn create_user(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_name()?;
        let (password, hashed_password) = self.user_password()?;
        let superuser = self.user_superuser().unwrap_or(false);
        Ok(Statement::CreateUser(CreateUser { if_not_exists, name, password, hashed_password, superuser }))
    }

    /// Parses the rest of ALTER USER.
    pub(super) fn alter_user(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists()?;
        let name = self.user_name()?;
        let (password, hashed_password) = self.user_password()?;
        let superuser = self.user_superuser();
        Ok(Statement::AlterUser(AlterUser { if_exists, name, password, hashed_password, superuser }))
    }

    fn user_password(&mut self) -> Result<(Option<String>, Option<String>)> {
        if !self.eat_word("WITH") {
            return Ok((None, None));
        }
        if self.eat_hashed()? {
            return Ok((None, Some(self.string()?)));
        }
        self.expect_word("PASSWORD")?;
        Ok((Some(self.string()?), None))
    }

    fn user_superuser(&mut self) -> Option<bool> {
        if self.eat_word("SUPERUSER") {
            Some(true)
        } else if self.eat_word("NOSUPERUSER") {
            Some(false)
        } else {
            None
        }
    }

    pub(super) fn grant(&mut self) -> Result<Statement> {
        self.expect_word("GRANT")?;
        if self.permissions_follow() {
            return Ok(Statement::Grant(self.permission_grant("TO")?));
        }
        Ok(Statement::GrantRole(self.role_grant("TO")?))
    }

    pub(super) fn revoke(&mut self) -> Result<Statement> {
        self.expect_word("REVOKE")?;
        if self.permissions_follow() {
            return Ok(Statement::Revoke(self.permission_grant("FROM")?));
        }
        Ok(Statement::RevokeRole(self.role_grant("FROM")?))
    }

    fn role_grant(&mut self, preposition: &str) -> Result<GrantRole> {
        let role = self.role_name()?;
        self.expect_word(preposition)?;
        Ok(GrantRole { role, grantee: self.role_name()? })
    }

    fn permission_grant(&mut self, preposition: &str) -> Result<Grant> {
        let permissions = self.permissions()?;
        self.expect_word("ON")?;
        let resource = self.resource()?;
        self.expect_word(preposition)?;
        Ok(Grant { permissions, resource, grantee: self.role_name()? })
    }

    /// True if permissions follow. Otherwise a role with the name of a permission may follow.
    fn permissions_follow(&self) -> bool {
        let mut ahead = *self;
        ahead.permissions().is_ok() && ahead.at_word("ON")
    }

    fn permissions(&mut self) -> Result<Permissions> {
        if self.eat_word("ALL") {
            self.eat_word("PERMISSIONS");
            return Ok(Permissions::All);
        }
        let permissions = self.comma_separated(|p| {
            let found = Permission::ALL.into_iter().find(|permission| p.at_word(permission.name()));
            let Some(permission) = found else { return Err(p.expected("a permission")) };
            p.advance();
            p.eat_word("PERMISSION");
            Ok(permission)
        })?;
        Ok(Permissions::Some(permissions))
    }

    fn resource(&mut self) -> Result<Resource> {
        if self.at_service_level() {
            self.eat_service_level();
            return Ok(Resource::ServiceLevel(self.role_name()?));
        }
        if self.eat_word("ALL") {
            return self.resource_of_all();
        }
        if self.eat_word("KEYSPACE") {
            return Ok(Resource::Keyspace(self.identifier()?));
        }
        if self.eat_word("TABLE") || self.eat_word("COLUMNFAMILY") {
            return Ok(Resource::Table(self.qualified()?));
        }
        // These words may also name a table. TO, FROM or OF then follows.
        let next = self.peek();
        let named = self.peek_is_name() || matches!(next.kind, TokenKind::String | TokenKind::DollarString);
        if named && self.eat_word("ROLE") {
            return Ok(Resource::Role(self.role_name()?));
        }
        if named && self.eat_word("FUNCTION") {
            let name = self.qualified()?;
            return Ok(Resource::Function(name, self.parenthesized_or_empty(Parser::type_name)?));
        }
        if next.kind == TokenKind::String && (self.eat_word("MBEAN") || self.eat_word("MBEANS")) {
            return Ok(Resource::MBeans(self.string()?));
        }
        Ok(Resource::Table(self.qualified()?))
    }

    fn resource_of_all(&mut self) -> Result<Resource> {
        if self.eat_word("KEYSPACES") {
            Ok(Resource::AllKeyspaces)
        } else if self.eat_word("ROLES") {
            Ok(Resource::AllRoles)
        } else if self.eat_service_level() {
            Ok(Resource::AllServiceLevels)
        } else if self.eat_word("TABLES") {
            self.expect_words(&["IN", "KEYSPACE"])?;
            Ok(Resource::AllTables(self.identifier()?))
        } else if self.eat_word("FUNCTIONS") {
            if !self.eat_word("IN") {
                return Ok(Resource::AllFunctions);
            }
            self.expect_word("KEYSPACE")?;
            Ok(Resource::AllFunctionsIn(self.identifier()?))
        } else if self.eat_word("MBEANS") {
            Ok(Resource::AllMBeans)
        } else {
            Err(self.expected("KEYSPACES, TABLES, ROLES, SERVICE LEVELS, FUNCTIONS or MBEANS"))
        }
    }

    /// Parses the rest of LIST: roles, users or permissions.
    pub(super) fn list_access(&mut self) -> Result<Statement> {
        if self.eat_word("ROLES") {
            let of = if self.eat_word("OF") { Some(self.role_name()?) } else { None };
            let recursive = !self.eat_word("NORECURSIVE");
            return Ok(Statement::ListRoles(ListRoles { of, recursive }));
        }
        if self.eat_word("USERS") {
            return Ok(Statement::ListUsers);
        }
        let mut ahead = *self;
        let Ok(permissions) = ahead.permissions() else {
            return Err(self.expected("SERVICE LEVEL, ROLES, USERS or a permission"));
        };
        *self = ahead;
        let resource = if self.eat_word("ON") { Some(self.resource()?) } else { None };
        let of = if self.eat_word("OF") { Some(self.role_name()?) } else { None };
        let recursive = !self.eat_word("NORECURSIVE");
        Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, recursive }))
    }
}
