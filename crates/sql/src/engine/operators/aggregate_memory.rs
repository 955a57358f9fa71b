//! Aggregate functions whose state grows with their input: lists, texts, sets of distinct values,
//! medians. DataFusion's operators reserve the size of a state after it has grown, by the next
//! power of two, while the old and the new state are both in memory. A result is another copy,
//! which no operator reserves. Wrappers charge both beforehand:
//!
//! 1. Before a batch is added: the batch, and the state once more. Released afterwards, when the
//!    operator reserves what the state has become.
//! 2. Before a state or result is taken: two copies, the value and its column. Released at the end
//!    of the task poll, when the batch's consumer has charged it.
//! 3. In a window, no operator reserves anything: the state and each result are charged in the
//!    ledger of the node (`window_memory`), for all functions.
//!
//! A refusal ends the statement. If it may spill, states of up to [`SPILLED_BYTES_MAX`] are not
//! refused here: the operator may be about to spill them, and holds many of them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::engine::operators::window_memory::{Ledger, StateCharge, ledger};
use crate::run::memory::{Held, StatementMemory};
use crate::run::sizes::{array_bytes, scalar_bytes, shared_scalar_bytes};
use crate::run::tasks;

/// Functions whose state grows with their input, without DISTINCT too.
const COLLECTING: [&str; 6] = [
    "array_agg",
    "string_agg",
    "median",
    "percentile_cont",
    "nth_value",
    "approx_percentile_cont_with_weight",
];
/// Smallest growth that is charged beforehand, bytes.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Largest growth that a statement with spilling may have without memory, bytes.
const SPILLED_BYTES_MAX: u64 = 16 << 20;

/// Entry of a collected value in a list or table, bytes.
const ENTRY_BYTES: u64 = 48;

/// An aggregate function that charges its states.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Charged(Arc<AggregateUDF>);

/// Replaces registered aggregate functions by charged ones.
pub(crate) fn register(context: &SessionContext) {
    let state = context.state();
    for function in state.aggregate_functions().values() {
        if !function.inner().is::<Charged>() {
            context.register_udaf(AggregateUDF::new_from_impl(Charged(function.clone())));
        }
    }
}

impl Charged {
    fn collects(&self, is_distinct: bool) -> bool {
        is_distinct || COLLECTING.contains(&self.0.name())
    }

    fn wrapped(
        &self,
        args: AccumulatorArgs,
        make: impl FnOnce(AccumulatorArgs) -> Result<Box<dyn Accumulator>>,
    ) -> Result<Box<dyn Accumulator>> {
        let (collects, name) = (self.collects(args.is_distinct), args.name.to_owned());
        let inner = make(args)?;
        if let Some(ledger) = ledger() {
            let is_constant = ledger.is_constant(&name);
            let charge = StateCharge::new(ledger)?;
            return Ok(Box::new(Windowed { inner, charge, collects, is_constant, rows: 0, collected: 0 }));
        }
        let views = self.0.name() == "array_agg";
        Ok(match collects {
            true => Box::new(Collecting { inner, ahead: Ahead::new(), views, view_bytes: 0 }),
            false => inner,
        })
    }
}

/// Charges for growth and copies.
#[derive(Debug)]
struct Ahead(Option<Arc<StatementMemory>>);

impl Ahead {
    fn new() -> Ahead {
        Ahead(tasks::memory())
    }

    /// Returns true if a statement may go on without memory for `bytes`.
    fn may_spill(&self, bytes: u64) -> bool {
        bytes <= SPILLED_BYTES_MAX && self.0.as_ref().is_some_and(|memory| memory.spills())
    }

    /// Charges `bytes` until the returned value is dropped.
    fn charge(&self, bytes: u64) -> Result<Held> {
        let mut held = Held::of(self.0.clone());
        if bytes >= AHEAD_BYTES_MIN
            && let Err(error) = held.grow(bytes)
            && !self.may_spill(bytes)
        {
            return Err(error);
        }
        Ok(held)
    }

    /// Charges `bytes` until the end of the task poll.
    fn charge_result(&self, bytes: u64) -> Result<()> {
        match tasks::charge_poll(if bytes >= AHEAD_BYTES_MIN { bytes } else { 0 }) {
            Err(error) if !self.may_spill(bytes) => Err(error),
            _ => Ok(()),
        }
    }
}

fn sum_of(columns: &[ArrayRef]) -> u64 {
    columns.iter().fold(0, |sum: u64, column| sum.saturating_add(array_bytes(column.as_ref())))
}

/// Returns the bytes of texts that DataFusion's sizes of views leave out.
fn view_bytes(columns: &[ArrayRef]) -> u64 {
    let is_view =
        |column: &&ArrayRef| matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView);
    columns.iter().filter(is_view).fold(0, |sum, column| sum + array_bytes(column.as_ref()))
}

/// A state that grows with its input.
#[derive(Debug)]
struct Collecting {
    inner: Box<dyn Accumulator>,
    ahead: Ahead,
    /// It keeps arrays, also those of views.
    views: bool,
    view_bytes: u64,
}

impl Collecting {
    fn grow(&mut self, columns: &[ArrayRef]) -> Result<Held> {
        if self.views {
            self.view_bytes += view_bytes(columns);
        }
        let more = sum_of(columns);
        // A list of arrays is cheap to extend, but not cheap to measure.
        let state = if self.views { 0 } else { self.inner.size() as u64 };
        self.ahead.charge(state.saturating_add(more))
    }

