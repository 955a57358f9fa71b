//! CQL identifiers.

/// Returns the name as CQL writes it: without quotes if it consists of lower-case letters, digits
/// and `_` and starts with a letter, else in double quotes.
pub fn quoted(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if bare { name.to_owned() } else { always_quoted(name) }
}

/// Returns the name in double quotes: it may be a reserved word.
pub fn always_quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_always_quoted() {
        assert_eq!(always_quoted("order"), "\"order\"");
        assert_eq!(always_quoted("a\"b"), "\"a\"\"b\"");
    }
}
