//! Bounds on what the parser makes of a statement, measured on the text in one pass without memory. The parser builds chains
//! of operators in a loop and reads some arguments several times, so a short text can become a tree too deep to drop, or work
//! without end. The tree that is parsed has bounds of its own (`tree`).

use crate::text::{blank_len, token_len};

/// Deepest nesting of parentheses, CASE, and of data types in angle brackets. The parser itself refuses 50 levels of expressions.
const NESTING_MAX: usize = 100;
/// Deepest nesting within CASE, or of NOT and other words ahead of an expression. Beyond 50 levels the parser gives up reading such
/// a word as an expression, reads it as a column's name, and reports that there is no such column. It takes a few for the statement.
const WORDS_MAX: u64 = 44;
/// Most words, signs and blanks. The parser keeps each as a token of about 100 bytes, blanks too, before it builds a tree: these
/// are 40 MB. The tree itself is bounded by the guardrail `sql_nodes`, whose default of 100,000 nodes takes no more tokens.
const TOKENS_MAX: u64 = 400_000;
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

/// Words that stand ahead of an expression and may stand in a row.
const PREFIXES: [&str; 3] = ["interval", "not", "prior"];

/// Words before a parenthesis that make no call: the parser reads what follows once.
const NO_CALL: [&str; 14] = [
    "and", "as", "else", "from", "having", "in", "on", "or", "over", "then", "using", "values", "when",
    "where",
];

/// Quantities of a text that bound what a parser makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    /// Words, quoted texts, signs, blanks and comments.
    pub(crate) tokens: u64,
    /// Whether it names `current_setting`.
    pub(crate) asks_settings: bool,
    /// Most operators open at one place.
    operators: u64,
    /// Deepest nesting.
    nesting: usize,
    /// Longest chain of array brackets.
    brackets: u64,
    /// Deepest nesting of the parser within a word that it might read as a name.
    words: u64,
    /// Steps of the parser in the worst case.
    steps: u64,
}

impl Extent {
    /// Returns the message for the first quantity that is too large for the parser.
    pub(crate) fn excess(&self) -> Option<String> {
        let excess = |what: &str, max: u64, got: u64| {
            (got > max).then(|| format!("expected at most {max} {what}, got {got}: split the statement"))
        };
        excess("words, signs and blanks", TOKENS_MAX, self.tokens)
            .or_else(|| excess("levels of nesting", NESTING_MAX as u64, self.nesting as u64))
            .or_else(|| excess("array brackets in a row", BRACKETS_MAX, self.brackets))
            .or_else(|| excess("levels of nesting in CASE or NOT", WORDS_MAX, self.words))
            .or_else(|| excess("operators in one expression", OPERATORS_MAX, self.operators))
            .or_else(|| excess("parser steps of nested calls", STEPS_MAX, self.steps))
    }
}

/// An open parenthesis or CASE.
#[derive(Clone, Copy, Default)]
struct Level {
    operators: u64,
    /// Times that the parser reads what is within.
    reads: u64,
    is_case: bool,
    /// Levels of the parser's recursion at this place.
    depth: u64,
    /// Whether a CASE is open around it.
    in_case: bool,
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
        self.push(reads, false);
    }

    fn push(&mut self, reads: u64, is_case: bool) {
        let Level { depth, in_case, .. } = *self.last();
        // What is deeper is refused anyway.
        if self.all.len() <= 2 * NESTING_MAX {
            let in_case = in_case || is_case;
            self.all.push(Level { operators: 0, reads, is_case, depth: depth + 1, in_case });
        }
    }

    fn begin_case(&mut self) {
        self.operator();
        let reads = self.last().reads;
        self.push(reads, true);
    }

    fn end_case(&mut self) {
        if self.last().is_case {
            self.pop();
        }
    }

    /// A parenthesis is closed, and each CASE in it that has no END.
    fn leave(&mut self) {
        while self.last().is_case {
            self.pop();
        }
        self.pop();
    }

    fn pop(&mut self) {
        if self.all.len() > 1 {
            self.open -= self.all.pop().map_or(0, |level| level.operators);
        }
    }
}

