//! Parser of INSERT and BATCH.

use super::using::UsingScope;
use super::{Parser, Result};
use crate::ast::{Batch, BatchKind, Insert, InsertJson, Statement};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> Result<Statement> {
        self.expect_words(&["INSERT", "INTO"])?;
        let table = self.qualified()?;
        let mut columns = Vec::new();
        let mut values = Vec::new();
        let mut json = None;
        if self.eat_word("JSON") {
            json = Some(self.insert_json()?);
        } else {
            columns = self.parenthesized(Parser::identifier)?;
            self.expect_word("VALUES")?;
            values = self.parenthesized(Parser::term)?;
            if columns.len() != values.len() {
                return Err(self.invalid("Unmatched column names/values"));
            }
        }
        let if_not_exists = self.if_not_exists()?;
        let using = self.using(UsingScope::Write)?;
        Ok(Statement::Insert(Insert { table, columns, values, json, if_not_exists, using }))
    }

    fn insert_json(&mut self) -> Result<InsertJson> {
        let value = match self.current.kind {
            TokenKind::String | TokenKind::DollarString => self.literal()?,
            TokenKind::Question | TokenKind::Colon => self.marker()?,
            _ => return Err(self.expected("a JSON string or a bind marker")),
        };
        let mut default_unset = false;
        if self.eat_word("DEFAULT") {
            default_unset = self.eat_word("UNSET");
            if !default_unset && !self.eat_word("NULL") {
                return Err(self.expected("NULL or UNSET"));
            }
        }
        Ok(InsertJson { value, default_unset })
    }

    pub(super) fn batch(&mut self) -> Result<Statement> {
        self.expect_word("BEGIN")?;
        let kind = if self.eat_word("UNLOGGED") {
            BatchKind::Unlogged
        } else if self.eat_word("COUNTER") {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect_word("BATCH")?;
        let using = self.using(UsingScope::Delete)?;
        let mut statements = Vec::new();
        loop {
            while self.eat(TokenKind::Semicolon) {}
            if self.at_word("INSERT") {
                statements.push(self.insert()?);
            } else if self.at_word("UPDATE") {
                statements.push(self.update()?);
            } else if self.at_word("DELETE") {
                statements.push(self.delete()?);
            } else if self.at_word("APPLY") {
                self.advance();
                self.expect_word("BATCH")?;
                return Ok(Statement::Batch(Batch { kind, using, statements }));
            } else {
                return Err(self.expected("INSERT, UPDATE, DELETE or APPLY BATCH"));
            }
        }
    }
}
