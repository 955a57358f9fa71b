//! Flattens a statement's syntax tree where that is cheap, and bounds it before planning.
//! Planning, printing, cloning and dropping recurse on a lane's stack of 2 MiB. A query named by
//! `WITH` is planned anew wherever it is used.
//!
//! 1. Chains of `x = 1 OR x = 2 …` become `x IN (1, 2, …)`, chains of `x <> 1 AND x <> 2 …` become
//!    `NOT IN`.
//! 2. Chains of UNION become a balanced tree. DataFusion flattens it later, in the same order.
//! 3. Depth and nodes are counted, including copies of `WITH` queries, and checked by the
//!    guardrails `sql_depth` and `sql_nodes`.
//!
//! Other chains of AND and OR stay: DataFusion splits conditions and chains them again, so
//! balancing them would not help.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, ObjectName, Query, Select, SetExpr, SetOperator, SetQuantifier, Statement,
    UnaryOperator, Value, ValueWithSpan, Visitor, VisitorMut,
};
use engine::{Guardrail, Guardrails};

use crate::engine::limits::planning::{self, DEPTH_MAX, NODES_MAX};
use crate::failure::{Failure, state};
use crate::walk;

/// Operands from which on a chain is flattened.
const CHAIN_MIN: usize = 16;
/// Plan levels added by a query: projection, filter, aggregation, window, sort, limit, alias, and
/// a join.
const QUERY_LEVELS: u64 = 8;
/// Plan levels added by a join or a set operation.
const JOIN_LEVELS: u64 = 2;
/// Weight of a query or a table in nodes: its operators with their schemas take about as much
/// memory as 50 literals.
const QUERY_NODES: u64 = 50;

/// Size of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Size {
    pub(crate) depth: u64,
    pub(crate) nodes: u64,
}

impl Size {
    /// Checks the size against the guardrails, and against the bounds that hold without them.
    ///
    /// # Errors
    /// 54001 (statement too complex).
    pub(crate) fn check(self, guardrails: &Guardrails) -> Result<(), Failure> {
        let checked = guardrails.check(Guardrail::SqlDepth, self.depth);
        let checked = checked.and_then(|()| guardrails.check(Guardrail::SqlNodes, self.nodes));
        checked.map_err(|error| Failure::new(state::COMPLEX, error.to_string()))?;
        for (what, size, max) in [
            ("levels of nesting", self.depth, DEPTH_MAX),
            ("nodes in its syntax tree", self.nodes, NODES_MAX),
        ] {
            if size > max {
                let reason = format!("expected at most {max} {what}, got {size}");
                return Err(Failure::too_complex(reason).with_hint("Split the statement."));
            }
        }
        Ok(())
    }
}

/// Flattens long chains of a statement.
pub(crate) fn flatten(statement: &mut Statement) {
    let _ = walk::walk_mut(statement, &mut Flatten { flattened: 0 });
}

struct Flatten {
    /// Remaining nodes on the left spine of a flattened chain. They are visited next and skipped.
    flattened: usize,
}

