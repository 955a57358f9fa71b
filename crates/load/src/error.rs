//! Why a load could not be run. Errors of single requests are results, not failures: they are counted.

use std::fmt;

/// Why a load could not be run, or a statement of set-up not be executed.
#[derive(Debug)]
pub enum LoadError {
    /// A flag, or a value of one, makes no sense; says which and why.
    Usage(String),
    /// No connection to this address.
    Connect {
        /// HOST:PORT.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The server refused user and password.
    Credentials {
        /// HOST:PORT.
        address: String,
        /// What the server said.
        reason: String,
    },
    /// The server answered a statement of set-up with an error.
    Statement {
        /// The statement, shortened.
        statement: String,
        /// The protocol's error code.
        code: i32,
        /// What the server said.
        reason: String,
    },
    /// No connection to the Postgres door of this address.
    Postgres {
        /// HOST:PORT.
        address: String,
        /// What the client library or the server said.
        reason: String,
    },
    /// The server refused a statement that every SQL connection begins with.
    Refused {
        /// The statement.
        statement: String,
        /// What the server said.
        reason: String,
    },
    /// The table is not there, and it was not to be created.
    NoTable(String),
    /// The server's bytes are not the native protocol.
    Protocol {
        /// HOST:PORT.
        address: String,
        /// What was wrong.
        reason: String,
    },
    /// A file cannot be read or written, or does not hold histograms.
    File {
        /// Its path.
        path: String,
        /// What was wrong.
        reason: String,
    },
    /// The operating system refused something the generator needs.
    System(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Usage(reason) => f.write_str(reason),
            LoadError::Connect { address, reason } => {
                write!(
                    f,
                    "Cannot connect to {address}: {reason}. Is the server running, and is this its CQL port?"
                )
            }
            LoadError::Credentials { address, reason } => {
                write!(
                    f,
                    "{address} refused the user or password ({reason}). Give --user and --password-file."
                )
            }
            LoadError::Statement { statement, code, reason } => {
                write!(f, "The server refused `{statement}`: {reason} (code 0x{code:04X})")
            }
            LoadError::Postgres { address, reason } => {
                write!(
                    f,
                    "Cannot connect to {address}: {reason}. Is the server running, and is this its Postgres port?"
                )
            }
            LoadError::Refused { statement, reason } => {
                write!(f, "The server refused `{statement}`: {reason}")
            }
            LoadError::NoTable(table) => {
                write!(f, "The table {table} does not exist; leave out --no-create, or run `prefill` first.")
            }
            LoadError::Protocol { address, reason } => {
                write!(f, "What {address} sends is not the CQL native protocol v4: {reason}")
            }
            LoadError::File { path, reason } => write!(f, "{path}: {reason}"),
            LoadError::System(reason) => write!(f, "The operating system refused: {reason}"),
        }
    }
}

impl std::error::Error for LoadError {}
