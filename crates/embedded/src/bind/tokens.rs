//! Bounds on tokens, for the values of one execution.

use std::ops::RangeInclusive;

use cql::ast::CompareOp;
use engine::{Error, Value};

use crate::bind::restrict::{TokenBound, is_lower};
use crate::bind::term::Given;

/// Tokens that meet all bounds of a statement.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// First and last token; the last is before the first if there are none.
    first: i128,
    last: i128,
    /// True if the lower bound is above the upper one.
    is_crossed: bool,
}

impl Tokens {
    /// Returns the tokens that meet the bounds in an execution.
    ///
    /// # Errors
    /// A bound is null or unset.
    pub(crate) fn of(bounds: &[TokenBound], values: &[Value<'_>]) -> Result<Tokens, Error> {
        let (mut first, mut last) = (i128::from(i64::MIN), i128::from(i64::MAX));
        let (mut lower, mut upper) = (None, None);
        for (op, bind) in bounds {
            if bind.get(values)? == Given::Null {
                return Err(Error::Invalid("Invalid null token value".into()));
            }
            let Some(token) = bind.number(values)? else {
                return Err(Error::Invalid("Invalid unset value for the partition key token".into()));
            };
            // As in Cassandra, tokens above the smallest one are all: a view may have a row there.
            let is_strict = matches!(op, CompareOp::Less | CompareOp::Greater) && token != i64::MIN;
            let strict = i128::from(is_strict);
            match op {
                CompareOp::NotEq => unreachable!("refused when the statement was prepared"),
                CompareOp::Eq => (first, last) = (token.into(), token.into()),
                _ if is_lower(*op) => (first, lower) = (i128::from(token) + strict, Some(token)),
                // As in Cassandra, the smallest token as an upper bound means the end of the ring.
                _ if token == i64::MIN => {}
                _ => (last, upper) = (i128::from(token) - strict, Some(token)),
            }
        }
        let is_crossed = lower.zip(upper).is_some_and(|(lower, upper)| lower > upper);
        Ok(Tokens { first, last, is_crossed })
    }

    /// Returns true if a named partition is read. As in Cassandra, bounds that cross exclude the
    /// tokens between them.
    pub(crate) fn admits(&self, token: i64) -> bool {
        let token = i128::from(token);
        match self.is_crossed {
            true => token >= self.first || token <= self.last,
            false => (self.first..=self.last).contains(&token),
        }
    }

    /// Returns the tokens that a scan reads; an empty range if there are none.
    pub(crate) fn range(&self) -> RangeInclusive<i64> {
        match (i64::try_from(self.first), i64::try_from(self.last)) {
            (Ok(first), Ok(last)) => first..=last,
            _ => RangeInclusive::new(1, 0),
        }
    }
}
