//! Prepared terms: a constant is serialized when the statement is prepared, a marker's value is
//! checked when it runs.

mod fit;
mod literal;
pub(crate) mod operand;

use std::borrow::Cow;
use std::sync::Arc;

use cql::ast;
use engine::{ColumnSpec, Columns, Error, Guardrail, Guardrails, METADATA_BYTES_MAX, Schema, Value};
use functions::Function;
use schema::{CqlType, ValueError, value};

use crate::bind::types::Types;
use operand::Call;
pub(crate) use operand::literal_type;

/// Bytes of a text that are checked in one work unit: UTF-8 of several bytes a character takes
/// about 1 ns a byte.
const TEXT_BYTES_PER_UNIT: usize = 128;

/// Bytes of a value with elements that are checked in one work unit, at about 20 ns an element of
/// eight bytes.
const ELEMENT_BYTES_PER_UNIT: usize = 32;

/// Source of a value.
#[derive(Clone, Debug)]
enum Input {
    /// Bind marker with this number.
    Marker(usize),
    /// Constant; `None` is null.
    Constant(Option<Vec<u8>>),
    /// Call of a function, or an operator.
    Call(Box<Call>),
    /// Result of a call that each execution makes once, at this place among the values.
    Once(usize),
    /// Parts of a literal with markers or functions inside: elements, alternating keys and values,
    /// or fields.
    Parts(Vec<Bind>),
}

/// Value of a known type, not bound yet. Type and name are shared: a list has thousands of terms of
/// one type.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    input: Input,
    ty: Arc<CqlType>,
    /// True if the type contains other types: such values are converted to their canonical form.
    nested: bool,
    name: Arc<str>,
}

/// Value in one execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Given<'a> {
    /// Null.
    Null,
    /// Unset: the column stays unchanged.
    Unset,
    /// Checked bytes of the type.
    Bytes(Cow<'a, [u8]>),
}

impl Bind {
    /// Returns a constant of type `ty` for the column `name`; `None` is null.
    pub(crate) fn constant(name: &str, ty: &CqlType, value: Option<Vec<u8>>) -> Bind {
        Bind::of(Input::Constant(value), &Arc::from(name), &Arc::new(ty.clone()))
    }

    fn of(input: Input, name: &Arc<str>, ty: &Arc<CqlType>) -> Bind {
        Bind { input, ty: ty.clone(), nested: !ty.inner().is_empty(), name: name.clone() }
    }

    /// Returns the marker's number, if this is one.
    pub(crate) fn marker(&self) -> Option<usize> {
        match self.input {
            Input::Marker(index) => Some(index),
            _ => None,
        }
    }

