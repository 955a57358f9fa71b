//! Names of calls in the schemas of plans. DataFusion names a call by the names of its arguments,
//! for each node of an expression and in each pass over the plan. In a sum of 450 values, each call
//! has the one before it as an argument: together their names have a cubic number of bytes, which
//! took 45 s of CPU. So a call of a large expression is named by a hash of its arguments.
//!
//! The functions that replace operators need this. The parser bounds the nesting of all others.

use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

/// Largest number of nodes in the arguments of a call that is named by them.
const NODES_MAX: usize = 32;

/// Returns the name of a call.
pub(crate) fn call_name(function: &str, args: &[Expr]) -> Result<String> {
    large_call(function, args).map_or_else(|| Ok(format!("{function}({})", joined(args, ","))), Ok)
}

/// Returns the names of arguments, with `separator` in between.
pub(crate) fn joined(args: &[Expr], separator: &str) -> String {
    let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
    names.join(separator)
}

/// Returns the name of a call with many nodes in its arguments. `None`: it has few.
pub(crate) fn large_call(function: &str, args: &[Expr]) -> Option<String> {
    let mut nodes = 0;
    let mut count = |_: &Expr| {
        nodes += 1;
        Ok(if nodes > NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    for arg in args {
        // Counting cannot fail.
        let _ = arg.apply(&mut count);
    }
    (nodes > NODES_MAX).then(|| {
        // Columns are found by their names, so that two expressions must not share one: 128 bits.
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            (seed, function, args).hash(&mut hasher);
            hasher.finish()
        };
        format!("{function}({:016x}{:016x})", half(0), half(1))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn large_expressions_have_short_and_different_names() {
        let sum = |last: i64| (0..100).fold(col("a"), |sum, _| sum + lit(1_i64)) + lit(last);
        let name = |expr: Expr| call_name("add", &[expr, lit(2_i64)]).expect("named");
        assert_eq!(name(col("a")), "add(a,Int64(2))");
        assert_eq!(name(sum(1)), name(sum(1)));
        assert_ne!(name(sum(1)), name(sum(2)));
        assert_eq!(name(sum(1)).len(), "add()".len() + 32);
    }
}
