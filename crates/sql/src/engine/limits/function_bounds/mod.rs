//! Bounds on scalar functions whose result or work can be much larger than their arguments:
//! `repeat`, `range`, `levenshtein`, and others in the table of [`cost`]. DataFusion's functions
//! allocate the requested size outside of every account, even while constants are folded. A failed
//! allocation ends the process. A wrapper therefore estimates each call before the function runs:
//!
//! 1. The result for a row has at most the size of the guardrail `function_bytes`, and takes at
//!    most [`ROW_STEPS_MAX`] steps.
//! 2. The function is called with chunks of rows of at most [`CHUNK_BYTES`] and [`CHUNK_STEPS`]. A
//!    canceled statement stops between chunks.
//! 3. The result for a batch has at most [`BATCH_BYTES_MAX`], and is charged to the statement until
//!    the call is evaluated for the next batch, or the task poll ends. So are the results of all
//!    functions of a row together.

mod cost;
mod string_concat;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Documentation, Expr, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use engine::{Guardrail, Guardrails};

use crate::engine::limits::batch_width::too_wide;
use crate::engine::limits::call_names::CallKey;
use crate::engine::limits::folded_constants;
pub(crate) use crate::engine::limits::function_bounds::cost::widest;
use crate::engine::limits::function_bounds::cost::{Cost, Estimate};
use crate::run::sizes::{array_bytes, heap_bytes};
use crate::run::tasks::{self, CallPlace};

/// Maximum work for one row, in steps of about 1 ns. A statement can be canceled only between
/// rows.
const ROW_STEPS_MAX: u64 = 1 << 28;
/// Maximum work of a chunk of several rows, in steps: about 20 ms. A call checks for cancellation
/// between chunks.
const CHUNK_STEPS: u64 = 1 << 24;
/// Maximum estimated result of a chunk of several rows, bytes.
const CHUNK_BYTES: u64 = 32 << 20;
/// Maximum result of a call for a batch, bytes: 16 KiB a row on average.
pub(crate) const BATCH_BYTES_MAX: u64 = 128 << 20;
/// Smallest result that is charged, bytes: the numbers of a full batch.
const CHARGED_BYTES_MIN: u64 = 64 << 10;
/// Maximum size of values of a fixed size, bytes: a batch of 8192 rows then has at most
/// [`BATCH_BYTES_MAX`]. Nulls occupy the same size.
const FIXED_BYTES_MAX: u64 = BATCH_BYTES_MAX / 8192;

/// Error of a call whose result or work exceeds a bound.
#[derive(Debug)]
pub(crate) struct Exceeded(pub(crate) String);

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exceeded {}

fn exceeded<T>(text: String) -> Result<T> {
    Err(DataFusionError::External(Box::new(Exceeded(text))))
}

/// A function wrapped with bounds.
#[derive(Clone, Debug)]
struct Bounded {
    inner: ScalarUDF,
    cost: Cost,
    guardrails: Arc<Guardrails>,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Bounded) -> bool {
        self.inner == other.inner && self.cost == other.cost
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

/// Returns the function wrapped with bounds. `None` if it needs none or has them already.
fn bounded(function: &ScalarUDF, guardrails: &Arc<Guardrails>) -> Option<Arc<ScalarUDF>> {
    if function.inner().is::<Bounded>() {
        return None;
    }
    let cost = Cost::of(function.name())?;
    let (inner, guardrails) = (function.clone(), guardrails.clone());
    Some(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, cost, guardrails })))
}

/// Replaces registered functions that need bounds by bounded ones.
pub(crate) fn register(context: &SessionContext, guardrails: &Arc<Guardrails>) {
    let state = context.state();
    for function in state.scalar_functions().values().filter_map(|function| bounded(function, guardrails)) {
        context.register_udf(function.as_ref().clone());
    }
}

