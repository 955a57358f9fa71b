//! Predicts the work of DataFusion's conversion of a SELECT, which compares the result columns with
//! each other, and with each aggregate and window. All of it is one call, which nothing interrupts.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Expr, Function, OrderByExpr, Visitor, WindowType};

use crate::engine::limits::planning::predicted_size::nodes_of;
use crate::failure::Failure;
use crate::walk;

/// Maximum number of comparisons by the conversion of a statement. Each takes about 7 ns
/// (2026-11-28), all of them 1.4 s. A SELECT of 900 aggregates or 200 windows has as many.
const COMPARED_MAX: u64 = 200_000_000;
/// Comparisons for a node of an aggregate or window: for each result column it is put into a map,
/// with the name of its column.
const OF_OUTPUT: u64 = 45;
/// Comparisons for a column below a window, whose name is copied for each result column and window.
const OF_COPIED_NAME: u64 = 15;
/// Comparisons for two keys of ORDER BY.
const OF_KEYS: u64 = 60;
/// Comparisons for two nodes of outputs, of which only one is kept if they are equal.
const OF_EQUAL: u64 = 3;

/// Expressions of a SELECT.
pub(super) struct Compared<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    /// Result columns and their nodes.
    columns: u64,
    nodes: u64,
    /// Aggregates, windows and expressions of GROUP BY, and their nodes.
    outputs: u64,
    output_nodes: u64,
    /// Hashes of windows.
    windows: HashSet<u64>,
    hasher: RandomState,
    /// Calls around the expression that is visited.
    depth: u32,
}

impl<'a> Compared<'a> {
    /// Creates a SELECT without expressions. `is_aggregate` knows functions by their names in lower
    /// case.
    pub(super) fn new(is_aggregate: &'a dyn Fn(&str) -> bool) -> Compared<'a> {
        Compared {
            is_aggregate,
            columns: 0,
            nodes: 0,
            outputs: 0,
            output_nodes: 0,
            windows: HashSet::new(),
            hasher: RandomState::new(),
            depth: 0,
        }
    }

    /// Adds an expression of `nodes` nodes of the list, of HAVING or ORDER BY.
    pub(super) fn add(&mut self, expr: &Expr, nodes: u64) {
        self.columns = self.columns.saturating_add(1);
        self.nodes = self.nodes.saturating_add(nodes);
        let _ = walk::walk(expr, self);
    }

    /// Adds the columns of a wildcard.
    pub(super) fn add_columns(&mut self, columns: u64) {
        self.columns = self.columns.saturating_add(columns);
        self.nodes = self.nodes.saturating_add(columns);
    }

    /// Adds an expression of GROUP BY.
    pub(super) fn add_group(&mut self, expr: &Expr) {
        self.outputs = self.outputs.saturating_add(1);
        self.output_nodes = self.output_nodes.saturating_add(nodes_of(expr));
    }

    /// Returns the call that an expression is, if it is one of an aggregate or over a window.
    fn call<'e>(&self, expr: &'e Expr) -> Option<&'e Function> {
        let Expr::Function(function) = expr else { return None };
        let name = function.name.0.last()?.as_ident()?;
        (function.over.is_some() || (self.is_aggregate)(&name.value.to_lowercase())).then_some(function)
    }

    /// Returns the number of comparisons over a FROM of `from` columns.
    pub(super) fn comparisons(&self, from: u64) -> u64 {
        let times = |factors: &[u64]| factors.iter().copied().fold(1, u64::saturating_mul);
        let windows = self.windows.len() as u64;
        [
            times(&[self.columns, self.nodes]),
            times(&[OF_OUTPUT, self.columns, self.output_nodes]),
            times(&[OF_EQUAL, self.outputs, self.output_nodes]),
            times(&[OF_COPIED_NAME, self.columns, windows, from.saturating_add(self.outputs)]),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// A call may be within one other. Those below are refused by the conversion, and not looked at.
const DEPTH_MAX: u32 = 2;

impl Visitor for Compared<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Some(function) = self.call(expr) else { return ControlFlow::Continue(()) };
        self.depth += 1;
        if self.depth <= DEPTH_MAX {
            self.add_group(expr);
            match &function.over {
                Some(WindowType::WindowSpec(spec)) => self.windows.insert(self.hasher.hash_one(spec)),
                Some(WindowType::NamedWindow(name)) => {
                    self.windows.insert(self.hasher.hash_one(name.value.to_lowercase()))
                }
                None => false,
            };
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth -= u32::from(self.call(expr).is_some());
        ControlFlow::Continue(())
    }
}

/// Returns the number of comparisons for the keys of ORDER BY.
pub(super) fn of_keys(keys: &[OrderByExpr], columns: u64) -> u64 {
    let keys = keys.len() as u64;
    OF_KEYS.saturating_mul(keys).saturating_mul(keys.saturating_add(columns))
}

/// Checks the comparisons of a statement.
///
/// # Errors
/// 54001 for more than [`COMPARED_MAX`].
pub(super) fn check(comparisons: u64) -> Result<()> {
    if comparisons <= COMPARED_MAX {
        return Ok(());
    }
    let reason = format!(
        "expected result columns, aggregates, windows and keys of ORDER BY that are \
         compared at most {COMPARED_MAX} times with each other, got {comparisons}"
    );
    let hint = "Split the statement: 900 aggregates or 200 windows fit in one.";
    Err(Failure::too_complex(reason).with_hint(hint).into())
}
