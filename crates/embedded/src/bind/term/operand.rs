//! Terms as operands of functions, and calls of functions by terms.
//!
//! The types of nested calls are resolved once, from the innermost outwards. A call in a place of a
//! known type is resolved again with that type, which decides between operators of several types.

use std::cell::RefCell;
use std::sync::Arc;

use cql::ast::{self, ArithmeticOp, Literal, Term};
use engine::{Error, Value};
use functions::{Aggregate, Argument, Context, Fit, Function, FunctionError, Operator};
use schema::CqlType;

use super::{Bind, Binder, Given, Input, fit};
use crate::bind::types::Types;

/// Bytes of the text of an operand in an error.
const TEXT_BYTES_MAX: usize = 1_000;

/// Term with the types that are known before its use.
pub(crate) struct Operand<'t> {
    term: &'t Term,
    /// Type, for constants the preferred one. `None`: a marker, null, or an empty literal.
    ty: Option<CqlType>,
    /// Arguments of a call, operands, parts of a literal, or the term of a hint.
    inner: Vec<Operand<'t>>,
    /// Assignability of a call to the types for which it was resolved. A nested call is resolved
    /// again for each type that its place may have.
    fits: RefCell<Vec<(CqlType, Fit)>>,
}

/// Call of a function by terms.
#[derive(Clone, Debug)]
pub(super) struct Call {
    function: Function,
    arguments: Vec<Bind>,
}

/// Clock and randomness of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    now_us: i64,
}

impl Moment {
    /// Returns this moment.
    pub(crate) fn now() -> Moment {
        Moment { now_us: lanes::time::unix_micros() as i64 }
    }
}

impl Context for Moment {
    fn now_micros(&self) -> i64 {
        self.now_us
    }

    fn random(&self) -> u64 {
        lanes::random::u64()
    }

    fn random_uuid(&self) -> [u8; 16] {
        super::random_uuid().into_bytes()
    }
}

/// Converts an error of a function.
pub(crate) fn failed(error: FunctionError) -> Error {
    match error {
        FunctionError::Failed { function, arguments, message } => {
            Error::Function { function, arguments, message }
        }
        error => Error::Invalid(error.to_string()),
    }
}

/// Returns the operator of the functions for one of the syntax.
pub(crate) fn operator(op: ArithmeticOp) -> Operator {
    match op {
        ArithmeticOp::Add => Operator::Add,
        ArithmeticOp::Subtract => Operator::Subtract,
        ArithmeticOp::Multiply => Operator::Multiply,
        ArithmeticOp::Divide => Operator::Divide,
        ArithmeticOp::Remainder => Operator::Modulo,
    }
}

/// Returns the name by which a function is resolved: without the keyspace of native functions.
pub(crate) fn native_name(name: &ast::QualifiedName) -> Result<&str, Error> {
    match name.keyspace.as_deref() {
        None | Some("system") => Ok(&name.name),
        Some(keyspace) => Err(Error::Invalid(format!("Unknown function '{keyspace}.{}'", name.name))),
    }
}

