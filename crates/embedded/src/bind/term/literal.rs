//! Literals: constants, and values built of several terms (lists, sets, maps, tuples, user types).
//!
//! A literal of constants alone is serialized once, when the statement is prepared. A literal with
//! markers or functions is split into parts, in the order of their bytes, and assembled for every
//! execution. Cassandra permits markers inside tuples and user types only. Here, as in ScyllaDB,
//! they may be inside collections too.

use std::collections::HashMap;
use std::sync::Arc;

use cql::ast::{self, Term};
use engine::{Error, Guardrail, Guardrails, Value};
use functions::Fit;
use schema::{CqlType, UdtType, value};

use super::fit::{check_parts, fits, shown};
use super::{Bind, Binder, Given};
use crate::bind::types::Types;

/// Returns true if a term is the same for every execution.
pub(super) fn is_constant(term: &Term) -> bool {
    match term {
        Term::Literal(_) => true,
        Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => terms.iter().all(is_constant),
        Term::Map(pairs) => pairs.iter().all(|(key, value)| is_constant(key) && is_constant(value)),
        Term::Udt(fields) => fields.iter().all(|(_, value)| is_constant(value)),
        Term::TypeHint(hint) => is_constant(&hint.term),
        Term::Marker(_) | Term::Function(_) | Term::Arithmetic(_) | Term::Negate(_) => false,
    }
}

/// Part of a literal: its name, type and term; `None` is null. Elements of one collection share
/// name and type.
struct LiteralPart<'t> {
    name: Arc<str>,
    ty: Arc<CqlType>,
    term: Option<&'t Term>,
}

/// Splits a literal along its type.
fn split<'t>(
    guardrails: &Guardrails,
    name: &str,
    ty: &CqlType,
    term: &'t Term,
) -> Result<Vec<LiteralPart<'t>>, Error> {
    let shared =
        |what: &str, ty: &CqlType| (Arc::<str>::from(format!("{what}({name})")), Arc::new(ty.clone()));
    let part = |(name, ty): &(Arc<str>, Arc<CqlType>), term| LiteralPart {
        name: name.clone(),
        ty: ty.clone(),
        term: Some(term),
    };
    let counted = |count: usize| guardrails.check(Guardrail::CollectionElements, count as u64);
    check_parts(name, ty, term)?;
    Ok(match (ty.thawed(), term) {
        (CqlType::List(element), Term::List(terms)) | (CqlType::Set(element), Term::Set(terms)) => {
            counted(terms.len())?;
            let value = shared("value", element);
            terms.iter().map(|term| part(&value, term)).collect()
        }
        (CqlType::Vector(element, _), Term::List(terms)) => {
            let value = shared("value", element);
            terms.iter().map(|term| part(&value, term)).collect()
        }
        (CqlType::Map(..), Term::Set(terms)) if terms.is_empty() => Vec::new(),
        (CqlType::Map(key, value), Term::Map(pairs)) => {
            counted(pairs.len())?;
            let (key, value) = (shared("key", key), shared("value", value));
            pairs.iter().flat_map(|(k, v)| [part(&key, k), part(&value, v)]).collect()
        }
        (CqlType::Tuple(types), Term::Tuple(terms)) => {
            if terms.len() > types.len() {
                return Err(Error::Invalid(format!(
                    "Invalid tuple literal for {name}: too many elements. Type {ty} expects {} but got {}",
                    types.len(),
                    terms.len()
                )));
            }
            let numbered = types.iter().zip(terms).enumerate();
            let part = |(at, (ty, term)): (usize, (&CqlType, &'t Term))| LiteralPart {
                name: format!("{name}[{at}]").into(),
                ty: Arc::new(ty.clone()),
                term: Some(term),
            };
            numbered.map(part).collect()
        }
        (CqlType::Udt(udt), Term::Udt(fields)) => fields_of(name, udt, fields)?,
        (_, Term::List(_)) => {
            return Err(Error::Invalid(format!(
                "Unexpected receiver type '{ty}'; only list and vector are expected"
            )));
        }
        _ => {
            let kind = match term {
                Term::Set(_) => "set",
                Term::Map(_) => "map",
                Term::Tuple(_) => "tuple type",
                _ => "user type",
            };
            return Err(Error::Invalid(format!("Invalid {kind} literal for {name} of type {ty}")));
        }
    })
}

