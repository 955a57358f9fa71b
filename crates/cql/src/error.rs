//! Syntax errors with their positions.

use std::fmt;

/// A syntax error and its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// The problem, worded as in Cassandra, because users know those messages.
    pub message: String,
    /// The line, counted from 1. 0: an error without a position, as Cassandra reports it.
    pub line: u32,
    /// The character in the line, counted from 0, like Cassandra.
    pub column: u32,
    /// True for a text that follows Cassandra's grammar. Cassandra answers that it is invalid,
    /// without the position.
    pub is_invalid: bool,
}

impl SyntaxError {
    /// Creates an error at byte `offset` of the text.
    pub(crate) fn at(text: &str, offset: usize, message: impl Into<String>) -> SyntaxError {
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        // Texts are at most TEXT_BYTES_MAX long, far below 2^32.
        let line = 1 + before.bytes().filter(|&b| b == b'\n').count() as u32;
        let column = before[line_start..].chars().count() as u32;
        SyntaxError { message: message.into(), line, column, is_invalid: false }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_invalid || self.line == 0 {
            true => f.write_str(&self.message),
            false => write!(f, "line {}:{} {}", self.line, self.column, self.message),
        }
    }
}

impl std::error::Error for SyntaxError {}