/// Returns a text for an error, cut to a bounded length.
pub(crate) fn shown(text: &str) -> String {
    match text.len() > TEXT_BYTES_MAX {
        true => text.chars().take(TEXT_BYTES_MAX / 4).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

impl<'t> Operand<'t> {
    /// Returns the operand of a term. The time is proportional to the term.
    pub(crate) fn of(types: &Types, term: &'t Term) -> Operand<'t> {
        let all = |terms: &'t [Term]| terms.iter().map(|term| Operand::of(types, term)).collect();
        let inner: Vec<Operand<'t>> = match term {
            Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => all(terms),
            Term::Map(pairs) => {
                pairs.iter().flat_map(|(k, v)| [Operand::of(types, k), Operand::of(types, v)]).collect()
            }
            Term::Function(call) => all(&call.arguments),
            Term::TypeHint(hint) => vec![Operand::of(types, &hint.term)],
            Term::Arithmetic(sum) => vec![Operand::of(types, &sum.left), Operand::of(types, &sum.right)],
            Term::Negate(of) => vec![Operand::of(types, of)],
            Term::Literal(_) | Term::Marker(_) | Term::Udt(_) => Vec::new(),
        };
        let mut operand = Operand { term, ty: None, inner, fits: RefCell::default() };
        operand.ty = operand.known_type(types);
        operand
    }

    fn known_type(&self, types: &Types) -> Option<CqlType> {
        let of = |part: usize| self.inner.iter().skip(part).step_by(2).find_map(|operand| operand.ty.clone());
        let any = || self.inner.iter().find_map(|operand| operand.ty.clone()).map(Box::new);
        match self.term {
            Term::Literal(literal) => literal_type(literal),
            Term::TypeHint(hint) => types.find(&hint.ty),
            Term::List(_) => any().map(CqlType::List),
            Term::Set(_) => any().map(CqlType::Set),
            Term::Map(_) => Some(CqlType::Map(Box::new(of(0)?), Box::new(of(1)?))),
            Term::Tuple(parts) if parts.len() > 1 => {
                self.inner.iter().map(|part| part.ty.clone()).collect::<Option<_>>().map(CqlType::Tuple)
            }
            Term::Function(_) | Term::Arithmetic(_) | Term::Negate(_) => {
                self.function(types, None).ok().map(|function| function.result)
            }
            Term::Tuple(_) => self.inner.first()?.ty.clone(),
            Term::Marker(_) | Term::Udt(_) => None,
        }
    }

    /// Returns the type if it is certain without a use of the term: constants have none.
    pub(crate) fn certain_type(&self) -> Option<CqlType> {
        let any = || self.inner.iter().find_map(Operand::certain_type).map(Box::new);
        let of = |part: usize| {
            self.inner.iter().skip(part).step_by(2).find_map(Operand::certain_type).map(Box::new)
        };
        match self.term {
            Term::Literal(_) => None,
            Term::List(_) => any().map(CqlType::List),
            Term::Set(_) => any().map(CqlType::Set),
            Term::Map(_) => Some(CqlType::Map(of(0)?, of(1)?)),
            Term::Tuple(parts) if parts.len() > 1 => {
                self.inner.iter().map(Operand::certain_type).collect::<Option<_>>().map(CqlType::Tuple)
            }
            Term::Tuple(_) => self.inner.first()?.certain_type(),
            _ => self.ty.clone(),
        }
    }

    /// Resolves the function of a call, for a place of type `wanted`.
    fn function(&self, types: &Types, wanted: Option<&CqlType>) -> Result<Function, Error> {
        let arguments: Vec<&dyn Argument> =
            self.inner.iter().map(|operand| operand as &dyn Argument).collect();
        match self.term {
            Term::Function(call) => match native_name(&call.name)? {
                "token" => Function::token(&types.partition_key(), &arguments),
                name => Function::resolve(name, &arguments, wanted),
            },
            Term::Arithmetic(sum) => {
                functions::arithmetic(operator(sum.op), arguments[0], arguments[1], wanted)
            }
            _ => functions::negate(arguments[0], wanted),
        }
        .map_err(failed)
    }

    /// Returns the assignability of the result of a call, as in Cassandra: one that is wrong gets
    /// its own error later.
    fn call_fit(&self, ty: &CqlType) -> Fit {
        if let Some((_, fit)) = self.fits.borrow().iter().find(|(known, _)| known == ty) {
            return *fit;
        }
        let fit = match self.function(&Types::default(), Some(ty)) {
            Ok(function) => Fit::of(&function.result, ty),
            Err(_) => Fit::Weak,
        };
        self.fits.borrow_mut().push((ty.clone(), fit));
        fit
    }

    /// Returns true if the call is one of an aggregate.
    fn is_aggregate(&self, call: &ast::FunctionCall) -> bool {
        let arguments: Vec<&dyn Argument> =
            self.inner.iter().map(|operand| operand as &dyn Argument).collect();
        let aggregate = native_name(&call.name).map(|name| Aggregate::resolve(name, &arguments));
        matches!(aggregate, Ok(Ok(Some(_))))
    }

    /// Returns Cassandra's text for an aggregate as a term. The argument of `count` is a blob.
    fn aggregate_refused(&self, call: &ast::FunctionCall) -> String {
        match &self.inner[..] {
            [argument] if call.name.name == "count" && argument.fit(&CqlType::Blob) == Fit::No => format!(
                "Type error: {} cannot be passed as argument 0 of function system.count of type blob",
                argument.text()
            ),
            _ => "Aggregation function are not supported in the where clause".to_owned(),
        }
    }

    /// Returns the assignability of the parts of a literal.
    fn parts_fit<'c>(&self, types: impl Iterator<Item = &'c CqlType>) -> Fit {
        let parts = self.inner.iter().zip(types).map(|(part, ty)| part.fit(ty));
        match self.inner.is_empty() {
            true => Fit::Weak,
            false => parts.max().unwrap_or(Fit::Weak),
        }
    }
}

impl Argument for Operand<'_> {
    fn ty(&self) -> Option<CqlType> {
        self.ty.clone()
    }

    fn fit(&self, ty: &CqlType) -> Fit {
        use std::iter::repeat;
        match (self.term, ty.thawed()) {
            (Term::Literal(literal), ty) => literal_fit(literal, ty),
            (Term::Marker(_), _) => Fit::Weak,
            (Term::Tuple(_), CqlType::Tuple(types)) if types.len() < self.inner.len() => Fit::No,
            (Term::Tuple(_), CqlType::Tuple(types)) => self.parts_fit(types.iter()),
            (Term::Tuple(parts), ty) if parts.len() == 1 => self.inner[0].fit(ty),
            (Term::List(_), CqlType::List(of)) | (Term::Set(_), CqlType::Set(of)) => {
                self.parts_fit(repeat(&**of))
            }
            (Term::List(terms), CqlType::Vector(of, dimension)) if terms.len() == *dimension as usize => {
                self.parts_fit(repeat(&**of))
            }
            (Term::Set(terms), CqlType::Map(..)) if terms.is_empty() => Fit::Weak,
            (Term::Map(_), CqlType::Map(key, value)) => {
                self.parts_fit([&**key, &**value].into_iter().cycle())
            }
            (Term::Udt(_), CqlType::Udt(_)) => Fit::Weak,
            (Term::List(_) | Term::Set(_) | Term::Map(_) | Term::Tuple(_) | Term::Udt(_), _) => Fit::No,
            (Term::Arithmetic(_) | Term::Negate(_), ty) => self.call_fit(ty),
            (_, ty) => fit_of_type(self.ty.as_ref(), ty),
        }
    }

    fn list_length(&self) -> Option<usize> {
        matches!(self.term, Term::List(_)).then_some(self.inner.len())
    }

    fn text(&self) -> String {
        shown(&fit::shown(self.term))
    }
}

