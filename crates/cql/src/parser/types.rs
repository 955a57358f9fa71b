//! Parser of type names.

use schema::CqlType;

use super::{Parser, Result};
use crate::ast::{QualifiedName, TypeName};
use crate::lexer::TokenKind;
use crate::words::is_constant;

impl Parser<'_> {
    /// Parses a type.
    pub(super) fn type_name(&mut self) -> Result<TypeName> {
        self.nested(|p| match p.current.kind {
            TokenKind::String => Ok(TypeName::Custom(p.string()?)),
            TokenKind::Word if p.peek().kind == TokenKind::Less => p.parameterized_type(),
            TokenKind::Word if p.peek().kind != TokenKind::Dot => match CqlType::scalar(p.current.text) {
                Some(native) => {
                    p.advance();
                    Ok(TypeName::Native(native))
                }
                None => p.user_type(),
            },
            _ => p.user_type(),
        })
    }

    /// True if a type can start here, where a term can start too. `set` is reserved, and `true` is
    /// not a type.
    pub(super) fn at_type_start(&self) -> bool {
        let constant = self.at(TokenKind::Word) && is_constant(self.current.text);
        (self.at_name() && !constant) || self.at_word("SET")
    }

    fn user_type(&mut self) -> Result<TypeName> {
        if !self.at_name() {
            return Err(self.expected("a type"));
        }
        let name: QualifiedName = self.qualified()?;
        Ok(TypeName::User(name))
    }

    fn parameterized_type(&mut self) -> Result<TypeName> {
        let name = self.current;
        let is = |keyword: &str| name.text.eq_ignore_ascii_case(keyword);
        if !["frozen", "list", "set", "map", "tuple", "vector"].into_iter().any(is) {
            return Err(self.expected("a type"));
        }
        self.advance();
        self.expect(TokenKind::Less, "'<'")?;
        let ty = if is("tuple") {
            TypeName::Tuple(self.comma_separated(Parser::type_name)?)
        } else {
            let first = Box::new(self.type_name()?);
            if is("frozen") {
                TypeName::Frozen(first)
            } else if is("list") {
                TypeName::List(first)
            } else if is("set") {
                TypeName::Set(first)
            } else if is("map") {
                self.expect(TokenKind::Comma, "','")?;
                TypeName::Map(first, Box::new(self.type_name()?))
            } else {
                self.expect(TokenKind::Comma, "','")?;
                TypeName::Vector(first, self.vector_dimension()?)
            }
        };
        self.expect(TokenKind::Greater, "'>'")?;
        Ok(ty)
    }

    fn vector_dimension(&mut self) -> Result<u32> {
        match (self.current.kind, self.current.text.parse()) {
            (TokenKind::Integer, Ok(dimension)) => {
                self.advance();
                Ok(dimension)
            }
            _ => Err(self.expected("a dimension")),
        }
    }
}
