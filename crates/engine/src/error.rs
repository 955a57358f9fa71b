//! What can go wrong with a statement, by the kinds that CQL clients tell apart.

use std::fmt;

/// An error to answer a client with. The texts are for people and say what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The statement cannot be: InvalidRequest (0x2200).
    Invalid(String),
    /// A setting of a keyspace or table cannot be: ConfigError (0x2300).
    Config(String),
    /// The thing to create is there: AlreadyExists (0x2400). `table` is empty for a keyspace.
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table, or empty.
        table: String,
    },
    /// The role may not: Unauthorized (0x2100).
    Unauthorized(String),
    /// Too much waits already: Overloaded (0x1001).
    Overloaded(String),
    /// The read did not end in time: ReadTimeout (0x1200).
    ReadTimeout(String),
    /// The write did not end in time: WriteTimeout (0x1100).
    WriteTimeout(String),
    /// The plan is older than the schema: prepare again (0x2500, or silently for unprepared statements).
    Stale,
    /// The server's own trouble, such as a disk that fails: ServerError (0x0000).
    Server(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AlreadyExists { keyspace, table } if table.is_empty() => {
                write!(f, "Keyspace '{keyspace}' already exists")
            }
            Error::AlreadyExists { keyspace, table } => {
                write!(f, "Object {keyspace}.{table} already exists")
            }
            Error::Stale => f.write_str("The schema changed since the statement was prepared"),
            Error::Invalid(m)
            | Error::Config(m)
            | Error::Unauthorized(m)
            | Error::Overloaded(m)
            | Error::ReadTimeout(m)
            | Error::WriteTimeout(m)
            | Error::Server(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for Error {}
