//! Aggregates: `count`, `min`, `max`, `sum` and `avg`.
//!
//! Sums and averages have the type of their argument, and wrap around as in Cassandra. Of no
//! values, a sum or an average is zero, and `min` and `max` are null. Nulls are not counted.
//!
//! **Bounds.** A state keeps one value or a sum of at most
//! [`NUMBER_BYTES_MAX`](schema::value::NUMBER_BYTES_MAX) bytes, plus one bit for each doubling of
//! the rows.

mod average;
mod by_column;

use std::cmp::Ordering;

use num_bigint::BigInt;
use schema::CqlType;
use schema::value::compare;

use crate::decimal::{Decimal, Failure};
use crate::function::Body;
use crate::number::{NUMBERS, Number};
use crate::{Argument, Function, FunctionError, resolve};
use average::{DecimalMean, FloatMean, FloatSum};

/// An aggregate with the types of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Cassandra's name without keyspace. `countRows` for `count(*)` and `count(1)`, whose column
    /// is named `count`.
    pub name: String,
    /// Types of the arguments.
    pub arguments: Vec<CqlType>,
    /// Type of the result.
    pub result: CqlType,
}

impl Aggregate {
    /// Resolves a call. `None`: no aggregate has this name. `count(*)` and `count(1)` are `count`
    /// without arguments.
    ///
    /// # Errors
    /// Returns Cassandra's texts for arguments that do not fit.
    pub fn resolve(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Aggregate>, FunctionError> {
        match (name, arguments) {
            ("count", []) => Ok(Some(Aggregate {
                name: "countRows".to_owned(),
                arguments: Vec::new(),
                result: CqlType::BigInt,
            })),
            // Cassandra's `count` reads all values as blobs.
            ("count", [argument]) => {
                Ok(Some(Aggregate::named(name, &argument.ty().unwrap_or(CqlType::Blob))))
            }
            ("count", _) => Err(FunctionError::invalid(format!(
                "Invalid number of arguments in call to function system.count: 1 required but {} provided",
                arguments.len()
            ))),
            ("min" | "max", [argument]) => {
                let ty = argument.ty().ok_or_else(|| {
                    FunctionError::invalid(format!(
                        "Cannot infer type of argument {} in call to function system.{name}(any): use type casts \
                         to disambiguate",
                        argument.text()
                    ))
                })?;
                Ok(Some(Aggregate::named(name, &ty)))
            }
            ("min" | "max", _) => Err(FunctionError::invalid(format!(
                "Invalid number of arguments for function system.{name}(any)"
            ))),
            ("sum" | "avg", _) => {
                let overloads =
                    NUMBERS.iter().map(|ty| Function::new(name, vec![ty.clone()], ty.clone(), Body::Same));
                let best = resolve::best(name, overloads.collect(), arguments, None)?;
                Ok(Some(Aggregate::named(name, &best.result)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the aggregate of values of a type.
    pub(crate) fn named(name: &str, ty: &CqlType) -> Aggregate {
        let result = if name == "count" { CqlType::BigInt } else { ty.clone() };
        Aggregate { name: name.to_owned(), arguments: vec![ty.clone()], result }
    }

    /// Returns true if the order of the rows can change the result. Floating-point sums and
    /// averages of decimals are rounded with each row. A sum of decimals can overflow on the way.
    /// `min` and `max` keep the first of equal values with different bytes.
    pub fn depends_on_order(&self) -> bool {
        use CqlType as T;
        match &self.name[..] {
            "sum" | "avg" => matches!(self.result.thawed(), T::Float | T::Double | T::Decimal),
            "min" | "max" => !matches!(
                self.result.thawed(),
                T::TinyInt
                    | T::SmallInt
                    | T::Int
                    | T::BigInt
                    | T::Counter
                    | T::Date
                    | T::Time
                    | T::Timestamp
                    | T::Ascii
                    | T::Text
                    | T::Blob
                    | T::Uuid
                    | T::Inet
            ),
            _ => false,
        }
    }

    /// Returns the state before the first row.
    pub fn start(&self) -> State {
        let ty = self.result.thawed();
        let sum = match (&self.name[..], ty) {
            ("countRows", _) => Sum::Rows(0),
            ("min", _) => Sum::Extreme { kept: Ordering::Less, value: None },
            ("max", _) => Sum::Extreme { kept: Ordering::Greater, value: None },
            ("sum", CqlType::Float | CqlType::Double) => Sum::Float(FloatSum::default()),
            ("sum", CqlType::Varint) => Sum::Varint { sum: BigInt::ZERO, count: None },
            ("sum", CqlType::Decimal) => Sum::Decimal(Ok(Decimal::from_integer(BigInt::ZERO))),
            ("sum", _) => Sum::Integer(0),
            ("avg", CqlType::Float | CqlType::Double) => Sum::FloatMean(FloatMean::default()),
            ("avg", CqlType::Varint) => Sum::Varint { sum: BigInt::ZERO, count: Some(0) },
            ("avg", CqlType::Decimal) => Sum::DecimalMean(Ok(DecimalMean::default())),
            ("avg", _) => Sum::IntegerMean { sum: 0, count: 0 },
            _ => Sum::Values(0),
        };
        State { ty: ty.clone(), sum }
    }
}

/// State of an aggregate over some rows.
#[derive(Clone, Debug)]
pub struct State {
    /// Type of the result, without `frozen<>`.
    ty: CqlType,
    sum: Sum,
}

#[derive(Clone, Debug)]
enum Sum {
    /// Number of rows.
    Rows(i64),
    /// Number of values.
    Values(i64),
    /// The value that compares to all others as `kept`. Of equal values, the first.
    Extreme {
        kept: Ordering,
        value: Option<Vec<u8>>,
    },
    /// Sum that wraps around. Its low bits are those of smaller types.
    Integer(i64),
    /// Sum of up to 2^63 values of 64 bits.
    IntegerMean {
        sum: i128,
        count: i64,
    },
    Float(FloatSum),
    FloatMean(FloatMean),
    /// `count` is present for an average.
    Varint {
        sum: BigInt,
        count: Option<i64>,
    },
    Decimal(Result<Decimal, Failure>),
    DecimalMean(Result<DecimalMean, Failure>),
}

impl State {
    /// Adds a row: one value per argument. Bytes that are no value of the type are skipped.
    pub fn add(&mut self, arguments: &[Option<&[u8]>]) {
        if let Sum::Rows(rows) = &mut self.sum {
            *rows += 1;
            return;
        }
        let Some(value) = arguments.first().copied().flatten() else { return };
        match &mut self.sum {
            Sum::Values(count) => *count += 1,
            Sum::Extreme { kept, value: extreme } => keep(&self.ty, *kept, extreme, value),
            sum => {
                if let Some(number) = Number::from_bytes(&self.ty, value) {
                    sum.add(number);
                }
            }
        }
    }

    /// Adds the rows of another state of the same aggregate, which come after the rows of this one.
    /// An average of decimals rounds once per row, as in Cassandra, and once more per merge.
    pub fn merge(&mut self, other: State) {
        match (&mut self.sum, other.sum) {
            (Sum::Rows(a), Sum::Rows(b)) | (Sum::Values(a), Sum::Values(b)) => *a += b,
            (Sum::Extreme { kept, value }, Sum::Extreme { value: Some(other), .. }) => {
                keep(&self.ty, *kept, value, &other);
            }
            (Sum::Integer(a), Sum::Integer(b)) => *a = a.wrapping_add(b),
            (Sum::IntegerMean { sum, count }, Sum::IntegerMean { sum: other, count: others }) => {
                *sum += other;
                *count += others;
            }
            (Sum::Float(a), Sum::Float(b)) => a.merge(b),
            (Sum::FloatMean(a), Sum::FloatMean(b)) => a.merge(b),
            (Sum::Varint { sum, count }, Sum::Varint { sum: other, count: others }) => {
                *sum += other;
                *count = count.zip(others).map(|(a, b)| a + b);
            }
            (Sum::Decimal(a), Sum::Decimal(b)) => {
                *a = a.as_ref().map_err(|e| *e).and_then(|a| a.add(&b?));
            }
            (Sum::DecimalMean(a), Sum::DecimalMean(b)) => {
                *a = a.as_ref().map_err(|e| *e).and_then(|a| a.merged(&b?));
            }
            _ => {}
        }
    }

    /// Returns the result. `None` is null.
    ///
    /// # Errors
    /// Fails if a sum has more digits than its type can have.
    pub fn finish(self) -> Result<Option<Vec<u8>>, FunctionError> {
        let ty = &self.ty;
        let number = match self.sum {
            Sum::Rows(count) | Sum::Values(count) => return Ok(Some(count.to_be_bytes().to_vec())),
            Sum::Extreme { value, .. } => return Ok(value),
            Sum::Integer(sum) => Ok(Number::Integer(sum)),
            Sum::IntegerMean { sum, count } => {
                let mean = sum.checked_div(count.into()).unwrap_or(0);
                Ok(Number::Integer(mean as i64))
            }
            Sum::Float(sum) => Ok(Number::Double(sum.result())),
            Sum::FloatMean(mean) => Ok(Number::Double(mean.result())),
            Sum::Varint { sum, count } => match count {
                None => Ok(Number::Varint(sum)),
                Some(0) => Ok(Number::Varint(BigInt::ZERO)),
                Some(count) => Ok(Number::Varint(sum / count)),
            },
            Sum::Decimal(sum) => sum.map(Number::Decimal),
            Sum::DecimalMean(mean) => mean.map(|mean| Number::Decimal(mean.mean)),
        };
        let bytes = number.and_then(|number| number.to_bytes(ty));
        bytes
            .map(Some)
            .map_err(|reason| FunctionError::invalid(format!("aggregate of {ty} failed: {reason}")))
    }
}

impl Sum {
    fn add(&mut self, number: Number) {
        match self {
            Sum::Integer(sum) => *sum = sum.wrapping_add(number.to_i64()),
            Sum::IntegerMean { sum, count } => {
                *sum += i128::from(number.to_i64());
                *count += 1;
            }
            Sum::Float(sum) => sum.add(number.to_f64()),
            Sum::FloatMean(mean) => mean.add(number.to_f64()),
            Sum::Varint { sum, count } => {
                *sum += number.to_varint();
                *count = count.map(|count| count + 1);
            }
            Sum::Decimal(sum) => {
                *sum = sum.as_ref().map_err(|e| *e).and_then(|sum| sum.add(&number.to_decimal()?)?.bounded());
            }
            Sum::DecimalMean(mean) => {
                *mean = mean.as_ref().map_err(|e| *e).and_then(|mean| mean.with(&number.to_decimal()?));
            }
            Sum::Rows(_) | Sum::Values(_) | Sum::Extreme { .. } => {}
        }
    }
}

/// Keeps the lesser or the greater of two values.
fn keep(ty: &CqlType, kept: Ordering, extreme: &mut Option<Vec<u8>>, value: &[u8]) {
    let is_kept = extreme.as_ref().is_none_or(|extreme| compare(ty, value, extreme) == kept);
    if is_kept {
        let extreme = extreme.get_or_insert_default();
        extreme.clear();
        extreme.extend_from_slice(value);
    }
}
