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
        let named = self.at_name() && !(self.at(TokenKind::Word) && is_constant(self.current.text));
        let sign = if named { self.peek().kind } else { TokenKind::End };
        if matches!(sign, TokenKind::Plus | TokenKind::Minus) {
            self.same_column(column)?;
            self.advance();
            let value = self.term()?;
            return Ok(if sign == TokenKind::Plus { Change::Add(value) } else { Change::Subtract(value) });
        }
        let value = self.term()?;
        if self.eat(TokenKind::Plus) {
            self.same_column(column)?;
            return Ok(Change::Prepend(value));
        }
        Ok(Change::Set(value))
    }

    fn same_column(&mut self, column: &str) -> Result<()> {
        let start = *self;
        if self.identifier()? == column {
            Ok(())
        } else {
            Err(start.error(
                "Only expressions of the form X = X + <value>, X = X - <value> and X = <value> + X are supported",
            ))
        }
    }
}
