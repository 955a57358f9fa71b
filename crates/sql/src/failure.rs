//! Errors of statements, as clients of the Postgres protocol receive them: an SQLSTATE, which
//! programs check, and a message.

use std::fmt;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use engine::Error;
use frontdoor::Full;
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::response::ErrorResponse;

use crate::engine::limits::batch_width::TooWide;
use crate::engine::limits::function_bounds::Exceeded;
use crate::engine::parse::column_names;
use crate::engine::types::argument_errors;

/// An error of a statement or of the whole connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The SQLSTATE.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The connection ends with it.
    pub(crate) is_fatal: bool,
}

/// SQLSTATEs in use.
pub(crate) mod state {
    pub(crate) const PROTOCOL: &str = "08P01";
    pub(crate) const UNSUPPORTED: &str = "0A000";
    pub(crate) const READ_ONLY: &str = "25006";
    pub(crate) const FAILED_TRANSACTION: &str = "25P02";
    pub(crate) const NO_STATEMENT: &str = "26000";
    pub(crate) const NO_DATABASE: &str = "3D000";
    pub(crate) const NO_LOGIN: &str = "28000";
    pub(crate) const PASSWORD: &str = "28P01";
    pub(crate) const NO_PORTAL: &str = "34000";
    pub(crate) const SYNTAX: &str = "42601";
    pub(crate) const DENIED: &str = "42501";
    pub(crate) const NO_COLUMN: &str = "42703";
    pub(crate) const NO_FUNCTION: &str = "42883";
    pub(crate) const NO_SCHEMA: &str = "3F000";
    pub(crate) const NO_TABLE: &str = "42P01";
    pub(crate) const NO_OBJECT: &str = "42704";
    pub(crate) const EXISTS: &str = "42710";
    pub(crate) const INVALID: &str = "22023";
    pub(crate) const TYPE: &str = "42804";
    pub(crate) const DATA: &str = "22000";
    pub(crate) const RANGE: &str = "22003";
    pub(crate) const TIME: &str = "22007";
    pub(crate) const TIME_RANGE: &str = "22008";
    pub(crate) const ZERO: &str = "22012";
    pub(crate) const REGEX: &str = "2201B";
    pub(crate) const TEXT: &str = "22P02";
    pub(crate) const CARDINALITY: &str = "21000";
    pub(crate) const MEMORY: &str = "53200";
    pub(crate) const CONNECTIONS: &str = "53300";
    pub(crate) const IDLE: &str = "57P05";
    pub(crate) const LIMIT: &str = "54000";
    pub(crate) const COMPLEX: &str = "54001";
    pub(crate) const COLUMNS: &str = "54011";
    pub(crate) const CANCELED: &str = "57014";
    pub(crate) const SHUTDOWN: &str = "57P01";
    pub(crate) const OVERLOADED: &str = "53000";
    /// cannot_connect_now: the client may try again.
    pub(crate) const NO_CLUSTER: &str = "57P03";
    pub(crate) const INTERNAL: &str = "XX000";
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, is_fatal: false }
    }

    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Failure {
        Failure { is_fatal: true, ..Failure::new(code, message) }
    }

    /// Returns the refusal of a statement that would take too much planning.
    pub(crate) fn too_complex(reason: impl fmt::Display) -> Failure {
        Failure::new(state::COMPLEX, format!("statement too complex: {reason}"))
    }

    pub(crate) fn with_hint(self, hint: &str) -> Failure {
        Failure { hint: Some(hint.to_owned()), ..self }
    }

    /// Returns the error of a statement that would change data. `word` is its first word.
    pub(crate) fn read_only(word: &str) -> Failure {
        let word = word.to_uppercase();
        Failure::new(state::READ_ONLY, format!("{word} is not possible over SQL: it is read-only for now"))
            .with_hint("Change data and tables through CQL, on this server's CQL port.")
    }

    pub(crate) fn to_message(&self) -> ErrorResponse {
        let severity = if self.is_fatal { "FATAL" } else { "ERROR" };
        let mut info = ErrorInfo::new(severity.to_owned(), self.code.to_owned(), self.message.clone());
        info.hint = self.hint.clone();
        info.into()
    }
}

/// Refuses what is not supported.
pub(crate) fn unsupported<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(state::UNSUPPORTED, text))
}

/// Returns a failure in the form that DataFusion passes on unchanged.
pub(crate) fn refusal(code: &'static str, message: impl Into<String>) -> DataFusionError {
    Failure::new(code, message).into()
}

/// Converts a failure to the form that DataFusion passes on unchanged.
impl From<Failure> for DataFusionError {
    fn from(failure: Failure) -> DataFusionError {
        DataFusionError::External(Box::new(failure))
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Converts the refusal of a full account of memory.
impl From<Full> for Failure {
    fn from(full: Full) -> Failure {
        let hint = "Close prepared statements and portals that are not used, or send shorter statements.";
        Failure::new(state::MEMORY, full.to_string()).with_hint(hint)
    }
}

/// Converts errors of the engine and of `access`.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Invalid(_) | Error::Config(_) | Error::Syntax(_) | Error::Function { .. } => {
                state::INVALID
            }
            Error::AlreadyExists { .. } => state::EXISTS,
            Error::Unauthorized(_) => state::DENIED,
            Error::Overloaded(_) => state::OVERLOADED,
            Error::ReadTimeout(_) | Error::WriteTimeout(_) => state::CANCELED,
            Error::Stale => "40001",
            Error::IndexNotAvailable | Error::Server(_) => state::INTERNAL,
        };
        Failure::new(code, error.to_string())
    }
}

