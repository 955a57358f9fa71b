//! Bounds on what the parser makes of a statement, measured on the text in one pass without memory. The parser builds chains
//! of operators in a loop and reads some arguments several times, so a short text can become a tree too deep to drop, or work
//! without end. The tree that is parsed has bounds of its own (`tree`).

use crate::text::{blank_len, piece_len};

/// Deepest nesting of parentheses, and of data types in angle brackets. The parser itself refuses 50 levels of expressions.
const NESTING_MAX: usize = 100;
/// Longest chain of array brackets, such as `int[][]`. PostgreSQL has at most 6 dimensions.
const BRACKETS_MAX: u64 = 16;
/// Most operators that are open at one place of a text, summed over its levels of nesting. A tree is at most this deep. Dropping
/// a parsed tree of 20,000 levels takes less than the 2 MiB of a lane's stack (measured 2026-11-24 with sqlparser 0.62).
const OPERATORS_MAX: u64 = 8_000;
/// Most steps of the parser, each at most 1 µs (measured 2026-11-24: 18 nested calls are 2^19 steps and take 0.46 s).
const STEPS_MAX: u64 = 1 << 19;

/// Words that the parser reads as a special expression first, and as a name after that failed.
const TRIED_TWICE: [&str; 20] = [
    "array",
    "case",
    "cast",
    "ceil",
    "convert",
    "exists",
    "extract",
    "floor",
    "interval",
    "map",
    "not",
    "overlay",
    "prior",
    "safe_cast",
    "struct",
    "substr",
    "substring",
    "trim",
    "try_cast",
    "xml",
];
/// Words that continue an expression, a set operation or a table behind its left operand.
const OPERATORS: [&str; 26] = [
    "and",
    "at",
    "between",
    "collate",
    "div",
    "except",
    "glob",
    "ilike",
    "in",
    "intersect",
    "is",
    "isnull",
    "like",
    "match_recognize",
    "member",
    "minus",
    "not",
    "notnull",
    "operator",
    "or",
    "overlaps",
    "pivot",
    "regexp",
    "rlike",
    "similar",
    "union",
];

/// Words before a parenthesis that make no call: the parser reads what follows once.
const NO_CALL: [&str; 14] = [
    "and", "as", "else", "from", "having", "in", "on", "or", "over", "then", "using", "values", "when",
    "where",
];

/// Quantities of a text that bound what a parser makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    /// Words, quoted texts and signs.
    pub(crate) tokens: u64,
    /// Whether it names `current_setting`.
    pub(crate) asks_settings: bool,
    /// Most operators open at one place.
    operators: u64,
    /// Deepest nesting.
    nesting: usize,
    /// Longest chain of array brackets.
    brackets: u64,
    /// Steps of the parser in the worst case.
    steps: u64,
}

impl Extent {
    /// Returns the message for the first quantity that is too large for the parser.
    pub(crate) fn excess(&self) -> Option<String> {
        let excess = |what: &str, max: u64, got: u64| {
            (got > max).then(|| format!("expected at most {max} {what}, got {got}: split the statement"))
        };
        excess("levels of nesting", NESTING_MAX as u64, self.nesting as u64)
            .or_else(|| excess("array brackets in a row", BRACKETS_MAX, self.brackets))
            .or_else(|| excess("operators in one expression", OPERATORS_MAX, self.operators))
            .or_else(|| excess("parser steps of nested calls", STEPS_MAX, self.steps))
    }
}

/// An open parenthesis.
#[derive(Clone, Copy)]
struct Level {
    operators: u64,
    /// Times that the parser reads what is within.
    reads: u64,
}

/// Levels of nesting around a place of the text, the outermost first.
struct Levels {
    all: Vec<Level>,
    /// Operators of all levels.
    open: u64,
}

impl Levels {
    fn last(&mut self) -> &mut Level {
        self.all.last_mut().expect("the outermost level stays")
    }

    fn operator(&mut self) {
        self.open += 1;
        self.last().operators += 1;
    }

    /// A comma ends an expression.
    fn comma(&mut self) {
        self.open -= std::mem::take(&mut self.last().operators);
    }

    fn enter(&mut self, before: &str) {
        self.operator();
        let times = match before {
            word if is_one_of(word, &NO_CALL) => 1,
            word if is_one_of(word, &["position"]) => 6,
            word if is_one_of(word, &TRIED_TWICE) => 4,
            word if is_word(word) => 2,
            _ => 1,
        };
        let reads = self.last().reads.saturating_mul(times);
        // What is deeper is refused anyway.
        if self.all.len() <= 2 * NESTING_MAX {
            self.all.push(Level { operators: 0, reads });
        }
    }

    fn leave(&mut self) {
        if self.all.len() > 1 {
            self.open -= self.all.pop().map_or(0, |level| level.operators);
        }
    }
}