/// Returns the assignability of values of a type, which is unknown if the operand is wrong: its own
/// error is then the better one.
pub(crate) fn fit_of_type(from: Option<&CqlType>, to: &CqlType) -> Fit {
    match from {
        Some(from) => Fit::of(from, to),
        None => Fit::Weak,
    }
}

/// Returns the type that a constant has by itself. `None` is null.
pub(crate) fn literal_type(literal: &Literal) -> Option<CqlType> {
    Some(match literal {
        Literal::Integer(digits) if digits.parse::<i32>().is_ok() => CqlType::Int,
        Literal::Integer(digits) if digits.parse::<i64>().is_ok() => CqlType::BigInt,
        Literal::Integer(_) => CqlType::Varint,
        Literal::Float(digits) if digits.parse::<f64>().is_ok_and(|n| n.is_finite() && digits.len() > 17) => {
            CqlType::Decimal
        }
        Literal::Float(_) => CqlType::Double,
        Literal::String(text) if text.is_ascii() => CqlType::Ascii,
        Literal::String(_) => CqlType::Text,
        Literal::Boolean(_) => CqlType::Boolean,
        Literal::Uuid(_) => CqlType::Uuid,
        Literal::Blob(_) => CqlType::Blob,
        Literal::Duration(..) => CqlType::Duration,
        Literal::Null => return None,
    })
}