impl VisitorMut for Flatten {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match self.flattened.checked_sub(1) {
            Some(left) => self.flattened = left,
            None => self.flattened = flatten_chain(expr).saturating_sub(2),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        balance(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

/// Flattens the chain at `expr`. Returns its number of operands afterwards, or 0 if there is no
/// chain.
fn flatten_chain(expr: &mut Expr) -> usize {
    let (chain, compares) = match expr {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => (BinaryOperator::Or, BinaryOperator::Eq),
        Expr::BinaryOp { op: BinaryOperator::And, .. } => (BinaryOperator::And, BinaryOperator::NotEq),
        _ => return 0,
    };
    let (mut operands, mut left) = (Vec::new(), vec![std::mem::replace(expr, null())]);
    while let Some(part) = left.pop() {
        match part {
            Expr::BinaryOp { left: one, op, right: other } if op == chain => left.extend([*other, *one]),
            other => operands.push(other),
        }
    }
    let operands = if operands.len() < CHAIN_MIN { operands } else { listed(operands, &compares) };
    let count = operands.len();
    let again =
        |one, other| Expr::BinaryOp { left: Box::new(one), op: chain.clone(), right: Box::new(other) };
    *expr = operands.into_iter().reduce(again).unwrap_or_else(null);
    count
}

/// Merges comparisons of the same expression with literals of the same kind into one list, at the
/// place of the first.
fn listed(operands: Vec<Expr>, compares: &BinaryOperator) -> Vec<Expr> {
    let mut places: HashMap<(String, LiteralKind), usize> = HashMap::new();
    let mut result: Vec<Expr> = Vec::new();
    for operand in operands {
        let Expr::BinaryOp { left, op, right } = operand else {
            result.push(operand);
            continue;
        };
        let (Some(kind), true, true) = (LiteralKind::of(&right), op == *compares, is_simple(&left)) else {
            result.push(Expr::BinaryOp { left, op, right });
            continue;
        };
        match places.get(&(left.to_string(), kind)) {
            Some(place) => match &mut result[*place] {
                Expr::InList { list, .. } => list.push(*right),
                _ => unreachable!("lists stand at these places"),
            },
            None => {
                places.insert((left.to_string(), kind), result.len());
                let negated = *compares == BinaryOperator::NotEq;
                result.push(Expr::InList { expr: left, list: vec![*right], negated });
            }
        }
    }
    result
}

/// Kinds of literals. Lists do not mix them, so that no value is compared as a type other than its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum LiteralKind {
    Integer,
    Number,
    Text,
}

impl LiteralKind {
    fn of(expr: &Expr) -> Option<LiteralKind> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
                // The planner reads an integer beyond 64 bits as a float, which would make the
                // whole list floats.
                Some(if digits.parse::<i64>().is_ok() { LiteralKind::Integer } else { LiteralKind::Number })
            }
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => Some(LiteralKind::Text),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                LiteralKind::of_literal(expr).filter(|kind| *kind != LiteralKind::Text)
            }
            _ => None,
        }
    }

    /// Like [`LiteralKind::of`], without a sign.
    fn of_literal(expr: &Expr) -> Option<LiteralKind> {
        if matches!(expr, Expr::Value(_)) { LiteralKind::of(expr) } else { None }
    }
}

fn is_simple(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        || LiteralKind::of_literal(expr).is_some()
}

/// Balances chains of UNION that have the same quantifier throughout.
fn balance(body: &mut SetExpr) {
    let mut left = vec![body];
    while let Some(expr) = left.pop() {
        if let Some((quantifier, length)) = union_chain(expr)
            && length >= CHAIN_MIN
        {
            let operands = operands_of_union(std::mem::replace(expr, placeholder()), quantifier);
            *expr = balanced(operands, quantifier);
        }
        if let SetExpr::SetOperation { left: one, right: other, .. } = expr {
            left.extend([&mut **one, &mut **other]);
        }
    }
}

/// Returns a substitute for a part taken out of the tree.
fn placeholder() -> SetExpr {
    SetExpr::Values(datafusion::sql::sqlparser::ast::Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    })
}

/// Returns the quantifier and the number of operands of the chain of UNION at `expr`.
fn union_chain(expr: &SetExpr) -> Option<(SetQuantifier, usize)> {
    let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: chain, .. } = expr else {
        return None;
    };
    let (mut length, mut at) = (1, expr);
    while let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, .. } = at
        && set_quantifier == chain
    {
        (length, at) = (length + 1, left);
    }
    let is_associative = matches!(chain, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None);
    is_associative.then_some((*chain, length))
}

fn operands_of_union(mut expr: SetExpr, chain: SetQuantifier) -> Vec<SetExpr> {
    let mut operands = Vec::new();
    loop {
        match expr {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right }
                if set_quantifier == chain =>
            {
                operands.push(*right);
                expr = *left;
            }
            first => {
                operands.push(first);
                operands.reverse();
                return operands;
            }
        }
    }
}

/// Builds a balanced tree over `operands`, in their order.
fn balanced(mut operands: Vec<SetExpr>, set_quantifier: SetQuantifier) -> SetExpr {
    if operands.len() <= 1 {
        return operands.pop().unwrap_or_else(placeholder);
    }
    let right = operands.split_off(operands.len() / 2);
    let [left, right] = [operands, right].map(|half| Box::new(balanced(half, set_quantifier)));
    SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right }
}

