//! Check of a literal's parts against their types, before any of them is serialized: the kind of
//! each constant, and the shape of nested literals. Cassandra names the whole part in its errors.

use cql::ast::{self, Term, TypeName};
use engine::Error;
use functions::Fit;
use schema::{CqlType, value};

/// Checks the parts of a literal. `name` is the column or the part that it is for. Accepts a
/// literal of another shape, such as a list for a set.
///
/// # Errors
/// Names the first part that cannot be a value of its type, or the number of parts of a vector.
pub(super) fn check_parts(name: &str, ty: &CqlType, literal: &Term) -> Result<(), Error> {
    let check = |kind: &str, what: String, ty: &CqlType, term: &Term| match fits(ty, term) {
        true => Ok(()),
        false => {
            Err(Error::Invalid(format!("Invalid {kind} literal for {name}: {what} is not of type {ty}")))
        }
    };
    let value = |kind, ty: &CqlType, term: &Term| check(kind, format!("value {}", shown(term)), ty, term);
    match (ty.thawed(), literal) {
        (CqlType::List(element), Term::List(terms)) => {
            terms.iter().try_for_each(|term| value("list", element, term))
        }
        (CqlType::Vector(_, dimension), Term::List(terms)) if terms.len() != *dimension as usize => {
            Err(Error::Invalid(format!(
                "Invalid vector literal for {name} of type {ty}; expected {dimension} elements, but given {}",
                terms.len()
            )))
        }
        (CqlType::Vector(element, _), Term::List(terms)) => {
            terms.iter().try_for_each(|term| value("vector", element, term))
        }
        (CqlType::Set(element), Term::Set(terms)) => {
            terms.iter().try_for_each(|term| value("set", element, term))
        }
        (CqlType::Map(key_type, value_type), Term::Map(pairs)) => pairs.iter().try_for_each(|(k, v)| {
            check("map", format!("key {}", shown(k)), key_type, k)?;
            value("map", value_type, v)
        }),
        (CqlType::Tuple(types), Term::Tuple(terms)) => {
            let mut components = types.iter().zip(terms).enumerate();
            components.try_for_each(|(at, (ty, term))| check("tuple", format!("component {at}"), ty, term))
        }
        (CqlType::Udt(udt), Term::Udt(fields)) => fields.iter().try_for_each(|(field, term)| {
            let known = udt.fields.iter().find(|(known, _)| known == field);
            known.map_or(Ok(()), |(_, ty)| check("user type", format!("field {field}"), ty, term))
        }),
        _ => Ok(()),
    }
}

/// Returns the text of a part in messages, in which no space follows a type hint.
pub(super) fn shown(term: &Term) -> String {
    match term {
        Term::Literal(ast::Literal::Null) => "NULL".to_owned(),
        Term::TypeHint(hint) => format!("({}){}", hint.ty, shown(&hint.term)),
        other => other.to_string(),
    }
}

/// Returns true if the term can be a value of the type. Accepts functions, arithmetic and hints of
/// user types, because other code checks them. The time is proportional to the size of the term.
pub(super) fn fits(ty: &CqlType, term: &Term) -> bool {
    let all = |ty: &CqlType, terms: &[Term]| terms.iter().all(|term| fits(ty, term));
    match (ty.thawed(), term) {
        (_, Term::Marker(_) | Term::Function(_) | Term::Arithmetic(_) | Term::Negate(_)) => true,
        (_, Term::TypeHint(hint)) => match &hint.ty {
            TypeName::Native(hinted) => Fit::of(hinted, ty) != Fit::No,
            _ => true,
        },
        (ty, Term::Literal(literal)) => constant_fits(ty, literal),
        (CqlType::List(element), Term::List(terms)) => all(element, terms),
        (CqlType::Set(element), Term::Set(terms)) => all(element, terms),
        (CqlType::Vector(element, dimension), Term::List(terms)) => {
            terms.len() == *dimension as usize && all(element, terms)
        }
        (CqlType::Map(..), Term::Set(terms)) => terms.is_empty(),
        (CqlType::Map(key, value), Term::Map(pairs)) => {
            pairs.iter().all(|(k, v)| fits(key, k) && fits(value, v))
        }
        (CqlType::Tuple(types), Term::Tuple(terms)) => {
            terms.len() <= types.len() && types.iter().zip(terms).all(|(ty, term)| fits(ty, term))
        }
        (CqlType::Udt(udt), Term::Udt(fields)) => fields.iter().all(|(name, term)| {
            udt.fields.iter().find(|(known, _)| known == name).is_some_and(|(_, ty)| fits(ty, term))
        }),
        // A single term in parentheses.
        (ty, Term::Tuple(terms)) if terms.len() == 1 => fits(ty, &terms[0]),
        _ => false,
    }
}

fn constant_fits(ty: &CqlType, literal: &ast::Literal) -> bool {
    let kind = match literal {
        ast::Literal::Null => return true,
        ast::Literal::Duration(..) => value::Literal::Duration(""),
        ast::Literal::Integer(_) => value::Literal::Integer(""),
        ast::Literal::Float(_) => value::Literal::Float(""),
        ast::Literal::String(_) => value::Literal::String(""),
        ast::Literal::Boolean(flag) => value::Literal::Boolean(*flag),
        ast::Literal::Blob(_) => value::Literal::Blob(&[]),
        ast::Literal::Uuid(_) => value::Literal::Uuid(""),
    };
    // The text of any constant can be a tuple.
    matches!(ty, CqlType::Tuple(_)) || kind.is_accepted_by(ty)
}
