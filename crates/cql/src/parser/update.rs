//! Parser of UPDATE.

use super::using::UsingScope;
use super::{Parser, Result};
use crate::ast::{Assignment, Change, Statement, Target, Update};
use crate::lexer::Kind;
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
            (Target::Column(_), Kind::PlusAssign) => {
                self.advance();
                Change::Add(self.term()?)
            }
            (Target::Column(_), Kind::MinusAssign) => {
                self.advance();
                Change::Subtract(self.term()?)
            }
            (Target::Column(column), Kind::Equal) => {
                self.advance();
                self.change_of(column)?
            }
            (_, Kind::Equal) => {
                self.advance();
                Change::Set(self.term()?)
            }
            _ => return Err(self.expected("'='")),
        };
        Ok(Assignment { target, change })
    }

    /// Parses the text after `column =`: `column + v`, `column - v`, `v + column`, or `v`.
    fn change_of(&mut self, column: &str) -> Result<Change> {
        let named = self.at_name() && !(self.at(Kind::Word) && is_constant(self.current.text));
        let sign = if named { self.peek().kind } else { Kind::End };
        if matches!(sign, Kind::Plus | Kind::Minus) {
            self.same_column(column)?;
            self.advance();
            let value = self.term()?;
            return Ok(if sign == Kind::Plus { Change::Add(value) } else { Change::Subtract(value) });
        }
        let value = self.term()?;
        if self.eat(Kind::Plus) {
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
