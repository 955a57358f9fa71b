//! Translates patterns of Postgres' `to_char` for timestamps to those of DataFusion's `to_char`
//! (chrono's).

/// Fields of Postgres' patterns with chrono's. A longer field precedes its prefixes.
const WORDS: [(&str, &str); 39] = [
    ("FMMM", "%-m"),
    ("FMDDD", "%-j"),
    ("FMDD", "%-d"),
    ("FMHH24", "%-H"),
    ("FMHH12", "%-I"),
    ("FMHH", "%-I"),
    ("FMMonth", "%B"),
    ("FMDay", "%A"),
    ("YYYY", "%Y"),
    ("yyyy", "%Y"),
    ("IYYY", "%G"),
    ("YY", "%y"),
    ("yy", "%y"),
    ("MM", "%m"),
    ("mm", "%m"),
    ("Mon", "%b"),
    ("DDD", "%j"),
    ("DD", "%d"),
    ("dd", "%d"),
    ("Dy", "%a"),
    ("ID", "%u"),
    ("IW", "%V"),
    ("HH24", "%H"),
    ("hh24", "%H"),
    ("HH12", "%I"),
    ("hh12", "%I"),
    ("HH", "%I"),
    ("hh", "%I"),
    ("MI", "%M"),
    ("mi", "%M"),
    ("SS", "%S"),
    ("ss", "%S"),
    ("MS", "%3f"),
    ("ms", "%3f"),
    ("US", "%6f"),
    ("us", "%6f"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("TZ", "%Z"),
];

/// Returns the pattern for chrono. A pattern with a `%` is taken for chrono's and returned
/// unchanged. Double-quoted text and signs stand for themselves. Names of months and days need FM:
/// without it Postgres pads them to nine letters.
///
/// # Errors
/// The pattern has a field without equivalent.
pub(crate) fn pattern(text: &str) -> Result<String, String> {
    if text.contains('%') {
        return Ok(text.to_owned());
    }
    let (mut rest, mut out) = (text, String::new());
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            out.push_str(&quoted[..end]);
            rest = quoted.get(end + 1..).unwrap_or("");
        } else if let Some((word, own)) = WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
            // `SSSS` and `Y,YYY` start with fields that are supported.
            out.push_str(own);
            rest = &rest[word.len()..];
            if word.starts_with(['S', 's']) && rest.starts_with(['S', 's']) {
                return Err(format!("to_char: `{word}{rest}` is not supported in a pattern"));
            }
        } else if next.is_ascii_alphabetic() {
            return Err(format!(
                "to_char: `{rest}` is not supported in a pattern; put text in double quotes, or use the \
                 patterns of chrono, such as %Y-%m-%d"
            ));
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        match (pattern(text), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn patterns_are_translated() {
        check("YYYY-MM-DD HH24:MI:SS.MS", Ok("%Y-%m-%d %H:%M:%S.%3f"));
        check("Dy, FMDD Mon YYYY \"at\" HH12 AM", Ok("%a, %-d %b %Y at %I %p"));
        check("IYYY-\"W\"IW-ID é", Ok("%G-W%V-%u é"));
        check("%Y/%m", Ok("%Y/%m"));
        check("\"unfinished", Ok("unfinished"));
        check("", Ok(""));
    }

    #[test]
    fn unsupported_patterns_are_refused() {
        for text in ["YYYY-\"Q\"Q", "MONTH", "Month", "Day", "SSSS", "Y,YYY", "J", "DAY", "TZH"] {
            check(text, Err("is not supported"));
        }
    }
}
