//! Parser of CREATE, ALTER and DROP. Dispatches by object, and parses the short statements.

use super::{Parser, Result};
use crate::ast::{
    AlterKeyspace, AlterMaterializedView, AlterType, CreateIndex, CreateKeyspace, CreateMaterializedView,
    CreateTrigger, CreateType, DropKeyspace, DropObject, DropTrigger, IndexTarget, Statement,
    TableProperties, TypeChange,
};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect_word("CREATE")?;
        if self.eat_service_level() {
            return self.create_service_level();
        }
        if self.eat_keyspace() {
            let if_not_exists = self.if_not_exists()?;
            let name = self.identifier()?;
            let options = self.required_options()?;
            return Ok(Statement::CreateKeyspace(CreateKeyspace { if_not_exists, name, options }));
        }
        let or_replace = self.eat_word("OR");
        if or_replace {
            self.expect_word("REPLACE")?;
        }
        if self.eat_word("FUNCTION") {
            return self.create_function(or_replace);
        }
        if self.eat_word("AGGREGATE") {
            return self.create_aggregate(or_replace);
        }
        if or_replace {
            return Err(self.expected("FUNCTION or AGGREGATE"));
        }
        let custom = self.eat_word("CUSTOM");
        if self.eat_word("INDEX") {
            return self.create_index(custom);
        }
        if custom {
            return Err(self.expected("INDEX"));
        }
        if self.eat_table() {
            self.create_table()
        } else if self.eat_word("TYPE") {
            self.create_type()
        } else if self.eat_word("ROLE") {
            self.create_role()
        } else if self.eat_word("USER") {
            self.create_user()
        } else if self.eat_word("MATERIALIZED") {
            self.create_view()
        } else if self.eat_word("TRIGGER") {
            self.create_trigger()
        } else {
            Err(self.expected(
                "KEYSPACE, TABLE, TYPE, INDEX, MATERIALIZED VIEW, FUNCTION, AGGREGATE, TRIGGER, ROLE, USER \
                 or SERVICE LEVEL",
            ))
        }
    }

    pub(super) fn alter(&mut self) -> Result<Statement> {
        self.expect_word("ALTER")?;
        if self.eat_service_level() {
            self.alter_service_level()
        } else if self.eat_keyspace() {
            let if_exists = self.if_exists()?;
            let name = self.identifier()?;
            let options = self.required_options()?;
            Ok(Statement::AlterKeyspace(AlterKeyspace { if_exists, name, options }))
        } else if self.eat_table() {
            self.alter_table()
        } else if self.eat_word("TYPE") {
            self.alter_type()
        } else if self.eat_word("MATERIALIZED") {
            self.expect_word("VIEW")?;
            let if_exists = self.if_exists()?;
            let name = self.qualified()?;
            let properties = self.table_properties()?;
            Ok(Statement::AlterMaterializedView(AlterMaterializedView { if_exists, name, properties }))
        } else if self.eat_word("ROLE") {
            self.alter_role()
        } else if self.eat_word("USER") {
            self.alter_user()
        } else {
            Err(self.expected("KEYSPACE, TABLE, TYPE, MATERIALIZED VIEW, ROLE, USER or SERVICE LEVEL"))
        }
    }

    pub(super) fn drop(&mut self) -> Result<Statement> {
        self.expect_word("DROP")?;
        if self.eat_service_level() {
            self.drop_service_level()
        } else if self.eat_keyspace() {
            let if_exists = self.if_exists()?;
            let name = self.identifier()?;
            Ok(Statement::DropKeyspace(DropKeyspace { if_exists, name }))
        } else if self.eat_table() {
            Ok(Statement::DropTable(self.drop_object()?))
        } else if self.eat_word("TYPE") {
            Ok(Statement::DropType(self.drop_object()?))
        } else if self.eat_word("INDEX") {
            Ok(Statement::DropIndex(self.drop_object()?))
        } else if self.eat_word("MATERIALIZED") {
            self.expect_word("VIEW")?;
            Ok(Statement::DropMaterializedView(self.drop_object()?))
        } else if self.eat_word("FUNCTION") {
            Ok(Statement::DropFunction(self.drop_function()?))
        } else if self.eat_word("AGGREGATE") {
            Ok(Statement::DropAggregate(self.drop_function()?))
        } else if self.eat_word("TRIGGER") {
            let if_exists = self.if_exists()?;
            let name = self.identifier()?;
            self.expect_word("ON")?;
            Ok(Statement::DropTrigger(DropTrigger { if_exists, name, table: self.qualified()? }))
        } else if self.eat_word("ROLE") {
            Ok(Statement::DropRole(self.drop_role()?))
        } else if self.eat_word("USER") {
            Ok(Statement::DropUser(self.drop_user()?))
        } else {
            Err(self.expected(
                "KEYSPACE, TABLE, TYPE, INDEX, MATERIALIZED VIEW, FUNCTION, AGGREGATE, TRIGGER, ROLE, USER \
                 or SERVICE LEVEL",
            ))
        }
    }

    fn eat_keyspace(&mut self) -> bool {
        self.eat_word("KEYSPACE") || self.eat_word("SCHEMA")
    }

    pub(super) fn eat_table(&mut self) -> bool {
        self.eat_word("TABLE") || self.eat_word("COLUMNFAMILY")
    }

    fn drop_object(&mut self) -> Result<DropObject> {
        let if_exists = self.if_exists()?;
        Ok(DropObject { if_exists, name: self.qualified()? })
    }

    fn create_type(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        let fields = self.definitions(|p| Ok((p.identifier()?, p.type_name()?)))?;
        Ok(Statement::CreateType(CreateType { if_not_exists, name, fields }))
    }

    fn alter_type(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists()?;
        let name = self.qualified()?;
        let change = if self.eat_word("ADD") {
            let if_not_exists = self.if_not_exists()?;
            TypeChange::Add { if_not_exists, field: self.identifier()?, ty: self.type_name()? }
        } else if self.eat_word("RENAME") {
            let if_exists = self.if_exists()?;
            TypeChange::Rename { if_exists, fields: self.and_separated(Parser::renaming)? }
        } else if self.eat_word("ALTER") {
            let field = self.identifier()?;
            self.expect_word("TYPE")?;
            TypeChange::Type { field, ty: self.type_name()? }
        } else {
            return Err(self.expected("ADD, RENAME or ALTER"));
        };
        Ok(Statement::AlterType(AlterType { if_exists, name, change }))
    }

    /// Parses `a TO b`.
    pub(super) fn renaming(&mut self) -> Result<(String, String)> {
        let old = self.identifier()?;
        self.expect_word("TO")?;
        Ok((old, self.identifier()?))
    }

    fn create_index(&mut self, custom: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = if self.at_word("ON") { None } else { Some(self.qualified()?) };
        self.expect_word("ON")?;
        let table = self.qualified()?;
        let targets = self.parenthesized_or_empty(Parser::index_target)?;
        let class = if self.eat_word("USING") { Some(self.string()?) } else { None };
        let options = self.with_options()?;
        Ok(Statement::CreateIndex(CreateIndex {
            custom,
            if_not_exists,
            name,
            table,
            targets,
            class,
            options,
        }))
    }

    fn index_target(&mut self) -> Result<IndexTarget> {
        if !(self.at(TokenKind::Word) && self.peek().kind == TokenKind::LeftParen) {
            return Ok(IndexTarget::Column(self.identifier()?));
        }
        let make = if self.at_word("VALUES") {
            IndexTarget::Values
        } else if self.at_word("KEYS") {
            IndexTarget::Keys
        } else if self.at_word("ENTRIES") {
            IndexTarget::Entries
        } else if self.at_word("FULL") {
            IndexTarget::Full
        } else {
            return Err(self.expected("a column, or VALUES, KEYS, ENTRIES or FULL of one"));
        };
        self.advance();
        self.expect(TokenKind::LeftParen, "'('")?;
        let column = self.identifier()?;
        self.expect(TokenKind::RightParen, "')'")?;
        Ok(make(column))
    }

    /// Parses the rest of CREATE MATERIALIZED VIEW, from VIEW on.
    fn create_view(&mut self) -> Result<Statement> {
        self.expect_word("VIEW")?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified()?;
        self.expect_words(&["AS", "SELECT"])?;
        let selection = self.selection()?;
        self.expect_word("FROM")?;
        let from = self.qualified()?;
        let relations = if self.at_word("WHERE") { self.where_clause()? } else { Vec::new() };
        self.expect_words(&["PRIMARY", "KEY"])?;
        let (partition_key, clustering) = self.primary_key()?;
        let properties =
            if self.at_word("WITH") { self.table_properties()? } else { TableProperties::default() };
        Ok(Statement::CreateMaterializedView(CreateMaterializedView {
            if_not_exists,
            name,
            selection,
            from,
            relations,
            partition_key,
            clustering,
            properties,
        }))
    }

    fn create_trigger(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.identifier()?;
        self.expect_word("ON")?;
        let table = self.qualified()?;
        self.expect_word("USING")?;
        Ok(Statement::CreateTrigger(CreateTrigger { if_not_exists, name, table, class: self.string()? }))
    }
}
