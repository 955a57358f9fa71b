//! Reserved words, constants, and quoting of identifiers and strings.

use std::fmt;

use schema::CqlType;

/// The longest reserved word, in bytes.
const RESERVED_BYTES_MAX: usize = 12;

/// True if an unquoted word cannot be an identifier. The list is Cassandra's. Every other keyword
/// may name a column.
pub(crate) fn is_reserved(word: &str) -> bool {
    let mut buffer = [0u8; RESERVED_BYTES_MAX];
    let Some(lower) = buffer.get_mut(..word.len()) else { return false };
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    // Branch on the first letter: most identifiers then need one or two comparisons.
    match lower.first() {
        Some(b'a') => {
            matches!(&*lower, b"add" | b"allow" | b"alter" | b"and" | b"apply" | b"asc" | b"authorize")
        }
        Some(b'b') => matches!(&*lower, b"batch" | b"begin" | b"by"),
        Some(b'c') => matches!(&*lower, b"columnfamily" | b"create"),
        Some(b'd') => matches!(&*lower, b"delete" | b"desc" | b"describe" | b"drop"),
        Some(b'e') => matches!(&*lower, b"entries" | b"execute"),
        Some(b'f') => matches!(&*lower, b"from" | b"full"),
        Some(b'g') => matches!(&*lower, b"grant"),
        Some(b'i') => {
            matches!(&*lower, b"if" | b"in" | b"index" | b"infinity" | b"insert" | b"into" | b"is")
        }
        Some(b'k') => matches!(&*lower, b"keyspace"),
        Some(b'l') => matches!(&*lower, b"limit"),
        Some(b'm') => matches!(&*lower, b"materialized" | b"modify"),
        Some(b'n') => matches!(&*lower, b"nan" | b"norecursive" | b"not" | b"null"),
        Some(b'o') => matches!(&*lower, b"of" | b"on" | b"or" | b"order"),
        Some(b'p') => matches!(&*lower, b"primary"),
        Some(b'r') => matches!(&*lower, b"rename" | b"revoke"),
        Some(b's') => matches!(&*lower, b"schema" | b"select" | b"set"),
        Some(b't') => matches!(&*lower, b"table" | b"to" | b"token" | b"truncate"),
        Some(b'u') => matches!(&*lower, b"unlogged" | b"update" | b"use" | b"using"),
        Some(b'v') => matches!(&*lower, b"view"),
        Some(b'w') => matches!(&*lower, b"where" | b"with"),
        _ => false,
    }
}

/// Words that name no function without quotes, in lower case. The list is Cassandra's.
const NO_FUNCTIONS: [&str; 7] = ["writetime", "maxwritetime", "ttl", "cast", "key", "json", "distinct"];

/// True if an unquoted word cannot name a function.
pub(crate) fn is_no_function(word: &str) -> bool {
    NO_FUNCTIONS.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// True if an unquoted word is a constant where a term is expected.
pub(crate) fn is_constant(word: &str) -> bool {
    // Check the length first: it rules out most identifiers.
    match word.len() {
        3 => word.eq_ignore_ascii_case("nan"),
        4 => word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("null"),
        5 => word.eq_ignore_ascii_case("false"),
        8 => word.eq_ignore_ascii_case("infinity"),
        _ => false,
    }
}

/// Display of an identifier, quoted if necessary.
pub(crate) struct Identifier<'a>(pub(crate) &'a str);

impl fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && !is_reserved(name)
            && !is_constant(name);
        if bare { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
    }
}

/// Returns a name as an identifier: in double quotes if it is necessary.
#[must_use]
pub fn identifier(name: &str) -> String {
    Identifier(name).to_string()
}

/// Returns a text as a constant in single quotes.
#[must_use]
pub fn constant(text: &str) -> String {
    Quoted(text).to_string()
}

/// Display of a string constant in single quotes.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

/// Names of types that Cassandra reserves.
pub(crate) const RESERVED_TYPES: [&str; 6] = ["bitstring", "byte", "complex", "enum", "interval", "macaddr"];

/// True if a user type of this name, in lower case, must be quoted.
pub(crate) fn is_type_word(name: &str) -> bool {
    RESERVED_TYPES.contains(&name) || CqlType::scalar(name).is_some()
}
