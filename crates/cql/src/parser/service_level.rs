//! Parser of statements about service levels and running statements, and of LIST. `SERVICE LEVEL`,
//! `SERVICE_LEVEL` and their plurals are synonyms everywhere.

use super::{Parser, Result};
use crate::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DropServiceLevel, ListServiceLevels, Statement,
};

impl Parser<'_> {
    /// True if `SERVICE LEVEL` follows.
    pub(super) fn at_service_level(&self) -> bool {
        self.at_word("SERVICE_LEVEL")
            || self.at_word("SERVICE_LEVELS")
            || (self.at_word("SERVICE") && (self.peek_is_word("LEVEL") || self.peek_is_word("LEVELS")))
    }

    pub(super) fn eat_service_level(&mut self) -> bool {
        let found = self.at_service_level();
        if found && self.advance().text.len() == "SERVICE".len() {
            self.advance();
        }
        found
    }

    pub(super) fn expect_service_level(&mut self) -> Result<()> {
        if self.eat_service_level() { Ok(()) } else { Err(self.expected("SERVICE LEVEL")) }
    }

    /// Parses the rest of CREATE SERVICE LEVEL.
    pub(super) fn create_service_level(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let options = self.with_options()?;
        Ok(Statement::CreateServiceLevel(CreateServiceLevel { if_not_exists, name, options }))
    }

    /// Parses the rest of ALTER SERVICE LEVEL.
    pub(super) fn alter_service_level(&mut self) -> Result<Statement> {
        let name = self.role_name()?;
        let options = self.required_options()?;
        Ok(Statement::AlterServiceLevel(AlterServiceLevel { name, options }))
    }

    /// Parses the rest of DROP SERVICE LEVEL.
    pub(super) fn drop_service_level(&mut self) -> Result<Statement> {
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        Ok(Statement::DropServiceLevel(DropServiceLevel { if_exists, name }))
    }

    pub(super) fn attach(&mut self) -> Result<Statement> {
        self.expect_word("ATTACH")?;
        self.expect_service_level()?;
        let level = self.role_name()?;
        self.expect_word("TO")?;
        let role = self.role_name()?;
        Ok(Statement::AttachServiceLevel(AttachServiceLevel { level, role }))
    }

    pub(super) fn detach(&mut self) -> Result<Statement> {
        self.expect_word("DETACH")?;
        self.expect_service_level()?;
        self.expect_word("FROM")?;
        Ok(Statement::DetachServiceLevel(self.role_name()?))
    }

    pub(super) fn cancel(&mut self) -> Result<Statement> {
        self.expect_word("CANCEL")?;
        if self.eat_word("SESSION") {
            return Ok(Statement::CancelSession(self.string()?));
        }
        self.expect_word("STATEMENT")?;
        Ok(Statement::CancelStatement(self.string()?))
    }

    /// Parses `LIST …` of any kind.
    pub(super) fn list(&mut self) -> Result<Statement> {
        self.expect_word("LIST")?;
        if self.eat_service_level() {
            return Ok(Statement::ListServiceLevels(ListServiceLevels::One(self.role_name()?)));
        }
        let role_follows = |p: &mut Self| {
            p.expect_service_level()?;
            p.expect_word("OF")?;
            p.role_name()
        };
        if self.eat_word("ATTACHED") {
            return Ok(Statement::ListServiceLevels(ListServiceLevels::AttachedTo(role_follows(self)?)));
        }
        if self.eat_word("EFFECTIVE") {
            return Ok(Statement::ListServiceLevels(ListServiceLevels::EffectiveOf(role_follows(self)?)));
        }
        if self.at_word("ALL") {
            let mut ahead = *self;
            ahead.advance();
            if ahead.eat_word("ATTACHED") {
                ahead.expect_service_level()?;
                *self = ahead;
                return Ok(Statement::ListServiceLevels(ListServiceLevels::AllAttached));
            }
            if ahead.eat_service_level() {
                *self = ahead;
                return Ok(Statement::ListServiceLevels(ListServiceLevels::All));
            }
        }
        self.list_access()
    }
}
