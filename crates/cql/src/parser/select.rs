//! Parser of SELECT.

use schema::ClusteringOrder;

use super::term::negated;
use super::using::UsingScope;
use super::{Parser, Result};
use crate::ast::{
    Arithmetic, ArithmeticOp, Nearest, QualifiedName, Select, SelectCall, SelectExpr, Selection, Selector,
    Statement, Term, TypeHint, TypeName, Using,
};
use crate::lexer::{Token, TokenKind};
use crate::words::is_constant;

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Result<Statement> {
        self.expect_word("SELECT")?;
        let json = self.eat_modifier("JSON");
        let distinct = self.eat_modifier("DISTINCT");
        let selection = self.selection()?;
        self.expect_word("FROM")?;
        let from = self.qualified()?;
        let relations = if self.at_word("WHERE") { self.where_clause()? } else { Vec::new() };
        let mut group_by = Vec::new();
        if self.eat_word("GROUP") {
            self.expect_word("BY")?;
            group_by = self.comma_separated(Parser::expression)?;
        }
        let (mut order_by, mut nearest) = (Vec::new(), Vec::new());
        if self.eat_word("ORDER") {
            self.expect_word("BY")?;
            for ordering in self.comma_separated(Parser::ordering)? {
                match ordering {
                    (column, Some(vector), order) => nearest.push(Nearest { column, vector, order }),
                    (column, None, order) => order_by.push((column, order)),
                }
            }
        }
        let mut per_partition_limit = None;
        if self.eat_word("PER") {
            self.expect_words(&["PARTITION", "LIMIT"])?;
            per_partition_limit = Some(self.integer_or_marker()?);
        }
        let limit = if self.eat_word("LIMIT") { Some(self.integer_or_marker()?) } else { None };
        let (allow_filtering, bypass_cache, using) = self.select_end()?;
        Ok(Statement::Select(Select {
            distinct,
            json,
            selection,
            from,
            relations,
            group_by,
            order_by,
            nearest,
            per_partition_limit,
            limit,
            allow_filtering,
            bypass_cache,
            using,
        }))
    }

    /// Parses `ALLOW FILTERING`, `BYPASS CACHE` and USING, each at most once, in any order.
    fn select_end(&mut self) -> Result<(bool, bool, Using)> {
        let mut allow_filtering = false;
        let mut bypass_cache = false;
        let mut using = Using::default();
        loop {
            if !allow_filtering && self.eat_word("ALLOW") {
                self.expect_word("FILTERING")?;
                allow_filtering = true;
            } else if !bypass_cache && self.eat_word("BYPASS") {
                self.expect_word("CACHE")?;
                bypass_cache = true;
            } else if using.is_empty() && self.at_word("USING") {
                using = self.using(UsingScope::Read)?;
            } else {
                return Ok((allow_filtering, bypass_cache, using));
            }
        }
    }

    /// Skips JSON or DISTINCT, unless it is a column: `json['k']`, `distinct.f`, `json, a`.
    fn eat_modifier(&mut self, keyword: &str) -> bool {
        if !self.at_word(keyword) {
            return false;
        }
        let next = self.peek();
        let modifier = match next.kind {
            TokenKind::Word => !super::is_word(&next, "FROM") && !super::is_word(&next, "AS"),
            TokenKind::Comma
            | TokenKind::Dot
            | TokenKind::LeftBracket
            | TokenKind::Plus
            | TokenKind::Slash
            | TokenKind::Percent
            | TokenKind::End => false,
            _ => true,
        };
        if modifier {
            self.advance();
        }
        modifier
    }

    pub(super) fn selection(&mut self) -> Result<Selection> {
        if self.eat(TokenKind::Star) {
            return Ok(Selection::All);
        }
        Ok(Selection::Selectors(self.comma_separated(|p| {
            let expr = p.expression()?;
            let alias = if p.eat_word("AS") { Some(p.identifier()?) } else { None };
            Ok(Selector { expr, alias })
        })?))
    }

    /// Parses a column of an ORDER BY, with the vector of `ANN OF` and the order.
    fn ordering(&mut self) -> Result<(String, Option<Term>, ClusteringOrder)> {
        let column = self.identifier()?;
        let mut vector = None;
        if self.eat_word("ANN") {
            self.expect_word("OF")?;
            vector = Some(self.term()?);
        }
        Ok((column, vector, self.clustering_order()?))
    }

    /// `ASC`, `DESC` or nothing, which is `ASC`.
    pub(super) fn clustering_order(&mut self) -> Result<ClusteringOrder> {
        if self.eat_word("DESC") {
            return Ok(ClusteringOrder::Desc);
        }
        self.eat_word("ASC");
        Ok(ClusteringOrder::Asc)
    }

    fn expression(&mut self) -> Result<SelectExpr> {
        self.sum(Parser::expr_unary, arithmetic, |_| false)
    }

    fn expr_unary(&mut self) -> Result<SelectExpr> {
        match self.current.kind {
            TokenKind::Minus => self.expr_negated(),
            TokenKind::LeftParen => match self.eat_type_hint() {
                Some(ty) => self.expr_hinted(ty),
                None => {
                    let group = self.expr_group()?;
                    self.expr_postfix(group)
                }
            },
            TokenKind::Word if is_constant(self.current.text) => Ok(SelectExpr::Term(self.literal()?)),
            TokenKind::Word if self.at_iso_duration() => Ok(SelectExpr::Term(self.iso_duration()?)),
            TokenKind::Word | TokenKind::QuotedName => {
                let named = self.expr_named()?;
                self.expr_postfix(named)
            }
            TokenKind::LeftBracket | TokenKind::LeftBrace => self.expr_collection(),
            _ => match self.literal_or_marker()? {
                Some(term) => Ok(SelectExpr::Term(term)),
                None => Err(self.expected("a column, a function or a term")),
            },
        }
    }

    /// Parses a list, a set, a map or a value of a user type. One of terms alone is a term.
    fn expr_collection(&mut self) -> Result<SelectExpr> {
        let mut ahead = *self;
        if let Ok(Some(term)) = ahead.literal_or_marker() {
            *self = ahead;
            return Ok(SelectExpr::Term(term));
        }
        let is_list = self.at(TokenKind::LeftBracket);
        self.advance();
        let collection = if is_list {
            SelectExpr::List(self.comma_separated(Parser::expression)?)
        } else if self.at_name() && self.peek().kind == TokenKind::Colon {
            SelectExpr::Udt(self.comma_separated(|p| {
                let field = p.identifier()?;
                p.expect(TokenKind::Colon, "':'")?;
                Ok((field, p.expression()?))
            })?)
        } else {
            self.expr_braced()?
        };
        let (end, sign) = match is_list {
            true => (TokenKind::RightBracket, "']'"),
            false => (TokenKind::RightBrace, "'}'"),
        };
        self.expect(end, sign)?;
        Ok(collection)
    }

    /// Parses the members of a set, or the entries of a map.
    fn expr_braced(&mut self) -> Result<SelectExpr> {
        let first = self.expression()?;
        if !self.eat(TokenKind::Colon) {
            let mut members = vec![first];
            while self.eat(TokenKind::Comma) {
                members.push(self.expression()?);
            }
            return Ok(SelectExpr::Set(members));
        }
        let mut entries = vec![(first, self.expression()?)];
        while self.eat(TokenKind::Comma) {
            let key = self.expression()?;
            self.expect(TokenKind::Colon, "':'")?;
            entries.push((key, self.expression()?));
        }
        Ok(SelectExpr::Map(entries))
    }

    /// Parses `-e`.
    fn expr_negated(&mut self) -> Result<SelectExpr> {
        let is_sign = self.at_sign();
        self.advance();
        Ok(match self.nested(Parser::expr_unary)? {
            SelectExpr::Term(term) if is_sign => match negated(term) {
                Ok(literal) => SelectExpr::Term(literal),
                Err(other) => SelectExpr::Negate(Box::new(SelectExpr::Term(other))),
            },
            other => SelectExpr::Negate(Box::new(other)),
        })
    }

    /// Parses the expression after `(type)`.
    fn expr_hinted(&mut self, ty: TypeName) -> Result<SelectExpr> {
        Ok(match self.nested(Parser::expr_unary)? {
            SelectExpr::Term(term) => SelectExpr::Term(Term::TypeHint(Box::new(TypeHint { ty, term }))),
            other => SelectExpr::TypeHint(ty, Box::new(other)),
        })
    }

    /// Parses `(e)`, or a tuple. A tuple of terms alone is a term.
    fn expr_group(&mut self) -> Result<SelectExpr> {
        let mut exprs = self.parenthesized(Parser::expression)?;
        if exprs.len() == 1 {
            return Ok(exprs.remove(0));
        }
        if !exprs.iter().all(|expr| matches!(expr, SelectExpr::Term(_))) {
            return Ok(SelectExpr::Tuple(exprs));
        }
        let term = |expr| match expr {
            SelectExpr::Term(term) => term,
            _ => unreachable!("all of them were checked"),
        };
        Ok(SelectExpr::Term(Term::Tuple(exprs.into_iter().map(term).collect())))
    }

    /// Parses a column or a call.
    fn expr_named(&mut self) -> Result<SelectExpr> {
        let next = self.peek().kind;
        if next == TokenKind::LeftParen && self.at(TokenKind::Word) {
            if self.at_word("CAST") {
                return self.cast();
            }
            if self.at_word("COUNT") && self.counts_rows() {
                return Ok(SelectExpr::CountRows);
            }
            if ["WRITETIME", "MAXWRITETIME", "TTL"].iter().any(|word| self.at_word(word)) {
                return self.property_of_column();
            }
        }
        if next == TokenKind::LeftParen || (next == TokenKind::Dot && self.qualified_call_follows()) {
            let name: QualifiedName = self.function_name()?;
            let arguments = self.parenthesized_or_empty(Parser::expression)?;
            return Ok(SelectExpr::Function(SelectCall { name, arguments }));
        }
        if !self.at_name() {
            return Err(self.expected("a column, a function or a term"));
        }
        Ok(SelectExpr::Column(self.identifier()?))
    }

    /// Parses `writetime(c)` and the like: the argument is a column, or a part of one.
    fn property_of_column(&mut self) -> Result<SelectExpr> {
        let name = QualifiedName { keyspace: None, name: self.identifier()? };
        self.expect(TokenKind::LeftParen, "'('")?;
        let column = SelectExpr::Column(self.identifier()?);
        let column = self.expr_postfix(column)?;
        self.expect(TokenKind::RightParen, "')'")?;
        Ok(SelectExpr::Function(SelectCall { name, arguments: vec![column] }))
    }

    fn cast(&mut self) -> Result<SelectExpr> {
        self.advance();
        self.expect(TokenKind::LeftParen, "'('")?;
        let expr = self.expression()?;
        self.expect_word("AS")?;
        let ty = self.native_type()?;
        self.expect(TokenKind::RightParen, "')'")?;
        Ok(SelectExpr::Cast(Box::new(expr), ty))
    }

    /// Skips `count(*)` or `count(1)` if it follows. The current token is `count`.
    fn counts_rows(&mut self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        ahead.advance();
        let argument: Token<'_> = ahead.advance();
        let rows =
            argument.kind == TokenKind::Star || (argument.kind == TokenKind::Integer && argument.text == "1");
        if rows && ahead.eat(TokenKind::RightParen) {
            *self = ahead;
            return true;
        }
        false
    }

    /// True if `a.b(` follows. The current token is `a`.
    fn qualified_call_follows(&self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        ahead.advance();
        ahead.at_name() && ahead.peek().kind == TokenKind::LeftParen
    }

    fn expr_postfix(&mut self, mut expr: SelectExpr) -> Result<SelectExpr> {
        loop {
            if self.eat(TokenKind::Dot) {
                self.count_operation()?;
                expr = SelectExpr::Field(Box::new(expr), self.identifier()?);
            } else if self.eat(TokenKind::LeftBracket) {
                self.count_operation()?;
                expr = self.element_or_slice(expr)?;
                self.expect(TokenKind::RightBracket, "']'")?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn element_or_slice(&mut self, expr: SelectExpr) -> Result<SelectExpr> {
        let from = if self.at(TokenKind::DotDot) { None } else { Some(self.term()?) };
        match from {
            Some(key) if !self.at(TokenKind::DotDot) => Ok(SelectExpr::Element(Box::new(expr), key)),
            from => {
                self.expect(TokenKind::DotDot, "'..'")?;
                let to = if self.at(TokenKind::RightBracket) { None } else { Some(self.term()?) };
                Ok(SelectExpr::Slice(Box::new(expr), from, to))
            }
        }
    }

    /// Skips `(type)` if it is a type hint. The current token is `(`.
    ///
    /// `(a)` may be a type or a column. The next token decides: a minus or a bracket continues a
    /// column, unless the type is not a plain name.
    fn eat_type_hint(&mut self) -> Option<TypeName> {
        let mut ahead = *self;
        ahead.advance();
        if !ahead.at_type_start() {
            return None;
        }
        let ty = ahead.type_name().ok()?;
        if !ahead.eat(TokenKind::RightParen) {
            return None;
        }
        let named = matches!(ty, TypeName::User(_));
        let hint = match ahead.current.kind {
            TokenKind::Word => {
                let starts = ahead.at_name() || ahead.at_word("TOKEN") || is_constant(ahead.current.text);
                starts && !ahead.at_word("AS")
            }
            TokenKind::Minus | TokenKind::LeftBracket => !named,
            TokenKind::QuotedName
            | TokenKind::String
            | TokenKind::DollarString
            | TokenKind::Integer
            | TokenKind::Float
            | TokenKind::Uuid
            | TokenKind::Blob
            | TokenKind::Duration
            | TokenKind::LeftParen
            | TokenKind::LeftBrace
            | TokenKind::Question
            | TokenKind::Colon => true,
            _ => false,
        };
        if hint {
            *self = ahead;
            return Some(ty);
        }
        None
    }
}

fn arithmetic(left: SelectExpr, op: ArithmeticOp, right: SelectExpr) -> SelectExpr {
    SelectExpr::Arithmetic(Box::new(Arithmetic { op, left, right }))
}
