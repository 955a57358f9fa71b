//! Parser of DESCRIBE.

use super::{Parser, Result};
use crate::ast::{Describe, DescribeTarget, Statement};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses `DESCRIBE …` or `DESC …`.
    pub(super) fn describe(&mut self) -> Result<Statement> {
        self.advance();
        let target = self.describe_target()?;
        let with_internals = self.eat_word("WITH");
        if with_internals {
            self.expect_word("INTERNALS")?;
        }
        let takes_passwords = with_internals && matches!(target, DescribeTarget::Schema { .. });
        let with_passwords = takes_passwords && self.eat_word("AND");
        if with_passwords {
            self.expect_word("PASSWORDS")?;
        }
        Ok(Statement::Describe(Describe { target, with_internals, with_passwords }))
    }

    fn describe_target(&mut self) -> Result<DescribeTarget> {
        let next = self.peek().kind;
        // Most of these words may also name a table: `DESCRIBE functions.list`, `DESCRIBE type`.
        let alone = next != TokenKind::Dot;
        let named = self.peek_is_name() && !self.peek_is_word("WITH");
        if self.eat_word("FULL") {
            self.expect_word("SCHEMA")?;
            Ok(DescribeTarget::Schema { full: true })
        } else if self.eat_word("SCHEMA") {
            Ok(DescribeTarget::Schema { full: false })
        } else if self.at_word("KEYSPACE") || (self.at_word("ONLY") && self.peek_is_word("KEYSPACE")) {
            self.describe_keyspace()
        } else if self.eat_table() {
            Ok(DescribeTarget::Table(self.qualified()?))
        } else if self.eat_word("INDEX") {
            Ok(DescribeTarget::Index(self.qualified()?))
        } else if self.eat_word("MATERIALIZED") {
            self.expect_word("VIEW")?;
            Ok(DescribeTarget::MaterializedView(self.qualified()?))
        } else if named && self.eat_word("TYPE") {
            Ok(DescribeTarget::Type(self.qualified()?))
        } else if named && self.eat_word("FUNCTION") {
            Ok(DescribeTarget::Function(self.qualified()?))
        } else if named && self.eat_word("AGGREGATE") {
            Ok(DescribeTarget::Aggregate(self.qualified()?))
        } else if alone && self.eat_word("CLUSTER") {
            Ok(DescribeTarget::Cluster)
        } else if alone && self.eat_word("KEYSPACES") {
            Ok(DescribeTarget::Keyspaces)
        } else if alone && (self.eat_word("TABLES") || self.eat_word("COLUMNFAMILIES")) {
            Ok(DescribeTarget::Tables)
        } else if alone && self.eat_word("TYPES") {
            Ok(DescribeTarget::Types)
        } else if alone && self.eat_word("FUNCTIONS") {
            Ok(DescribeTarget::Functions)
        } else if alone && self.eat_word("AGGREGATES") {
            Ok(DescribeTarget::Aggregates)
        } else if self.at_name() {
            Ok(DescribeTarget::Named(self.qualified()?))
        } else {
            Err(self.expected("an object to describe"))
        }
    }

    fn describe_keyspace(&mut self) -> Result<DescribeTarget> {
        let only = self.eat_word("ONLY");
        self.expect_word("KEYSPACE")?;
        let name = if self.at_name() { Some(self.identifier()?) } else { None };
        Ok(DescribeTarget::Keyspace { only, name })
    }
}