/// Returns the fields in the order of the type. Missing fields are null. If a field is given twice,
/// the last one wins.
fn fields_of<'t>(
    name: &str,
    udt: &UdtType,
    fields: &'t [(String, Term)],
) -> Result<Vec<LiteralPart<'t>>, Error> {
    let mut given: HashMap<&str, &Term> = fields.iter().map(|(field, term)| (field.as_str(), term)).collect();
    let part = |(field, ty): &(String, CqlType)| LiteralPart {
        name: format!("{name}.{field}").into(),
        ty: Arc::new(ty.clone()),
        term: given.remove(field.as_str()),
    };
    let parts = udt.fields.iter().map(part).collect();
    if let Some((unknown, _)) = fields.iter().find(|(field, _)| given.contains_key(field.as_str())) {
        return Err(Error::Invalid(format!(
            "Unknown field '{unknown}' in value of user defined type {}",
            udt.name
        )));
    }
    Ok(parts)
}

/// Prepares the parts of a literal that is no constant.
pub(super) fn parts(binder: &mut Binder, name: &str, ty: &CqlType, term: &Term) -> Result<Vec<Bind>, Error> {
    let null = Term::Literal(ast::Literal::Null);
    let apart = split(&binder.guardrails, name, ty, term)?;
    let bind = |part: LiteralPart<'_>| binder.bind_shared(&part.name, &part.ty, part.term.unwrap_or(&null));
    apart.into_iter().map(bind).collect()
}

/// Assembles the value of a literal from its parts, for one execution.
pub(super) fn assemble(ty: &CqlType, parts: &[Bind], values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
    let is_collection = ty.is_collection() || matches!(ty.thawed(), CqlType::Vector(..));
    let mut given = Vec::with_capacity(parts.len());
    for part in parts {
        given.push(match part.get(values)? {
            Given::Bytes(bytes) => Some(bytes),
            Given::Null if is_collection => {
                let what = if ty.is_collection() { "collections" } else { "vectors" };
                return Err(Error::Invalid(format!("null is not supported inside {what}")));
            }
            Given::Null => None,
            Given::Unset if is_collection => {
                return Err(Error::Invalid("unset value is not supported inside collections".into()));
            }
            Given::Unset => {
                return Err(Error::Invalid(format!("Invalid unset value for {}", part.name)));
            }
        });
    }
    let bytes = given.iter().map(Option::as_deref);
    let all = || given.iter().map(|part| part.as_deref().unwrap_or_default());
    Ok(match ty.thawed() {
        CqlType::Map(..) => {
            let keys = all().step_by(2);
            let pairs: Vec<_> = keys.zip(all().skip(1).step_by(2)).collect();
            value::encode_map(pairs.into_iter())
        }
        CqlType::List(_) | CqlType::Set(_) => value::encode_list(all()),
        CqlType::Vector(element, _) => value::encode_vector(element, all()),
        _ => value::encode_tuple(bytes),
    })
}

/// Serializes a constant term as bytes of the type; `None` for null.
pub(super) fn serialize(
    binder: &Binder,
    name: &str,
    ty: &CqlType,
    term: &Term,
) -> Result<Option<Vec<u8>>, Error> {
    match term {
        Term::Literal(literal) => return constant(name, ty, literal),
        Term::TypeHint(hint) => return hinted(binder, name, ty, hint),
        // A single term in parentheses.
        Term::Tuple(terms) if terms.len() == 1 && !matches!(ty.thawed(), CqlType::Tuple(_)) => {
            return serialize(binder, name, ty, &terms[0]);
        }
        _ => {}
    }
    let mut parts = Vec::new();
    for part in split(&binder.guardrails, name, ty, term)? {
        let input = match part.term {
            Some(term) => serialize(binder, &part.name, &part.ty, term)?,
            None => None,
        };
        parts.push(Bind {
            input: super::Input::Constant(input),
            ty: part.ty,
            nested: false,
            name: part.name,
        });
    }
    checked(name, ty, &assemble(ty, &parts, &[])?).map(Some)
}

