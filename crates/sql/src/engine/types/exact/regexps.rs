//! `regexp_replace` and `regexp_match`, after PostgreSQL's `regexp.c`. In DataFusion's
//! `regexp_replace` a replacement has references of the form `$1`, knows no `\&`, and a dot matches
//! no line feed. Its `regexp_match` leaves out groups that match nothing. The patterns are those of
//! Rust's library: without look-around and back references, and alternatives are tried in order.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::{Captures, Regex, RegexBuilder};

use crate::engine::types::argument_errors;
use crate::engine::types::exact::type_names::{is_int, is_text, refused};
use crate::failure::state;

/// Compiled patterns that a call keeps. A pattern that is a column may differ in each row.
const COMPILED_MAX: usize = 32;

/// Returns the functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    [RegexpKind::Replace, RegexpKind::Match].map(|kind| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Regexp { kind, signature })
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RegexpKind {
    Replace,
    Match,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Regexp {
    kind: RegexpKind,
    signature: Signature,
}

/// A pattern with its flags.
struct Pattern {
    regex: Regex,
    is_global: bool,
}

impl Pattern {
    fn new(pattern: &str, flags: &str) -> Result<Pattern> {
        let mut is_global = false;
        let mut ignores_case = false;
        let mut has_lines = false;
        for flag in flags.chars() {
            match flag {
                'g' => is_global = true,
                'i' => ignores_case = true,
                'c' => ignores_case = false,
                'n' | 'm' => has_lines = true,
                's' => has_lines = false,
                't' => {}
                'b' | 'e' | 'p' | 'q' | 'w' | 'x' => {
                    let text = format!("the regular expression option \"{flag}\" is not supported");
                    return refused(state::UNSUPPORTED, text);
                }
                flag => {
                    let text = format!("invalid regular expression option: \"{flag}\"");
                    return refused(state::INVALID, text);
                }
            }
        }
        if has_lines && pattern.contains("[^") {
            let text = "the regular expression option \"n\" is not supported for a pattern with [^";
            return refused(state::UNSUPPORTED, text);
        }
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(ignores_case)
            .multi_line(has_lines)
            .dot_matches_new_line(!has_lines)
            .build()
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        if regex.capture_names().flatten().next().is_some() {
            return refused(state::REGEX, "invalid regular expression: groups have no names");
        }
        Ok(Pattern { regex, is_global })
    }

    /// Replaces the match number `number` after the character `start`, both from 1. 0: all matches.
    fn replaced(&self, text: &str, replacement: &str, start: i64, number: i64) -> String {
        let skipped = usize::try_from(start - 1).unwrap_or(0);
        let from = match skipped {
            0 => Some(0),
            skipped => text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(skipped),
        };
        let mut out = String::with_capacity(text.len());
        let mut from = from;
        let (mut done, mut count) = (0, 0);
        while let Some(at) = from
            && let Some(captures) = self.regex.captures_at(text, at)
        {
            let whole = captures.get_match();
            count += 1;
            if number == 0 || count == number {
                out.push_str(&text[done..whole.start()]);
                substitute(replacement, &captures, &mut out);
                done = whole.end();
                if number != 0 {
                    break;
                }
            }
            // An empty match may follow a longer one, but not itself.
            let next = whole.end();
            from = match whole.is_empty() {
                true => text[next..].chars().next().map(|c| next + c.len_utf8()),
                false => Some(next),
            };
        }
        out.push_str(&text[done..]);
        out
    }
}

/// Appends a replacement. `\1` to `\9` are groups, `\&` is the match, and `\\` a backslash.
fn substitute(replacement: &str, captures: &Captures, out: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let group = match rest.as_bytes().first() {
            Some(b'\\') => None,
            Some(b'&') => Some(0),
            Some(digit @ b'1'..=b'9') => Some(usize::from(digit - b'0')),
            _ => {
                out.push('\\');
                continue;
            }
        };
        match group {
            Some(group) => out.push_str(captures.get(group).map_or("", |found| found.as_str())),
            None => out.push('\\'),
        }
        rest = &rest[1..];
    }
    out.push_str(rest);
}

/// Compiled patterns of a call, with their texts and flags. A list, since most calls have one.
#[derive(Default)]
struct Compiled(Vec<(String, String, Pattern)>);

impl Compiled {
    fn get(&mut self, pattern: &str, flags: &str) -> Result<&Pattern> {
        let is_it = |(text, with, _): &(String, String, Pattern)| text == pattern && with == flags;
        let at = match self.0.iter().position(is_it) {
            Some(at) => at,
            None => {
                let new = Pattern::new(pattern, flags)?;
                if self.0.len() >= COMPILED_MAX {
                    self.0.clear();
                }
                self.0.push((pattern.to_owned(), flags.to_owned(), new));
                self.0.len() - 1
            }
        };
        Ok(&self.0[at].2)
    }
}

