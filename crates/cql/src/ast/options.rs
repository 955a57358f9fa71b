//! Options: `name = value`, whose meaning somebody else checks.

use super::Duration;

/// Options in the order of the text; names are in lower case. The parser refuses a name given twice.
pub type Options = Vec<(String, OptionValue)>;

/// The value of an option.
#[derive(Clone, PartialEq, Debug)]
pub enum OptionValue {
    /// `null`.
    Null,
    /// A whole number; one that needs more than 64 bits is a syntax error.
    Integer(i64),
    /// Any other number; finite.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A string; a bare word (`= batch`), in lower case; a UUID.
    String(String),
    /// A duration.
    Duration(Duration),
    /// `{'k': v, …}`, in the order of the text; `{}` too. Values are no maps.
    Map(Vec<(String, OptionValue)>),
}
