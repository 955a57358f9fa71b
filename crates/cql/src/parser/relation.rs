//! Parser of WHERE and IF.

use super::{Parser, Result};
use crate::ast::{AssignmentTarget, CompareOp, Condition, IfClause, InValues, Relation, Term, Test};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses a mandatory `WHERE …`.
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        self.expect_word("WHERE")?;
        self.and_separated(Parser::relation)
    }

    fn relation(&mut self) -> Result<Relation> {
        if self.at(TokenKind::LeftParen) {
            return self.relation_in_parentheses();
        }
        if self.at_word("TOKEN") {
            self.advance();
            let columns = self.parenthesized(Parser::identifier)?;
            let op = self.compare_op()?;
            return Ok(Relation::Token { columns, op, value: self.term()? });
        }
        let column = self.identifier()?;
        if self.eat(TokenKind::LeftBracket) {
            let key = self.term()?;
            self.expect(TokenKind::RightBracket, "']'")?;
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
        self.at_word("KEY") && self.peek().kind != TokenKind::Dot && self.eat_word("KEY")
    }

    /// Parses `(a, b) > …`, `(a, b) IN …`, or a relation in parentheses.
    fn relation_in_parentheses(&mut self) -> Result<Relation> {
        let mut ahead = *self;
        ahead.advance();
        let columns =
            ahead.at_name() && matches!(ahead.peek().kind, TokenKind::Comma | TokenKind::RightParen);
        if !columns {
            self.advance();
            let relation = self.nested(Parser::relation)?;
            self.expect(TokenKind::RightParen, "')'")?;
            return Ok(relation);
        }
        let columns = self.parenthesized(Parser::identifier)?;
        if self.eat_word("IN") {
            return Ok(Relation::TupleIn { columns, values: self.in_tuples()? });
        }
        let op = self.compare_op()?;
        Ok(Relation::Tuple { columns, op, value: self.tuple_or_marker()? })
    }

    /// Parses `(1, 2)`, or a marker for the whole tuple.
    fn tuple_or_marker(&mut self) -> Result<Term> {
        match self.current.kind {
            TokenKind::LeftParen => Ok(Term::Tuple(self.parenthesized(Parser::term)?)),
            TokenKind::Question | TokenKind::Colon => self.marker(),
            _ => Err(self.expected("'(' or a bind marker")),
        }
    }

    /// Parses the values of an IN of several columns: a marker for the list, a list of tuples, or
    /// a list of markers for tuples.
    fn in_tuples(&mut self) -> Result<InValues> {
        if self.current.kind != TokenKind::LeftParen {
            return self.in_values();
        }
        let are_markers = matches!(self.peek().kind, TokenKind::Question | TokenKind::Colon);
        let tuples = self.parenthesized_or_empty(|parser| match parser.current.kind {
            TokenKind::LeftParen if are_markers => Err(parser.expected("a bind marker")),
            TokenKind::Question | TokenKind::Colon if !are_markers => Err(parser.expected("'('")),
            _ => parser.tuple_or_marker(),
        })?;
        Ok(InValues::List(tuples))
    }

    fn in_values(&mut self) -> Result<InValues> {
        match self.current.kind {
            TokenKind::LeftParen => Ok(InValues::List(self.parenthesized_or_empty(Parser::term)?)),
            TokenKind::Question | TokenKind::Colon => Ok(InValues::Marker(self.marker()?)),
            _ => Err(self.expected("'(' or a bind marker")),
        }
    }

    fn compare_op(&mut self) -> Result<CompareOp> {
        let op = match self.current.kind {
            TokenKind::Equal => CompareOp::Eq,
            TokenKind::NotEqual => CompareOp::NotEq,
            TokenKind::Less => CompareOp::Less,
            TokenKind::LessEqual => CompareOp::LessEq,
            TokenKind::Greater => CompareOp::Greater,
            TokenKind::GreaterEqual => CompareOp::GreaterEq,
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
                TokenKind::Equal
                    | TokenKind::NotEqual
                    | TokenKind::Less
                    | TokenKind::LessEqual
                    | TokenKind::Greater
                    | TokenKind::GreaterEqual
                    | TokenKind::LeftBracket
                    | TokenKind::Dot
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
        } else if !matches!(target, AssignmentTarget::Column(_)) {
            let op = self.compare_op()?;
            Test::Compare(op, self.term()?)
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
    pub(super) fn target(&mut self) -> Result<AssignmentTarget> {
        let column = self.identifier()?;
        if self.eat(TokenKind::LeftBracket) {
            let key = self.term()?;
            self.expect(TokenKind::RightBracket, "']'")?;
            return Ok(AssignmentTarget::Element(column, key));
        }
        if self.eat(TokenKind::Dot) {
            return Ok(AssignmentTarget::Field(column, self.identifier()?));
        }
        Ok(AssignmentTarget::Column(column))
    }
}
