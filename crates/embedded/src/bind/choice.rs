//! Values that restrict key columns, and their combinations of one value per column.
//!
//! A statement of some kilobytes can name 10^8 combinations. They are therefore counted first, with
//! their bytes, from lengths alone. A statement with too many is rejected before any value is
//! copied ([`Cost`]).

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Error, Value};
use schema::value;

use crate::bind::term::{Bind, Given};
use crate::bind::tuple::TupleBind;

/// Values of one key column, or of several adjacent clustering columns.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// `= v`.
    One(Bind),
    /// `IN (a, b)`.
    Some(Vec<Bind>),
    /// `IN ?`, with a list as the value, and the name of the column.
    Listed(Bind, Arc<str>),
    /// `(a, b) = (1, 2)`.
    Tuple(TupleBind),
    /// `(a, b) IN ((1, 2), ?)`, with the names of the columns.
    Tuples(Vec<TupleBind>, Arc<[String]>),
    /// `(a, b) IN ?`, with a list of tuples as the value, and the names of the columns.
    ListedTuples(Bind, Arc<[String]>),
}

impl Choice {
    /// Returns the number of columns that it restricts.
    pub(crate) fn width(&self) -> usize {
        match self {
            Choice::One(_) | Choice::Some(_) | Choice::Listed(..) => 1,
            Choice::Tuple(tuple) => tuple.width(),
            Choice::Tuples(_, columns) | Choice::ListedTuples(_, columns) => columns.len(),
        }
    }

    /// Returns true if it is an equality, which names one value of each column.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Choice::One(_) | Choice::Tuple(_))
    }

    /// Returns true if its list comes with the request.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(self, Choice::Listed(..) | Choice::ListedTuples(..))
    }

    /// Returns the values of one execution, in their original order. A tuple has a value for each
    /// of its columns, one after the other.
    pub(crate) fn values<'a>(&'a self, values: &[Value<'a>]) -> Result<Vec<Cow<'a, [u8]>>, Error> {
        match self {
            Choice::One(bind) => Ok(vec![bind.required(values)?]),
            Choice::Some(binds) => binds.iter().map(|bind| bind.required(values)).collect(),
            Choice::Listed(bind, column) => {
                let list = list_of(bind, values, |what| format!("Invalid {what} value for column {column}"))?;
                elements_of(list)
            }
            Choice::Tuple(tuple) => {
                tuple.required(values, |column| format!("Invalid null value for column {column}"))
            }
            Choice::Tuples(tuples, columns) => {
                let mut all = Vec::with_capacity(tuples.len() * columns.len());
                for tuple in tuples {
                    all.extend(tuple.required(values, |_| null_among(columns))?);
                }
                Ok(all)
            }
            Choice::ListedTuples(bind, columns) => {
                let list = list_of(bind, values, |what| match what {
                    "null" => "Invalid null value for IN restriction".into(),
                    _ => format!("Invalid unset value for {}", bind.name()),
                })?;
                let mut all = Vec::new();
                for tuple in value::elements(&list) {
                    let mut fields = value::components(tuple.map_err(invalid)?);
                    for _ in 0..columns.len() {
                        let field = fields.next().transpose().map_err(invalid)?.flatten();
                        let field = field.ok_or_else(|| Error::Invalid(null_among(columns)))?;
                        all.push(Cow::Owned(field.to_vec()));
                    }
                }
                Ok(all)
            }
        }
    }

    /// Returns the number of terms in an `IN (…)`.
    pub(crate) fn listed(&self) -> usize {
        match self {
            Choice::Some(binds) => binds.len(),
            Choice::Tuples(tuples, columns) => tuples.len() * columns.len(),
            Choice::One(_) | Choice::Listed(..) | Choice::Tuple(_) | Choice::ListedTuples(..) => 0,
        }
    }

    /// Returns the number of values or tuples and their bytes, as given by the client. Nothing is
    /// checked or copied.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> (u64, u64) {
        match self {
            Choice::One(bind) => (1, bind.size(values)),
            Choice::Some(binds) => (binds.len() as u64, binds.iter().map(|bind| bind.size(values)).sum()),
            Choice::Listed(bind, _) | Choice::ListedTuples(bind, _) => match bind.raw(values) {
                Some(list) => (value::elements(list).count_left(), list.len() as u64),
                None => (0, 0),
            },
            Choice::Tuple(tuple) => (1, tuple.size(values)),
            Choice::Tuples(tuples, _) => {
                (tuples.len() as u64, tuples.iter().map(|tuple| tuple.size(values)).sum())
            }
        }
    }
}

fn invalid(error: schema::ValueError) -> Error {
    Error::Invalid(error.to_string())
}

