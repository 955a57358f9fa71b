//! Parser and printer of CQL: converts text to a syntax tree and back. The crate does not resolve
//! names or check types. The code that executes a statement decides if a table exists, a value fits
//! its column or an option is known. The crate therefore needs no storage and no session.

pub mod ast;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod lexer;
mod parser;
mod print;
mod words;

pub use ast::Statement;
pub use error::SyntaxError;
pub use print::{
    Masked, create_index, create_keyspace, create_table, create_table_with_internals, create_type,
    create_view, option_map, virtual_table,
};
pub use words::{constant, identifier};

/// Longest statement that the parser accepts, in bytes. Default limit of a native-protocol frame.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Deepest nesting of a statement (collections, calls, types, parentheses), and the most operations
/// in one expression. Both bound the depth of a tree, and so the stack that a walk over it needs.
/// The parser needs the most stack. At this depth it took less than 256 KiB in a release build and
/// 1 MiB in a debug build.
pub const DEPTH_MAX: u32 = 64;

/// The most bind markers in a statement. The protocol counts values in 16 bits.
pub const MARKERS_MAX: u32 = 65_535;

/// The most tokens in a statement: 65,535 bind markers with commas and names fit. A token costs at
/// most about 200 bytes of tree. With this limit, the tree of a statement of 16 MiB takes 50 MiB.
/// Without it, the tree could take 2 GiB.
pub const TOKENS_MAX: u32 = 1 << 18;

/// Parses one statement, with or without a `;` after it.
///
/// # Errors
/// Returns an error if the text is not CQL or exceeds a limit of this crate.
pub fn parse(text: &str) -> Result<Statement, SyntaxError> {
    parser::parse(text).map(|(statement, _)| statement)
}

/// Returns the number of tokens of a text, which bounds the size of its tree. Counting takes a
/// fraction of the time of parsing. The count ends at the first character that does not start a
/// token.
///
/// # Errors
/// Returns an error if the text has more than [`TOKENS_MAX`] tokens.
pub fn count_tokens(text: &str) -> Result<u32, SyntaxError> {
    parser::count_tokens(text)
}

/// Returns true if the text has the reserved word IF. In a statement that changes data it begins a
/// condition. Reads the tokens up to that word, or up to the first that is none, without parsing
/// them: syntax that this crate does not know is no obstacle.
#[must_use]
pub fn has_if(text: &str) -> bool {
    parser::has_if(text)
}

/// Parses like [`parse`], and also returns the number of tokens. That number measures the size of
/// the tree and the work on it.
///
/// # Errors
/// Returns the errors of [`parse`].
pub fn parse_counted(text: &str) -> Result<(Statement, u32), SyntaxError> {
    parser::parse(text)
}
