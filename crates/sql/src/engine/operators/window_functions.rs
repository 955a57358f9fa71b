//! Window functions that charge their results, in the ledger of their node (`window_memory`).

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::engine::operators::window_memory::{StateCharge, ledger};
use crate::run::sizes::{array_bytes, heap_bytes, scalar_bytes, shared_bytes, shared_scalar_bytes};

/// A window function that charges its results.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Charged(Arc<WindowUDF>);

/// Replaces registered window functions by charged ones.
pub(crate) fn register(context: &SessionContext) {
    let state = context.state();
    for function in state.window_functions().values() {
        if !function.inner().is::<Charged>() {
            context.register_udwf(WindowUDF::new_from_impl(Charged(function.clone())));
        }
    }
}

impl WindowUDFImpl for Charged {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.inner().expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let literal = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Literal>().map_or(0, |literal| heap_bytes(literal.value()))
        };
        let literal_bytes = args.input_exprs().iter().map(literal).sum();
        let rows = rows_referred_to(&args);
        let inner = self.0.inner().partition_evaluator(args)?;
        // Without a ledger it is made to ask for its properties only.
        let Some(ledger) = ledger() else { return Ok(inner) };
        ledger.keep_rows(rows);
        Ok(Box::new(ChargedEvaluator { inner, charge: StateCharge::new(ledger)?, literal_bytes }))
    }

    fn simplify(&self) -> Option<datafusion::logical_expr::function::WindowFunctionSimplification> {
        self.0.inner().simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.0.inner().field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.0.inner().sort_options()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.0.inner().reverse_expr() {
            ReversedUDWF::Reversed(function) if !function.inner().is::<Charged>() => {
                ReversedUDWF::Reversed(Arc::new(WindowUDF::new_from_impl(Charged(function))))
            }
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.inner().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.0.inner().limit_effect(args)
    }
}

/// Returns the rows before the current one that a function may refer to: the offset of `lag` and
/// `lead`, the number of `nth_value`.
fn rows_referred_to(args: &PartitionEvaluatorArgs) -> u64 {
    // Any number of nulls may be among them.
    if args.ignore_nulls() {
        return u64::MAX;
    }
    // A literal has the type that the statement gave it.
    let offset = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Literal>()?.value() {
        value if !value.data_type().is_integer() => None,
        value => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(offset)) => offset.map(i64::unsigned_abs),
            _ => Some(u64::MAX),
        },
    };
    args.input_exprs().iter().skip(1).filter_map(offset).max().unwrap_or(0)
}

#[derive(Debug)]
struct ChargedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    charge: StateCharge,
    /// Bytes of literal arguments, which a result may repeat in each row.
    literal_bytes: u64,
}

impl ChargedEvaluator {
    fn charge(&self, column: &ArrayRef) -> Result<()> {
        let shared = shared_bytes(column.as_ref());
        self.charge.ledger.add_result(array_bytes(column.as_ref()), 1, shared)
    }
}

impl PartitionEvaluator for ChargedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, place: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(place, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.charge.ledger.add_result(self.literal_bytes, rows as u64, 0)?;
        let column = self.inner.evaluate_all(values, rows)?;
        self.charge(&column)?;
        Ok(column)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.inner.evaluate(values, range)?;
        self.charge.ledger.add_result(scalar_bytes(&value), 1, shared_scalar_bytes(&value))?;
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        let column = self.inner.evaluate_all_with_rank(rows, ranks)?;
        self.charge(&column)?;
        Ok(column)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