/// Measures a statement.
///
/// 1. A comma ends an expression. A parenthesis opens a level within the operators around it.
/// 2. Operators are counted by level: a chain of them becomes a tree as deep as the chain is long.
/// 3. A word ahead of a parenthesis multiplies the parser's reads of what is within, by 2 to 6.
pub(crate) fn extent(text: &str) -> Extent {
    let mut extent = Extent::default();
    let mut levels = Levels { all: vec![Level { operators: 0, reads: 1 }], open: 0 };
    let (mut brackets, mut before, mut at) = (0, "", 0);
    while at < text.len() {
        let rest = &text[at..];
        let blank = blank_len(rest);
        if blank > 0 {
            at += blank;
            continue;
        }
        let piece = &rest[..piece_len(rest)];
        at += piece.len();
        extent.tokens += 1;
        extent.steps = extent.steps.saturating_add(levels.last().reads);
        match piece {
            "," => levels.comma(),
            "(" | "[" | "{" => levels.enter(before),
            "<" if is_one_of(before, &["array", "struct", "map"]) => levels.enter(before),
            ")" | "]" | "}" => levels.leave(),
            word if is_word(word) => {
                extent.asks_settings |= is_one_of(word, &["current_setting"]);
                if is_one_of(word, &OPERATORS) {
                    levels.operator();
                }
            }
            quoted if quoted.starts_with('"') => {
                extent.asks_settings |= is_one_of(quoted, &["\"current_setting\""]);
            }
            sign if sign.len() == 1 => levels.operator(),
            _ => {}
        }
        brackets = match piece {
            "[" if before == "]" => brackets + 1,
            "]" | "[" => brackets,
            _ => 0,
        };
        extent.brackets = extent.brackets.max(brackets);
        extent.operators = extent.operators.max(levels.open);
        extent.nesting = extent.nesting.max(levels.all.len() - 1);
        before = piece;
    }
    extent
}

fn is_word(piece: &str) -> bool {
    piece.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn is_one_of(piece: &str, words: &[&str]) -> bool {
    words.iter().any(|word| piece.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let excess = extent(text).excess();
        let shown = &text[..text.len().min(60)];
        match (&excess, expected) {
            (None, None) => {}
            (Some(excess), Some(expected)) => assert!(excess.contains(expected), "{shown}: {excess}"),
            _ => panic!("{shown}: {excess:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn usual_statements_are_within_the_bounds() {
        check("SELECT a, sum(round(coalesce(b, 0), 2)) FROM t WHERE a[1] = 2 GROUP BY a -- OR OR OR", None);
        check(&format!("SELECT 1 WHERE a IN ({})", vec!["-1"; 60_000].join(",")), None);
        check(&format!("SELECT 1 WHERE {}", vec!["a = 1"; 2_000].join(" OR ")), None);
        check(&format!("SELECT {}1{}", "replace(".repeat(12), ",'a','b')".repeat(12)), None);
        check("SELECT 1::int[][], ARRAY[ARRAY[1]]", None);
        check(&format!("SELECT '{}'", "+(".repeat(50_000)), None);
    }

    #[test]
    fn chains_are_counted_through_nesting() {
        check(&format!("SELECT {}", vec!["1"; 8_002].join("+")), Some("operators"));
        check(&format!("SELECT 1{}", "::int".repeat(4_001)), Some("operators"));
        check(&vec!["SELECT 1"; 8_002].join(" UNION ALL "), Some("operators"));
        check(&format!("SELECT * FROM t{}", " PIVOT(sum(a) FOR b IN (1))".repeat(4_001)), Some("operators"));
        let half = vec!["1"; 4_100].join("+");
        check(&format!("SELECT {half} + ({half})"), Some("operators"));
        check(&format!("SELECT ({half}), ({half})"), None);
    }

    #[test]
    fn exponential_parsing_is_refused() {
        check(&format!("SELECT {}1{}", "f(".repeat(20), ")".repeat(20)), Some("parser steps"));
        check(&format!("SELECT {}1 1{}", "position(".repeat(10), ")".repeat(10)), Some("parser steps"));
        check(&format!("SELECT {}1 1{}", "NOT (".repeat(12), ")".repeat(12)), Some("parser steps"));
        check(&format!("SELECT 1::{}", "array<".repeat(8_000)), Some("nesting"));
        check(&format!("SELECT 1::int{}", "[]".repeat(20)), Some("array brackets"));
        check(&format!("SELECT {}", "(".repeat(8_000)), Some("nesting"));
    }

    #[test]
    fn settings_are_asked_for_by_name_only() {
        assert!(extent("select Current_Setting('a')").asks_settings);
        assert!(extent("select pg_catalog.\"current_setting\"('a')").asks_settings);
        assert!(!extent("select 'current_setting'").asks_settings);
    }
}
