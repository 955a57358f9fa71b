//! Parser of WHERE and IF.

use super::{Parser, Result};
use crate::ast::{CompareOp, Condition, IfClause, InValues, Relation, Target, Test};
use crate::lexer::Kind;

impl Parser<'_> {
    /// Parses a mandatory `WHERE …`.
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        self.expect_word("WHERE")?;
        self.and_separated(Parser::relation)
    }

    fn relation(&mut self) -> Result<Relation> {
        if self.at(Kind::LeftParen) {
            return self.relation_in_parentheses();
        }
        if self.at_word("TOKEN") {
            self.advance();
            let columns = self.parenthesized(Parser::identifier)?;
            let op = self.compare_op()?;
            return Ok(Relation::Token { columns, op, value: self.term()? });
        }
        let column = self.identifier()?;
        if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket, "']'")?;
            let op = self.compare_op()?;
            return Ok(Relation::Element { column, key, op, value: self.term()? });
        }
        if self.eat_word("IN") {
            return Ok(Relation::In { column, values: self.in_values()? });
        }
        if self.eat_word("CONTAINS") {
            return Ok(if self.eat_key() {
                Relation::ContainsKey { column, key: self.term()? }
            } else {
                Relation::Contains { column, value: self.term()? }
            });
        }
        if self.eat_word("LIKE") {
            return Ok(Relation::Like { column, pattern: self.term()? });
        }
        if self.eat_word("IS") {
            self.expect_words(&["NOT", "NULL"])?;
            return Ok(Relation::IsNotNull { column });
        }
        let op = self.compare_op()?;
        Ok(Relation::Compare { column, op, value: self.term()? })
    }

    /// Skips KEY of CONTAINS KEY, unless it starts the qualified name of a function.
    fn eat_key(&mut self) -> bool {
        self.at_word("KEY") && self.peek().kind != Kind::Dot && self.eat_word("KEY")
    }

    /// Parses `(a, b) > …`, `(a, b) IN …`, or a relation in parentheses.
    fn relation_in_parentheses(&mut self) -> Result<Relation> {
        let mut ahead = *self;
        ahead.advance();
        let columns = ahead.at_name() && matches!(ahead.peek().kind, Kind::Comma | Kind::RightParen);
        if !columns {
            self.advance();
            let relation = self.nested(Parser::relation)?;
            self.expect(Kind::RightParen, "')'")?;
            return Ok(relation);
        }
        let columns = self.parenthesized(Parser::identifier)?;
        if self.eat_word("IN") {
            return Ok(Relation::TupleIn { columns, values: self.in_values()? });
        }
        let op = self.compare_op()?;
        Ok(Relation::Tuple { columns, op, value: self.term()? })
    }

    fn in_values(&mut self) -> Result<InValues> {
        match self.current.kind {
            Kind::LeftParen => Ok(InValues::List(self.parenthesized_or_empty(Parser::term)?)),
            Kind::Question | Kind::Colon => Ok(InValues::Marker(self.marker()?)),
            _ => Err(self.expected("'(' or a bind marker")),
        }
    }

    fn compare_op(&mut self) -> Result<CompareOp> {
        let op = match self.current.kind {
            Kind::Equal => CompareOp::Eq,
            Kind::NotEqual => CompareOp::NotEq,
            Kind::Less => CompareOp::Less,
            Kind::LessEqual => CompareOp::LessEq,
            Kind::Greater => CompareOp::Greater,
            Kind::GreaterEqual => CompareOp::GreaterEq,
            _ => return Err(self.expected("a comparison")),
        };
        self.advance();
        Ok(op)
    }

    /// Parses an optional `IF …` of an UPDATE or a DELETE.
    pub(super) fn if_clause(&mut self) -> Result<IfClause> {
        if !self.eat_word("IF") {
            return Ok(IfClause::None);
        }
        if self.at_word("EXISTS") {
            let next = self.peek();
            // `exists` may name a column.
            let column = matches!(
                next.kind,
                Kind::Equal
                    | Kind::NotEqual
                    | Kind::Less
                    | Kind::LessEqual
                    | Kind::Greater
                    | Kind::GreaterEqual
                    | Kind::LeftBracket
                    | Kind::Dot
            ) || ["IN", "CONTAINS", "LIKE"].iter().any(|word| super::is_word(&next, word));
            if !column {
                self.advance();
                return Ok(IfClause::Exists);
            }
        }
        Ok(IfClause::Columns(self.and_separated(Parser::condition)?))
    }

    fn condition(&mut self) -> Result<Condition> {
        let target = self.target()?;
        let test = if self.eat_word("IN") {
            Test::In(self.in_values()?)
        } else if self.eat_word("CONTAINS") {
            if self.eat_key() { Test::ContainsKey(self.term()?) } else { Test::Contains(self.term()?) }
        } else if self.eat_word("LIKE") {
            Test::Like(self.term()?)
        } else {
            let op = self.compare_op()?;
            Test::Compare(op, self.term()?)
        };
        Ok(Condition { target, test })
    }

    /// Parses `c`, `c[k]` or `c.f`.
    pub(super) fn target(&mut self) -> Result<Target> {
        let column = self.identifier()?;
        if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket, "']'")?;
            return Ok(Target::Element(column, key));
        }
        if self.eat(Kind::Dot) {
            return Ok(Target::Field(column, self.identifier()?));
        }
        Ok(Target::Column(column))
    }
}