/// Converts DataFusion's errors by their innermost cause. Errors of this crate and of the engine
/// keep their SQLSTATE.
impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Failure {
        let failure = of_root(&error);
        let message = column_names::unmarked(&failure.message).into_owned();
        Failure { message, ..failure }
    }
}

fn of_root(error: &DataFusionError) -> Failure {
    match error.find_root() {
        DataFusionError::External(inner) => {
            if let Some(error) = inner.downcast_ref::<Error>() {
                return error.clone().into();
            }
            if let Some(failure) = inner.downcast_ref::<Failure>() {
                return failure.clone();
            }
            if inner.is::<Exceeded>() || inner.is::<TooWide>() {
                return Failure::new(state::LIMIT, inner.to_string());
            }
            if let Some(error) = inner.downcast_ref::<ArrowError>() {
                return of_arrow(error);
            }
            of_expression(&inner.to_string())
                .unwrap_or_else(|| Failure::new(state::INTERNAL, inner.to_string()))
        }
        DataFusionError::SQL(parse, _) => {
            let (ParserError::TokenizerError(text) | ParserError::ParserError(text)) = &**parse else {
                return Failure::new(state::LIMIT, "the statement is nested too deeply");
            };
            Failure::new(state::SYNTAX, format!("syntax error: {text}"))
        }
        DataFusionError::ResourcesExhausted(text) => Failure::new(state::MEMORY, text.clone()),
        DataFusionError::IoError(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            Failure::new("53100", error.to_string())
        }
        DataFusionError::NotImplemented(text) => Failure::new(state::UNSUPPORTED, text.clone()),
        DataFusionError::SchemaError(inner, _) => Failure::new(state::NO_COLUMN, inner.to_string()),
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        DataFusionError::Execution(text) => of_expression(text)
            .or_else(|| argument_errors::of_plan(text))
            .unwrap_or_else(|| Failure::new(class_of_execution(text), text.clone())),
        DataFusionError::Plan(text) => {
            argument_errors::of_plan(text).unwrap_or_else(|| Failure::new(class_of_plan(text), text.clone()))
        }
        DataFusionError::Internal(text) if is_about_type(text) => {
            Failure::new(state::UNSUPPORTED, format!("not supported for values of this type: {text}"))
        }
        root => Failure::new(state::INTERNAL, root.strip_backtrace()),
    }
}

/// Returns true if DataFusion reports a type that a function accepts but does not compute with.
fn is_about_type(text: &str) -> bool {
    ["could not cast array of type", "Uncomparable values"].iter().any(|start| text.starts_with(start))
}

fn of_arrow(error: &ArrowError) -> Failure {
    if let ArrowError::ExternalError(inner) = error
        && let Some(failure) = inner.downcast_ref::<Failure>()
    {
        return failure.clone();
    }
    of_expression(&error.to_string())
        .unwrap_or_else(|| Failure::new(class_of_value(error), error.to_string()))
}

/// Returns the failure of an invalid regular expression. The message of its library shows the
/// position in several lines, with the reason in the last one.
fn of_expression(text: &str) -> Option<Failure> {
    let (_, shown) = text.split_once("regex parse error:")?;
    let (_, reason) = shown.rsplit_once("error: ")?;
    Some(Failure::new(state::REGEX, format!("invalid regular expression: {}", reason.trim())))
}

/// Returns the SQLSTATE of Arrow's errors about values.
fn class_of_value(error: &ArrowError) -> &'static str {
    match error {
        ArrowError::DivideByZero => state::ZERO,
        ArrowError::ArithmeticOverflow(_) => state::RANGE,
        ArrowError::ComputeError(text) if text.contains("overflow") => state::RANGE,
        ArrowError::ComputeError(text) if text.contains("timestamp out of range") => state::TIME_RANGE,
        ArrowError::JsonError(_) | ArrowError::NotYetImplemented(_) => state::UNSUPPORTED,
        ArrowError::InvalidArgumentError(text) if text.contains("too large to store") => state::RANGE,
        _ => state::DATA,
    }
}

/// Returns the SQLSTATE of DataFusion's errors during execution, by their texts.
fn class_of_execution(text: &str) -> &'static str {
    const TEXTS: [(&str, &str); 6] = [
        ("returned more than one row", state::CARDINALITY),
        ("negative count not allowed", "22011"),
        ("field position must not be zero", state::INVALID),
        ("not recognized", state::INVALID),
        ("Unsupported date_trunc granularity", state::INVALID),
        ("NTILE requires a positive integer", "22014"),
    ];
    TEXTS.iter().find(|(part, _)| text.contains(part)).map_or(state::DATA, |(_, class)| class)
}

/// Returns the SQLSTATE of DataFusion's planning errors. Only their texts differ.
fn class_of_plan(text: &str) -> &'static str {
    if text.starts_with("table '") && text.ends_with("not found") {
        state::NO_TABLE
    } else if text.starts_with("LIMIT must be") {
        "2201W"
    } else if text.starts_with("Invalid window frame") {
        "42P20"
    } else if ["Invalid function", "Cannot coerce arithmetic", "There isn't a common type to coerce"]
        .iter()
        .any(|start| text.starts_with(start))
    {
        state::NO_FUNCTION
    } else if text.contains("type") {
        state::TYPE
    } else {
        "42000"
    }
}

/// Converts errors of the protocol's library about a message or a value.
impl From<PgWireError> for Failure {
    fn from(error: PgWireError) -> Failure {
        Failure::new(state::PROTOCOL, error.to_string())
    }
}