/// Measures a statement.
///
/// 1. A comma ends an expression. A parenthesis opens a level within the operators around it.
/// 2. Operators are counted by level: a chain of them becomes a tree as deep as the chain is long.
/// 3. A word ahead of a parenthesis multiplies the parser's reads of what is within, by 2 to 6; parentheses in a row ahead of
///    a subquery by their number.
/// 4. CASE opens a level, whose parts between WHEN, THEN and ELSE are expressions of their own. A subquery is a level more.
pub(crate) fn extent(text: &str) -> Extent {
    let mut extent = Extent::default();
    let mut levels = Levels { all: vec![Level { reads: 1, ..Level::default() }], open: 0 };
    let (mut brackets, mut prefixes, mut before, mut at) = (0, 0, "", 0);
    // Parentheses opened in a row.
    let mut opened = 0;
    while at < text.len() {
        let rest = &text[at..];
        let blank = blank_len(rest);
        if blank > 0 {
            at += blank;
            extent.tokens += 1;
            continue;
        }
        let piece = &rest[..token_len(rest)];
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
                match word {
                    _ if before == "." => {}
                    word if is_one_of(word, &["case"]) => levels.begin_case(),
                    word if is_one_of(word, &["end"]) => levels.end_case(),
                    word if levels.last().is_case && is_one_of(word, &["when", "then", "else"]) => {
                        levels.comma()
                    }
                    word if before == "(" && is_one_of(word, &["select", "with", "values"]) => {
                        levels.last().depth += 1;
                        // As a subquery and as a join in parentheses: the parser tries both at each of them.
                        let level = levels.last();
                        level.reads = level.reads.saturating_mul(opened);
                    }
                    _ => {}
                }
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
        prefixes = if is_one_of(piece, &PREFIXES) { prefixes + 1 } else { 0 };
        let Level { depth, in_case, .. } = *levels.last();
        if in_case || prefixes > 0 {
            extent.words = extent.words.max(depth + prefixes);
        }
        extent.brackets = extent.brackets.max(brackets);
        extent.operators = extent.operators.max(levels.open);
        extent.nesting = extent.nesting.max(levels.all.len() - 1);
        opened = if piece == "(" { opened + 1 } else { 0 };
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
        let branches = " WHEN a = 1 AND NOT b > 2 THEN c || 'x'".repeat(3_000);
        check(&format!("SELECT CASE{branches} ELSE d END, t.case, NOT a AND NOT b"), None);
        check(&format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(40), " END".repeat(40)), None);
        check(&format!("SELECT {}a = 1{}", "(".repeat(45), ")".repeat(45)), None);
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
    fn joins_in_parentheses_are_read_several_times() {
        let joins = |levels: usize| {
            let (open, close) = ("((SELECT 1 FROM ".repeat(levels), ") a CROSS JOIN u)".repeat(levels));
            format!("SELECT * FROM {open}(SELECT {}1) b{close}", "1,".repeat(1_000))
        };
        check(&joins(4), None);
        check(&joins(15), Some("parser steps"));
        check("((SELECT 1) UNION (SELECT 2)) INTERSECT (((SELECT 1)))", None);
    }

    #[test]
    fn tokens_are_counted_with_the_blanks_between_them() {
        check(&format!("SELECT {}1", "1,".repeat(200_000)), Some("words, signs and blanks"));
        check(&format!("SELECT {}1", " ".repeat(400_000)), Some("words, signs and blanks"));
        check(&format!("SELECT /*{}*/ '{}'", " ".repeat(400_000), " ".repeat(400_000)), None);
    }

    #[test]
    fn words_that_might_be_names_are_not_nested_beyond_the_parser() {
        let case = |n: usize| format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(n), " END".repeat(n));
        check(&case(45), Some("CASE"));
        check(&case(450), Some("nesting"));
        check(&format!("SELECT {}true", "NOT ".repeat(450)), Some("NOT"));
        check(&format!("SELECT CASE WHEN a THEN {}1{} END", "(".repeat(44), ")".repeat(44)), Some("CASE"));
        let subqueries = format!("{}1{}", "(SELECT ".repeat(22), ")".repeat(22));
        check(&format!("SELECT CASE WHEN a THEN {subqueries} END"), Some("CASE"));
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
