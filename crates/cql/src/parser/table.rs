//! Parser of CREATE TABLE and ALTER TABLE.

use super::{Parser, Result};
use crate::ast::{
    AlterTable, ColumnDefinition, CreateTable, FunctionCall, QualifiedName, Statement, TableChange,
    TableProperties,
};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses the rest of CREATE TABLE.
    pub(super) fn create_table(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let table = self.qualified()?;
        let mut created = CreateTable {
            if_not_exists,
            table,
            columns: Vec::new(),
            partition_key: Vec::new(),
            clustering: Vec::new(),
            properties: TableProperties::default(),
        };
        self.definitions(|p| p.table_element(&mut created))?;
        if self.at_word("WITH") {
            created.properties = self.table_properties()?;
        }
        Ok(Statement::CreateTable(created))
    }

    /// Parses a column, or `PRIMARY KEY (…)`.
    fn table_element(&mut self, table: &mut CreateTable) -> Result<()> {
        let start = *self;
        let (partition_key, clustering) = if self.eat_word("PRIMARY") {
            self.expect_word("KEY")?;
            self.primary_key()?
        } else {
            let column = self.column_definition()?;
            let name = column.name.clone();
            table.columns.push(column);
            if !self.eat_word("PRIMARY") {
                return Ok(());
            }
            self.expect_word("KEY")?;
            (vec![name], Vec::new())
        };
        if !table.partition_key.is_empty() {
            let QualifiedName { keyspace, name } = &table.table;
            let of = keyspace.as_ref().map(|keyspace| format!("{keyspace}.")).unwrap_or_default();
            return Err(start.invalid(format!(
                "Multiple PRIMARY KEY specified for table '{of}{name}' (exactly one required)"
            )));
        }
        (table.partition_key, table.clustering) = (partition_key, clustering);
        Ok(())
    }

    fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.identifier()?;
        let ty = self.type_name()?;
        let is_static = self.eat_word("STATIC");
        let mask = if self.at_word("MASKED") { Some(self.column_mask()?) } else { None };
        Ok(ColumnDefinition { name, ty, is_static, mask })
    }

    /// Parses `MASKED WITH DEFAULT` or `MASKED WITH f(a, b)`.
    fn column_mask(&mut self) -> Result<FunctionCall> {
        self.expect_words(&["MASKED", "WITH"])?;
        if self.at_word("DEFAULT") && self.peek().kind != TokenKind::LeftParen {
            self.advance();
            let name = QualifiedName { keyspace: None, name: "mask_default".to_owned() };
            return Ok(FunctionCall { name, arguments: Vec::new() });
        }
        let name = self.function_name()?;
        Ok(FunctionCall { name, arguments: self.parenthesized_or_empty(Parser::term)? })
    }

    /// Parses `(a, b)` or `((a, b), c)`. Returns the partition key and the clustering columns.
    pub(super) fn primary_key(&mut self) -> Result<(Vec<String>, Vec<String>)> {
        self.expect(TokenKind::LeftParen, "'('")?;
        let partition_key = if self.at(TokenKind::LeftParen) {
            self.parenthesized(Parser::identifier)?
        } else {
            vec![self.identifier()?]
        };
        let clustering = if self.eat(TokenKind::Comma) { self.identifiers()? } else { Vec::new() };
        self.expect(TokenKind::RightParen, "')'")?;
        Ok((partition_key, clustering))
    }

    /// Parses the rest of ALTER TABLE.
    pub(super) fn alter_table(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists()?;
        let table = self.qualified()?;
        let change = if self.eat_word("ADD") {
            let if_not_exists = self.if_not_exists()?;
            TableChange::Add { if_not_exists, columns: self.one_or_several(Parser::column_definition)? }
        } else if self.eat_word("DROP") {
            self.drop_columns()?
        } else if self.eat_word("RENAME") {
            let if_exists = self.if_exists()?;
            TableChange::Rename { if_exists, columns: self.and_separated(Parser::renaming)? }
        } else if self.eat_word("ALTER") {
            self.alter_column()?
        } else if self.at_word("WITH") {
            TableChange::With(self.table_properties()?)
        } else {
            return Err(self.expected("ADD, DROP, RENAME, ALTER or WITH"));
        };
        Ok(Statement::AlterTable(AlterTable { if_exists, table, change }))
    }

    fn alter_column(&mut self) -> Result<TableChange> {
        let if_exists = self.if_exists()?;
        let column = self.identifier()?;
        let mask = if self.at_word("MASKED") {
            Some(self.column_mask()?)
        } else if self.eat_word("DROP") {
            self.expect_word("MASKED")?;
            None
        } else if if_exists {
            return Err(self.expected("MASKED or DROP"));
        } else {
            self.expect_word("TYPE")?;
            return Ok(TableChange::Type { column, ty: self.type_name()? });
        };
        Ok(TableChange::Mask { if_exists, column, mask })
    }

    fn drop_columns(&mut self) -> Result<TableChange> {
        if self.at_word("COMPACT") && self.peek_is_word("STORAGE") {
            self.expect_words(&["COMPACT", "STORAGE"])?;
            return Ok(TableChange::DropCompactStorage);
        }
        let if_exists = self.if_exists()?;
        let columns = self.one_or_several(Parser::identifier)?;
        let timestamp = if self.eat_word("USING") {
            self.expect_word("TIMESTAMP")?;
            Some(self.integer_or_marker()?)
        } else {
            None
        };
        Ok(TableChange::Drop { if_exists, columns, timestamp })
    }

    /// Parses `a, b` or `(a, b)`.
    fn one_or_several<T>(&mut self, phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.at(TokenKind::LeftParen) { self.parenthesized(phrase) } else { self.comma_separated(phrase) }
    }
}
