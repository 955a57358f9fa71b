//! Patterns of `LIKE`, `SIMILAR TO` and regular expressions.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, ValueWithSpan};

use crate::engine::parse::syntax::{binary, constant_text, nested, null_truth, text};
use crate::engine::types::exact::DOT_MATCHES_LINE_FEED;
use crate::failure::{Failure, unsupported};

/// Lets the dots of a regular expression match the end of a line too, as in PostgreSQL.
pub(super) fn match_line_feeds(pattern: &mut Expr) {
    match constant_text(pattern) {
        Some(constant) if constant.contains('.') && !constant.starts_with("(?") => {
            *pattern = text(format!("{DOT_MATCHES_LINE_FEED}{constant}"));
        }
        Some(_) => {}
        None => {
            let option = text(DOT_MATCHES_LINE_FEED.to_owned());
            *pattern = nested(binary(option, BinaryOperator::StringConcat, nested(pattern.clone())));
        }
    }
}

/// Returns a match with a regular expression for `SIMILAR TO`.
///
/// # Errors
/// The pattern is no constant, or invalid.
pub(super) fn similar_to(
    value: &Expr,
    is_negated: bool,
    pattern: &Expr,
    escape_char: Option<&ValueWithSpan>,
) -> Result<Expr, Failure> {
    let escape = escape(escape_char)?;
    if let Some(pattern) = constant_text(pattern) {
        let op = match is_negated {
            true => BinaryOperator::PGRegexNotMatch,
            false => BinaryOperator::PGRegexMatch,
        };
        Ok(nested(binary(value.clone(), op, text(similar(pattern, escape)?))))
    } else if matches!(pattern, Expr::Value(ValueWithSpan { value: Value::Null, .. })) {
        Ok(null_truth())
    } else {
        unsupported("SIMILAR TO takes a pattern that is a constant")
    }
}

/// Rewrites the pattern of `LIKE` to one with a backslash as escape character.
///
/// # Errors
/// The pattern is invalid, or no constant and has another escape character.
pub(super) fn like_escape(
    pattern: &mut Expr,
    escape_char: &mut Option<ValueWithSpan>,
) -> Result<(), Failure> {
    let escape = escape(escape_char.as_ref())?;
    match constant_text(pattern) {
        Some(written) => *pattern = text(like(written, escape)?),
        None if escape == Some('\\') => {}
        None => return unsupported("ESCAPE takes a pattern that is a constant"),
    }
    *escape_char = None;
    Ok(())
}

/// Returns the escape character of a pattern. `None` for an empty text, a backslash by default.
fn escape(written: Option<&ValueWithSpan>) -> Result<Option<char>, Failure> {
    let Some(written) = written else { return Ok(Some('\\')) };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &written.value else {
        return unsupported("ESCAPE takes a constant");
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => Err(Failure::new("22025", "invalid escape string: it must be empty or one character")),
    }
}

/// Rewrites a LIKE pattern to one with a backslash as escape character.
fn like(pattern: &str, escape: Option<char>) -> Result<String, Failure> {
    let (mut out, mut chars) = (String::new(), pattern.chars());
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let Some(next) = chars.next() else {
                return Err(Failure::new("22025", "LIKE pattern must not end with escape character"));
            };
            if matches!(next, '%' | '_' | '\\') {
                out.push('\\');
            }
            out.push(next);
        } else {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
    }
    Ok(out)
}

/// Converts a SIMILAR TO pattern to a regular expression (`similar_escape_internal`).
fn similar(pattern: &str, escape: Option<char>) -> Result<String, Failure> {
    let mut out = format!("{DOT_MATCHES_LINE_FEED}^(?:");
    let mut chars = pattern.chars();
    let mut is_within = false;
    let literal = |c: char, out: &mut String| {
        if !c.is_alphanumeric() && !c.is_whitespace() && c.is_ascii() {
            out.push('\\');
        }
        out.push(c);
    };
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            match chars.next() {
                Some('"') => return unsupported("SIMILAR TO with parts of a pattern is not supported"),
                Some(next) => literal(next, &mut out),
                None => return Err(Failure::new("22025", "invalid escape sequence")),
            }
            continue;
        }
        match c {
            ']' if is_within => {
                out.push(']');
                is_within = false;
            }
            '[' if !is_within => {
                out.push('[');
                is_within = true;
            }
            '\\' | '[' => literal(c, &mut out),
            c if is_within => out.push(c),
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => literal(c, &mut out),
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_regular_expressions() {
        for (pattern, escape, expected) in [
            ("a%", Some('\\'), "(?s)^(?:a.*)$"),
            ("a.c", Some('\\'), "(?s)^(?:a\\.c)$"),
            ("%(b|d)%", Some('\\'), "(?s)^(?:.*(?:b|d).*)$"),
            ("[a_%.]+", Some('\\'), "(?s)^(?:[a_%.]+)$"),
            ("a\\%", Some('\\'), "(?s)^(?:a\\%)$"),
            ("a#%\\", Some('#'), "(?s)^(?:a\\%\\\\)$"),
        ] {
            assert_eq!(similar(pattern, escape).expect(pattern), expected);
        }
        assert!(similar("a\\", Some('\\')).is_err());
        assert!(similar("a\\\"b\\\"c", Some('\\')).is_err());
    }

    #[test]
    fn other_escapes_become_backslashes() {
        for (pattern, escape, expected) in [
            ("a#%_c", Some('#'), "a\\%_c"),
            ("a\\b", Some('#'), "a\\\\b"),
            ("a\\b", None, "a\\\\b"),
            ("a##", Some('#'), "a#"),
            ("a\\%", Some('\\'), "a\\%"),
            ("a\\b", Some('\\'), "ab"),
        ] {
            assert_eq!(like(pattern, escape).expect(pattern), expected, "{pattern}");
        }
        assert!(like("a#", Some('#')).is_err());
    }
}