impl ScalarUDFImpl for Regexp {
    fn name(&self) -> &'static str {
        match self.kind {
            RegexpKind::Replace => "regexp_replace",
            RegexpKind::Match => "regexp_match",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is = |ty: &DataType, wanted: char| match wanted {
            't' => is_text(ty) || *ty == DataType::Null,
            _ => is_int(ty),
        };
        let forms: &[&str] = match self.kind {
            RegexpKind::Replace => &["ttt", "tttt", "ttti", "tttii", "tttiit"],
            RegexpKind::Match => &["tt", "ttt"],
        };
        let fits = |form: &&&str| {
            form.len() == arguments.len() && arguments.iter().zip(form.chars()).all(|(ty, c)| is(ty, c))
        };
        let Some(form) = forms.iter().find(fits) else {
            return argument_errors::refuse_call(self.name(), arguments);
        };
        Ok(form.chars().map(|c| if c == 't' { DataType::Utf8 } else { DataType::Int64 }).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            RegexpKind::Replace => DataType::Utf8,
            RegexpKind::Match => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        })
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = call.number_rows;
        let (mut texts, mut numbers) = (Vec::new(), Vec::new());
        for argument in &call.args {
            let column = argument.to_array(rows)?;
            match column.data_type() {
                DataType::Int64 => numbers.push(column),
                _ => texts.push(column),
            }
        }
        let is_null = |row: usize| texts.iter().chain(&numbers).any(|column| column.is_null(row));
        let texts: Vec<&StringArray> = texts.iter().map(|column| column.as_string()).collect();
        let numbers: Vec<&Int64Array> =
            numbers.iter().map(|column| column.as_primitive::<Int64Type>()).collect();
        let mut compiled = Compiled::default();
        let flags = |place: usize, row: usize| texts.get(place).map_or("", |flags| flags.value(row));
        match self.kind {
            RegexpKind::Replace => {
                let mut one = |row: usize| {
                    if is_null(row) {
                        return Ok(None);
                    }
                    let pattern = compiled.get(texts[1].value(row), flags(3, row))?;
                    let start = numbers.first().map_or(1, |starts| starts.value(row));
                    let all = i64::from(!pattern.is_global);
                    let number = numbers.get(1).map_or(all, |numbers| numbers.value(row));
                    for (name, value, least) in [("start", start, 1), ("n", number, 0)] {
                        if value < least {
                            let text = format!("invalid value for parameter \"{name}\": {value}");
                            return refused(state::INVALID, text);
                        }
                    }
                    Ok(Some(pattern.replaced(texts[0].value(row), texts[2].value(row), start, number)))
                };
                let results: Result<StringArray> = (0..rows).map(&mut one).collect();
                Ok(ColumnarValue::Array(Arc::new(results?)))
            }
            RegexpKind::Match => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                for row in 0..rows {
                    if is_null(row) {
                        lists.append_null();
                        continue;
                    }
                    let pattern = compiled.get(texts[1].value(row), flags(2, row))?;
                    if pattern.is_global {
                        let text = "regexp_match() does not support the \"global\" option";
                        return refused(state::INVALID, text);
                    }
                    let Some(captures) = pattern.regex.captures(texts[0].value(row)) else {
                        lists.append_null();
                        continue;
                    };
                    // Without groups it is the whole match.
                    let first = usize::from(captures.len() > 1);
                    for group in captures.iter().skip(first) {
                        lists.values().append_option(group.map(|found| found.as_str()));
                    }
                    lists.append(true);
                }
                Ok(ColumnarValue::Array(Arc::new(lists.finish())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of PostgreSQL 15.
    #[test]
    fn matches_are_replaced_as_by_postgres() {
        for (text, pattern, replacement, flags, expected) in [
            ("foobar", "(o)(b)", "$2$1", "", "fo$2$1ar"),
            ("foobar", "(o)(b)", "\\2\\1\\3", "", "foboar"),
            ("foobar", "o+", "[\\&\\\\]", "", "f[oo\\]bar"),
            ("foobar", "o", "\\0\\x\\", "", "f\\0\\x\\obar"),
            ("foobar", "", "-", "g", "-f-o-o-b-a-r-"),
            ("abc", "(b|c)?", "-\\1-", "g", "--a-b--c---"),
            ("foo\nbar", "o.b", "x", "", "foxar"),
            ("foo\nbar", "o$", "x", "n", "fox\nbar"),
            ("fOo", "o", "x", "gi", "fxx"),
        ] {
            let pattern = Pattern::new(pattern, flags).expect(pattern);
            let number = i64::from(!pattern.is_global);
            assert_eq!(pattern.replaced(text, replacement, 1, number), expected, "{text} {replacement}");
        }
        let pattern = Pattern::new("o", "").expect("a pattern");
        assert_eq!(pattern.replaced("föobaro", "x", 4, 0), "föobarx");
        assert_eq!(pattern.replaced("foobaro", "x", 1, 2), "foxbaro");
        assert_eq!(pattern.replaced("foobaro", "x", 9, 0), "foobaro");
        for (pattern, flags) in [("(", ""), ("a", "z"), ("a", "x"), ("(?<n>a)", ""), ("[^a]", "n")] {
            assert!(Pattern::new(pattern, flags).is_err(), "{pattern} {flags}");
        }
    }
}
