//! Gives operators PostgreSQL's precedence where the parser has another:
//!
//! - It takes all that follows `IS [NOT] DISTINCT FROM` as its right side, `AND` included.
//! - In `-2 ^ 2` it takes the power first. PostgreSQL takes the sign first.
//! - In `NOT EXISTS (…) IS UNKNOWN` it takes `NOT` first. PostgreSQL takes it last.
//!
//! Parentheses are nodes of the tree, so that a node with a looser operator directly at its right
//! side is such a mistake. The looser operator moves up, past all operators that bind closer.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, Value, VisitorMut};

use crate::walk;

/// Corrects a statement right after parsing.
pub(crate) fn correct(statement: &mut Statement) {
    let _ = walk::walk_mut(statement, &mut Correct);
}

struct Correct;

impl VisitorMut for Correct {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        lift(expr);
        negate_last(expr);
        ControlFlow::Continue(())
    }
}

/// Closeness of the operators that take part. Others neither lift nor are lifted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Or,
    And,
    Not,
    Is,
    Power,
    Sign,
}

fn rank(expr: &Expr) -> Option<Rank> {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => Some(Rank::Or),
        Expr::BinaryOp { op: BinaryOperator::And, .. } => Some(Rank::And),
        Expr::BinaryOp { op: BinaryOperator::PGExp, .. } => Some(Rank::Power),
        Expr::UnaryOp { op: UnaryOperator::Not, .. } => Some(Rank::Not),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, .. } => Some(Rank::Sign),
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => Some(Rank::Is),
        _ => None,
    }
}

fn right_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::BinaryOp { right, .. } => Some(right),
        Expr::UnaryOp { expr, .. } => Some(expr),
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => Some(right),
        _ => None,
    }
}

/// Returns true if an operator with a left side is to move above one of rank `above`.
fn is_looser(expr: &Expr, above: Rank) -> bool {
    let has_left = matches!(expr, Expr::BinaryOp { .. });
    has_left && rank(expr).is_some_and(|rank| rank < above || rank == above && rank == Rank::Power)
}

/// Moves looser operators at the right side of a node above it.
fn lift(expr: &mut Expr) {
    let Some(above) = rank(expr) else { return };
    let Some(right) = right_of(expr).filter(|right| is_looser(right, above)) else { return };
    let mut raised = take(right);
    // The node takes the leftmost operand that binds at least as close.
    let mut place = &mut raised;
    while is_looser(place, above) {
        let Expr::BinaryOp { left, .. } = place else { return };
        place = left;
    }
    let operand = take(place);
    if let Some(right) = right_of(expr) {
        *right = operand;
    }
    *place = take(expr);
    *expr = raised;
}

/// Returns the left side of operators that bind closer than `NOT`.
fn left_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. } => None,
        Expr::BinaryOp { left, .. } => Some(left),
        Expr::IsDistinctFrom(left, _)
        | Expr::IsNotDistinctFrom(left, _)
        | Expr::IsUnknown(left)
        | Expr::IsNotUnknown(left)
        | Expr::IsTrue(left)
        | Expr::IsNotTrue(left)
        | Expr::IsFalse(left)
        | Expr::IsNotFalse(left)
        | Expr::IsNull(left)
        | Expr::IsNotNull(left) => Some(left),
        Expr::AnyOp { left, .. } | Expr::AllOp { left, .. } => Some(left),
        Expr::InList { expr, .. } | Expr::InSubquery { expr, .. } | Expr::Between { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Moves a `NOT` at the left side of an operator that binds closer above it.
fn negate_last(expr: &mut Expr) {
    let Some(left) = left_of(expr) else { return };
    match left {
        Expr::Exists { negated: negated @ true, .. } => *negated = false,
        Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => {
            let inner = take(inner);
            *left = inner;
        }
        _ => return,
    }
    let whole = take(expr);
    *expr = Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(whole) };
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// Returns an expression with all its parentheses.
    fn grouped(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", grouped(left), grouped(right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", grouped(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <=> {})", grouped(left), grouped(right)),
            Expr::Nested(inner) => grouped(inner),
            other => other.to_string(),
        }
    }

    #[test]
    fn operators_bind_as_in_postgres() {
        for (text, expected) in [
            ("a IS DISTINCT FROM b AND c", "((a <=> b) AND c)"),
            ("a IS DISTINCT FROM b = c AND d", "((a <=> (b = c)) AND d)"),
            ("x AND a IS DISTINCT FROM b OR c", "((x AND (a <=> b)) OR c)"),
            ("NOT a IS DISTINCT FROM b AND c", "((NOT (a <=> b)) AND c)"),
            ("a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e", "(((a <=> b) AND (c <=> d)) OR e)"),
            ("a IS DISTINCT FROM (b AND c)", "(a <=> (b AND c))"),
            ("- a ^ b", "((- a) ^ b)"),
            ("2 ^ - a ^ b", "((2 ^ (- a)) ^ b)"),
            ("- (a ^ b)", "(- (a ^ b))"),
            ("a * - b ^ c", "(a * ((- b) ^ c))"),
            ("- a * b", "((- a) * b)"),
            ("NOT EXISTS (SELECT 1) IS UNKNOWN", "(NOT EXISTS (SELECT 1) IS UNKNOWN)"),
            ("NOT EXISTS (SELECT 1) = b AND c", "((NOT (EXISTS (SELECT 1) = b)) AND c)"),
        ] {
            let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, &format!("SELECT {text}")).expect(text);
            correct(&mut parsed[0]);
            let Statement::Query(query) = &parsed[0] else { panic!("a query") };
            let item = &query.body.as_select().expect("a SELECT").projection[0];
            let datafusion::sql::sqlparser::ast::SelectItem::UnnamedExpr(expr) = item else {
                panic!("an expression")
            };
            assert_eq!(grouped(expr), expected, "{text}");
        }
    }
}
