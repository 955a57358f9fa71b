//! Printer of expressions in a selection, with the necessary parentheses.

use std::fmt::{self, Display, Formatter, Write};

use super::parts::{commas, joined};
use super::term::function_name;
use crate::ast::{
    Arithmetic, ArithmeticOp, Literal, SelectCall, SelectExpr, Selection, Selector, Term, TypeHint, TypeName,
};
use crate::words::{Identifier, is_no_function};

/// Precedence of an expression. An operand of a lower precedence needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Sum,
    Product,
    Unary,
    /// Operand that `[…]` or `.f` may follow.
    Primary,
}

fn strength(expr: &SelectExpr) -> Strength {
    match expr {
        SelectExpr::Arithmetic(operation) => match operation.op {
            ArithmeticOp::Add | ArithmeticOp::Subtract => Strength::Sum,
            ArithmeticOp::Multiply | ArithmeticOp::Divide | ArithmeticOp::Remainder => Strength::Product,
        },
        SelectExpr::Negate(_) | SelectExpr::TypeHint(..) | SelectExpr::Term(_) => Strength::Unary,
        SelectExpr::Set(_) | SelectExpr::Map(_) | SelectExpr::Udt(_) => Strength::Unary,
        _ => Strength::Primary,
    }
}

fn at_least(f: &mut Formatter<'_>, expr: &SelectExpr, needed: Strength) -> fmt::Result {
    if strength(expr) >= needed { expr.fmt(f) } else { write!(f, "({expr})") }
}

impl Display for Selection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selection::All => f.write_char('*'),
            Selection::Selectors(selectors) => joined(f, selectors, ", ", |f, Selector { expr, alias }| {
                expr.fmt(f)?;
                alias.iter().try_for_each(|alias| write!(f, " AS {}", Identifier(alias)))
            }),
        }
    }
}

impl Display for SelectExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SelectExpr::Column(name) => column(f, name),
            SelectExpr::Term(term) => constant(f, term),
            SelectExpr::CountRows => f.write_str("count(*)"),
            SelectExpr::Function(call) => function(f, call),
            SelectExpr::Cast(expr, ty) => write!(f, "CAST({expr} AS {ty})"),
            SelectExpr::TypeHint(ty, expr) => {
                write!(f, "({ty}) ")?;
                let signed = matches!(**expr, SelectExpr::Negate(_)) && needs_parentheses(ty);
                if signed { write!(f, "({expr})") } else { at_least(f, expr, Strength::Unary) }
            }
            SelectExpr::Element(expr, key) => {
                at_least(f, expr, Strength::Primary)?;
                write!(f, "[{key}]")
            }
            SelectExpr::Slice(expr, from, to) => {
                at_least(f, expr, Strength::Primary)?;
                f.write_char('[')?;
                from.iter().try_for_each(|from| write!(f, "{from} "))?;
                f.write_str("..")?;
                to.iter().try_for_each(|to| write!(f, " {to}"))?;
                f.write_char(']')
            }
            SelectExpr::Field(expr, field) => {
                at_least(f, expr, Strength::Primary)?;
                write!(f, ".{}", Identifier(field))
            }
            SelectExpr::Arithmetic(operation) => {
                let Arithmetic { op, left, right } = &**operation;
                let own = strength(self);
                at_least(f, left, own)?;
                write!(f, " {op} ")?;
                at_least(f, right, if own == Strength::Sum { Strength::Product } else { Strength::Unary })
            }
            SelectExpr::Negate(expr) => {
                f.write_str("- ")?;
                at_least(f, expr, Strength::Unary)
            }
            // DISTINCT followed by `[` would be a column.
            SelectExpr::List(parts) => bracketed(f, "([", parts, "])"),
            SelectExpr::Set(parts) => bracketed(f, "{", parts, "}"),
            SelectExpr::Tuple(parts) => bracketed(f, "(", parts, ")"),
            SelectExpr::Map(entries) => {
                f.write_char('{')?;
                joined(f, entries, ", ", |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_char('}')
            }
            SelectExpr::Udt(fields) => {
                f.write_char('{')?;
                joined(f, fields, ", ", |f, (field, value)| write!(f, "{}: {value}", Identifier(field)))?;
                f.write_char('}')
            }
        }
    }
}

fn bracketed(f: &mut Formatter<'_>, open: &str, parts: &[SelectExpr], close: &str) -> fmt::Result {
    f.write_str(open)?;
    commas(f, parts)?;
    f.write_str(close)
}

/// Writes a column. Quotes three words that are keywords in some positions of a selection.
fn column(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    if matches!(name, "json" | "distinct" | "as") { write!(f, "\"{name}\"") } else { Identifier(name).fmt(f) }
}

/// True for a column or a part of one.
fn is_part(expr: &SelectExpr) -> bool {
    match expr {
        SelectExpr::Column(_) => true,
        SelectExpr::Element(base, _) | SelectExpr::Slice(base, ..) | SelectExpr::Field(base, _) => {
            is_part(base)
        }
        _ => false,
    }
}

fn function(f: &mut Formatter<'_>, call: &SelectCall) -> fmt::Result {
    let SelectCall { name, arguments } = call;
    let one = SelectExpr::Term(Term::Literal(Literal::Integer("1".to_owned())));
    // `"count"(1)` differs from `count(1)`.
    let quoted = match name.name.as_str() {
        "as" => true,
        "count" => *arguments == [one],
        _ => false,
    };
    match &name.keyspace {
        // A property of a column is no function.
        None if is_no_function(&name.name) && matches!(&arguments[..], [part] if is_part(part)) => {
            f.write_str(&name.name)?;
        }
        None if quoted => write!(f, "\"{}\"", name.name)?,
        Some(keyspace) if keyspace == "as" => write!(f, "\"as\".{}", Identifier(&name.name))?,
        _ => function_name(f, name)?,
    }
    f.write_char('(')?;
    commas(f, arguments)?;
    f.write_char(')')
}

/// Writes a constant. Outside of collections, its parts follow the grammar of a selection.
fn constant(f: &mut Formatter<'_>, term: &Term) -> fmt::Result {
    match term {
        // DISTINCT followed by `[` would be a column.
        Term::List(_) => write!(f, "({term})"),
        Term::Tuple(components) => {
            f.write_char('(')?;
            joined(f, components, ", ", constant)?;
            f.write_char(')')
        }
        Term::TypeHint(hint) => hinted_constant(f, hint),
        _ => term.fmt(f),
    }
}

/// Writes a constant with a type hint. Adds parentheses, because `(t) -1` is the column `t` minus
/// one.
fn hinted_constant(f: &mut Formatter<'_>, hint: &TypeHint) -> fmt::Result {
    let TypeHint { ty, term } = hint;
    write!(f, "({ty}) ")?;
    let signed = match term {
        Term::Literal(Literal::Integer(digits) | Literal::Float(digits)) => digits.starts_with('-'),
        Term::Literal(Literal::Duration(_, text)) => text.starts_with('-'),
        _ => false,
    };
    if signed && needs_parentheses(ty) { write!(f, "({term})") } else { constant(f, term) }
}

fn needs_parentheses(ty: &TypeName) -> bool {
    matches!(ty, TypeName::User(_))
}
