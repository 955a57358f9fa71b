//! Windows that build on other windows.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, NamedWindowExpr, OrderByExpr, Select, WindowSpec, WindowType,
};

use crate::engine::limits::planning::{self, NODES_MAX};
use crate::engine::parse::syntax::{folded, own_expressions};
use crate::failure::Failure;

/// PostgreSQL's `windowing_error`.
const WINDOWING: &str = "42P20";

/// Copies the clauses of named windows into the windows that build on them.
///
/// # Errors
/// The window is unknown, or has clauses that the other one has too.
pub(super) fn copy(select: &mut Select, copied: &mut u64) -> Result<(), Failure> {
    let mut known: HashMap<String, WindowSpec> = HashMap::new();
    for window in &mut select.named_window {
        if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
            extend(spec, &known, copied)?;
            known.insert(folded(&window.0), spec.clone());
        }
    }
    let mut result = Ok(());
    own_expressions(&mut select.projection, &mut |expr| {
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) = expr
            && result.is_ok()
        {
            result = extend(spec, &known, copied);
        }
    });
    result
}

fn extend(
    spec: &mut WindowSpec,
    known: &HashMap<String, WindowSpec>,
    copied: &mut u64,
) -> Result<(), Failure> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let refused = |text: String| Err(Failure::new(WINDOWING, text));
    let Some(base) = known.get(&folded(&name)) else {
        return Err(Failure::new("42704", format!("window \"{}\" does not exist", name.value)));
    };
    if base.window_frame.is_some() {
        return refused(format!("cannot copy window \"{}\" because it has a frame clause", name.value));
    }
    if !spec.partition_by.is_empty() {
        return refused(format!("cannot override PARTITION BY clause of window \"{}\"", name.value));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused(format!("cannot override ORDER BY clause of window \"{}\"", name.value));
    }
    let order = |order: &OrderByExpr| planning::written_nodes(&order.expr);
    let nodes = base.partition_by.iter().map(planning::written_nodes).chain(base.order_by.iter().map(order));
    *copied = nodes.fold(*copied, u64::saturating_add);
    if *copied > NODES_MAX {
        return Err(Failure::too_complex("too many copies of a window"));
    }
    spec.partition_by = base.partition_by.clone();
    if spec.order_by.is_empty() {
        spec.order_by = base.order_by.clone();
    }
    Ok(())
}
