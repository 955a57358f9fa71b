//! Names: how CQL writes an identifier.

/// The name as CQL writes it: bare where it is lower-case letters, digits and `_` (and starts with a letter),
/// in double quotes otherwise.
pub fn quoted(name: &str) -> String {
    let bare = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