/// Returns Cassandra's text for a null in one of the tuples of an IN.
fn null_among(columns: &[String]) -> String {
    format!("Invalid null value in condition for columns: [{}]", columns.join(", "))
}

/// Returns the list of an `IN ?`.
///
/// # Errors
/// The list is "null" or "unset", for which `text` returns Cassandra's text.
fn list_of<'a>(
    bind: &'a Bind,
    values: &[Value<'a>],
    text: impl FnOnce(&str) -> String,
) -> Result<Cow<'a, [u8]>, Error> {
    match bind.get(values)? {
        Given::Bytes(list) => Ok(list),
        Given::Null => Err(Error::Invalid(text("null"))),
        Given::Unset => Err(Error::Invalid(text("unset"))),
    }
}

fn elements_of(list: Cow<'_, [u8]>) -> Result<Vec<Cow<'_, [u8]>>, Error> {
    match list {
        Cow::Borrowed(list) => {
            value::elements(list).map(|element| element.map(Cow::Borrowed).map_err(invalid)).collect()
        }
        Cow::Owned(list) => value::elements(&list)
            .map(|element| element.map(|bytes| Cow::Owned(bytes.to_vec())).map_err(invalid))
            .collect(),
    }
}

/// Number of combinations of the values of several columns, and their size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Cost {
    /// Returns the cost of the combinations of `choices`. Without choices there is one: the empty
    /// one.
    ///
    /// # Errors
    /// Returns an error if a count overflows.
    pub(crate) fn of(choices: &[Choice], values: &[Value<'_>]) -> Result<Cost, Error> {
        let mut cost = Cost { count: 1, bytes: 0 };
        for choice in choices {
            let (count, bytes) = choice.size(values);
            // Each earlier combination is repeated for each value, and each value for each earlier
            // combination.
            cost = Cost {
                count: times(cost.count, count)?,
                bytes: plus(times(cost.bytes, count)?, times(bytes, cost.count)?)?,
            };
        }
        Ok(cost)
    }
}

/// Returns the product of two counts, or an error if it overflows.
pub(crate) fn times(a: u64, b: u64) -> Result<u64, Error> {
    a.checked_mul(b).ok_or_else(uncountable)
}

/// Returns the sum of two counts, or an error if it overflows.
pub(crate) fn plus(a: u64, b: u64) -> Result<u64, Error> {
    a.checked_add(b).ok_or_else(uncountable)
}

fn uncountable() -> Error {
    Error::Invalid("expected IN relations with fewer than 2^64 combinations and bytes".into())
}

/// Values of one choice.
struct Options<'a> {
    /// Values of all columns of one option, then those of the next.
    values: Vec<Cow<'a, [u8]>>,
    /// Number of columns of an option.
    width: usize,
    /// Number of columns before its first one.
    column: usize,
}

impl Options<'_> {
    /// Returns the values of one option.
    fn nth(&self, at: usize) -> &[Cow<'_, [u8]>] {
        &self.values[at * self.width..(at + 1) * self.width]
    }

    fn has_after(&self, at: usize) -> bool {
        (at + 1) * self.width < self.values.len()
    }
}

/// Calls `f` with each combination of the values, in their original order: one value a column.
pub(crate) fn for_each_combination(
    choices: &[Choice],
    values: &[Value<'_>],
    mut f: impl FnMut(&[&[u8]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut options, mut columns) = (Vec::with_capacity(choices.len()), 0);
    for choice in choices {
        let width = choice.width();
        options.push(Options { values: choice.values(values)?, width, column: columns });
        columns += width;
    }
    if options.iter().any(|option| option.values.is_empty()) {
        return Ok(());
    }
    let mut at = vec![0; options.len()];
    let mut parts: Vec<&[u8]> =
        options.iter().flat_map(|option| option.nth(0)).map(|value| &**value).collect();
    loop {
        // Count the work here and yield elsewhere: a heavy lane runs large products.
        let _ = lanes::spend(1);
        f(&parts)?;
        // Advance like an odometer: increment the last choice; a choice at its end restarts, and
        // the one before it is incremented.
        let Some(choice) = (0..at.len()).rev().find(|choice| options[*choice].has_after(at[*choice])) else {
            return Ok(());
        };
        at[choice] += 1;
        at[choice + 1..].fill(0);
        for (option, at) in options.iter().zip(&at).skip(choice) {
            for (part, value) in parts[option.column..].iter_mut().zip(option.nth(*at)) {
                *part = value;
            }
        }
    }
}

/// Returns a required value, borrowed if possible.
pub(crate) fn single<'a>(choice: &'a Choice, values: &[Value<'a>]) -> Option<Result<Cow<'a, [u8]>, Error>> {
    match choice {
        Choice::One(bind) => Some(bind.required(values)),
        _ => None,
    }
}
