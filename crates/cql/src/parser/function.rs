//! Parser of statements about user-defined functions and aggregates.

use super::{Parser, Result};
use crate::ast::{CreateAggregate, CreateFunction, DropFunction, Statement};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses the rest of CREATE FUNCTION.
    pub(super) fn create_function(&mut self, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified()?;
        let arguments = self.parenthesized_or_empty(|p| Ok((p.identifier()?, p.type_name()?)))?;
        let called_on_null_input = self.eat_word("CALLED");
        if !called_on_null_input {
            self.expect_words(&["RETURNS", "NULL"])?;
        }
        self.expect_words(&["ON", "NULL", "INPUT", "RETURNS"])?;
        let returns = self.type_name()?;
        self.expect_word("LANGUAGE")?;
        let language = self.identifier()?;
        self.expect_word("AS")?;
        let body = self.string()?;
        Ok(Statement::CreateFunction(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            arguments,
            called_on_null_input,
            returns,
            language,
            body,
        }))
    }

    /// Parses the rest of CREATE AGGREGATE.
    pub(super) fn create_aggregate(&mut self, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.qualified()?;
        let arguments = self.parenthesized_or_empty(Parser::type_name)?;
        self.expect_word("SFUNC")?;
        let state_function = self.identifier()?;
        self.expect_word("STYPE")?;
        let state_type = self.type_name()?;
        let final_function = if self.eat_word("FINALFUNC") { Some(self.identifier()?) } else { None };
        let initial = if self.eat_word("INITCOND") { Some(self.term()?) } else { None };
        Ok(Statement::CreateAggregate(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            arguments,
            state_function,
            state_type,
            final_function,
            initial,
        }))
    }

    /// Parses the rest of DROP FUNCTION or DROP AGGREGATE.
    pub(super) fn drop_function(&mut self) -> Result<DropFunction> {
        let if_exists = self.if_exists()?;
        let name = self.qualified()?;
        let arguments = if self.at(TokenKind::LeftParen) {
            Some(self.parenthesized_or_empty(Parser::type_name)?)
        } else {
            None
        };
        Ok(DropFunction { if_exists, name, arguments })
    }
}
