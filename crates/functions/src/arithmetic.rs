//! Arithmetic operators on numbers, dates and durations.

use schema::CqlType;

use crate::{Argument, Function, FunctionError};

/// An arithmetic operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants are the operators' names")]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// Resolves `left op right`. `wanted` is the type that the caller wants, if it wants one.
pub fn arithmetic(
    op: Operator,
    left: &dyn Argument,
    right: &dyn Argument,
    wanted: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    let _ = (op, left, right, wanted);
    Err(FunctionError::Invalid(String::new()))
}

/// Resolves `-operand`. `wanted` is the type that the caller wants, if it wants one.
pub fn negate(operand: &dyn Argument, wanted: Option<&CqlType>) -> Result<Function, FunctionError> {
    let _ = (operand, wanted);
    Err(FunctionError::Invalid(String::new()))
}