/// Measures a statement. Counters saturate.
pub(crate) fn size(statement: &Statement) -> Size {
    let mut measure = Measure { depth: 0, frames: vec![Frame::default()], selects: Vec::new() };
    let _ = walk::walk(statement, &mut measure);
    let frame = measure.frames.pop().unwrap_or_default();
    Size { depth: frame.deepest, nodes: frame.nodes }
}

/// A query being visited.
#[derive(Default)]
struct Frame {
    /// Depth at which it begins.
    base: u64,
    /// Greatest depth within it.
    deepest: u64,
    nodes: u64,
    /// Levels of its set operations.
    sets: u64,
    /// Names of its `WITH` queries that are not visited yet.
    pending: VecDeque<String>,
    /// Sizes of those already visited.
    named: HashMap<String, Size>,
}

struct Measure {
    depth: u64,
    frames: Vec<Frame>,
    /// For each SELECT being visited: its number of tables and subqueries, and the greatest depth
    /// before it.
    selects: Vec<(u64, u64)>,
}

impl Measure {
    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the outermost frame stays")
    }

    fn add(&mut self, size: Size) {
        let depth = self.depth.saturating_add(size.depth);
        let frame = self.frame();
        frame.nodes = frame.nodes.saturating_add(size.nodes);
        frame.deepest = frame.deepest.max(depth);
    }

    /// Counts a table or a subquery of the current SELECT.
    fn joined(&mut self) {
        if let Some((joined, _)) = self.selects.last_mut() {
            *joined += 1;
        }
    }
}

impl Visitor for Measure {
    type Break = ();

