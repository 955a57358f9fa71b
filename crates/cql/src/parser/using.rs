//! Parser of `USING`.

use super::{Parser, Result};
use crate::ast::{Duration, Literal, Term, Using};
use crate::lexer::TokenKind;

/// Parts of USING that a statement accepts. Every statement accepts TIMEOUT and SERVICE LEVEL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UsingScope {
    /// INSERT and UPDATE: TIMESTAMP and TTL.
    Write,
    /// DELETE and BATCH: TIMESTAMP.
    Delete,
    /// SELECT: neither.
    Read,
}

impl Parser<'_> {
    /// Parses an optional `USING … AND …`.
    pub(super) fn using(&mut self, scope: UsingScope) -> Result<Using> {
        let mut using = Using::default();
        if self.eat_word("USING") {
            self.using_part(&mut using, scope)?;
            while self.eat_word("AND") {
                self.using_part(&mut using, scope)?;
            }
        }
        Ok(using)
    }

    fn using_part(&mut self, using: &mut Using, scope: UsingScope) -> Result<()> {
        let start = *self;
        let is_repeated = if scope != UsingScope::Read && self.eat_word("TIMESTAMP") {
            // As in Cassandra, the last of several counts.
            using.timestamp = Some(self.integer_or_marker()?);
            false
        } else if scope == UsingScope::Write && self.eat_word("TTL") {
            using.ttl = Some(self.integer_or_marker()?);
            false
        } else if self.eat_word("TIMEOUT") {
            using.timeout.replace(self.duration_or_marker()?).is_some()
        } else if self.eat_service_level() {
            using.service_level.replace(self.role_name()?).is_some()
        } else {
            return Err(self.expected(match scope {
                UsingScope::Write => "TIMESTAMP, TTL, TIMEOUT or SERVICE LEVEL",
                UsingScope::Delete => "TIMESTAMP, TIMEOUT or SERVICE LEVEL",
                UsingScope::Read => "TIMEOUT or SERVICE LEVEL",
            }));
        };
        if is_repeated {
            Err(start.error(format!("USING {} is given twice", start.current.text.to_uppercase())))
        } else {
            Ok(())
        }
    }

    fn duration_or_marker(&mut self) -> Result<Term> {
        match self.current.kind {
            TokenKind::Duration => self.literal(),
            TokenKind::Word => match Duration::parse(self.current.text) {
                Ok(duration) => {
                    let text = self.advance().text.to_owned();
                    Ok(Term::Literal(Literal::Duration(duration, text)))
                }
                Err(_) => Err(self.expected("a duration or a bind marker")),
            },
            TokenKind::Question | TokenKind::Colon => self.marker(),
            _ => Err(self.expected("a duration or a bind marker")),
        }
    }
}
