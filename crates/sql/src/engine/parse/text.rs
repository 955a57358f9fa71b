//! Splits a text into statements and words without parsing it. Statements about the session
//! (`SET`, `BEGIN`) and about levels are thus recognized without planning. `text_bounds` measures
//! the rest.

/// Returns the statements of a text without their separators. Skips quotes, dollar quotes and
/// comments. If a text has more than `max` statements, returns `max + 1`.
pub(crate) fn split(text: &str, max: usize) -> Vec<&str> {
    let mut statements = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while at < text.len() && statements.len() <= max {
        if text.as_bytes()[at] == b';' {
            statements.extend(Some(trim(&text[begin..at])).filter(|statement| !statement.is_empty()));
            at += 1;
            begin = at;
        } else {
            at += token_len(&text[at..]);
        }
    }
    let last = trim(&text[begin..]);
    if statements.len() <= max && !last.is_empty() {
        statements.push(last);
    }
    statements
}

/// Removes blanks and comments before a text, and blanks after it.
fn trim(mut text: &str) -> &str {
    loop {
        text = text.trim();
        match comment_len(text) {
            Some(len) => text = &text[len..],
            None => return text,
        }
    }
}

/// Returns the length of the blank or the comment that `text` starts with, or 0.
pub(crate) fn blank_len(text: &str) -> usize {
    match text.chars().next() {
        Some(first) if first.is_whitespace() => first.len_utf8(),
        _ => comment_len(text).unwrap_or(0),
    }
}

/// Returns the length of the token at the start of a text: quoted text, a comment, a
/// word, or one character.
pub(crate) fn token_len(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    match text.as_bytes()[0] {
        quote @ (b'\'' | b'"') => quoted_len(text, quote),
        b'$' => dollar_quoted_len(text).unwrap_or(first),
        b'-' | b'/' => comment_len(text).unwrap_or(first),
        // A `$` within a name begins no quote.
        byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
            text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
        }
        _ => first,
    }
}

/// Treats a doubled quote as the end of one quoted text and the begin of the next: the length is
/// the same in total.
fn quoted_len(text: &str, quote: u8) -> usize {
    text.bytes().skip(1).position(|byte| byte == quote).map_or(text.len(), |end| end + 2)
}

fn dollar_quoted_len(text: &str) -> Option<usize> {
    let tag_end = text[1..].find('$')? + 2;
    let tag = &text[..tag_end];
    if !tag[1..tag_end - 1].chars().all(|c| c.is_alphanumeric() || c == '_')
        || tag[1..].starts_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    Some(text[tag_end..].find(tag).map_or(text.len(), |end| tag_end + end + tag_end))
}

fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("--") {
        return Some(text.find('\n').map_or(text.len(), |end| end + 1));
    }
    if !text.starts_with("/*") {
        return None;
    }
    // Comments nest.
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    Some(text.len())
}

/// One word of a short statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// An unquoted name or number, in lower case.
    Plain(String),
    /// A quoted text or name, without its quotes.
    Quoted(String),
    /// Any other character.
    Sign(char),
}

impl Word {
    /// Returns true if it is the keyword `keyword`.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        matches!(self, Word::Plain(word) if word == keyword)
    }

    /// Returns its text without quotes.
    pub(crate) fn text(&self) -> String {
        match self {
            Word::Plain(text) | Word::Quoted(text) => text.clone(),
            Word::Sign(sign) => sign.to_string(),
        }
    }
}

/// Returns the first words of a statement, at most `words_max`.
pub(crate) fn words(text: &str, words_max: usize) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = trim(text);
    while !rest.is_empty() && words.len() < words_max {
        let len = token_len(rest);
        let token = &rest[..len];
        words.push(match token.as_bytes()[0] {
            b'\'' | b'"' => {
                let quote = &token[..1];
                let inner = token[1..].strip_suffix(quote).unwrap_or(&token[1..]);
                Word::Quoted(inner.to_owned())
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => Word::Plain(token.to_lowercase()),
            _ => Word::Sign(token.chars().next().unwrap_or(' ')),
        });
        rest = trim(&rest[len..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split(text, 100), expected, "{text}");
    }

    #[test]
    fn a_text_is_split_outside_of_quotes_and_comments() {
        check("", &[]);
        check(" ; ;; ", &[]);
        check("SELECT 1", &["SELECT 1"]);
        check("BEGIN; SELECT ';' AS \"a;b\" ;COMMIT;", &["BEGIN", "SELECT ';' AS \"a;b\"", "COMMIT"]);
        check("SELECT 'it''s; so';SELECT 2", &["SELECT 'it''s; so'", "SELECT 2"]);
        check("-- a; b\nSELECT 1 -- c; d", &["SELECT 1 -- c; d"]);
        check("/* a; /* b; */ c; */ SELECT 1; /* rest", &["SELECT 1"]);
        check("SELECT $$a;b$$; SELECT $x$a;$$b$x$, $1", &["SELECT $$a;b$$", "SELECT $x$a;$$b$x$, $1"]);
        check("SELECT $1;SELECT $2", &["SELECT $1", "SELECT $2"]);
        check("SELECT 'open; end", &["SELECT 'open; end"]);
        check("SELECT 'ä;ö' - 1 / 2; ü", &["SELECT 'ä;ö' - 1 / 2", "ü"]);
    }

    #[test]
    fn words_are_lower_case_unless_quoted() {
        let plain = |text: &str| Word::Plain(text.to_owned());
        let quoted = |text: &str| Word::Quoted(text.to_owned());
        let expected = [plain("set"), plain("time"), plain("zone"), Word::Sign('='), quoted("Europe/Rome")];
        assert_eq!(words("/*x*/SET time ZONE = 'Europe/Rome'; rest", 5), expected);
        assert_eq!(words("SHOW \"A b\"", 9), [plain("show"), quoted("A b")]);
        assert_eq!(words("", 9), []);
    }
}
