//! The CQL language: text ⇄ syntax tree. Nothing here knows storage or sessions, and no name is looked up:
//! whether a table exists, a value fits or an option is known is decided by whoever executes the statement.

pub mod ast;
mod duration;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod lexer;
mod parser;
mod print;
mod words;

pub use ast::Statement;
pub use error::SyntaxError;
pub use print::{Masked, create_keyspace, create_table, create_type};

/// The longest statement that is read, in bytes. A native-protocol frame is no larger than this by default.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// How deep a statement may nest (collections, calls, types, parentheses), and how many operations one expression
/// may chain. Together they bound the depth of a tree, and so the stack that any walk over it needs: at this depth the
/// parser, which needs the most, took less than 256 KiB in a release build and 1 MiB in a debug build.
pub const DEPTH_MAX: u32 = 64;

/// The most bind markers in a statement: the protocol counts values in 16 bits.
pub const MARKERS_MAX: u32 = 65_535;

/// The most tokens in a statement: 65,535 bind markers with commas and names fit. A token costs at most about 200 bytes of tree,
/// so that a statement of 16 MiB takes 50 MiB rather than 2 GiB.
pub const TOKENS_MAX: u32 = 1 << 18;

/// Reads one statement, with or without a `;` after it.
///
/// # Errors
/// Where the text is no CQL, or exceeds one of the limits above.
pub fn parse(text: &str) -> Result<Statement, SyntaxError> {
    parser::parse(text).map(|(statement, _)| statement)
}

/// Returns the number of tokens of a text: the size of its tree, for a fraction of the time that parsing takes. The count ends at the
/// first character that begins no token.
///
/// # Errors
/// The text has more than [`TOKENS_MAX`].
pub fn count_tokens(text: &str) -> Result<u32, SyntaxError> {
    parser::count_tokens(text)
}

/// As [`parse`], with the number of tokens read: the measure of the tree's size and of the work on it.
///
/// # Errors
/// As [`parse`].
pub fn parse_counted(text: &str) -> Result<(Statement, u32), SyntaxError> {
    parser::parse(text)
}
