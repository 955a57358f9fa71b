//! What is wrong with a text that is no CQL.

use std::fmt;

/// A syntax error, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// What is wrong, in the words drivers' users know from Cassandra.
    pub message: String,
    /// The line, from 1.
    pub line: u32,
    /// The character in the line, from 0, as Cassandra counts.
    pub column: u32,
}

impl SyntaxError {
    /// An error at a byte of the text.
    pub(crate) fn at(text: &str, offset: usize, message: impl Into<String>) -> SyntaxError {
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        // Texts are at most TEXT_BYTES_MAX long, far below 2^32.
        let line = 1 + before.bytes().filter(|&b| b == b'\n').count() as u32;
        let column = before[line_start..].chars().count() as u32;
        SyntaxError { message: message.into(), line, column }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{} {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SyntaxError {}
