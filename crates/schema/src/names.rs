//! CQL identifiers.

/// Returns the name as CQL writes it: without quotes if it consists of lower-case letters, digits
/// and `_` and starts with a letter, else in double quotes.
pub fn quoted(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