    fn pre_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
        self.depth += 1;
        self.add(Size { depth: 0, nodes: 1 });
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        self.add(Size { depth: 0, nodes: planning::of_value(&value.value) });
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        let pending = named.map(|table| table.alias.name.value.to_lowercase()).collect();
        self.depth += QUERY_LEVELS;
        let (base, sets) = (self.depth - QUERY_LEVELS, JOIN_LEVELS * depth_of_sets(&query.body));
        self.frames.push(Frame { base, deepest: self.depth, sets, pending, ..Frame::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= QUERY_LEVELS;
        let Some(frame) = self.frames.pop() else { return ControlFlow::Continue(()) };
        let depth = (frame.deepest - frame.base).saturating_add(frame.sets);
        let size = Size { depth, nodes: frame.nodes };
        // A WITH query counts where it is used.
        match self.frame().pending.pop_front() {
            Some(name) => drop(self.frame().named.insert(name, size)),
            None => {
                self.joined();
                self.add(size);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        let depth = self.depth;
        self.add(Size { depth: 0, nodes: QUERY_NODES });
        let before = std::mem::replace(&mut self.frame().deepest, depth);
        self.selects.push((0, before));
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        let (joined, before) = self.selects.pop().unwrap_or_default();
        let frame = self.frame();
        frame.deepest = frame.deepest.saturating_add(JOIN_LEVELS * joined).max(before);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let named = match &name.0[..] {
            [one] => one.as_ident().map(|ident| ident.value.to_lowercase()),
            _ => None,
        };
        let found = named.and_then(|name| self.frames.iter().rev().find_map(|frame| frame.named.get(&name)));
        let size = found.copied().unwrap_or_default();
        self.joined();
        self.add(Size { nodes: size.nodes.saturating_add(QUERY_NODES), ..size });
        ControlFlow::Continue(())
    }
}

/// Returns the depth of set operations, without recursion.
fn depth_of_sets(body: &SetExpr) -> u64 {
    let (mut deepest, mut left) = (0, vec![(body, 0)]);
    while let Some((expr, depth)) = left.pop() {
        deepest = deepest.max(depth);
        if let SetExpr::SetOperation { left: one, right: other, .. } = expr {
            left.extend([(&**one, depth + 1), (&**other, depth + 1)]);
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn parsed(text: &str) -> Statement {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, text).expect(text);
        flatten(&mut statements[0]);
        statements.remove(0)
    }

    fn size_of(text: &str) -> Size {
        size(&parsed(text))
    }

    #[test]
    fn chains_of_comparisons_become_lists() {
        let chain = |of: &dyn Fn(usize) -> String, by: &str| (0..20).map(of).collect::<Vec<_>>().join(by);
        let text =
            parsed(&format!("SELECT 1 WHERE {}", chain(&|n| format!("a.b = {n}"), " OR "))).to_string();
        assert!(text.contains("WHERE a.b IN (0, 1, 2,") && !text.contains("OR"), "{text}");
        let text =
            parsed(&format!("SELECT 1 WHERE {}", chain(&|n| format!("a <> 't{n}'"), " AND "))).to_string();
        assert!(text.contains("WHERE a NOT IN ('t0', 't1',") && !text.contains("AND"), "{text}");
        let mixed = chain(&|n| format!("a = {n} OR b > {n} OR a = '{n}' OR a = {n}.5 OR a = -{n}"), " OR ");
        let text = parsed(&format!("SELECT 1 WHERE {mixed}")).to_string();
        assert!(
            text.contains("WHERE a IN (0, -0, 1, -1,") && text.contains(" OR b > 0 OR a IN ('0', '1',"),
            "{text}"
        );
        assert!(text.contains("OR a IN (0.5, 1.5,") && text.contains("OR b > 19"), "{text}");
        let short = "SELECT 1 WHERE a = 1 OR a = 2 AND b = 3";
        assert_eq!(parsed(short).to_string(), short);
        let operands = size_of(&format!("SELECT 1 WHERE {}", vec!["1 = 2"; 2_000].join(" OR ")));
        assert!(operands.depth < 20 && operands.nodes > 2_000, "{operands:?}");
    }

    #[test]
    fn chains_of_union_become_balanced_and_keep_their_order() {
        for by in [" UNION ALL ", " UNION ", " UNION DISTINCT "] {
            let operands: Vec<String> = (0..1_000).map(|n| format!("SELECT {n}")).collect();
            let statement = parsed(&operands.join(by));
            let text = statement.to_string();
            let order: Vec<&str> = text.split(by).collect();
            assert_eq!(order, operands, "{by}");
            let Statement::Query(query) = &statement else { panic!("a query") };
            assert_eq!(depth_of_sets(&query.body), 10, "{by}");
        }
        let mixed = "SELECT 1 UNION ALL SELECT 2 UNION SELECT 3 EXCEPT SELECT 4";
        assert_eq!(parsed(mixed).to_string(), mixed);
    }

    #[test]
    fn depth_counts_every_kind_of_nesting() {
        for (what, text) in [
            ("sums", format!("SELECT {}", vec!["a"; 600].join(" + "))),
            ("conditions", format!("SELECT 1 WHERE {}", vec!["a > b"; 600].join(" AND "))),
            ("casts", format!("SELECT 1{}", "::int".repeat(600))),
            ("set operations", vec!["SELECT 1"; 300].join(" EXCEPT ")),
            ("joins", format!("SELECT 1 FROM {}", vec!["t"; 300].join(", "))),
            (
                "named queries",
                format!(
                    "WITH q0 AS (SELECT 1) {} SELECT * FROM q80",
                    (0..80).map(|n| format!(", q{} AS (SELECT * FROM q{n})", n + 1)).collect::<String>()
                ),
            ),
        ] {
            let size = size_of(&text);
            assert!(size.depth > 500 && size.nodes < 100_000, "{what}: {size:?}");
        }
        let usual =
            size_of("WITH w AS (SELECT a FROM t) SELECT (SELECT max(b) FROM u), c FROM w, (SELECT 1) AS x");
        assert!(usual.depth < 50 && usual.nodes < 500, "{usual:?}");
    }

    #[test]
    fn nodes_count_what_names_multiply() {
        let doubled: String =
            (0..20).map(|n| format!(", q{} AS (SELECT 1 FROM q{n} a, q{n} b)", n + 1)).collect();
        let size = size_of(&format!("WITH q0 AS (SELECT 1) {doubled} SELECT 1 FROM q20"));
        assert!(size.nodes > 50_000_000, "{size:?}");
        let unused = size_of("WITH w AS (SELECT 1), w2 AS (SELECT 1 FROM w, w, w) SELECT 1");
        assert!(unused.nodes < 100, "{unused:?}");
        let listed = size_of(&format!("SELECT 1 WHERE a IN ({})", vec!["1"; 50_000].join(",")));
        assert!((50_000..51_000).contains(&listed.nodes), "{listed:?}");
    }
}
