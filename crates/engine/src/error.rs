//! Errors of statements, by the kinds that CQL clients distinguish.

use std::fmt;

/// Error for a client. Its text names the problem and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The statement is invalid: InvalidRequest (0x2200).
    Invalid(String),
    /// The statement has an unknown option, or a value of the wrong kind: SyntaxError (0x2000).
    Syntax(String),
    /// An option of a keyspace or table is invalid: ConfigError (0x2300).
    Config(String),
    /// The object to create exists: AlreadyExists (0x2400).
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table. Empty for a keyspace.
        table: String,
    },
    /// The role lacks a permission: Unauthorized (0x2100).
    Unauthorized(String),
    /// The execution of a native function failed: FunctionFailure (0x1400).
    Function {
        /// The function, in keyspace `system`.
        function: String,
        /// Types of its arguments in CQL.
        arguments: Vec<String>,
        /// The message.
        message: String,
    },
    /// Too many requests are waiting: Overloaded (0x1001).
    Overloaded(String),
    /// The read exceeded its timeout: ReadTimeout (0x1200).
    ReadTimeout(String),
    /// The read needs an index that is not built: ReadFailure (0x1300).
    IndexNotAvailable,
    /// The write exceeded its timeout: WriteTimeout (0x1100).
    WriteTimeout(String),
    /// The schema changed after the plan was prepared. Prepare it again (0x2500, or silently for
    /// unprepared statements).
    Stale,
    /// Internal error such as a failing disk: ServerError (0x0000).
    Server(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AlreadyExists { keyspace, table } if table.is_empty() => {
                write!(f, "Cannot add existing keyspace \"{keyspace}\"")
            }
            Error::AlreadyExists { keyspace, table } => {
                write!(f, "Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"")
            }
            Error::IndexNotAvailable => f.write_str(
                "Operation failed - received 0 responses and 1 failures: INDEX_NOT_AVAILABLE from /127.0.0.1:7000",
            ),
            Error::Stale => f.write_str("The schema changed since the statement was prepared"),
            Error::Function { message, .. } => f.write_str(message),
            Error::Invalid(m)
            | Error::Config(m)
            | Error::Syntax(m)
            | Error::Unauthorized(m)
            | Error::Overloaded(m)
            | Error::ReadTimeout(m)
            | Error::WriteTimeout(m)
            | Error::Server(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for Error {}