    /// Returns the value's bytes as sent by the client, unchecked, or as in the statement; `None`
    /// for null, and for values that are built for every execution.
    pub(crate) fn raw<'a>(&'a self, values: &[Value<'a>]) -> Option<&'a [u8]> {
        match &self.input {
            Input::Marker(index) | Input::Once(index) => match values[*index] {
                Value::Bytes(bytes) => Some(bytes),
                Value::Null | Value::Unset => None,
            },
            Input::Constant(bytes) => bytes.as_deref(),
            Input::Call(_) | Input::Parts(_) => None,
        }
    }

    /// Returns the value for an execution with these values.
    pub(crate) fn get<'a>(&'a self, values: &[Value<'a>]) -> Result<Given<'a>, Error> {
        let bytes = match &self.input {
            Input::Constant(None) => return Ok(Given::Null),
            Input::Constant(Some(bytes)) => return Ok(Given::Bytes(Cow::Borrowed(bytes))),
            Input::Call(call) => {
                let value = call.value(&self.ty, values)?;
                return Ok(value.map_or(Given::Null, |bytes| Given::Bytes(Cow::Owned(bytes))));
            }
            Input::Parts(parts) => {
                let bytes = literal::assemble(&self.ty, parts, values)?;
                self.count(&bytes);
                value::check(&self.ty, &bytes).map_err(|e| self.refuse(&e))?;
                let canonical = value::canonical(&self.ty, &bytes).map_err(|e| self.refuse(&e))?;
                return Ok(Given::Bytes(Cow::Owned(canonical.into_owned())));
            }
            Input::Once(index) => {
                return Ok(match values[*index] {
                    Value::Bytes(bytes) => Given::Bytes(Cow::Borrowed(bytes)),
                    Value::Null | Value::Unset => Given::Null,
                });
            }
            Input::Marker(index) => match values[*index] {
                Value::Null => return Ok(Given::Null),
                Value::Unset => return Ok(Given::Unset),
                Value::Bytes(bytes) => bytes,
            },
        };
        self.count(bytes);
        value::check(&self.ty, bytes).map_err(|e| self.refuse(&e))?;
        match self.nested {
            true => value::canonical(&self.ty, bytes).map(Given::Bytes).map_err(|e| self.refuse(&e)),
            false => Ok(Given::Bytes(Cow::Borrowed(bytes))),
        }
    }

    /// Returns the size of its value in one execution, in bytes as given by the client, unchecked.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> u64 {
        match &self.input {
            Input::Call(call) => call.size(values),
            // Each part is preceded by its length, and a collection by its count.
            Input::Parts(parts) => parts.iter().map(|part| 4 + part.size(values)).sum::<u64>() + 4,
            Input::Marker(_) | Input::Constant(_) | Input::Once(_) => {
                self.raw(values).map_or(0, |bytes| bytes.len() as u64)
            }
        }
    }

    /// Returns the bytes of constants in it, which each execution copies.
    pub(crate) fn constant_bytes(&self) -> u64 {
        match &self.input {
            Input::Constant(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Input::Parts(parts) => parts.iter().map(Bind::constant_bytes).sum(),
            Input::Call(call) => call.constant_bytes(),
            Input::Marker(_) | Input::Once(_) => 0,
        }
    }

    /// Returns true if it is the same for every execution.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self.input, Input::Constant(_))
    }

    /// Converts it to a constant, for an execution with these values.
    pub(crate) fn fixed(&self, values: &[Value<'_>]) -> Result<Bind, Error> {
        let bytes = match self.get(values)? {
            Given::Bytes(bytes) => Some(bytes.into_owned()),
            Given::Null | Given::Unset => None,
        };
        let (ty, name) = (self.ty.clone(), self.name.clone());
        Ok(Bind { input: Input::Constant(bytes), ty, nested: self.nested, name })
    }

    /// Counts the work of checking a value: its elements, or its characters.
    #[inline]
    fn count(&self, bytes: &[u8]) {
        if self.nested || bytes.len() >= TEXT_BYTES_PER_UNIT {
            self.count_large(bytes);
        }
    }

    #[cold]
    fn count_large(&self, bytes: &[u8]) {
        let per_unit = if self.nested { ELEMENT_BYTES_PER_UNIT } else { TEXT_BYTES_PER_UNIT };
        if bytes.len() >= per_unit && *self.ty != CqlType::Blob {
            lanes::count((bytes.len() / per_unit) as u32);
        }
    }

    fn refuse(&self, error: &ValueError) -> Error {
        Error::Invalid(error.for_column(&self.name))
    }

    /// Returns a value that must not be null, such as a key or a bound.
    #[inline]
    pub(crate) fn required<'a>(&'a self, values: &[Value<'a>]) -> Result<Cow<'a, [u8]>, Error> {
        match self.get(values)? {
            Given::Bytes(bytes) => Ok(bytes),
            Given::Null => {
                Err(Error::Invalid(format!("Invalid null value in condition for column {}", self.name)))
            }
            Given::Unset => Err(self.unset()),
        }
    }

    /// Returns the name of its column, or of the part of a value that it is for.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the error for an unset value.
    pub(crate) fn unset(&self) -> Error {
        Error::Invalid(format!("Invalid unset value for column {}", self.name))
    }

    /// Returns the elements of the list of an `IN ?`, which may be null.
    ///
    /// # Errors
    /// The list is null, unset or malformed, or has an element that is no value of `ty`.
    pub(crate) fn list_with_nulls<'a>(
        &'a self,
        ty: &CqlType,
        values: &[Value<'a>],
    ) -> Result<Vec<Option<&'a [u8]>>, Error> {
        let Input::Marker(index) = self.input else {
            return Err(Error::Server("the list of an IN is a bind marker".into()));
        };
        let list = match values[index] {
            Value::Bytes(list) => list,
            Value::Null => return Err(Error::Invalid("Invalid null list in IN condition".into())),
            Value::Unset => return Err(Error::Invalid("Invalid 'unset' value in condition".into())),
        };
        self.count(list);
        let malformed = || Error::Invalid(format!("Invalid list of values for {}", self.name));
        let (count, mut rest) = list.split_first_chunk().ok_or_else(malformed)?;
        let mut elements = Vec::new();
        for _ in 0..i32::from_be_bytes(*count) {
            let (length, after) = rest.split_first_chunk().ok_or_else(malformed)?;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                elements.push(None);
                rest = after;
                continue;
            };
            let (element, after) = after.split_at_checked(length).ok_or_else(malformed)?;
            value::check(ty, element).map_err(|e| self.refuse(&e))?;
            elements.push(Some(element));
            rest = after;
        }
        Ok(elements)
    }

    /// Returns an integer that may be missing, such as LIMIT or TIMESTAMP.
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

/// Returns a version 4 UUID from the lanes' random source.
pub(crate) fn random_uuid() -> uuid::Uuid {
    let mut bytes = [0; 16];
    lanes::random::fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Collects the bind markers of a statement while its terms are prepared, and checks the statement
/// against the guardrails.
pub(crate) struct Binder {
    guardrails: Arc<Guardrails>,
    types: Types,
    keyspace: Arc<str>,
    table: Arc<str>,
    markers: Vec<Option<ColumnSpec>>,
    /// Number of values behind those of the client.
    added: usize,
    /// Calls that each execution makes once. `None`: calls are made wherever they are used.
    calls: Option<Vec<Function>>,
    counted: Vec<Counted>,
    terms: u32,
    /// Bytes of names and types of markers and result columns so far.
    metadata_bytes: usize,
    /// The type described last, with its bytes: an IN has thousands of markers of one type.
    described: Option<(Arc<CqlType>, usize)>,
}

/// Bytes of a marker or a result column in messages and plans, without its name and type: names of
/// keyspace and table are shared.
const COLUMN_BYTES: usize = 4;

/// Bind marker whose value has elements, and the guardrail that limits their number.
pub(crate) type Counted = (usize, Guardrail);

impl Binder {
    /// Returns a binder for a statement with `markers` markers.
    pub(crate) fn new(guardrails: Arc<Guardrails>, markers: usize) -> Binder {
        let (keyspace, table) = (Arc::from(""), Arc::from(""));
        Binder {
            guardrails,
            types: Types::default(),
            keyspace,
            table,
            markers: vec![None; markers],
            added: 0,
            calls: None,
            counted: Vec::new(),
            terms: 0,
            metadata_bytes: 0,
            described: None,
        }
    }

    /// Counts a marker, before its name and type are copied.
    fn describe_marker(&mut self, name: &str, ty: &Arc<CqlType>) -> Result<(), Error> {
        let bytes = match &self.described {
            Some((described, bytes)) if Arc::ptr_eq(described, ty) => *bytes,
            _ => {
                let bytes = ty.description_bytes(METADATA_BYTES_MAX);
                self.described = Some((ty.clone(), bytes));
                bytes
            }
        };
        self.describe(name, bytes)
    }

    /// Counts a marker or a result column with a type that is described in `type_bytes`.
    ///
    /// # Errors
    /// Returns an error if the statement has too many of them, or too large ones.
    pub(crate) fn describe(&mut self, name: &str, type_bytes: usize) -> Result<(), Error> {
        self.metadata_bytes += COLUMN_BYTES + name.len() + type_bytes;
        if self.metadata_bytes <= METADATA_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "expected at most {METADATA_BYTES_MAX} bytes of names and types of the columns and bind markers of a \
             statement, got {} or more: name fewer columns, or send several statements",
            self.metadata_bytes
        )))
    }

