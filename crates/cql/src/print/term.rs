//! Printer of terms and types.

use std::fmt::{self, Display, Formatter, Write};

use schema::CqlType;

use super::parts::{commas, joined};
use crate::ast::{
    Arithmetic, ArithmeticOp, BindMarker, FunctionCall, Literal, QualifiedName, Term, TypeName,
};
use crate::words::{Identifier, Quoted, is_no_function, is_type_word};

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(literal) => literal.fmt(f),
            Term::Marker(marker) => marker.fmt(f),
            Term::List(terms) => bracketed(f, '[', terms, ']'),
            Term::Set(terms) => bracketed(f, '{', terms, '}'),
            Term::Tuple(terms) => bracketed(f, '(', terms, ')'),
            Term::Map(entries) => {
                f.write_char('{')?;
                joined(f, entries, ", ", |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_char('}')
            }
            Term::Udt(fields) => {
                f.write_char('{')?;
                joined(f, fields, ", ", |f, (field, value)| write!(f, "{}: {value}", Identifier(field)))?;
                f.write_char('}')
            }
            Term::Function(call) => call.fmt(f),
            Term::TypeHint(hint) => write!(f, "({}) {}", hint.ty, hint.term),
            Term::Arithmetic(operation) => {
                let Arithmetic { op, left, right } = &**operation;
                write!(f, "{left} {op} {right}")
            }
            // Write a blank: two minus signs in a row would start a comment.
            Term::Negate(term) => write!(f, "- {term}"),
        }
    }
}

impl Display for FunctionCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        function_name(f, &self.name)?;
        bracketed(f, '(', &self.arguments, ')')
    }
}

fn bracketed(f: &mut Formatter<'_>, open: char, terms: &[Term], close: char) -> fmt::Result {
    f.write_char(open)?;
    commas(f, terms)?;
    f.write_char(close)
}

/// Writes the name of a function. `token` is reserved but stays unquoted. `key` needs quotes,
/// because it would continue a CONTAINS.
pub(super) fn function_name(f: &mut Formatter<'_>, name: &QualifiedName) -> fmt::Result {
    match (&name.keyspace, name.name.as_str()) {
        (None, "token") => f.write_str("token"),
        (None, word) if is_no_function(word) => write!(f, "\"{word}\""),
        (Some(keyspace), word) if is_no_function(word) => {
            write!(f, "{}.\"{word}\"", Identifier(keyspace))
        }
        _ => name.fmt(f),
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            _ if super::masks_literals() => f.write_char('?'),
            Literal::Integer(digits) | Literal::Float(digits) => f.write_str(digits),
            Literal::String(text) => Quoted(text).fmt(f),
            Literal::Boolean(value) => value.fmt(f),
            Literal::Uuid(uuid) => uuid.fmt(f),
            Literal::Blob(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Literal::Duration(_, text) => f.write_str(text),
            Literal::Null => f.write_str("null"),
        }
    }
}

impl Display for BindMarker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, ":{}", Identifier(name)),
            None => f.write_char('?'),
        }
    }
}

impl Display for ArithmeticOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char(match self {
            ArithmeticOp::Add => '+',
            ArithmeticOp::Subtract => '-',
            ArithmeticOp::Multiply => '*',
            ArithmeticOp::Divide => '/',
            ArithmeticOp::Remainder => '%',
        })
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Native(native) => native.fmt(f),
            TypeName::List(element) => write!(f, "list<{element}>"),
            TypeName::Set(element) => write!(f, "set<{element}>"),
            TypeName::Map(key, value) => write!(f, "map<{key}, {value}>"),
            TypeName::Tuple(components) => {
                f.write_str("tuple<")?;
                commas(f, components)?;
                f.write_char('>')
            }
            TypeName::Vector(element, dimension) => write!(f, "vector<{element}, {dimension}>"),
            TypeName::Frozen(inner) => write!(f, "frozen<{inner}>"),
            TypeName::User(name) => UserTypeName(name).fmt(f),
            TypeName::Custom(class) => Quoted(class).fmt(f),
        }
    }
}

/// Name of a user type. One named like a scalar or a reserved type, such as `int`, needs quotes.
pub(super) struct UserTypeName<'a>(pub(super) &'a QualifiedName);

impl Display for UserTypeName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            QualifiedName { keyspace: None, name } if is_type_word(name) => write!(f, "\"{name}\""),
            name => name.fmt(f),
        }
    }
}

impl From<&CqlType> for TypeName {
    /// Converts a type to its name. User types lose their keyspace.
    fn from(ty: &CqlType) -> TypeName {
        let boxed = |inner: &CqlType| Box::new(TypeName::from(inner));
        match ty {
            CqlType::List(element) => TypeName::List(boxed(element)),
            CqlType::Set(element) => TypeName::Set(boxed(element)),
            CqlType::Map(key, value) => TypeName::Map(boxed(key), boxed(value)),
            CqlType::Tuple(components) => TypeName::Tuple(components.iter().map(TypeName::from).collect()),
            CqlType::Udt(udt) => TypeName::User(QualifiedName { keyspace: None, name: udt.name.clone() }),
            CqlType::Frozen(inner) => TypeName::Frozen(boxed(inner)),
            CqlType::Vector(element, dimension) => TypeName::Vector(boxed(element), *dimension),
            native => TypeName::Native(native.clone()),
        }
    }
}
