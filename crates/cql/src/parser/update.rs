//! Parser of UPDATE.

use super::using::UsingScope;
use super::{Parser, Result};
use crate::ast::{Assignment, AssignmentTarget, Change, Statement, Update};
use crate::lexer::TokenKind;
use crate::words::is_constant;

impl Parser<'_> {
    pub(super) fn update(&mut self) -> Result<Statement> {
        self.expect_word("UPDATE")?;
        let table = self.qualified()?;
        let using = self.using(UsingScope::Write)?;
        self.expect_word("SET")?;
        let assignments = self.comma_separated(Parser::assignment)?;
        let relations = self.where_clause()?;
        let condition = self.if_clause()?;
        Ok(Statement::Update(Update { table, using, assignments, relations, condition }))
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let target = self.target()?;
        let change = match (&target, self.current.kind) {
            (AssignmentTarget::Column(_), TokenKind::PlusAssign) => {
                self.advance();
                Change::Add(self.term()?)
            }
            (AssignmentTarget::Column(_), TokenKind::MinusAssign) => {
                self.advance();
                Change::Subtract(self.term()?)
            }
            (AssignmentTarget::Column(column), TokenKind::Equal) => {
                self.advance();
                self.change_of(column)?
            }
            (_, TokenKind::Equal) => {
                self.advance();
                Change::Set(self.term()?)
            }
            _ => return Err(self.expected("'='")),
        };
        Ok(Assignment { target, change })
    }

    /// Parses the text after `column =`: `column + v`, `column - v`, `v + column`, or `v`.
    fn change_of(&mut self, column: &str) -> Result<Change> {
        let is_word = self.at(TokenKind::Word);
        let named =
            self.at_name() && !(is_word && (is_constant(self.current.text) || self.at_iso_duration()));
        let sign = if named { self.peek().kind } else { TokenKind::End };
        if matches!(sign, TokenKind::Plus | TokenKind::Minus) {
            let is_same = self.identifier()? == column;
            self.advance();
            let is_integer = self.at(TokenKind::Integer);
            let value = self.term()?;
            let form = match sign {
                TokenKind::Plus => "X = X +<value>",
                // Cassandra reads `-3` as one word.
                _ if is_integer => "X = X - <value>",
                _ => "X = X -<value>",
            };
            only_form(form, is_same)?;
            return Ok(if sign == TokenKind::Plus { Change::Add(value) } else { Change::Subtract(value) });
        }
        let value = self.term()?;
        if self.eat(TokenKind::Plus) {
            only_form("X = <value> + X", self.identifier()? == column)?;
            return Ok(Change::Prepend(value));
        }
        Ok(Change::Set(value))
    }
}

/// Refuses an expression of this form with another column than the assigned one.
fn only_form(form: &str, is_same: bool) -> Result<()> {
    match is_same {
        true => Ok(()),
        false => Err(Parser::repeated(format!("Only expressions of the form {form} are supported."))),
    }
}
