//! Parser of terms.

use schema::value::DurationError;
use uuid::Uuid;

use super::{Parser, Result, quote_token};
use crate::ast::{
    Arithmetic, ArithmeticOp, BindMarker, Duration, FunctionCall, Literal, QualifiedName, Term, TypeHint,
};
use crate::lexer::TokenKind;
use crate::words::{is_constant, is_no_function};

impl Parser<'_> {
    /// Parses any term.
    pub(super) fn term(&mut self) -> Result<Term> {
        // In `SET c = [1] + c`, the term ends before the column. The assignment parses the rest.
        self.sum(Parser::unary, arithmetic, Parser::column_follows)
    }

    /// Parses sums and products of operands. One loop handles both precedences, because a call per
    /// precedence would cost more stack. Stops at a `+` for which `ends` is true.
    pub(super) fn sum<T>(
        &mut self,
        operand: fn(&mut Self) -> Result<T>,
        join: fn(T, ArithmeticOp, T) -> T,
        ends: fn(&Self) -> bool,
    ) -> Result<T> {
        if self.depth == 0 {
            self.operations = 0;
        }
        self.enter()?;
        let sum = self.operators(operand, join, ends);
        self.depth -= 1;
        sum
    }

    fn operators<T>(
        &mut self,
        operand: fn(&mut Self) -> Result<T>,
        join: fn(T, ArithmeticOp, T) -> T,
        ends: fn(&Self) -> bool,
    ) -> Result<T> {
        // Operand left of the last `+` or `-`, while the product to its right is parsed.
        let mut sum: Option<(T, ArithmeticOp)> = None;
        let mut product = operand(self)?;
        loop {
            if let Some(op) = self.product_sign() {
                self.count_operation()?;
                self.advance();
                product = join(product, op, operand(self)?);
                continue;
            }
            let left = match sum.take() {
                Some((left, op)) => join(left, op, product),
                None => product,
            };
            let op = match self.current.kind {
                TokenKind::Plus if ends(self) => return Ok(left),
                TokenKind::Plus => ArithmeticOp::Add,
                TokenKind::Minus => {
                    self.refuse_signed_number()?;
                    ArithmeticOp::Subtract
                }
                _ => return Ok(left),
            };
            self.count_operation()?;
            self.advance();
            sum = Some((left, op));
            product = operand(self)?;
        }
    }

    /// Refuses a `-` before a number without a blank between them: in Cassandra it is the sign of
    /// the number, so that no operator stands between two operands.
    fn refuse_signed_number(&self) -> Result<()> {
        let next = self.peek();
        let is_number = matches!(next.kind, TokenKind::Integer | TokenKind::Float | TokenKind::Duration);
        match is_number && next.start == self.current.start + 1 {
            true => {
                let number = quote_token(&format!("-{}", next.text));
                Err(self.error(format!("no viable alternative at input {number}")))
            }
            false => Ok(()),
        }
    }

    /// True if the current `-` is the sign of a number or of a duration: no blank is between them.
    /// Any other `-` before a constant is an operator, whose result has a type.
    pub(super) fn at_sign(&self) -> bool {
        let mut ahead = *self;
        let after = self.current.start + 1;
        ahead.advance();
        let is_number = match ahead.current.kind {
            TokenKind::Integer | TokenKind::Float | TokenKind::Duration => true,
            TokenKind::Word => is_constant(ahead.current.text) || ahead.at_iso_duration(),
            _ => false,
        };
        is_number && ahead.current.start == after
    }

    pub(super) fn product_sign(&self) -> Option<ArithmeticOp> {
        match self.current.kind {
            TokenKind::Star => Some(ArithmeticOp::Multiply),
            TokenKind::Slash => Some(ArithmeticOp::Divide),
            TokenKind::Percent => Some(ArithmeticOp::Remainder),
            _ => None,
        }
    }

    fn unary(&mut self) -> Result<Term> {
        match self.current.kind {
            TokenKind::Minus => {
                let is_sign = self.at_sign();
                self.advance();
                let term = self.nested(Parser::unary)?;
                Ok(match is_sign {
                    true => negated(term).unwrap_or_else(|other| Term::Negate(Box::new(other))),
                    false => Term::Negate(Box::new(term)),
                })
            }
            TokenKind::LeftParen if self.type_hint_follows() => self.type_hint(),
            TokenKind::LeftParen => Ok(Term::Tuple(self.parenthesized(Parser::term)?)),
            TokenKind::Word if is_constant(self.current.text) => self.literal(),
            TokenKind::Word
                if self.current.text.starts_with('P')
                    && !matches!(self.peek().kind, TokenKind::LeftParen | TokenKind::Dot) =>
            {
                self.iso_duration()
            }
            TokenKind::Word | TokenKind::QuotedName => self.function_call(),
            _ => match self.literal_or_marker()? {
                Some(term) => Ok(term),
                None => Err(self.expected("a term")),
            },
        }
    }

    fn type_hint(&mut self) -> Result<Term> {
        self.advance();
        let ty = self.type_name()?;
        self.expect(TokenKind::RightParen, "')'")?;
        self.enter()?;
        let term = self.unary()?;
        self.depth -= 1;
        Ok(Term::TypeHint(Box::new(TypeHint { ty, term })))
    }

    /// Parses a term that does not start with a name: a literal, a marker, a list, a set or a map.
    pub(super) fn literal_or_marker(&mut self) -> Result<Option<Term>> {
        match self.current.kind {
            TokenKind::Question | TokenKind::Colon => self.marker().map(Some),
            TokenKind::LeftBracket => self.list_literal().map(Some),
            TokenKind::LeftBrace => self.braced().map(Some),
            TokenKind::Integer
            | TokenKind::Float
            | TokenKind::String
            | TokenKind::DollarString
            | TokenKind::Uuid
            | TokenKind::Blob
            | TokenKind::Duration => self.literal().map(Some),
            _ => Ok(None),
        }
    }

    fn list_literal(&mut self) -> Result<Term> {
        self.advance();
        if self.eat(TokenKind::RightBracket) {
            return Ok(Term::List(Vec::new()));
        }
        let terms = self.comma_separated(Parser::term)?;
        self.expect(TokenKind::RightBracket, "']'")?;
        Ok(Term::List(terms))
    }

    pub(super) fn literal(&mut self) -> Result<Term> {
        let text = self.current.text;
        let literal = match self.current.kind {
            TokenKind::String | TokenKind::DollarString => {
                return Ok(Term::Literal(Literal::String(self.string()?)));
            }
            TokenKind::Integer => Literal::Integer(text.to_owned()),
            TokenKind::Float => Literal::Float(text.to_owned()),
            // The lexer has checked both formats.
            TokenKind::Uuid => Literal::Uuid(Uuid::try_parse(text).map_err(|_| self.expected("a UUID"))?),
            TokenKind::Blob => Literal::Blob(unhex(&text.as_bytes()[2..])),
            TokenKind::Duration => match Duration::parse(text) {
                Ok(duration) => Literal::Duration(duration, text.to_owned()),
                Err(error) => return Err(self.invalid(error.to_string())),
            },
            _ => match text.as_bytes()[0].to_ascii_lowercase() {
                b't' => Literal::Boolean(true),
                b'f' => Literal::Boolean(false),
                b'i' => Literal::Float("Infinity".to_owned()),
                _ if text.len() == 3 => Literal::Float("NaN".to_owned()),
                _ => Literal::Null,
            },
        };
        self.advance();
        Ok(Term::Literal(literal))
    }

    /// Parses a set, a map or a value of a user type.
    fn braced(&mut self) -> Result<Term> {
        self.expect(TokenKind::LeftBrace, "'{'")?;
        if self.eat(TokenKind::RightBrace) {
            return Ok(Term::Set(Vec::new()));
        }
        let named =
            self.at(TokenKind::QuotedName) || (self.at(TokenKind::Word) && !is_constant(self.current.text));
        let braced = if named && self.peek().kind == TokenKind::Colon {
            Term::Udt(self.comma_separated(|p| {
                let field = p.identifier()?;
                p.expect(TokenKind::Colon, "':'")?;
                Ok((field, p.term()?))
            })?)
        } else {
            let first = self.term()?;
            if self.eat(TokenKind::Colon) { self.map_after(first)? } else { self.set_after(first)? }
        };
        self.expect(TokenKind::RightBrace, "'}'")?;
        Ok(braced)
    }

    fn map_after(&mut self, first: Term) -> Result<Term> {
        let mut entries = vec![(first, self.term()?)];
        while self.eat(TokenKind::Comma) {
            let key = self.term()?;
            self.expect(TokenKind::Colon, "':'")?;
            entries.push((key, self.term()?));
        }
        Ok(Term::Map(entries))
    }

    fn set_after(&mut self, first: Term) -> Result<Term> {
        let mut terms = vec![first];
        while self.eat(TokenKind::Comma) {
            terms.push(self.term()?);
        }
        Ok(Term::Set(terms))
    }

    fn function_call(&mut self) -> Result<Term> {
        // For an unquoted name, report that a term is missing. "Missing parenthesis" would mislead.
        let bare = !matches!(self.peek().kind, TokenKind::LeftParen | TokenKind::Dot);
        if bare {
            return Err(self.expected("a term"));
        }
        if self.at_word("CAST") && self.peek().kind == TokenKind::LeftParen {
            return self.cast_term();
        }
        let name = self.function_name()?;
        let arguments = self.parenthesized_or_empty(Parser::term)?;
        Ok(Term::Function(FunctionCall { name, arguments }))
    }

    /// Parses `CAST(term AS type)`, which is a call of the function of that type.
    fn cast_term(&mut self) -> Result<Term> {
        self.advance();
        self.expect(TokenKind::LeftParen, "'('")?;
        let term = self.nested(Parser::term)?;
        self.expect_word("AS")?;
        let ty = self.native_type()?;
        self.expect(TokenKind::RightParen, "')'")?;
        let name = QualifiedName { keyspace: Some("system".to_owned()), name: format!("cast_as_{ty}") };
        Ok(Term::Function(FunctionCall { name, arguments: vec![term] }))
    }

    /// Parses the name of a function. Accepts `token`, although it is reserved. As in Cassandra,
    /// some words begin other clauses only.
    pub(super) fn function_name(&mut self) -> Result<QualifiedName> {
        let mut last = *self;
        if last.peek().kind == TokenKind::Dot {
            last.advance();
            last.advance();
        }
        if last.at(TokenKind::Word) && is_no_function(last.current.text) {
            return Err(last.no_alternative());
        }
        if self.at_word("TOKEN") {
            self.advance();
            return Ok(QualifiedName { keyspace: None, name: "token".to_owned() });
        }
        self.qualified()
    }

    /// True for a word such as `P1Y2M`, or the first part of `P0001-02-03T04:05:06`.
    pub(super) fn at_iso_duration(&self) -> bool {
        let is_call = matches!(self.peek().kind, TokenKind::LeftParen | TokenKind::Dot);
        let digits = self.current.text.strip_prefix('P').map(|rest| rest.strip_prefix('T').unwrap_or(rest));
        !is_call && digits.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    }

    pub(super) fn iso_duration(&mut self) -> Result<Term> {
        let start = self.current.start;
        let rest = &self.lexer.text()[start..];
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != ':').unwrap_or(rest.len());
        let text = rest[..length].to_owned();
        let duration = Duration::parse(&text).map_err(|error| match error {
            DurationError::Form => self.expected("a term"),
            other => self.invalid(other.to_string()),
        })?;
        self.lexer.seek(start + length);
        self.advance();
        Ok(Term::Literal(Literal::Duration(duration, text)))
    }

    /// True if the current `(` starts a type hint. Any other name in a term is a function, followed
    /// by `(`.
    fn type_hint_follows(&self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        if !ahead.at_type_start() {
            return false;
        }
        ahead.advance();
        if ahead.eat(TokenKind::Dot) {
            ahead.advance();
        }
        matches!(ahead.current.kind, TokenKind::RightParen | TokenKind::Less)
    }

    /// True if a column follows the current `+`.
    fn column_follows(&self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        let name = ahead.advance();
        match name.kind {
            TokenKind::QuotedName => !matches!(ahead.current.kind, TokenKind::LeftParen | TokenKind::Dot),
            TokenKind::Word => {
                let term = is_constant(name.text)
                    || matches!(ahead.current.kind, TokenKind::LeftParen | TokenKind::Dot)
                    || (name.text.starts_with('P') && Duration::parse(name.text).is_ok());
                !term
            }
            _ => false,
        }
    }

    /// Parses an integer or a marker.
    pub(super) fn integer_or_marker(&mut self) -> Result<Term> {
        match self.current.kind {
            TokenKind::Integer => self.literal(),
            TokenKind::Minus if self.peek().kind == TokenKind::Integer && self.at_sign() => self.unary(),
            TokenKind::Question | TokenKind::Colon => self.marker(),
            _ => Err(self.expected("an integer or a bind marker")),
        }
    }

    /// Parses `?` or `:name`.
    pub(super) fn marker(&mut self) -> Result<Term> {
        let named = self.at(TokenKind::Colon);
        if !named && !self.at(TokenKind::Question) {
            return Err(self.expected("a bind marker"));
        }
        let index = self.next_marker()?;
        self.advance();
        let name = if named { Some(self.any_word()?) } else { None };
        Ok(Term::Marker(BindMarker { index, name }))
    }
}

fn arithmetic(left: Term, op: ArithmeticOp, right: Term) -> Term {
    Term::Arithmetic(Box::new(Arithmetic { op, left, right }))
}

/// Returns a literal with its sign inverted if it is a number without a sign. Otherwise returns the
/// term as the error.
pub(super) fn negated(term: Term) -> std::result::Result<Term, Term> {
    match term {
        Term::Literal(Literal::Integer(digits)) if !digits.starts_with('-') => {
            Ok(Term::Literal(Literal::Integer(format!("-{digits}"))))
        }
        // As in Cassandra, it has no sign.
        Term::Literal(Literal::Float(digits)) if digits == "NaN" => Ok(Term::Literal(Literal::Float(digits))),
        Term::Literal(Literal::Float(digits)) if !digits.starts_with('-') => {
            Ok(Term::Literal(Literal::Float(format!("-{digits}"))))
        }
        Term::Literal(Literal::Duration(duration, text)) if !text.starts_with('-') => {
            Ok(Term::Literal(Literal::Duration(duration.negated(), format!("-{text}"))))
        }
        other => Err(other),
    }
}

/// Decodes an even number of hexadecimal digits.
fn unhex(digits: &[u8]) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    };
    digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