/// Bounds functions that DataFusion puts into a plan without a lookup by name: operators on lists
/// and texts.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn bound(plan: LogicalPlan, guardrails: &Arc<Guardrails>) -> Result<LogicalPlan> {
    let bounded = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| expr.transform_up(|expr| Ok(bound_expr(expr, guardrails))))
    })?;
    Ok(bounded.data)
}

fn bound_expr(expr: Expr, guardrails: &Arc<Guardrails>) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) => match bounded(&call.func, guardrails) {
            Some(function) => {
                call.func = function;
                Transformed::yes(Expr::ScalarFunction(call))
            }
            None => Transformed::no(Expr::ScalarFunction(call)),
        },
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let plain = string_concat::function(CallKey::of(&[&*left, &*right]));
            let function = bounded(&plain, guardrails).unwrap_or_else(|| Arc::new(plain));
            Transformed::yes(function.call(vec![*left, *right]))
        }
        other => Transformed::no(other),
    }
}

impl Bounded {
    fn check_row(&self, estimate: Estimate) -> Result<()> {
        let checked = self.guardrails.check(Guardrail::FunctionBytes, estimate.bytes);
        if let Err(error) = checked {
            return exceeded(format!("function {}: {error}", self.name()));
        }
        if estimate.steps > ROW_STEPS_MAX {
            return exceeded(format!(
                "function {}: expected at most {ROW_STEPS_MAX} steps for one row, got {}: shorten its arguments",
                self.name(),
                estimate.steps
            ));
        }
        Ok(())
    }

    fn check_batch(&self, bytes: u64, rows: usize) -> Result<()> {
        if bytes <= BATCH_BYTES_MAX {
            return Ok(());
        }
        exceeded(format!(
            "function {}: expected at most {BATCH_BYTES_MAX} bytes for a batch of {rows} rows, got {bytes}: \
             build shorter values",
            self.name()
        ))
    }

    /// Charges the result for some of `rows` rows until the call is evaluated again. If there is no
    /// memory for it, the query may be restarted with fewer rows in a batch.
    fn charge(place: CallPlace, result: &ColumnarValue, rows: usize) -> Result<()> {
        let ColumnarValue::Array(column) = result else { return Ok(()) };
        let bytes = array_bytes(column.as_ref());
        if bytes < CHARGED_BYTES_MIN {
            return Ok(());
        }
        tasks::charge_result(place, bytes).map_err(|error| {
            let wide = too_wide(widest(column), rows);
            if wide.fewer_rows().is_some() { DataFusionError::External(Box::new(wide)) } else { error }
        })
    }

    /// Calls the function for the rows from `from` to `to`.
    fn chunk(&self, call: &ScalarFunctionArgs, from: usize, to: usize) -> Result<ColumnarValue> {
        let slice = |value: &ColumnarValue| match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, to - from)),
            scalar @ ColumnarValue::Scalar(_) => scalar.clone(),
        };
        self.inner.invoke_with_args(ScalarFunctionArgs {
            args: call.args.iter().map(slice).collect(),
            arg_fields: call.arg_fields.clone(),
            number_rows: to - from,
            return_field: call.return_field.clone(),
            config_options: call.config_options.clone(),
        })
    }
}

/// Checks that the fixed size of a type's values is at most [`FIXED_BYTES_MAX`].
fn check_type(function: &str, ty: &DataType) -> Result<()> {
    let bytes = fixed_bytes(ty);
    if bytes <= FIXED_BYTES_MAX {
        return Ok(());
    }
    exceeded(format!(
        "function {function}: expected a type of at most {FIXED_BYTES_MAX} bytes of fixed size, got {bytes}: \
         use a list, or a type of variable length"
    ))
}