/// Returns a value of the type in the form in which it is stored.
///
/// # Errors
/// The bytes are no value of the type.
fn checked(name: &str, ty: &CqlType, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let invalid = |error: value::ValueError| Error::Invalid(error.for_column(name));
    value::check(ty, bytes).map_err(invalid)?;
    Ok(value::canonical(ty, bytes).map_err(invalid)?.into_owned())
}

/// Serializes a constant with a type hint. As in Cassandra, the hint is checked, and the constant
/// is read as one of type `ty`.
fn hinted(binder: &Binder, name: &str, ty: &CqlType, hint: &ast::TypeHint) -> Result<Option<Vec<u8>>, Error> {
    if let Some(hinted) = binder.types.find(&hint.ty)
        && !fits(&hinted, &hint.term)
    {
        return Err(Error::Invalid(format!("Cannot cast value {} to type {hinted}", shown(&hint.term))));
    }
    hinted_type(&binder.types, name, ty, hint)?;
    serialize(binder, name, ty, &hint.term)
}

/// Returns the type of a hint. `None`: it is a class, and the value decides.
///
/// # Errors
/// There is no such type, or its values cannot be assigned to `ty`.
pub(super) fn hinted_type(
    types: &Types,
    name: &str,
    ty: &CqlType,
    hint: &ast::TypeHint,
) -> Result<Option<CqlType>, Error> {
    let Some(hinted) = types.find(&hint.ty) else {
        return match types.unknown(&hint.ty) {
            Some(unknown) => Err(Error::Invalid(format!("Unknown type {unknown}"))),
            None => Ok(None),
        };
    };
    // A collection or a user type is not one that is frozen. Hinted types have lost that.
    let is_frozen = matches!(hint.ty, ast::TypeName::Frozen(_)) || !hinted.is_multi_cell();
    let is_as_frozen = matches!(ty.thawed(), CqlType::Blob) || ty.is_multi_cell() != is_frozen;
    match is_as_frozen && Fit::of(&hinted, ty) != Fit::No {
        true => Ok(Some(hinted)),
        false => Err(Error::Invalid(format!(
            "Cannot assign value ({}){} to {name} of type {ty}",
            hint.ty,
            shown(&hint.term)
        ))),
    }
}

fn constant(name: &str, ty: &CqlType, literal: &ast::Literal) -> Result<Option<Vec<u8>>, Error> {
    let uuid;
    let literal = match literal {
        ast::Literal::Null if *ty == CqlType::Counter => {
            return Err(Error::Invalid("Invalid null value for counter increment/decrement".into()));
        }
        ast::Literal::Null => return Ok(None),
        ast::Literal::Duration(d, text) => {
            if *ty.thawed() != CqlType::Duration {
                let text = format!("Invalid DURATION constant ({text}) for \"{name}\" of type {ty}");
                return Err(Error::Invalid(text));
            }
            return Ok(Some(d.to_bytes()));
        }
        ast::Literal::Integer(digits) => value::Literal::Integer(digits),
        ast::Literal::Float(digits) => value::Literal::Float(digits),
        ast::Literal::String(text) => value::Literal::String(text),
        ast::Literal::Boolean(flag) => value::Literal::Boolean(*flag),
        ast::Literal::Blob(bytes) => value::Literal::Blob(bytes),
        ast::Literal::Uuid(id) => {
            uuid = id.to_string();
            value::Literal::Uuid(&uuid)
        }
    };
    value::from_literal(ty, literal).map(Some).map_err(|e| Error::Invalid(e.for_column(name)))
}