    fn charge_copies(&self) -> Result<()> {
        self.ahead.charge_result((self.size() as u64).saturating_mul(2))
    }
}

impl Accumulator for Collecting {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let _growing = self.grow(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.charge_copies()?;
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size() + usize::try_from(self.view_bytes).unwrap_or(usize::MAX)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.charge_copies()?;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let _growing = self.grow(states)?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// A state in a window.
#[derive(Debug)]
struct Windowed {
    inner: Box<dyn Accumulator>,
    charge: StateCharge,
    collects: bool,
    /// One result is repeated for all rows of the partition.
    is_constant: bool,
    /// Rows added, after any filter of the function.
    rows: u64,
    /// Bytes added. DataFusion's size of a list of arrays takes as long as the list.
    collected: u64,
}

impl Windowed {
    fn ledger(&self) -> &Arc<Ledger> {
        &self.charge.ledger
    }

    /// Charges the values that a state collects: themselves, and entries and capacity for them.
    fn collect(&mut self, values: &[ArrayRef]) -> Result<()> {
        if !self.collects {
            return Ok(());
        }
        self.collected = self.collected.saturating_add(Self::collected(values));
        self.charge.resize(self.collected)
    }

    fn collected(values: &[ArrayRef]) -> u64 {
        let entries = values.first().map_or(0, |column| column.len() as u64) * ENTRY_BYTES;
        sum_of(values).saturating_mul(2).saturating_add(entries)
    }
}

impl Accumulator for Windowed {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values.first().map_or(0, |column| column.len() as u64);
        self.collect(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.collects {
            // The result of a list is made before its size is known.
            self.ledger().add_result(self.collected / 2, 1, 0)?;
        }
        let value = self.inner.evaluate()?;
        // A filter of the function may have left rows out, which get the result too.
        let rows = if self.is_constant { self.rows.max(self.ledger().rows_inside()) } else { 1 };
        self.ledger().add_result(scalar_bytes(&value), rows, shared_scalar_bytes(&value))?;
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.collect(states)?;
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.collected = self.collected.saturating_sub(Self::collected(values));
        self.charge.resize(self.collected)?;
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// States of all groups.
struct CollectingGroups {
    inner: Box<dyn GroupsAccumulator>,
    ahead: Ahead,
    /// It keeps texts whose capacity its size leaves out: up to as much again.
    is_text: bool,
    views: bool,
    view_bytes: u64,
    groups: usize,
}

impl CollectingGroups {
    fn grow(&mut self, columns: &[ArrayRef], groups: usize) -> Result<Held> {
        if self.views {
            self.view_bytes += view_bytes(columns);
        }
        self.groups = groups;
        self.ahead.charge(sum_of(columns).saturating_mul(2))
    }

    /// Charges the columns of groups that are taken.
    fn take(&mut self, emit_to: EmitTo) -> Result<()> {
        let (taken, of) = match emit_to {
            EmitTo::All => (1, 1),
            EmitTo::First(groups) => (groups.min(self.groups) as u64, self.groups.max(1) as u64),
        };
        let part = |bytes: u64| (u128::from(bytes) * u128::from(taken) / u128::from(of)) as u64;
        self.ahead.charge_result(part(self.size() as u64))?;
        self.view_bytes -= part(self.view_bytes);
        self.groups -= if of == 1 { self.groups } else { taken as usize };
        Ok(())
    }
}

impl GroupsAccumulator for CollectingGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        let _growing = self.grow(values, groups)?;
        self.inner.update_batch(values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.take(emit_to)?;
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.take(emit_to)?;
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], groups: usize) -> Result<()> {
        let _growing = self.grow(values, groups)?;
        self.inner.merge_batch(values, group_indices, groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        let size = self.inner.size() + usize::try_from(self.view_bytes).unwrap_or(usize::MAX);
        if self.is_text { size * 2 } else { size }
    }
}

impl AggregateUDFImpl for Charged {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.0.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.0.inner().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.0.inner().return_field(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.0.inner().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.wrapped(args, |args| self.0.inner().accumulator(args))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let collects = self.collects(args.is_distinct);
        let inner = self.0.inner().create_groups_accumulator(args)?;
        if !collects {
            return Ok(inner);
        }
        let (is_text, views) = (self.name() == "string_agg", self.name() == "array_agg");
        let ahead = Ahead::new();
        Ok(Box::new(CollectingGroups { inner, ahead, is_text, views, view_bytes: 0, groups: 0 }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.wrapped(args, |args| self.0.inner().create_sliding_accumulator(args))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let other = Arc::clone(self.0.inner()).with_beneficial_ordering(is_ordered)?;
        let charged = |other| {
            Arc::new(Charged(Arc::new(AggregateUDF::new_from_shared_impl(other))))
                as Arc<dyn AggregateUDFImpl>
        };
        Ok(other.map(charged))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.inner().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.0.inner().simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        self.0.inner().simplify_expr_op_literal(function, argument, operator, literal, is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.0.inner().reverse_expr() {
            ReversedUDAF::Reversed(function) if !function.inner().is::<Charged>() => {
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::new_from_impl(Charged(function))))
            }
            other => other,
        }
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(arguments)
    }

    fn is_descending(&self) -> Option<bool> {
        self.0.inner().is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.inner().value_from_stats(statistics)
    }

    fn default_value(&self, ty: &DataType) -> Result<ScalarValue> {
        self.0.inner().default_value(ty)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.0.inner().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.0.inner().supports_within_group_clause()
    }

    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(ty)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.inner().documentation()
    }
}