/// Returns the fixed size of a type's values, bytes. For lists, that of an element.
fn fixed_bytes(ty: &DataType) -> u64 {
    let number = |number: i32| u64::try_from(number).unwrap_or(0);
    match ty {
        DataType::FixedSizeBinary(bytes) => number(*bytes),
        DataType::FixedSizeList(field, length) => {
            number(*length).saturating_mul(fixed_bytes(field.data_type()))
        }
        DataType::Struct(fields) => {
            fields.iter().fold(0, |sum: u64, field| sum.saturating_add(fixed_bytes(field.data_type())))
        }
        DataType::Union(fields, _) => {
            fields.iter().fold(0, |sum: u64, (_, field)| sum.saturating_add(fixed_bytes(field.data_type())))
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => fixed_bytes(field.data_type()),
        DataType::RunEndEncoded(_, field) => fixed_bytes(field.data_type()),
        DataType::Dictionary(_, value) => fixed_bytes(value),
        _ => 16,
    }
}

/// Returns the size of an array's rows, bytes. A slice does not count the rest of its array.
fn bytes_of(array: &ArrayRef) -> u64 {
    array.to_data().get_slice_memory_size().map_or(u64::MAX, |bytes| bytes as u64)
}

impl ScalarUDFImpl for Bounded {
    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        tasks::check_end()?;
        let place = CallPlace::of(&call.return_field);
        tasks::release_result(place);
        let is_constant = call.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        if is_constant {
            folded_constants::computed(0)?;
        }
        let costs = self.cost.of_rows(&call.args, rows)?;
        let mut begun = 0;
        let mut chunk = Estimate::default();
        let mut bounds = Vec::new();
        for row in 0..rows {
            let estimate = costs.of(row);
            self.check_row(estimate)?;
            let after = chunk.and(estimate);
            if row > begun && (after.bytes > CHUNK_BYTES || after.steps > CHUNK_STEPS) {
                bounds.push((begun, row));
                (begun, chunk) = (row, estimate);
            } else {
                chunk = after;
            }
        }
        if bounds.is_empty() {
            let result = self.inner.invoke_with_args(call)?;
            if is_constant {
                folded_constants::computed(match &result {
                    ColumnarValue::Array(column) => array_bytes(column.as_ref()),
                    ColumnarValue::Scalar(value) => heap_bytes(value),
                })?;
            }
            Bounded::charge(place, &result, rows)?;
            return Ok(result);
        }
        bounds.push((begun, rows));
        let (mut results, mut bytes) = (Vec::with_capacity(bounds.len()), 0_u64);
        for (from, to) in bounds {
            tasks::check_end()?;
            let result = self.chunk(&call, from, to)?.into_array(to - from)?;
            Bounded::charge(place, &ColumnarValue::Array(result.clone()), rows)?;
            bytes = bytes.saturating_add(bytes_of(&result));
            self.check_batch(bytes, rows)?;
            results.push(result);
        }
        let results: Vec<&dyn Array> = results.iter().map(|result| result.as_ref() as &dyn Array).collect();
        Ok(ColumnarValue::Array(concat(&results)?))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match self.inner.inner().simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => {
                // The call became a cast, whose type may not have been checked yet.
                match &expr {
                    Expr::Cast(cast) if self.cost == Cost::Type => {
                        check_type(self.name(), cast.field.data_type())?
                    }
                    Expr::TryCast(cast) if self.cost == Cost::Type => {
                        check_type(self.name(), cast.field.data_type())?
                    }
                    _ => {}
                }
                let bounded = expr.transform_up(|expr| Ok(bound_expr(expr, &self.guardrails)))?;
                Ok(ExprSimplifyResult::Simplified(bounded.data))
            }
            original @ ExprSimplifyResult::Original(_) => Ok(original),
        }
    }

    fn name(&self) -> &str {
        self.inner.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.inner().aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.inner().signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.inner.inner().return_field_from_args(arguments)?;
        check_type(self.name(), field.data_type())?;
        // A field of its own: its address is the place of the call.
        Ok(Arc::new(field.as_ref().clone()))
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.inner().evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().preserves_lex_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

#[cfg(test)]
mod tests;
