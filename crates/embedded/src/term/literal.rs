//! Literals: constants, and what is built of several terms (lists, sets, maps, tuples, user types).
//!
//! A literal of constants alone is serialized once, when the statement is prepared. One with markers or functions inside becomes
//! its parts in the order in which their bytes will stand, and is put together for every execution. Cassandra takes markers
//! inside tuples and user types only; here, as in ScyllaDB, they may be inside collections too.

use cql::ast::{self, Term};
use engine::{Error, Value};
use schema::{CqlType, UdtType, value};

use super::{Bind, Binder, Given};

/// Whether a term is the same for every execution.
pub(super) fn is_constant(term: &Term) -> bool {
    match term {
        Term::Literal(_) => true,
        Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => terms.iter().all(is_constant),
        Term::Map(pairs) => pairs.iter().all(|(key, value)| is_constant(key) && is_constant(value)),
        Term::Udt(fields) => fields.iter().all(|(_, value)| is_constant(value)),
        Term::TypeHint(hint) => is_constant(&hint.term),
        // Not computed yet: as constants they get one clear error.
        Term::Arithmetic(_) | Term::Negate(_) => true,
        Term::Marker(_) | Term::Function(_) => false,
    }
}

/// A literal taken apart along its type: the name, type and term of each part; no term is null.
struct Part<'t> {
    name: String,
    ty: &'t CqlType,
    term: Option<&'t Term>,
}

fn taken_apart<'t>(name: &str, ty: &'t CqlType, term: &'t Term) -> Result<Vec<Part<'t>>, Error> {
    let part = |name: String, ty, term| Part { name, ty, term: Some(term) };
    let inside = |what: &str| format!("{what}({name})");
    Ok(match (ty.thawed(), term) {
        (CqlType::List(element), Term::List(terms)) | (CqlType::Set(element), Term::Set(terms)) => {
            terms.iter().map(|term| part(inside("value"), element, term)).collect()
        }
        (CqlType::Map(..), Term::Set(terms)) if terms.is_empty() => Vec::new(),
        (CqlType::Map(key, value), Term::Map(pairs)) => {
            let both =
                |(k, v): &'t (Term, Term)| [part(inside("key"), key, k), part(inside("value"), value, v)];
            pairs.iter().flat_map(both).collect()
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
            numbered.map(|(at, (ty, term))| part(format!("{name}[{at}]"), ty, term)).collect()
        }
        (CqlType::Udt(udt), Term::Udt(fields)) => fields_of(name, udt, fields)?,
        (_, Term::Arithmetic(_) | Term::Negate(_)) => {
            return Err(Error::Invalid(format!(
                "Arithmetic is not supported here yet (for \"{name}\" of type {ty})"
            )));
        }
        _ => {
            let kind = match term {
                Term::List(_) => "list",
                Term::Set(_) => "set",
                Term::Map(_) => "map",
                Term::Tuple(_) => "tuple type",
                _ => "user type",
            };
            return Err(Error::Invalid(format!("Invalid {kind} literal for {name} of type {ty}")));
        }
    })
}

/// The fields in the order of the type; those that the literal leaves out are null.
fn fields_of<'t>(name: &str, udt: &'t UdtType, fields: &'t [(String, Term)]) -> Result<Vec<Part<'t>>, Error> {
    if let Some((unknown, _)) =
        fields.iter().find(|(given, _)| udt.fields.iter().all(|(field, _)| field != given))
    {
        return Err(Error::Invalid(format!(
            "Unknown field '{unknown}' in value of user defined type {}",
            udt.name
        )));
    }
    let part = |(field, ty): &'t (String, CqlType)| {
        let term = fields.iter().rev().find(|(given, _)| given == field).map(|(_, term)| term);
        Part { name: format!("{name}.{field}"), ty, term }
    };
    Ok(udt.fields.iter().map(part).collect())
}

/// The parts of a literal that is no constant, each made ready.
pub(super) fn parts(binder: &mut Binder, name: &str, ty: &CqlType, term: &Term) -> Result<Vec<Bind>, Error> {
    let null = Term::Literal(ast::Literal::Null);
    let apart = taken_apart(name, ty, term)?;
    apart.into_iter().map(|part| binder.bind(&part.name, part.ty, part.term.unwrap_or(&null))).collect()
}

/// The value of a literal from its parts, for one execution.
pub(super) fn assemble(ty: &CqlType, parts: &[Bind], values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
    let is_collection = ty.is_collection();
    let mut given = Vec::with_capacity(parts.len());
    for part in parts {
        given.push(match part.get(values)? {
            Given::Bytes(bytes) => Some(bytes),
            Given::Null if is_collection => {
                return Err(Error::Invalid("null is not supported inside collections".into()));
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
        _ => value::encode_tuple(bytes),
    })
}

/// A constant term as bytes of the type; `None` for null.
pub(super) fn serialize(name: &str, ty: &CqlType, term: &Term) -> Result<Option<Vec<u8>>, Error> {
    match term {
        Term::Literal(literal) => return constant(name, ty, literal),
        Term::TypeHint(hint) => return serialize(name, ty, &hint.term),
        _ => {}
    }
    let mut parts = Vec::new();
    for part in taken_apart(name, ty, term)? {
        let input = match part.term {
            Some(term) => serialize(&part.name, part.ty, term)?,
            None => None,
        };
        let nested = false;
        parts.push(Bind {
            input: super::Input::Constant(input),
            ty: part.ty.clone(),
            nested,
            name: part.name,
        });
    }
    let bytes = assemble(ty, &parts, &[])?;
    value::check(ty, &bytes).map_err(|e| Error::Invalid(e.for_column(name)))?;
    Ok(Some(value::canonical(ty, &bytes).map_err(|e| Error::Invalid(e.for_column(name)))?.into_owned()))
}

fn constant(name: &str, ty: &CqlType, literal: &ast::Literal) -> Result<Option<Vec<u8>>, Error> {
    let uuid;
    let literal = match literal {
        ast::Literal::Null => return Ok(None),
        ast::Literal::Duration(d) => {
            if *ty.thawed() != CqlType::Duration {
                return Err(Error::Invalid(format!("Invalid DURATION constant for \"{name}\" of type {ty}")));
            }
            let d = value::Duration { months: d.months, days: d.days, nanoseconds: d.nanoseconds };
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