    /// Returns the bytes of names and types of markers and result columns so far.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// Returns the number of terms bound so far.
    pub(crate) fn terms(&self) -> u32 {
        self.terms
    }

    /// Returns the markers in order, and those whose values are counted.
    pub(crate) fn finish(self) -> Result<(Columns, Box<[Counted]>), Error> {
        let known: Option<Vec<ColumnSpec>> = self.markers.into_iter().collect();
        let known = known.ok_or_else(|| Error::Invalid("Bind variables are not allowed here".into()))?;
        Ok((known.into(), self.counted.into()))
    }

    /// Moves on to another table: a batch has one binder for all its statements.
    pub(crate) fn about(&mut self, keyspace: &str, table: &str) {
        if *self.keyspace != *keyspace || *self.table != *table {
            (self.keyspace, self.table) = (keyspace.into(), table.into());
            self.types.about(&self.keyspace, &self.table);
        }
    }

    /// Sets the schema, whose user types type hints and casts may name.
    pub(crate) fn with_schema(self, schema: Arc<Schema>) -> Binder {
        Binder { types: Types::of(schema), ..self }
    }

    /// Lets each execution call `now`, `uuid` and the like once for each time that the statement
    /// names them. Their results follow the values of the client. Must not be used for statements
    /// with [`Binder::added`] values.
    pub(crate) fn with_calls(self) -> Binder {
        Binder { calls: Some(Vec::new()), ..self }
    }

    /// Takes the calls that each execution makes once, in the order of their results.
    pub(crate) fn take_calls(&mut self) -> Box<[Function]> {
        self.calls.take().unwrap_or_default().into()
    }

    /// Adds a call that each execution makes once, if this statement has such calls.
    fn once(&mut self, function: &Function) -> Option<Input> {
        let calls = self.calls.as_mut().filter(|_| !function.is_pure())?;
        calls.push(function.clone());
        Some(Input::Once(self.markers.len() + calls.len() - 1))
    }

