//! Terms.

use uuid::Uuid;

use super::{Parser, Result};
use crate::ast::{
    Arithmetic, ArithmeticOp, BindMarker, Duration, FunctionCall, Literal, QualifiedName, Term, TypeHint,
};
use crate::lexer::Kind;
use crate::words::is_constant;

impl Parser<'_> {
    /// Any term.
    pub(super) fn term(&mut self) -> Result<Term> {
        if self.depth == 0 {
            self.operations = 0;
        }
        self.nested(Parser::sum)
    }

    fn sum(&mut self) -> Result<Term> {
        let mut left = self.product()?;
        loop {
            let op = match self.current.kind {
                // `SET c = [1] + c`: what follows is the column, which is the assignment's business.
                Kind::Plus if self.column_follows() => return Ok(left),
                Kind::Plus => ArithmeticOp::Add,
                Kind::Minus => ArithmeticOp::Subtract,
                _ => return Ok(left),
            };
            self.count_operation()?;
            self.advance();
            let right = self.product()?;
            left = Term::Arithmetic(Box::new(Arithmetic { op, left, right }));
        }
    }

    fn product(&mut self) -> Result<Term> {
        let mut left = self.unary()?;
        loop {
            let Some(op) = self.product_sign() else { return Ok(left) };
            self.count_operation()?;
            self.advance();
            let right = self.unary()?;
            left = Term::Arithmetic(Box::new(Arithmetic { op, left, right }));
        }
    }

    pub(super) fn product_sign(&self) -> Option<ArithmeticOp> {
        match self.current.kind {
            Kind::Star => Some(ArithmeticOp::Multiply),
            Kind::Slash => Some(ArithmeticOp::Divide),
            Kind::Percent => Some(ArithmeticOp::Remainder),
            _ => None,
        }
    }

    fn unary(&mut self) -> Result<Term> {
        if self.eat(Kind::Minus) {
            let term = self.nested(Parser::unary)?;
            return Ok(match negated(term) {
                Ok(literal) => literal,
                Err(other) => Term::Negate(Box::new(other)),
            });
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Term> {
        match self.current.kind {
            Kind::LeftParen if self.type_hint_follows() => {
                self.advance();
                let ty = self.type_name()?;
                self.expect(Kind::RightParen, "')'")?;
                let term = self.nested(Parser::unary)?;
                Ok(Term::TypeHint(Box::new(TypeHint { ty, term })))
            }
            Kind::LeftParen => Ok(Term::Tuple(self.parenthesized(Parser::term)?)),
            Kind::Word if is_constant(self.current.text) => self.literal(),
            Kind::Word
                if self.current.text.starts_with('P')
                    && !matches!(self.peek().kind, Kind::LeftParen | Kind::Dot) =>
            {
                self.iso_duration()
            }
            Kind::Word | Kind::QuotedName => self.function_call(),
            _ => match self.literal_or_marker()? {
                Some(term) => Ok(term),
                None => Err(self.expected("a term")),
            },
        }
    }

    /// A term that needs no look at a name: a literal, a marker, a list, a set or a map.
    pub(super) fn literal_or_marker(&mut self) -> Result<Option<Term>> {
        match self.current.kind {
            Kind::Question => {
                let index = self.next_marker()?;
                self.advance();
                Ok(Some(Term::Marker(BindMarker { index, name: None })))
            }
            Kind::Colon => {
                let index = self.next_marker()?;
                self.advance();
                let name = Some(self.any_word()?);
                Ok(Some(Term::Marker(BindMarker { index, name })))
            }
            Kind::LeftBracket => {
                self.advance();
                if self.eat(Kind::RightBracket) {
                    return Ok(Some(Term::List(Vec::new())));
                }
                let terms = self.comma_separated(Parser::term)?;
                self.expect(Kind::RightBracket, "']'")?;
                Ok(Some(Term::List(terms)))
            }
            Kind::LeftBrace => self.braced().map(Some),
            Kind::Integer
            | Kind::Float
            | Kind::String
            | Kind::DollarString
            | Kind::Uuid
            | Kind::Blob
            | Kind::Duration => self.literal().map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn literal(&mut self) -> Result<Term> {
        let text = self.current.text;
        let literal = match self.current.kind {
            Kind::String | Kind::DollarString => return Ok(Term::Literal(Literal::String(self.string()?))),
            Kind::Integer => Literal::Integer(text.to_owned()),
            Kind::Float => Literal::Float(text.to_owned()),
            // The lexer checked the shape of both.
            Kind::Uuid => Literal::Uuid(Uuid::try_parse(text).map_err(|_| self.expected("a UUID"))?),
            Kind::Blob => Literal::Blob(unhex(&text.as_bytes()[2..])),
            Kind::Duration => match Duration::parse(text) {
                Some(duration) => Literal::Duration(duration),
                None => return Err(self.error("duration out of range")),
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

    /// A set, a map or a value of a user type.
    fn braced(&mut self) -> Result<Term> {
        self.expect(Kind::LeftBrace, "'{'")?;
        if self.eat(Kind::RightBrace) {
            return Ok(Term::Set(Vec::new()));
        }
        let named = self.at(Kind::QuotedName) || (self.at(Kind::Word) && !is_constant(self.current.text));
        let braced = if named && self.peek().kind == Kind::Colon {
            Term::Udt(self.comma_separated(|p| {
                let field = p.identifier()?;
                p.expect(Kind::Colon, "':'")?;
                Ok((field, p.term()?))
            })?)
        } else {
            let first = self.term()?;
            if self.eat(Kind::Colon) { self.map_after(first)? } else { self.set_after(first)? }
        };
        self.expect(Kind::RightBrace, "'}'")?;
        Ok(braced)
    }

    fn map_after(&mut self, first: Term) -> Result<Term> {
        let mut entries = vec![(first, self.term()?)];
        while self.eat(Kind::Comma) {
            let key = self.term()?;
            self.expect(Kind::Colon, "':'")?;
            entries.push((key, self.term()?));
        }
        Ok(Term::Map(entries))
    }

    fn set_after(&mut self, first: Term) -> Result<Term> {
        let mut terms = vec![first];
        while self.eat(Kind::Comma) {
            terms.push(self.term()?);
        }
        Ok(Term::Set(terms))
    }

    fn function_call(&mut self) -> Result<Term> {
        // A bare name where a term should be: say that, rather than that a parenthesis is missing.
        let bare = !matches!(self.peek().kind, Kind::LeftParen | Kind::Dot);
        if bare {
            return Err(self.expected("a term"));
        }
        let name = self.function_name()?;
        let arguments = self.parenthesized_or_empty(Parser::term)?;
        Ok(Term::Function(FunctionCall { name, arguments }))
    }

    /// A function's name; `token` is one, although it is reserved.
    pub(super) fn function_name(&mut self) -> Result<QualifiedName> {
        if self.at_word("TOKEN") {
            self.advance();
            return Ok(QualifiedName { keyspace: None, name: "token".to_owned() });
        }
        self.qualified()
    }

    fn iso_duration(&mut self) -> Result<Term> {
        let start = self.current.start;
        let rest = &self.lexer.text()[start..];
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != ':').unwrap_or(rest.len());
        let Some(duration) = Duration::parse(&rest[..length]) else { return Err(self.expected("a term")) };
        self.lexer.jump(start + length);
        self.advance();
        Ok(Term::Literal(Literal::Duration(duration)))
    }

    /// At `(`: whether it opens a type hint. In a term a name is otherwise a function's, with a `(` after it.
    fn type_hint_follows(&self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        if !ahead.at_name() || (ahead.at(Kind::Word) && is_constant(ahead.current.text)) {
            return false;
        }
        ahead.advance();
        if ahead.eat(Kind::Dot) {
            ahead.advance();
        }
        matches!(ahead.current.kind, Kind::RightParen | Kind::Less)
    }

    /// At `+`: whether a bare column follows.
    fn column_follows(&self) -> bool {
        let mut ahead = *self;
        ahead.advance();
        let name = ahead.advance();
        match name.kind {
            Kind::QuotedName => !matches!(ahead.current.kind, Kind::LeftParen | Kind::Dot),
            Kind::Word => {
                let term = is_constant(name.text)
                    || matches!(ahead.current.kind, Kind::LeftParen | Kind::Dot)
                    || Duration::parse(name.text).is_some();
                !term
            }
            _ => false,
        }
    }

    /// A whole number or a marker.
    pub(super) fn integer_or_marker(&mut self) -> Result<Term> {
        match self.current.kind {
            Kind::Integer => self.literal(),
            Kind::Minus if self.peek().kind == Kind::Integer => self.unary(),
            Kind::Question | Kind::Colon => self.marker(),
            _ => Err(self.expected("an integer or a bind marker")),
        }
    }

    /// `?` or `:name`.
    pub(super) fn marker(&mut self) -> Result<Term> {
        if !matches!(self.current.kind, Kind::Question | Kind::Colon) {
            return Err(self.expected("a bind marker"));
        }
        self.literal_or_marker()?.ok_or_else(|| self.expected("a bind marker"))
    }
}

/// The literal with its sign turned, where it is a number without one; otherwise the term back.
pub(super) fn negated(term: Term) -> std::result::Result<Term, Term> {
    match term {
        Term::Literal(Literal::Integer(digits)) if !digits.starts_with('-') => {
            Ok(Term::Literal(Literal::Integer(format!("-{digits}"))))
        }
        Term::Literal(Literal::Float(digits)) if !digits.starts_with('-') => {
            Ok(Term::Literal(Literal::Float(format!("-{digits}"))))
        }
        Term::Literal(Literal::Duration(duration)) if !duration.is_negative() => {
            Ok(Term::Literal(Literal::Duration(duration.negated())))
        }
        other => Err(other),
    }
}

/// Bytes from an even number of hexadecimal digits.
fn unhex(digits: &[u8]) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    };
    digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
