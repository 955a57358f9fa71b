//! Errors in Cassandra's words.

use std::fmt;

use schema::CqlType;

/// Error of the resolution or the execution of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FunctionError {
    /// No function has this name, which is as the caller passed it. Protocol: Invalid (0x2200).
    Unknown(String),
    /// Several functions accept the arguments. Protocol: Invalid (0x2200).
    Ambiguous(String),
    /// No overload accepts the arguments, or an argument has a value that the function refuses.
    /// Protocol: Invalid (0x2200).
    Invalid(String),
    /// The execution failed. Protocol: function failure (0x1400).
    Failed {
        /// Name without keyspace, which is `system`.
        function: String,
        /// Types of the arguments in CQL.
        arguments: Vec<String>,
        /// Cassandra's message.
        message: String,
    },
}

impl FunctionError {
    pub(crate) fn invalid(message: impl Into<String>) -> FunctionError {
        FunctionError::Invalid(message.into())
    }

    /// Returns the failure of one execution.
    pub(crate) fn failed(function: &str, arguments: &[CqlType], message: String) -> FunctionError {
        let arguments = arguments.iter().map(CqlType::to_string).collect();
        FunctionError::Failed { function: function.to_owned(), arguments, message }
    }
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionError::Unknown(name) => write!(f, "Unknown function '{name}'"),
            FunctionError::Ambiguous(message)
            | FunctionError::Invalid(message)
            | FunctionError::Failed { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for FunctionError {}
