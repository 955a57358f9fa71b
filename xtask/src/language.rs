//! Language of the sources, as far as a program can check it: the width of lines, and openings and
//! words that comments avoid because a reader cannot search for them. `docs/glossary.md` lists the
//! terms to use.
//!
//! Comments are read in blocks, so that an opening is the first word of a block or of a paragraph
//! in it. Strings are not read.

use std::path::Path;

use crate::files::{name, read, rust_files, verdict};

/// Columns of a comment, and of code and of drawings in comments.
const COMMENT_COLUMNS_MAX: usize = 100;
const CODE_COLUMNS_MAX: usize = 120;

/// First words of a comment that hide its subject.
const OPENINGS: [&str; 12] = [
    "Of", "What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Whether", "How", "That", "Nobody",
    "Somebody",
];

/// Phrases, in lower case, and what to write instead.
const PHRASES: [(&str, &str); 19] = [
    ("nobody", "the actor's name"),
    ("somebody", "the actor's name"),
    ("whoever", "the actor's name"),
    ("whom", "the actor's name"),
    ("under way", "in flight"),
    ("give way", "yield"),
    ("gives way", "yields"),
    ("held back", "paused, throttled, or backpressure"),
    ("set aside", "reserved"),
    ("put off", "deferred"),
    ("so many", "the parameter's name"),
    ("so much", "the parameter's name"),
    ("as it lies", "zero-copy"),
    ("is said", "specified or reported"),
    ("are said", "specified or reported"),
    ("is told", "reported"),
    ("are told", "reported"),
    ("kept plan", "plan cache"),
    ("front door", "listener"),
];

/// Checks every Rust file.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let folders = vec![root.join("crates"), root.join("xtask")];
    for path in rust_files(folders, &["target"])? {
        if name(&path) != "language.rs" {
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            complaints.extend(judge(&read(&path)?).map(|(line, text)| format!("{shown}:{line} {text}")));
        }
    }
    verdict(complaints)
}

/// Complaints about a source, each with its line.
fn judge(source: &str) -> impl Iterator<Item = (usize, String)> {
    let mut complaints = Vec::new();
    let (mut opens, mut is_drawing) = (true, false);
    for (index, line) in source.lines().enumerate() {
        let mut complain = |text: String| complaints.push((index + 1, text));
        let columns = line.chars().count();
        let Some(comment) = comment(line) else {
            opens = true;
            if columns > CODE_COLUMNS_MAX {
                complain(format!("has {columns} columns; {CODE_COLUMNS_MAX} is the most."));
            }
            continue;
        };
        is_drawing ^= comment.starts_with("```");
        let columns_max = if is_drawing { CODE_COLUMNS_MAX } else { COMMENT_COLUMNS_MAX };
        if columns > columns_max {
            complain(format!("is a comment of {columns} columns; {columns_max} is the most."));
        }
        let first = comment.split(' ').next().unwrap_or_default();
        if opens && OPENINGS.contains(&first) {
            complain(format!("opens with \"{first}\": start with a verb or a noun."));
        }
        let lower = comment.to_lowercase();
        for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| has_phrase(&lower, phrase)) {
            complain(format!("has \"{phrase}\": write {instead}."));
        }
        opens = comment.is_empty();
    }
    complaints.into_iter()
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    Some(text.trim_start().trim_start_matches(['-', '*']).trim())
}

/// True if a text has a phrase that is not part of longer words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_letter = |found: Option<char>| found.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        !is_letter(text[..at].chars().next_back()) && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, lines: &[usize]) {
        let found: Vec<usize> = judge(source).map(|(line, _)| line).collect();
        assert_eq!(found, lines);
    }

    #[test]
    fn openings_count_at_the_start_of_a_block_or_paragraph() {
        check("// Whether it is.\n// How it is.\nlet a = 1; // What\n/// What it is.\n", &[1, 4]);
        check("//! Returns it.\n//!\n//! Of all, one.\n", &[3]);
    }

    #[test]
    fn phrases_count_as_whole_words() {
        check("// Paused: requests under way.\n// whomever, undersome way\n", &[1]);
    }

    #[test]
    fn long_lines_are_reported() {
        let long = "x".repeat(COMMENT_COLUMNS_MAX);
        check(&format!("// {long}\n{long}\n{long}{long}\n"), &[1, 3]);
        check(&format!("/// ```text\n/// {long}\n/// ```\n/// {long}\n"), &[4]);
    }
}
