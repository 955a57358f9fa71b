//! Parts of the text that several kinds of statements have.

use std::fmt::{self, Display, Formatter, Write};

use crate::ast::{OptionValue, TypeName};
use crate::words::{Identifier, Quoted};

/// Display of passwords.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrets {
    Shown,
    Masked,
}

/// Writes items with a separator between them.
pub(super) fn joined<T>(
    f: &mut Formatter<'_>,
    items: &[T],
    between: &str,
    mut item: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, one) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        item(f, one)?;
    }
    Ok(())
}

pub(super) fn commas<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    joined(f, items, ", ", |f, item| item.fmt(f))
}

pub(super) fn identifiers(f: &mut Formatter<'_>, names: &[String]) -> fmt::Result {
    joined(f, names, ", ", |f, name| Identifier(name).fmt(f))
}

/// Display of `IF NOT EXISTS `, or of nothing.
pub(super) struct IfNotExists(pub(super) bool);

impl Display for IfNotExists {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "IF NOT EXISTS " } else { "" })
    }
}

/// Display of `IF EXISTS `, or of nothing.
pub(super) struct IfExists(pub(super) bool);

impl Display for IfExists {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "IF EXISTS " } else { "" })
    }
}

/// Writes ` WITH a = b AND …`, or nothing.
pub(super) fn with_options(f: &mut Formatter<'_>, options: &[(String, OptionValue)]) -> fmt::Result {
    if options.is_empty() {
        return Ok(());
    }
    f.write_str(" WITH ")?;
    joined(f, options, " AND ", option)
}

pub(super) fn option(f: &mut Formatter<'_>, (name, value): &(String, OptionValue)) -> fmt::Result {
    write!(f, "{} = {value}", Identifier(name))
}

impl Display for OptionValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Null => f.write_str("null"),
            OptionValue::Integer(number) => number.fmt(f),
            // Debug always writes a point or an exponent. The text therefore stays a float.
            OptionValue::Float(number) => write!(f, "{number:?}"),
            OptionValue::Boolean(value) => value.fmt(f),
            OptionValue::String(text) => Quoted(text).fmt(f),
            OptionValue::Duration(duration) => duration.fmt(f),
            OptionValue::Map(entries) => option_map(f, entries),
        }
    }
}

pub(super) fn option_map(f: &mut Formatter<'_>, entries: &[(String, OptionValue)]) -> fmt::Result {
    f.write_char('{')?;
    joined(f, entries, ", ", |f, (key, value)| write!(f, "{}: {value}", Quoted(key)))?;
    f.write_char('}')
}

pub(super) fn types_in_parentheses(f: &mut Formatter<'_>, types: &[TypeName]) -> fmt::Result {
    f.write_char('(')?;
    commas(f, types)?;
    f.write_char(')')
}
