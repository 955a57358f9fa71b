//! Parser of DELETE.

use super::using::UsingScope;
use super::{Parser, Result};
use crate::ast::{Delete, Statement};

impl Parser<'_> {
    pub(super) fn delete(&mut self) -> Result<Statement> {
        self.expect_word("DELETE")?;
        let targets = if self.at_word("FROM") { Vec::new() } else { self.comma_separated(Parser::target)? };
        self.expect_word("FROM")?;
        let table = self.qualified()?;
        let using = self.using(UsingScope::Delete)?;
        let relations = self.where_clause()?;
        let condition = self.if_clause()?;
        Ok(Statement::Delete(Delete { targets, table, using, relations, condition }))
    }
}