    /// Returns the types that type hints and casts may name.
    pub(crate) fn types(&self) -> &Types {
        &self.types
    }

    /// Checks a number of items in the statement, before any of them is prepared.
    ///
    /// # Errors
    /// Returns an error if the number exceeds the guardrail.
    pub(crate) fn check(&self, guardrail: Guardrail, count: usize) -> Result<(), Error> {
        self.guardrails.check(guardrail, count as u64)
    }

    /// Prepares the terms of an `IN (…)`.
    pub(crate) fn bind_all(
        &mut self,
        name: &str,
        ty: &CqlType,
        terms: &[ast::Term],
    ) -> Result<Vec<Bind>, Error> {
        self.check(Guardrail::InValues, terms.len())?;
        let (name, ty) = (Arc::from(name), Arc::new(ty.clone()));
        terms.iter().map(|term| self.bind_shared(&name, &ty, term)).collect()
    }

    /// Prepares the list of an `IN ?`. Its elements are counted in each execution before any of
    /// them is copied.
    pub(crate) fn bind_list(&mut self, name: &str, ty: &CqlType, term: &ast::Term) -> Result<Bind, Error> {
        let list = CqlType::List(Box::new(ty.clone()));
        let counted = self.counted.len();
        let bind = self.bind(&format!("in({name})"), &list, term)?;
        for (_, guardrail) in &mut self.counted[counted..] {
            *guardrail = Guardrail::InValues;
        }
        Ok(bind)
    }

    /// Describes the marker of a `USING TIMEOUT ?`, whose value the server reads.
    pub(crate) fn bind_timeout(&mut self, using: &ast::Using) -> Result<(), Error> {
        match using.timeout.as_ref().filter(|timeout| timeout.is_marker()) {
            Some(marker) => self.bind("[timeout]", &CqlType::Duration, marker).map(drop),
            None => Ok(()),
        }
    }

    /// Prepares a term as a value of type `ty` for the column `name`.
    pub(crate) fn bind(&mut self, name: &str, ty: &CqlType, term: &ast::Term) -> Result<Bind, Error> {
        self.bind_shared(&Arc::from(name), &Arc::new(ty.clone()), term)
    }

    fn bind_shared(&mut self, name: &Arc<str>, ty: &Arc<CqlType>, term: &ast::Term) -> Result<Bind, Error> {
        self.terms += 1;
        let input = match term {
            ast::Term::Marker(marker) => {
                let index = usize::from(marker.index);
                self.describe_marker(marker.name.as_deref().unwrap_or(name), ty)?;
                self.markers[index] = Some(ColumnSpec {
                    keyspace: self.keyspace.clone(),
                    table: self.table.clone(),
                    name: marker.name.clone().unwrap_or_else(|| (**name).to_owned()),
                    ty: CqlType::clone(ty),
                });
                if ty.is_collection() {
                    self.counted.push((index, Guardrail::CollectionElements));
                }
                Input::Marker(index)
            }
            ast::Term::Function(_) | ast::Term::Arithmetic(_) | ast::Term::Negate(_) => {
                operand::call(self, name, ty, term)?
            }
            ast::Term::Tuple(parts) if parts.len() == 1 && !matches!(ty.thawed(), CqlType::Tuple(_)) => {
                return self.bind_shared(name, ty, &parts[0]);
            }
            ast::Term::TypeHint(hint) if !literal::is_constant(&hint.term) => {
                return match literal::hinted_type(&self.types, name, ty, hint)? {
                    // A marker or a call has the type of its hint. Bytes of a varint are its
                    // shortest ones.
                    Some(hinted) if **ty != CqlType::Varint => {
                        self.bind_shared(name, &Arc::new(hinted), &hint.term)
                    }
                    _ => self.bind_shared(name, ty, &hint.term),
                };
            }
            constant if literal::is_constant(constant) => {
                Input::Constant(literal::serialize(self, name, ty, constant)?)
            }
            open => Input::Parts(literal::parts(self, name, ty, open)?),
        };
        Ok(Bind::of(input, name, ty))
    }

    /// Prepares a value that the engine adds behind those of the client.
    pub(crate) fn added(&mut self, name: &str, ty: &CqlType) -> Bind {
        self.terms += 1;
        let index = self.markers.len() + self.added;
        self.added += 1;
        if ty.is_collection() {
            self.counted.push((index, Guardrail::CollectionElements));
        }
        Bind::of(Input::Marker(index), &Arc::from(name), &Arc::new(ty.clone()))
    }

    /// Returns the number of values behind those of the client, so far.
    pub(crate) fn values_added(&self) -> usize {
        self.added
    }
}
