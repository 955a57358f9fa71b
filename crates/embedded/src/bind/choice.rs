//! Values that restrict key columns, and their combinations of one value per column.
//!
//! A statement of some kilobytes can name 10^8 combinations. They are therefore counted first, with
//! their bytes, from lengths alone. A statement with too many is rejected before any value is
//! copied ([`Cost`]).

use std::borrow::Cow;

use engine::{Error, Value};

use crate::bind::term::Bind;

/// Values of one key column.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// `= v`.
    One(Bind),
    /// `IN (a, b)`.
    Some(Vec<Bind>),
    /// `IN ?`, with a list as the value.
    Listed(Bind),
}

impl Choice {
    /// Returns the values of one execution, in their original order.
    pub(crate) fn values<'a>(&'a self, values: &[Value<'a>]) -> Result<Vec<Cow<'a, [u8]>>, Error> {
        match self {
            Choice::One(bind) => Ok(vec![bind.required(values)?]),
            Choice::Some(binds) => binds.iter().map(|bind| bind.required(values)).collect(),
            Choice::Listed(bind) => {
                let invalid = |error: schema::ValueError| Error::Invalid(error.to_string());
                match bind.required(values)? {
                    Cow::Borrowed(list) => schema::value::elements(list)
                        .map(|element| element.map(Cow::Borrowed).map_err(invalid))
                        .collect(),
                    Cow::Owned(list) => schema::value::elements(&list)
                        .map(|element| element.map(|bytes| Cow::Owned(bytes.to_vec())).map_err(invalid))
                        .collect(),
                }
            }
        }
    }

    /// Returns the number of terms in an `IN (…)`.
    pub(crate) fn listed(&self) -> usize {
        match self {
            Choice::Some(binds) => binds.len(),
            Choice::One(_) | Choice::Listed(_) => 0,
        }
    }

    /// Returns the number of values and their bytes, as given by the client. Nothing is checked or
    /// copied.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> (u64, u64) {
        match self {
            Choice::One(bind) => (1, bind.size(values)),
            Choice::Some(binds) => (binds.len() as u64, binds.iter().map(|bind| bind.size(values)).sum()),
            Choice::Listed(bind) => match bind.raw(values) {
                Some(list) => (schema::value::elements(list).count_left(), list.len() as u64),
                None => (0, 0),
            },
        }
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

/// Calls `f` with each combination of the values, in their original order.
pub(crate) fn for_each_combination(
    choices: &[Choice],
    values: &[Value<'_>],
    mut f: impl FnMut(&[&[u8]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let options = choices.iter().map(|choice| choice.values(values)).collect::<Result<Vec<_>, _>>()?;
    if options.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let mut at = vec![0; options.len()];
    let mut parts: Vec<&[u8]> = options.iter().map(|column| &*column[0]).collect();
    loop {
        // Count the work here and yield elsewhere: a heavy lane runs large products.
        let _ = lanes::spend(1);
        f(&parts)?;
        // Advance like an odometer: increment the last column; a column at its end restarts, and
        // the one before it is incremented.
        let Some(column) = (0..at.len()).rev().find(|column| at[*column] + 1 < options[*column].len()) else {
            return Ok(());
        };
        at[column] += 1;
        at[column + 1..].fill(0);
        for column in column..at.len() {
            parts[column] = &options[column][at[column]];
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