/// Returns the assignability of a constant to a type, as in Cassandra.
fn literal_fit(literal: &Literal, ty: &CqlType) -> Fit {
    use CqlType as T;
    if literal_type(literal).as_ref() == Some(ty) {
        return Fit::Exact;
    }
    let accepts = match literal {
        Literal::Null => *ty != T::Counter,
        Literal::Integer(_) => matches!(
            ty,
            T::BigInt
                | T::Counter
                | T::Date
                | T::Decimal
                | T::Double
                | T::Duration
                | T::Float
                | T::Int
                | T::SmallInt
                | T::Time
                | T::Timestamp
                | T::TinyInt
                | T::Varint
        ),
        Literal::Float(_) => matches!(ty, T::Decimal | T::Double | T::Float),
        Literal::String(_) => {
            matches!(ty, T::Ascii | T::Text | T::Inet | T::Date | T::Time | T::Timestamp)
        }
        Literal::Uuid(_) => matches!(ty, T::Uuid | T::TimeUuid),
        Literal::Boolean(_) | Literal::Blob(_) | Literal::Duration(..) => false,
    };
    if accepts { Fit::Weak } else { Fit::No }
}

/// Prepares a call as a value of type `ty` for the column `name`. A call with the same result in
/// every execution becomes a constant.
pub(super) fn call(
    binder: &mut Binder,
    name: &Arc<str>,
    ty: &Arc<CqlType>,
    term: &Term,
) -> Result<Input, Error> {
    let types = binder.types.clone();
    let operand = Operand::of(&types, term);
    let function = operand.function(&types, Some(ty)).map_err(|error| match (term, error) {
        (Term::Function(call), Error::Invalid(text)) if text.starts_with("Unknown function ") => {
            Error::Invalid(match operand.is_aggregate(call) {
                true => operand.aggregate_refused(call),
                false => format!("Unknown function {} called", call.name),
            })
        }
        (_, error) => error,
    })?;
    if Fit::of(&function.result, ty) == Fit::No {
        return Err(Error::Invalid(format!(
            "Type error: cannot assign result of function system.{} (type {}) to {name} (type {ty})",
            function.name, function.result
        )));
    }
    let mut arguments = Vec::with_capacity(operand.inner.len());
    for (at, (operand, ty)) in operand.inner.iter().zip(&function.arguments).enumerate() {
        let name: Arc<str> = format!("arg{at}(system.{})", function.name.to_lowercase()).into();
        arguments.push(binder.bind_shared(&name, &Arc::new(ty.clone()), operand.term)?);
    }
    if let Some(input) = binder.once(&function) {
        return Ok(input);
    }
    let is_constant = function.is_pure() && arguments.iter().all(Bind::is_constant);
    let call = Call { function, arguments };
    match is_constant {
        true => Ok(Input::Constant(call.value(ty, &[])?)),
        false => Ok(Input::Call(Box::new(call))),
    }
}

impl Call {
    /// Returns the bytes of its arguments in one execution, as given by the client. The result is
    /// about as large.
    pub(super) fn size(&self, values: &[Value<'_>]) -> u64 {
        self.arguments.iter().map(|argument| argument.size(values)).sum::<u64>() + 16
    }

    /// Returns the bytes of constants in it.
    pub(super) fn constant_bytes(&self) -> u64 {
        self.arguments.iter().map(Bind::constant_bytes).sum()
    }

    /// Calls the function for one execution. Returns its value as one of type `ty`.
    pub(super) fn value(&self, ty: &CqlType, values: &[Value<'_>]) -> Result<Option<Vec<u8>>, Error> {
        let mut given = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            given.push(match argument.get(values)? {
                Given::Bytes(bytes) => Some(bytes),
                Given::Null => None,
                Given::Unset => {
                    return Err(Error::Invalid(format!(
                        "Invalid unset value for argument in call to function {}",
                        self.function.name
                    )));
                }
            });
        }
        let arguments: Vec<Option<&[u8]>> = given.iter().map(Option::as_deref).collect();
        let result = self.function.call(&arguments, &Moment::now()).map_err(failed)?;
        Ok(match (ty, &self.function.result) {
            (CqlType::Varint, CqlType::Int | CqlType::BigInt) => result.map(shortest),
            _ => result,
        })
    }
}

/// Returns a number as the shortest bytes of a `varint`.
fn shortest(bytes: Vec<u8>) -> Vec<u8> {
    let is_surplus = |pair: &[u8]| (pair[0] == 0 && pair[1] < 0x80) || (pair[0] == 0xff && pair[1] >= 0x80);
    let surplus = bytes.windows(2).take_while(|pair| is_surplus(pair)).count();
    bytes[surplus..].to_vec()
}
