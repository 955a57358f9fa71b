//! Text to tokens, one at a time, each a slice of the text: nothing is copied or unescaped here.
//!
//! A word is a word: whether it is a keyword is for the parser to say, since almost every keyword of CQL may also
//! name a column. What cannot be a token becomes one of the kind `Error`, so that the lexer never fails and
//! only an error that the parser reaches is reported.

use crate::duration::units_length;

/// A piece of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    /// The bytes as they stand in the text, quotes included.
    pub(crate) text: &'a str,
    /// Where it begins in the text, in bytes.
    pub(crate) start: usize,
}

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A bare word.
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
    /// No token of CQL, with what is wrong.
    Error(&'static str),
}

/// A place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The next token; `End` for ever after the last.
    pub(crate) fn next(&mut self) -> Token<'a> {
        if let Some(start) = self.skip_blanks() {
            let rest = &self.text[start..];
            self.at = self.text.len();
            return Token { kind: Kind::Error("comment without an end"), text: rest, start };
        }
        let start = self.at;
        let (kind, length) = match self.text.as_bytes().get(start) {
            None => (Kind::End, 0),
            Some(&byte) => self.scan(byte),
        };
        self.at = start + length;
        Token { kind, text: &self.text[start..self.at], start }
    }

    /// Takes a token of a known end, for what only the parser can tell apart (durations of ISO 8601).
    pub(crate) fn jump(&mut self, end: usize) {
        self.at = end;
    }

    /// Skips blanks and comments; gives the start of a comment that does not end.
    fn skip_blanks(&mut self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes[self.at..] {
                [b' ' | b'\t' | b'\n' | b'\r', ..] => self.at += 1,
                [b'-', b'-', ..] | [b'/', b'/', ..] => {
                    let line = bytes[self.at..].iter().position(|&b| b == b'\n');
                    self.at = line.map_or(bytes.len(), |newline| self.at + newline + 1);
                }
                [b'/', b'*', ..] => match self.text[self.at + 2..].find("*/") {
                    Some(length) => self.at += length + 4,
                    None => return Some(self.at),
                },
                _ => return None,
            }
        }
    }

    fn scan(&self, byte: u8) -> (Kind, usize) {
        let rest = &self.text.as_bytes()[self.at..];
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {
                if byte.is_ascii_hexdigit() && is_uuid(rest) {
                    return (Kind::Uuid, UUID_BYTES);
                }
                (Kind::Word, rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count())
            }
            b'0'..=b'9' => self.scan_number(rest),
            b'\'' => scan_quoted(rest, Kind::String, "string without an end"),
            b'"' => scan_quoted(rest, Kind::QuotedName, "quoted name without an end"),
            b'$' => match self.text[self.at..].strip_prefix("$$").map(|inner| inner.find("$$")) {
                Some(Some(length)) => (Kind::DollarString, length + 4),
                Some(None) => (Kind::Error("$$ string without an end"), rest.len()),
                None => (Kind::Error("no CQL"), 1),
            },
            _ => scan_symbol(rest).unwrap_or_else(|| {
                let length = self.text[self.at..].chars().next().map_or(1, char::len_utf8);
                (Kind::Error("no CQL"), length)
            }),
        }
    }

    fn scan_number(&self, rest: &[u8]) -> (Kind, usize) {
        if is_uuid(rest) {
            return (Kind::Uuid, UUID_BYTES);
        }
        if rest.len() > 1 && rest[0] == b'0' && rest[1].eq_ignore_ascii_case(&b'x') {
            let length = 2 + rest[2..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
            let good = length % 2 == 0 && rest[2..length].iter().all(u8::is_ascii_hexdigit);
            return (if good { Kind::Blob } else { Kind::Error("malformed blob") }, length);
        }
        let digits = |from: usize| from + rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut kind = Kind::Integer;
        // `1..3` is a range, not two floats.
        if rest.get(end) == Some(&b'.') && rest.get(end + 1) != Some(&b'.') {
            kind = Kind::Float;
            end = digits(end + 1);
        }
        if rest.get(end).is_some_and(|b| b.eq_ignore_ascii_case(&b'e')) {
            let sign = usize::from(rest.get(end + 1).is_some_and(|b| matches!(b, b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(rest.len()));
            if exponent > end + 1 + sign {
                kind = Kind::Float;
                end = exponent;
            }
        }
        // Bytes from 0x80 up are letters here, as in `µs`.
        let continues =
            |end: usize| rest.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80);
        if !continues(end) {
            return (kind, end);
        }
        if kind == Kind::Integer
            && let Some(length) = units_length(&self.text[self.at..])
            && !continues(length)
        {
            return (Kind::Duration, length);
        }
        let tail =
            self.text[self.at..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (Kind::Error("malformed number"), tail.max(end))
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

/// A token from one quote to the next that is not doubled.
fn scan_quoted(rest: &[u8], kind: Kind, endless: &'static str) -> (Kind, usize) {
    let quote = rest[0];
    let mut at = 1;
    while let Some(length) = rest[at..].iter().position(|&b| b == quote) {
        at += length + 1;
        if rest.get(at) != Some(&quote) {
            return (kind, at);
        }
        at += 1;
    }
    (Kind::Error(endless), rest.len())
}

fn scan_symbol(rest: &[u8]) -> Option<(Kind, usize)> {
    let second = rest.get(1).copied();
    Some(match (rest[0], second) {
        (b'<', Some(b'=')) => (Kind::LessEqual, 2),
        (b'>', Some(b'=')) => (Kind::GreaterEqual, 2),
        (b'!', Some(b'=')) => (Kind::NotEqual, 2),
        (b'+', Some(b'=')) => (Kind::PlusAssign, 2),
        (b'-', Some(b'=')) => (Kind::MinusAssign, 2),
        (b'.', Some(b'.')) => (Kind::DotDot, 2),
        (b'(', _) => (Kind::LeftParen, 1),
        (b')', _) => (Kind::RightParen, 1),
        (b'[', _) => (Kind::LeftBracket, 1),
        (b']', _) => (Kind::RightBracket, 1),
        (b'{', _) => (Kind::LeftBrace, 1),
        (b'}', _) => (Kind::RightBrace, 1),
        (b',', _) => (Kind::Comma, 1),
        (b';', _) => (Kind::Semicolon, 1),
        (b':', _) => (Kind::Colon, 1),
        (b'.', _) => (Kind::Dot, 1),
        (b'?', _) => (Kind::Question, 1),
        (b'*', _) => (Kind::Star, 1),
        (b'/', _) => (Kind::Slash, 1),
        (b'%', _) => (Kind::Percent, 1),
        (b'+', _) => (Kind::Plus, 1),
        (b'-', _) => (Kind::Minus, 1),
        (b'=', _) => (Kind::Equal, 1),
        (b'<', _) => (Kind::Less, 1),
        (b'>', _) => (Kind::Greater, 1),
        _ => return None,
    })
}
