//! The ERROR message: a code, a text, and for some codes the fields that drivers need for retries.

use std::fmt;
use std::net::IpAddr;

use crate::body::Body;
use crate::read::{Reader, out_of_range};
use crate::{Consistency, Error, Version};

/// The longest text of an ERROR in bytes, limited by `[string]`. Longer texts are cut at a
/// character.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// Replicas that failed. v5 lists each with a reason code, v4 only counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    /// Number of replicas that failed.
    pub count: i32,
    /// Address and reason code of each replica in v5. Empty in v4.
    pub reasons: Vec<(IpAddr, u16)>,
}

/// Kind of failure, with the fields of its error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureKind {
    /// 0x0000: a server error.
    Server,
    /// 0x000A: the client violated the protocol.
    Protocol,
    /// 0x0100: authentication failed.
    Authentication,
    /// 0x1000: too few replicas are alive.
    Unavailable {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas needed.
        required: i32,
        /// Replicas alive.
        alive: i32,
    },
    /// 0x1001: the server is overloaded.
    Overloaded,
    /// 0x1002: the server is still starting.
    Bootstrapping,
    /// 0x1003: a truncation failed.
    Truncate,
    /// 0x1100: a write timed out.
    WriteTimeout {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// `SIMPLE`, `BATCH`, `UNLOGGED_BATCH`, `COUNTER`, `BATCH_LOG`, `CAS`, `VIEW` or `CDC`.
        write_type: String,
        /// In v5 and only for `CAS`: number of contentions with other conditional updates.
        contentions: Option<u16>,
    },
    /// 0x1200: a read timed out.
    ReadTimeout {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// True if the replica that was asked for data answered.
        data_present: bool,
    },
    /// 0x1300: a read failed.
    ReadFailure {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// The replicas that failed.
        failures: Failures,
        /// True if the replica that was asked for data answered.
        data_present: bool,
    },
    /// 0x1400: a user-defined function failed.
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: String,
        /// Name of the function.
        function: String,
        /// Argument types as CQL.
        arg_types: Vec<String>,
    },
    /// 0x1500: a write failed.
    WriteFailure {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// The replicas that failed.
        failures: Failures,
        /// See [`FailureKind::WriteTimeout`].
        write_type: String,
    },
    /// 0x1600: the CDC log is full, so that the write failed.
    CdcWriteFailure,
    /// 0x1700: the outcome of a conditional update is unknown.
    CasWriteUnknown {
        /// Requested consistency level.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Answers needed.
        block_for: i32,
    },
    /// 0x2000: the statement does not parse.
    Syntax,
    /// 0x2100: the role lacks a permission.
    Unauthorized,
    /// 0x2200: the statement parses but is invalid.
    Invalid,
    /// 0x2300: the configuration makes the statement invalid.
    Config,
    /// 0x2400: the keyspace or table exists already.
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table, or empty if the keyspace itself exists.
        table: String,
    },
    /// 0x2500: the server has no prepared statement with this id.
    Unprepared(
        /// The id.
        Vec<u8>,
    ),
    /// 0xF000, an extension of ScyllaDB: the rate limit of a partition was exceeded.
    RateLimit {
        /// 0 for reads, 1 for writes.
        operation: u8,
        /// True if the coordinator rejected the request, false if a replica did.
        by_coordinator: bool,
    },
    /// A code that this codec does not know. Its further fields are not read.
    Other(
        /// The code.
        i32,
    ),
}

