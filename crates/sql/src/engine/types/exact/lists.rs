//! Two conditions on the members of a list. DataFusion joins `x IN (1) AND x IN (2)` to the list of
//! both, which is empty, and takes that for false although it is null for a row without `x`. A
//! function that returns its argument keeps all but the first of such conditions apart.
//!
//! In a call of this function by [`KEPT`], which the rewriting of a statement makes, a second
//! argument tells two aggregates apart whose names are equal but for a cast.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::engine::types::exact::type_names::refused;
use crate::failure::state;

/// Name of the function that returns its first argument.
pub(crate) const KEPT: &str = "as_is";

/// Returns the function that returns its first argument.
pub(super) fn kept() -> ScalarUDF {
    function(false)
}

/// Returns the same value, which may be null for the planner.
pub(super) fn nullable(expr: Expr) -> Expr {
    function(true).call(vec![expr])
}

fn function(is_nullable: bool) -> ScalarUDF {
    let signature = Signature::variadic_any(Volatility::Immutable);
    ScalarUDF::new_from_impl(Kept { signature, is_nullable })
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Kept {
    signature: Signature,
    is_nullable: bool,
}

impl ScalarUDFImpl for Kept {
    fn name(&self) -> &'static str {
        KEPT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(ty) => Ok(ty.clone()),
            None => refused(state::NO_FUNCTION, format!("function {KEPT}() does not exist")),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        match arguments.arg_fields.first() {
            Some(field) => {
                let is_nullable = self.is_nullable || field.is_nullable();
                Ok(Arc::new(Field::new(KEPT, field.data_type().clone(), is_nullable)))
            }
            None => refused(state::NO_FUNCTION, format!("function {KEPT}() does not exist")),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match call.args.into_iter().next() {
            Some(value) => Ok(value),
            None => refused(state::INTERNAL, "an argument"),
        }
    }
}

/// Keeps conditions apart that test the same value against lists.
pub(super) fn apart(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (mut seen, mut repeats) = (HashSet::new(), false);
    expr.apply(|part| {
        if let Expr::InList(list) = part
            && list.expr.nullable(schema).unwrap_or(true)
        {
            repeats |= !seen.insert(list.expr.as_ref());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !repeats {
        return Ok(Transformed::no(expr));
    }
    let mut seen = HashSet::new();
    expr.transform_up(|part| match part {
        Expr::InList(InList { expr, list, negated }) => {
            let is_first = seen.insert(expr.as_ref().clone());
            let list = Expr::InList(InList { expr, list, negated });
            Ok(if is_first { Transformed::no(list) } else { Transformed::yes(kept().call(vec![list])) })
        }
        other => Ok(Transformed::no(other)),
    })
}
