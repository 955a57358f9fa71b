//! Bounds on the parser's work and on its syntax tree, measured on the text in one pass without
//! allocating. They protect against two kinds of short texts:
//!
//! - The parser builds chains of operators in a loop. Their tree can be too deep to drop.
//! - The parser reads some arguments several times. Nesting them takes exponential time.
//!
//! `tree` checks the bounds of the parsed tree.

use crate::engine::parse::text::{blank_len, token_len};

/// Maximum nesting of parentheses, CASE, and data types in angle brackets. The parser itself
/// refuses more than 50 levels of expressions.
const NESTING_MAX: usize = 100;
/// Maximum nesting within CASE, or of prefix words such as NOT. Beyond 50 levels the parser reads
/// such a word as a column's name and reports an unknown column. The statement around it uses a
/// few of these levels.
const WORDS_MAX: u64 = 44;
/// Maximum number of tokens, including blanks. The parser stores each token in about 100 bytes
/// before it builds a tree: 40 MB in all. The guardrail `sql_nodes` bounds the tree. Its default
/// of 100,000 nodes needs no more tokens.
const TOKENS_MAX: u64 = 400_000;
/// Maximum length of a chain of array brackets, such as `int[][]`. PostgreSQL has at most 6
/// dimensions.
const BRACKETS_MAX: u64 = 16;
/// Maximum number of operators that are open at one place of a text, over all levels of nesting.
/// It bounds the depth of the tree. Dropping a parsed tree of 20,000 levels takes less than the
/// 2 MiB of a lane's stack (measured 2026-11-24 with sqlparser 0.62).
const OPERATORS_MAX: u64 = 8_000;
/// Maximum number of steps of the parser, each at most 1 µs (measured 2026-11-24: 18 nested calls
/// are 2^19 steps and take 0.46 s).
const STEPS_MAX: u64 = 1 << 19;

/// Words that the parser reads first as a special expression, and if that fails as a name.
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

/// Words before an expression that may be repeated.
const PREFIXES: [&str; 3] = ["interval", "not", "prior"];

/// Words before a parenthesis that make no call: the parser reads the parenthesis once.
const NO_CALL: [&str; 14] = [
    "and", "as", "else", "from", "having", "in", "on", "or", "over", "then", "using", "values", "when",
    "where",
];

/// Quantities of a text that bound the parser's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ParserWork {
    /// Words, quoted texts, signs, blanks and comments.
    pub(crate) tokens: u64,
    /// The text contains the name `current_setting`.
    pub(crate) asks_settings: bool,
    /// Maximum number of operators open at one place.
    operators: u64,
    /// Maximum nesting.
    nesting: usize,
    /// Maximum length of a chain of array brackets.
    brackets: u64,
    /// Maximum nesting within a word that the parser might read as a name.
    words: u64,
    /// Steps of the parser in the worst case.
    steps: u64,
}

impl ParserWork {
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
    /// Number of times that the parser reads its content.
    reads: u64,
    is_case: bool,
    /// Levels of the parser's recursion at this place.
    depth: u64,
    /// A CASE is open around it, or it is one.
    in_case: bool,
}

/// Levels of nesting around a place of the text, outermost first.
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

    /// Ends an expression.
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
        // Deeper levels are refused by `NESTING_MAX`.
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

    /// Closes a parenthesis, and each CASE in it without END.
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
/// 3. A word before a parenthesis multiplies the parser's reads of its content by 2 to 6.
///    Consecutive parentheses before a subquery multiply them by their number.
/// 4. CASE opens a level. Its parts between WHEN, THEN and ELSE are separate expressions. A
///    subquery adds a level.
pub(crate) fn parser_work(text: &str) -> ParserWork {
    let mut work = ParserWork::default();
    let mut levels = Levels { all: vec![Level { reads: 1, ..Level::default() }], open: 0 };
    let (mut brackets, mut prefixes) = (0, 0);
    let mut before = "";
    let mut at = 0;
    // Consecutive opening parentheses.
    let mut opened = 0;
    while at < text.len() {
        let rest = &text[at..];
        let blank = blank_len(rest);
        if blank > 0 {
            at += blank;
            work.tokens += 1;
            continue;
        }
        let token = &rest[..token_len(rest)];
        at += token.len();
        work.tokens += 1;
        work.steps = work.steps.saturating_add(levels.last().reads);
        match token {
            "," => levels.comma(),
            "(" | "[" | "{" => levels.enter(before),
            "<" if is_one_of(before, &["array", "struct", "map"]) => levels.enter(before),
            ")" | "]" | "}" => levels.leave(),
            word if is_word(word) => {
                work.asks_settings |= is_one_of(word, &["current_setting"]);
                match word {
                    _ if before == "." => {}
                    word if is_one_of(word, &["case"]) => levels.begin_case(),
                    word if is_one_of(word, &["end"]) => levels.end_case(),
                    word if levels.last().is_case && is_one_of(word, &["when", "then", "else"]) => {
                        levels.comma()
                    }
                    word if before == "(" && is_one_of(word, &["select", "with", "values"]) => {
                        levels.last().depth += 1;
                        // At each parenthesis the parser tries a subquery, then a join.
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
                work.asks_settings |= is_one_of(quoted, &["\"current_setting\""]);
            }
            sign if sign.len() == 1 => levels.operator(),
            _ => {}
        }
        brackets = match token {
            "[" if before == "]" => brackets + 1,
            "]" | "[" => brackets,
            _ => 0,
        };
        prefixes = if is_one_of(token, &PREFIXES) { prefixes + 1 } else { 0 };
        let Level { depth, in_case, .. } = *levels.last();
        if in_case || prefixes > 0 {
            work.words = work.words.max(depth + prefixes);
        }
        work.brackets = work.brackets.max(brackets);
        work.operators = work.operators.max(levels.open);
        work.nesting = work.nesting.max(levels.all.len() - 1);
        opened = if token == "(" { opened + 1 } else { 0 };
        before = token;
    }
    work
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn is_one_of(token: &str, words: &[&str]) -> bool {
    words.iter().any(|word| token.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let excess = parser_work(text).excess();
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
    fn blanks_count_as_tokens() {
        check(&format!("SELECT {}1", "1,".repeat(200_000)), Some("words, signs and blanks"));
        check(&format!("SELECT {}1", " ".repeat(400_000)), Some("words, signs and blanks"));
        check(&format!("SELECT /*{}*/ '{}'", " ".repeat(400_000), " ".repeat(400_000)), None);
    }

    #[test]
    fn deep_case_and_not_are_refused() {
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
    fn only_names_ask_for_settings() {
        assert!(parser_work("select Current_Setting('a')").asks_settings);
        assert!(parser_work("select pg_catalog.\"current_setting\"('a')").asks_settings);
        assert!(!parser_work("select 'current_setting'").asks_settings);
    }
}