impl FailureKind {
    /// Returns the error code on the wire.
    pub fn code(&self) -> i32 {
        match self {
            FailureKind::Server => 0x0000,
            FailureKind::Protocol => 0x000A,
            FailureKind::Authentication => 0x0100,
            FailureKind::Unavailable { .. } => 0x1000,
            FailureKind::Overloaded => 0x1001,
            FailureKind::Bootstrapping => 0x1002,
            FailureKind::Truncate => 0x1003,
            FailureKind::WriteTimeout { .. } => 0x1100,
            FailureKind::ReadTimeout { .. } => 0x1200,
            FailureKind::ReadFailure { .. } => 0x1300,
            FailureKind::FunctionFailure { .. } => 0x1400,
            FailureKind::WriteFailure { .. } => 0x1500,
            FailureKind::CdcWriteFailure => 0x1600,
            FailureKind::CasWriteUnknown { .. } => 0x1700,
            FailureKind::Syntax => 0x2000,
            FailureKind::Unauthorized => 0x2100,
            FailureKind::Invalid => 0x2200,
            FailureKind::Config => 0x2300,
            FailureKind::AlreadyExists { .. } => 0x2400,
            FailureKind::Unprepared(_) => 0x2500,
            FailureKind::RateLimit { .. } => 0xF000,
            FailureKind::Other(code) => *code,
        }
    }
}

/// Content of an ERROR message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Error code with its fields.
    pub kind: FailureKind,
    /// Human-readable text.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error 0x{:04X}: {}", self.kind.code(), self.message)
    }
}

impl std::error::Error for Failure {}

impl From<&Error> for Failure {
    /// Returns the protocol error (0x000A) that answers a malformed frame or message.
    fn from(error: &Error) -> Failure {
        Failure::new(FailureKind::Protocol, error.to_string())
    }
}

impl Failure {
    /// Creates a failure with this text.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.int(self.kind.code());
        body.string(cut(&self.message));
        self.kind.write(body);
    }

    pub(crate) fn read(reader: &mut Reader<'_>, version: Version) -> Result<Failure, Error> {
        let code = reader.int("error code")?;
        let message = reader.string("error message")?.to_owned();
        Ok(Failure { kind: FailureKind::read(code, reader, version)?, message })
    }
}

impl FailureKind {
    fn write(&self, body: &mut Body<'_>) {
        match self {
            FailureKind::Unavailable { consistency, required, alive } => {
                write_counts(body, *consistency, *required, *alive);
            }
            FailureKind::WriteTimeout { consistency, received, block_for, write_type, contentions } => {
                write_counts(body, *consistency, *received, *block_for);
                body.string(write_type);
                if body.version() >= Version::V5 && write_type == "CAS" {
                    body.short(contentions.unwrap_or(0));
                }
            }
            FailureKind::ReadTimeout { consistency, received, block_for, data_present } => {
                write_counts(body, *consistency, *received, *block_for);
                body.byte(u8::from(*data_present));
            }
            FailureKind::ReadFailure { consistency, received, block_for, failures, data_present } => {
                write_counts(body, *consistency, *received, *block_for);
                failures.write(body);
                body.byte(u8::from(*data_present));
            }
            FailureKind::FunctionFailure { keyspace, function, arg_types } => {
                body.string(keyspace);
                body.string(function);
                body.string_list(arg_types);
            }
            FailureKind::WriteFailure { consistency, received, block_for, failures, write_type } => {
                write_counts(body, *consistency, *received, *block_for);
                failures.write(body);
                body.string(write_type);
            }
            FailureKind::CasWriteUnknown { consistency, received, block_for } => {
                write_counts(body, *consistency, *received, *block_for);
            }
            FailureKind::AlreadyExists { keyspace, table } => {
                body.string(keyspace);
                body.string(table);
            }
            FailureKind::Unprepared(id) => body.short_bytes(id),
            FailureKind::RateLimit { operation, by_coordinator } => {
                body.byte(*operation);
                body.byte(u8::from(*by_coordinator));
            }
            _ => {}
        }
    }

