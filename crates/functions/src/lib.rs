//! Native functions, casts, arithmetic and aggregates of Cassandra 5.0, by value: serialized bytes
//! in, serialized bytes out. Aggregates also take whole columns. Knows no tables, no engine and no
//! syntax trees.
//!
//! A statement resolves each call once, at PREPARE: names and types of arguments select one
//! function with a result type. Executions call it with values. A null is `None`. Argument values
//! must have passed the check of their types. Other bytes never panic: they give null or an error.
//!
//! **Bounds.** Time and memory of a call are proportional to its arguments, except for numbers
//! without bounds, which have at most [`schema::value::NUMBER_BYTES_MAX`] bytes. An aggregate keeps
//! one value, or a sum of bounded size.

mod aggregate;
mod argument;
mod arithmetic;
mod blob;
mod call;
mod cast;
mod catalog;
mod collection;
mod column;
mod decimal;
mod error;
mod function;
mod json;
mod mask;
mod math;
mod number;
mod operator;
mod resolve;
mod time;
mod transcendental;
mod vector;

pub use aggregate::{Aggregate, State};
pub use argument::{Argument, Context, Fit};
pub use arithmetic::{arithmetic, negate};
pub use cast::cast;
pub use column::Column;
pub use error::FunctionError;
pub use function::Function;
pub use operator::Operator;
pub use vector::Similarity;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
