//! Parser of type names.

use schema::CqlType;
use schema::types::VECTOR_DIMENSION_MAX;

use super::{Parser, Result};
use crate::ast::{QualifiedName, TypeName};
use crate::lexer::TokenKind;
use crate::words::{RESERVED_TYPES, is_constant};

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

    /// Parses the type of a CAST: a scalar. `varchar` keeps its name, because there are casts to
    /// `text` alone.
    pub(super) fn native_type(&mut self) -> Result<TypeName> {
        let native = match self.at(TokenKind::Word) {
            true => CqlType::scalar(self.current.text),
            false => None,
        };
        let Some(native) = native else { return Err(self.no_alternative()) };
        let name = self.advance().text;
        Ok(match name.eq_ignore_ascii_case("varchar") {
            true => TypeName::User(QualifiedName { keyspace: None, name: "varchar".to_owned() }),
            false => TypeName::Native(native),
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
        Ok(TypeName::User(self.user_type_name()?))
    }

    /// Parses the name of a user type. Without quotes, some names are reserved for types that CQL
    /// does not have yet.
    pub(super) fn user_type_name(&mut self) -> Result<QualifiedName> {
        let first = self.current;
        let name = self.qualified()?;
        let is_bare = name.keyspace.is_none() && first.kind == TokenKind::Word;
        if is_bare && RESERVED_TYPES.contains(&name.name.as_str()) {
            return Err(Parser::repeated(format!("Invalid (reserved) user type name {}", name.name)));
        }
        match is_bare && CqlType::scalar(&name.name).is_some() {
            true => Err(self.expected("'.'")),
            false => Ok(name),
        }
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
                if matches!(*first, TypeName::Native(_) | TypeName::Custom(_)) {
                    let text = "frozen<> is only allowed on collections, tuples, and user-defined types";
                    return Err(Parser::repeated(format!("{text} (got {first})")));
                }
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
        let is_negative = self.at(TokenKind::Minus) && self.peek().kind == TokenKind::Integer;
        let digits = if is_negative { self.peek().text } else { self.current.text };
        if !is_negative && !self.at(TokenKind::Integer) {
            return Err(self.expected("a dimension"));
        }
        match digits.parse() {
            Ok(dimension @ 0..=VECTOR_DIMENSION_MAX) if dimension > 0 && !is_negative => {
                self.advance();
                Ok(dimension)
            }
            Ok(0..=VECTOR_DIMENSION_MAX) => {
                let sign = if is_negative { "-" } else { "" };
                Err(self.invalid(format!("vectors may only have positive dimensions; given {sign}{digits}")))
            }
            _ => Err(Parser::repeated(format!("NumberFormatException For input string: \"{digits}\""))),
        }
    }
}
