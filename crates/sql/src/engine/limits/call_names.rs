//! Names of calls in the schemas of plans. DataFusion names a call by the names of its arguments,
//! and for the type of an expression asks for the name of each node below it. In a sum of 450
//! values each call has the one before it as an argument, so that names took 45 s of CPU: the
//! fourth power of the number of values. So the name of a large call is short, and is computed in
//! constant time from a key that the call got at its creation.
//!
//! The functions that replace operators need this. The parser bounds the nesting of all others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

/// Largest number of nodes in the arguments of a call that is named by them.
const NODES_MAX: usize = 32;

/// Key of a call: a hash of its arguments at its creation, of 128 bits, because columns are found
/// by their names. It is no part of what a function does, so that all keys are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallKey([u64; 2]);

impl CallKey {
    /// Returns the key of a call with these arguments. Visits all their nodes.
    pub(crate) fn of(args: &[&Expr]) -> CallKey {
        CallKey([0_u8, 1].map(|seed| {
            let mut hasher = DefaultHasher::new();
            (seed, args).hash(&mut hasher);
            hasher.finish()
        }))
    }
}

impl PartialEq for CallKey {
    fn eq(&self, _: &CallKey) -> bool {
        true
    }
}

impl Eq for CallKey {}

impl Hash for CallKey {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Returns the name of a call.
pub(crate) fn call_name(function: &str, key: CallKey, args: &[Expr]) -> Result<String> {
    large_call(function, key, args).map_or_else(|| Ok(format!("{function}({})", joined(args, ","))), Ok)
}

/// Returns the names of arguments, with `separator` in between.
pub(crate) fn joined(args: &[Expr], separator: &str) -> String {
    let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
    names.join(separator)
}

/// Returns the name of a call with many nodes in its arguments. `None`: it has few.
pub(crate) fn large_call(function: &str, key: CallKey, args: &[Expr]) -> Option<String> {
    let (mut nodes, mut first) = (0, DefaultHasher::new());
    // Arguments may have changed since the creation of the call: their first nodes count too.
    let mut visit = |node: &Expr| {
        nodes += 1;
        if nodes > NODES_MAX {
            return Ok(TreeNodeRecursion::Stop);
        }
        match node {
            Expr::Column(column) => column.hash(&mut first),
            Expr::Literal(value, _) => value.hash(&mut first),
            Expr::ScalarFunction(call) => call.func.name().hash(&mut first),
            other => discriminant(other).hash(&mut first),
        }
        Ok(TreeNodeRecursion::Continue)
    };
    for arg in args {
        // The visit cannot fail.
        let _ = arg.apply(&mut visit);
    }
    let CallKey([high, low]) = key;
    (nodes > NODES_MAX).then(|| format!("{function}({high:016x}{low:016x}{:016x})", first.finish()))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    fn name(args: &[Expr]) -> String {
        call_name("add", CallKey::of(&args.iter().collect::<Vec<_>>()), args).expect("named")
    }

    #[test]
    fn large_expressions_have_short_and_different_names() {
        let sum = |last: i64| (0..100).fold(col("a"), |sum, _| sum + lit(1_i64)) + lit(last);
        assert_eq!(name(&[col("a"), lit(2_i64)]), "add(a,Int64(2))");
        assert_eq!(name(&[sum(1), lit(2_i64)]), name(&[sum(1), lit(2_i64)]));
        assert_ne!(name(&[sum(1), lit(2_i64)]), name(&[sum(2), lit(2_i64)]));
        assert_eq!(name(&[sum(1)]).len(), "add()".len() + 48);
    }

    #[test]
    fn arguments_that_change_later_change_the_name() {
        let key = CallKey::of(&[&col("a")]);
        let sum = |of: &str| (0..100).fold(lit(1_i64), |sum, _| col(of) + sum);
        let name = |of: &str| call_name("add", key, &[sum(of)]).expect("named");
        assert_ne!(name("a"), name("b"));
    }
}