    fn read(code: i32, reader: &mut Reader<'_>, version: Version) -> Result<FailureKind, Error> {
        Ok(match code {
            0x0000 => FailureKind::Server,
            0x000A => FailureKind::Protocol,
            0x0100 => FailureKind::Authentication,
            0x1001 => FailureKind::Overloaded,
            0x1002 => FailureKind::Bootstrapping,
            0x1003 => FailureKind::Truncate,
            0x1000 | 0x1100..=0x1300 | 0x1500 | 0x1700 => return Self::read_counted(code, reader, version),
            0x1400 => FailureKind::FunctionFailure {
                keyspace: reader.string("keyspace")?.to_owned(),
                function: reader.string("function")?.to_owned(),
                arg_types: reader.owned_list("argument types")?,
            },
            0x1600 => FailureKind::CdcWriteFailure,
            0x2000 => FailureKind::Syntax,
            0x2100 => FailureKind::Unauthorized,
            0x2200 => FailureKind::Invalid,
            0x2300 => FailureKind::Config,
            0x2400 => FailureKind::AlreadyExists {
                keyspace: reader.string("keyspace")?.to_owned(),
                table: reader.string("table")?.to_owned(),
            },
            0x2500 => FailureKind::Unprepared(reader.short_bytes("statement id")?.to_vec()),
            0xF000 => FailureKind::RateLimit {
                operation: reader.byte("operation type")?,
                by_coordinator: reader.byte("rejected by coordinator")? != 0,
            },
            other => FailureKind::Other(other),
        })
    }

    /// Reads the codes whose fields begin with a consistency level and two counts.
    fn read_counted(code: i32, reader: &mut Reader<'_>, version: Version) -> Result<FailureKind, Error> {
        let known = matches!(code, 0x1000 | 0x1100 | 0x1200 | 0x1300 | 0x1500 | 0x1700);
        if !known {
            return Ok(FailureKind::Other(code));
        }
        let consistency = Consistency::read(reader, "consistency")?;
        let received = reader.int("received")?;
        let block_for = reader.int("required")?;
        Ok(match code {
            0x1000 => FailureKind::Unavailable { consistency, required: received, alive: block_for },
            0x1100 => {
                let write_type = reader.string("write type")?.to_owned();
                let counted = version >= Version::V5 && write_type == "CAS";
                let contentions = if counted { Some(reader.short("contentions")?) } else { None };
                FailureKind::WriteTimeout { consistency, received, block_for, write_type, contentions }
            }
            0x1200 => {
                let data_present = reader.byte("data present")? != 0;
                FailureKind::ReadTimeout { consistency, received, block_for, data_present }
            }
            0x1300 => {
                let failures = Failures::read(reader, version)?;
                let data_present = reader.byte("data present")? != 0;
                FailureKind::ReadFailure { consistency, received, block_for, failures, data_present }
            }
            0x1500 => {
                let failures = Failures::read(reader, version)?;
                let write_type = reader.string("write type")?.to_owned();
                FailureKind::WriteFailure { consistency, received, block_for, failures, write_type }
            }
            _ => FailureKind::CasWriteUnknown { consistency, received, block_for },
        })
    }
}

/// Returns the text, shortened to the maximum of a `[string]`.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn write_counts(body: &mut Body<'_>, consistency: Consistency, first: i32, second: i32) {
    body.short(consistency.number());
    body.int(first);
    body.int(second);
}

impl Failures {
    fn write(&self, body: &mut Body<'_>) {
        match body.version() {
            Version::V4 => body.int(self.count),
            Version::V5 => {
                body.int(self.reasons.len() as i32);
                for (address, reason) in &self.reasons {
                    body.inetaddr(*address);
                    body.short(*reason);
                }
            }
        }
    }

    fn read(reader: &mut Reader<'_>, version: Version) -> Result<Failures, Error> {
        let count = reader.int("number of failures")?;
        if version == Version::V4 {
            return Ok(Failures { count, reasons: Vec::new() });
        }
        let length = usize::try_from(count).map_err(|_| out_of_range("number of failures", count))?;
        reader.check_count(length, 7, "failures")?;
        let reasons = (0..length)
            .map(|_| Ok((reader.inetaddr("endpoint")?, reader.short("failure code")?)))
            .collect::<Result<_, Error>>()?;
        Ok(Failures { count, reasons })
    }
}
