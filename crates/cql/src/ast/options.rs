//! Options, `name = value`. The code that executes the statement checks their names and values.

use super::Duration;

/// Options in the order of the text. Names are in lower case. The parser rejects repeated names.
pub type OptionList = Vec<(String, OptionValue)>;

/// The value of an option.
#[derive(Clone, PartialEq, Debug)]
pub enum OptionValue {
    /// `null`.
    Null,
    /// An integer. Integers of more than 64 bits are syntax errors.
    Integer(i64),
    /// Any other number. Always finite.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A string, an unquoted word in lower case (`= batch`), or a UUID.
    String(String),
    /// A duration.
    Duration(Duration),
    /// `{'k': v, …}` or `{}`, in the order of the text. Values are not maps.
    Map(Vec<(String, OptionValue)>),
}
