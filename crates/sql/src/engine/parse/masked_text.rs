//! Texts of statements for the log, without the data in them.

use std::fmt::Write as _;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Bytes of a text that are read.
const READ_BYTES: usize = 1000;

/// Returns the beginning of a text on one line, with `?` for literals. What cannot be told from a
/// literal is left out.
pub(crate) fn masked(text: &str) -> String {
    let head = &text[..text.floor_char_boundary(READ_BYTES)];
    let mut tokens = Vec::new();
    let read = Tokenizer::new(&PostgreSqlDialect {}, head).tokenize_with_location_into_buf(&mut tokens);
    let mut out = String::with_capacity(head.len());
    for token in tokens {
        match token.token {
            Token::Whitespace(_) if out.ends_with(' ') || out.is_empty() => {}
            Token::Whitespace(_) => out.push(' '),
            Token::Word(word) => _ = write!(out, "{word}"),
            token if is_sign(&token) => _ = write!(out, "{token}"),
            _ => out.push('?'),
        }
    }
    if read.is_err() || head.len() < text.len() {
        out.push('…');
    }
    out
}

/// Returns true for operators and punctuation.
fn is_sign(token: &Token) -> bool {
    let text = token.to_string();
    matches!(token, Token::Placeholder(_))
        || text.chars().all(|c| c.is_ascii_punctuation() && c != '\'' && c != '"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_masked_and_cut_ones_left_out() {
        let check = |text: &str, expected: &str| assert_eq!(masked(text), expected);
        check(
            "SELECT  a, \"B\" FROM t -- it's\n WHERE b = 'x''y' AND c >= -1.5e3",
            "SELECT a, \"B\" FROM t WHERE b = ? AND c >= -?",
        );
        check("SELECT $1::text, E'\\x', $$secret$$, x'ab'", "SELECT $1::text, ?, ?, ?");
        check("SELECT 'secret", "SELECT …");
        check(&format!("SELECT '{}'", "ä".repeat(1_000)), "SELECT …");
    }
}
