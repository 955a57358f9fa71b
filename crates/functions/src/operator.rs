//! Arithmetic operators.

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

impl Operator {
    /// Returns the sign of the operator.
    pub fn sign(self) -> char {
        match self {
            Operator::Add => '+',
            Operator::Subtract => '-',
            Operator::Multiply => '*',
            Operator::Divide => '/',
            Operator::Modulo => '%',
        }
    }

    /// Returns the name of Cassandra's function for the operator.
    pub(crate) fn function_name(self) -> &'static str {
        match self {
            Operator::Add => "_add",
            // Cassandra spells it this way.
            Operator::Subtract => "_substract",
            Operator::Multiply => "_multiply",
            Operator::Divide => "_divide",
            Operator::Modulo => "_modulo",
        }
    }
}
