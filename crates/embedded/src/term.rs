//! Terms made ready: a constant is serialized when the statement is prepared, a marker is checked when it runs.

mod literal;

use std::borrow::Cow;
use std::sync::Arc;

use cql::ast;
use engine::{ColumnSpec, Error, Value};
use schema::{CqlType, ValueError, value};

/// Where a value comes from.
#[derive(Clone, Debug)]
enum Input {
    /// The bind marker with this number.
    Marker(usize),
    /// A constant; `None` is null.
    Constant(Option<Vec<u8>>),
    /// `now()` and `uuid()`: new for every execution.
    Now,
    /// See `Now`.
    Uuid,
    /// The parts of a literal with markers or functions inside: elements, keys and values in turn, or fields.
    Parts(Vec<Bind>),
}

/// A value to be, of a known type.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    input: Input,
    ty: CqlType,
    /// Whether the type has types inside: such values are put into their one form.
    nested: bool,
    name: String,
}

/// A value for one execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Given<'a> {
    /// Null.
    Null,
    /// The column stays as it is.
    Unset,
    /// Checked bytes of the type.
    Bytes(Cow<'a, [u8]>),
}

impl Bind {
    /// The marker's number, where this is one.
    pub(crate) fn marker(&self) -> Option<usize> {
        match self.input {
            Input::Marker(index) => Some(index),
            _ => None,
        }
    }

    /// The value for an execution with these values.
    pub(crate) fn get<'a>(&'a self, values: &[Value<'a>]) -> Result<Given<'a>, Error> {
        let bytes = match &self.input {
            Input::Constant(None) => return Ok(Given::Null),
            Input::Constant(Some(bytes)) => return Ok(Given::Bytes(Cow::Borrowed(bytes))),
            Input::Now => return Ok(Given::Bytes(Cow::Owned(now_timeuuid().to_vec()))),
            Input::Uuid => return Ok(Given::Bytes(Cow::Owned(random_uuid().as_bytes().to_vec()))),
            Input::Parts(parts) => {
                let bytes = literal::assemble(&self.ty, parts, values)?;
                value::check(&self.ty, &bytes).map_err(|e| self.refuse(&e))?;
                let canonical = value::canonical(&self.ty, &bytes).map_err(|e| self.refuse(&e))?;
                return Ok(Given::Bytes(Cow::Owned(canonical.into_owned())));
            }
            Input::Marker(index) => match values[*index] {
                Value::Null => return Ok(Given::Null),
                Value::Unset => return Ok(Given::Unset),
                Value::Bytes(bytes) => bytes,
            },
        };
        value::check(&self.ty, bytes).map_err(|e| self.refuse(&e))?;
        match self.nested {
            true => value::canonical(&self.ty, bytes).map(Given::Bytes).map_err(|e| self.refuse(&e)),
            false => Ok(Given::Bytes(Cow::Borrowed(bytes))),
        }
    }

    /// Whether it is the same for every execution.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self.input, Input::Constant(_))
    }

    /// The same as a constant, for an execution with these values.
    pub(crate) fn fixed(&self, values: &[Value<'_>]) -> Result<Bind, Error> {
        let bytes = match self.get(values)? {
            Given::Bytes(bytes) => Some(bytes.into_owned()),
            Given::Null | Given::Unset => None,
        };
        let (ty, name) = (self.ty.clone(), self.name.clone());
        Ok(Bind { input: Input::Constant(bytes), ty, nested: self.nested, name })
    }

    fn refuse(&self, error: &ValueError) -> Error {
        Error::Invalid(error.for_column(&self.name))
    }

    /// The value of something that must have one: a key, a bound.
    pub(crate) fn required<'a>(&'a self, values: &[Value<'a>]) -> Result<Cow<'a, [u8]>, Error> {
        match self.get(values)? {
            Given::Bytes(bytes) => Ok(bytes),
            Given::Null => Err(Error::Invalid(format!("Invalid null value for column {}", self.name))),
            Given::Unset => Err(Error::Invalid(format!("Invalid unset value for column {}", self.name))),
        }
    }

    /// A whole number that may be missing, such as LIMIT or TIMESTAMP.
    pub(crate) fn number(&self, values: &[Value<'_>]) -> Result<Option<i64>, Error> {
        Ok(match self.get(values)? {
            Given::Bytes(bytes) => Some(match *bytes {
                [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
                _ => return Err(Error::Invalid(format!("Invalid value for {}", self.name))),
            }),
            Given::Null => return Err(Error::Invalid(format!("Invalid null value of {}", self.name))),
            Given::Unset => None,
        })
    }
}

/// A version-4 uuid from the lanes' random source.
pub(crate) fn random_uuid() -> uuid::Uuid {
    let mut bytes = [0; 16];
    lanes::random::fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

fn now_timeuuid() -> [u8; 16] {
    value::timeuuid(lanes::time::unix_micros() * 10, lanes::random::u64())
}

/// Collects the bind markers of a statement while its terms are made ready.
pub(crate) struct Binder {
    keyspace: Arc<str>,
    table: Arc<str>,
    markers: Vec<Option<ColumnSpec>>,
}

impl Binder {
    /// A binder for a statement about this table with so many markers.
    pub(crate) fn new(keyspace: &str, table: &str, markers: usize) -> Binder {
        Binder { keyspace: keyspace.into(), table: table.into(), markers: vec![None; markers] }
    }

    /// The markers, in order.
    pub(crate) fn finish(self) -> Result<Arc<[ColumnSpec]>, Error> {
        let known: Option<Vec<ColumnSpec>> = self.markers.into_iter().collect();
        known.map(Into::into).ok_or_else(|| Error::Invalid("Bind variables are not allowed here".into()))
    }

    /// Moves on to another table: a batch has one binder for all its statements.
    pub(crate) fn about(&mut self, keyspace: &str, table: &str) {
        (self.keyspace, self.table) = (keyspace.into(), table.into());
    }

    /// Makes a term ready as a value of type `ty` for the column `name`.
    pub(crate) fn bind(&mut self, name: &str, ty: &CqlType, term: &ast::Term) -> Result<Bind, Error> {
        let input = match term {
            ast::Term::Marker(marker) => {
                let index = usize::from(marker.index);
                self.markers[index] = Some(ColumnSpec {
                    keyspace: self.keyspace.clone(),
                    table: self.table.clone(),
                    name: marker.name.clone().unwrap_or_else(|| name.to_owned()),
                    ty: ty.clone(),
                });
                Input::Marker(index)
            }
            ast::Term::Function(call) => match (call.name.name.as_str(), call.arguments.len(), ty.thawed()) {
                ("now" | "current_timeuuid", 0, CqlType::TimeUuid | CqlType::Uuid) => Input::Now,
                ("uuid", 0, CqlType::Uuid) => Input::Uuid,
                (function, ..) => {
                    return Err(Error::Invalid(format!(
                        "The function '{function}' is not supported here yet (for \"{name}\" of type {ty})"
                    )));
                }
            },
            ast::Term::TypeHint(hint) => return self.bind(name, ty, &hint.term),
            constant if literal::is_constant(constant) => {
                Input::Constant(literal::serialize(name, ty, constant)?)
            }
            open => Input::Parts(literal::parts(self, name, ty, open)?),
        };
        Ok(Bind { input, ty: ty.clone(), nested: !ty.inner().is_empty(), name: name.to_owned() })
    }
}
