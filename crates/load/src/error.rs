//! Errors that prevent a load. Failures of single requests are results: they are counted.

use std::fmt;

/// Reason why a load, or a statement of its set-up, could not run.
#[derive(Debug)]
pub enum LoadError {
    /// A flag or its value is invalid. The text names the flag and the reason.
    Usage(String),
    /// Connecting to this address failed, or the connection was lost.
    Connect {
        /// HOST:PORT.
        address: String,
        /// Reason, such as the error of the operating system.
        reason: String,
    },
    /// The server rejected user and password.
    Credentials {
        /// HOST:PORT.
        address: String,
        /// Message of the server.
        reason: String,
    },
    /// The server answered a statement of the set-up with an error.
    Statement {
        /// The statement, shortened.
        statement: String,
        /// Error code of the protocol.
        code: i32,
        /// Message of the server.
        reason: String,
    },
    /// Connecting to the Postgres listener of this address failed.
    Postgres {
        /// HOST:PORT.
        address: String,
        /// Message of the client library or of the server.
        reason: String,
    },
    /// The server rejected a statement that initializes every SQL connection.
    Refused {
        /// The statement.
        statement: String,
        /// Message of the server.
        reason: String,
    },
    /// The table does not exist, and `--no-create` is set.
    NoTable(String),
    /// The server does not follow the native protocol.
    Protocol {
        /// HOST:PORT.
        address: String,
        /// Fault found.
        reason: String,
    },
    /// A file cannot be read or written, or contains no histograms.
    File {
        /// Path of the file.
        path: String,
        /// Fault found.
        reason: String,
    },
    /// Measurements do not determine a plan. The text names the file and the reason.
    NoPlan(String),
    /// A thread, a system call or an encoder failed.
    System(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Usage(reason) | LoadError::NoPlan(reason) => f.write_str(reason),
            LoadError::Connect { address, reason } => {
                write!(
                    f,
                    "cannot connect to {address}: {reason}; check that the server runs and that this is its \
                     CQL port"
                )
            }
            LoadError::Credentials { address, reason } => {
                write!(
                    f,
                    "{address} rejected the user or password ({reason}); give --user and --password-file"
                )
            }
            LoadError::Statement { statement, code, reason } => {
                write!(f, "the server rejected `{statement}`: {reason} (code 0x{code:04X})")
            }
            LoadError::Postgres { address, reason } => {
                write!(
                    f,
                    "cannot connect to {address}: {reason}; check that the server runs and that this is its \
                     Postgres port"
                )
            }
            LoadError::Refused { statement, reason } => {
                write!(f, "the server rejected `{statement}`: {reason}")
            }
            LoadError::NoTable(table) => {
                write!(f, "table {table} does not exist; omit --no-create, or run `prefill` first")
            }
            LoadError::Protocol { address, reason } => {
                write!(f, "expected the CQL native protocol v4 from {address}: {reason}")
            }
            LoadError::File { path, reason } => write!(f, "{path}: {reason}"),
            LoadError::System(reason) => write!(f, "system error: {reason}"),
        }
    }
}

impl std::error::Error for LoadError {}
