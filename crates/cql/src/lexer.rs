//! Lexer: returns one token at a time, each a slice of the text. It copies and unescapes nothing.
//!
//! Keywords are plain words here. Only the parser can tell them from names, because almost every
//! keyword of CQL may name a column. Invalid input becomes a token of kind `Error`. The lexer
//! therefore never fails, and only an error that the parser reaches is reported.

use schema::value::units_length;

/// A token: a slice of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    /// The unmodified bytes, quotes included.
    pub(crate) text: &'a str,
    /// Offset of the first byte in the text.
    pub(crate) start: usize,
}

/// Kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// An unquoted word.
    Word,
    /// `"…"`.
    QuotedName,
    /// `'…'`.
    String,
    /// `$$…$$`.
    DollarString,
    /// Digits.
    Integer,
    /// Digits with a point or an exponent.
    Float,
    Uuid,
    /// `0x…`.
    Blob,
    /// `1h30m`.
    Duration,
    LeftParen,
    RightParen,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    Comma,
    Semicolon,
    Colon,
    Dot,
    DotDot,
    Question,
    Star,
    Slash,
    Percent,
    Plus,
    Minus,
    PlusAssign,
    MinusAssign,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    End,
    /// Invalid input, with the error message.
    Error(&'static str),
}

/// A position in a text.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, position: 0 }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the next token. Returns `End` for every call after the last token.
    pub(crate) fn next(&mut self) -> Token<'a> {
        if let Some(start) = self.skip_blanks() {
            let rest = &self.text[start..];
            self.position = self.text.len();
            return Token { kind: TokenKind::Error("unterminated comment"), text: rest, start };
        }
        let start = self.position;
        let (kind, length) = match self.text.as_bytes().get(start) {
            None => (TokenKind::End, 0),
            Some(&byte) => self.scan(byte),
        };
        self.position = start + length;
        Token { kind, text: &self.text[start..self.position], start }
    }

    /// Moves to the byte offset `end`. Only the parser can recognize ISO 8601 durations and find
    /// their end.
    pub(crate) fn seek(&mut self, end: usize) {
        self.position = end;
    }

    /// Skips blanks and comments. Returns the start of an unterminated comment.
    fn skip_blanks(&mut self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes[self.position..] {
                [b' ' | b'\t' | b'\n' | b'\r', ..] => self.position += 1,
                [b'-', b'-', ..] | [b'/', b'/', ..] => {
                    let line = bytes[self.position..].iter().position(|&b| b == b'\n');
                    self.position = line.map_or(bytes.len(), |newline| self.position + newline + 1);
                }
                [b'/', b'*', ..] => match self.text[self.position + 2..].find("*/") {
                    Some(length) => self.position += length + 4,
                    None => return Some(self.position),
                },
                _ => return None,
            }
        }
    }

    fn scan(&self, byte: u8) -> (TokenKind, usize) {
        let rest = &self.text.as_bytes()[self.position..];
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {
                if byte.is_ascii_hexdigit() && is_uuid(rest) {
                    return (TokenKind::Uuid, UUID_BYTES);
                }
                (
                    TokenKind::Word,
                    rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count(),
                )
            }
            b'0'..=b'9' => self.scan_number(rest),
            b'\'' => scan_quoted(rest, TokenKind::String, "unterminated string"),
            b'"' => scan_quoted(rest, TokenKind::QuotedName, "unterminated quoted name"),
            b'$' => match self.text[self.position..].strip_prefix("$$").map(|inner| inner.find("$$")) {
                Some(Some(length)) => (TokenKind::DollarString, length + 4),
                Some(None) => (TokenKind::Error("unterminated $$ string"), rest.len()),
                None => (TokenKind::Error("unexpected character"), 1),
            },
            _ => scan_symbol(rest).unwrap_or_else(|| {
                let length = self.text[self.position..].chars().next().map_or(1, char::len_utf8);
                (TokenKind::Error("unexpected character"), length)
            }),
        }
    }

    fn scan_number(&self, rest: &[u8]) -> (TokenKind, usize) {
        if is_uuid(rest) {
            return (TokenKind::Uuid, UUID_BYTES);
        }
        if rest.len() > 1 && rest[0] == b'0' && rest[1].eq_ignore_ascii_case(&b'x') {
            let length = 2 + rest[2..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
            let good = length % 2 == 0 && rest[2..length].iter().all(u8::is_ascii_hexdigit);
            return (if good { TokenKind::Blob } else { TokenKind::Error("malformed blob") }, length);
        }
        let digits = |from: usize| from + rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut kind = TokenKind::Integer;
        // `1..3` is a range of integers, `1...3` one whose start is `1.`.
        let dots = rest[end..].iter().take_while(|b| **b == b'.').take(3).count();
        if dots == 1 || dots == 3 {
            kind = TokenKind::Float;
            end = digits(end + 1);
        }
        if rest.get(end).is_some_and(|b| b.eq_ignore_ascii_case(&b'e')) {
            let sign = usize::from(rest.get(end + 1).is_some_and(|b| matches!(b, b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(rest.len()));
            if exponent > end + 1 + sign {
                kind = TokenKind::Float;
                end = exponent;
            }
        }
        // Treat bytes from 0x80 up as letters, because of `µs`.
        let continues =
            |end: usize| rest.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80);
        if !continues(end) {
            return (kind, end);
        }
        if kind == TokenKind::Integer
            && let Some(length) = units_length(&self.text[self.position..])
            && !continues(length)
        {
            return (TokenKind::Duration, length);
        }
        let tail =
            self.text[self.position..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (TokenKind::Error("malformed number"), tail.max(end))
    }
}

const UUID_BYTES: usize = 36;

fn is_uuid(rest: &[u8]) -> bool {
    rest.len() >= UUID_BYTES
        && rest[8] == b'-'
        && rest[..UUID_BYTES].iter().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => *b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
        && !rest.get(UUID_BYTES).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Scans from a quote to the next quote that is not doubled.
fn scan_quoted(rest: &[u8], kind: TokenKind, unterminated: &'static str) -> (TokenKind, usize) {
    let quote = rest[0];
    let mut at = 1;
    while let Some(length) = rest[at..].iter().position(|&b| b == quote) {
        at += length + 1;
        if rest.get(at) != Some(&quote) {
            return (kind, at);
        }
        at += 1;
    }
    (TokenKind::Error(unterminated), rest.len())
}

fn scan_symbol(rest: &[u8]) -> Option<(TokenKind, usize)> {
    let second = rest.get(1).copied();
    Some(match (rest[0], second) {
        (b'<', Some(b'=')) => (TokenKind::LessEqual, 2),
        (b'>', Some(b'=')) => (TokenKind::GreaterEqual, 2),
        (b'!', Some(b'=')) => (TokenKind::NotEqual, 2),
        (b'+', Some(b'=')) => (TokenKind::PlusAssign, 2),
        (b'-', Some(b'=')) => (TokenKind::MinusAssign, 2),
        (b'.', Some(b'.')) => (TokenKind::DotDot, 2),
        (b'(', _) => (TokenKind::LeftParen, 1),
        (b')', _) => (TokenKind::RightParen, 1),
        (b'[', _) => (TokenKind::LeftBracket, 1),
        (b']', _) => (TokenKind::RightBracket, 1),
        (b'{', _) => (TokenKind::LeftBrace, 1),
        (b'}', _) => (TokenKind::RightBrace, 1),
        (b',', _) => (TokenKind::Comma, 1),
        (b';', _) => (TokenKind::Semicolon, 1),
        (b':', _) => (TokenKind::Colon, 1),
        (b'.', _) => (TokenKind::Dot, 1),
        (b'?', _) => (TokenKind::Question, 1),
        (b'*', _) => (TokenKind::Star, 1),
        (b'/', _) => (TokenKind::Slash, 1),
        (b'%', _) => (TokenKind::Percent, 1),
        (b'+', _) => (TokenKind::Plus, 1),
        (b'-', _) => (TokenKind::Minus, 1),
        (b'=', _) => (TokenKind::Equal, 1),
        (b'<', _) => (TokenKind::Less, 1),
        (b'>', _) => (TokenKind::Greater, 1),
        _ => return None,
    })
}
