//! `sum` and `avg` with PostgreSQL's types. Both return `numeric` for `bigint` and `numeric`, and
//! `avg` also for smaller whole numbers. DataFusion's `sum` of `bigint` wraps around, and its `avg`
//! is floating point. These functions add in 128 bits and check for overflow. DataFusion's
//! functions handle all other types.

use std::collections::HashSet;
use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::{average::avg_udaf, sum::sum_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::decimals::{DIGITS_MAX, QUOTIENT_SCALE, rounded_quotient, too_long};
use crate::engine::types::exact::type_names::{is_int, refused, type_name};
use crate::failure::{refusal, state};

/// Maximum number of digits of a `bigint`.
const BIGINT_DIGITS: u8 = 19;

/// Returns `sum` and `avg`.
pub(crate) fn functions() -> [AggregateUDF; 2] {
    [(false, sum_udaf()), (true, avg_udaf())].map(|(is_average, other)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Total { is_average, other, signature })
    })
}

/// Returns `sum` of `smallint` and `integer`, whose argument is a `bigint` already: a type that
/// follows from the argument would change when DataFusion converts the argument and asks again.
pub(super) fn small_sum() -> Arc<AggregateUDF> {
    sum_udaf()
}

/// `sum` or `avg`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Total {
    is_average: bool,
    /// DataFusion's function of the same name.
    other: Arc<AggregateUDF>,
    signature: Signature,
}

/// Kind and scales of a decimal total.
#[derive(Clone, Copy, Debug)]
struct Shape {
    is_average: bool,
    /// Scale of the values.
    scale: i8,
    /// Scale of the result.
    result_scale: i8,
}

impl Shape {
    fn ty(self) -> DataType {
        DataType::Decimal128(DIGITS_MAX, self.scale)
    }

    /// Converts values to decimals. In a window over an aggregate, DataFusion passes whole numbers
    /// without conversion.
    fn values(self, column: &ArrayRef) -> Result<ArrayRef> {
        match column.data_type() {
            DataType::Decimal128(..) => Ok(column.clone()),
            _ => Ok(datafusion::arrow::compute::cast(column, &self.ty())?),
        }
    }

    fn result_type(self) -> DataType {
        DataType::Decimal128(DIGITS_MAX, self.result_scale)
    }

    fn add(self, total: &mut i128, value: i128) -> Result<()> {
        let sum = total.checked_add(value).filter(|sum| sum.unsigned_abs() < 10_u128.pow(DIGITS_MAX.into()));
        *total = sum.ok_or_else(|| refusal(state::RANGE, too_long()))?;
        Ok(())
    }

    fn result(self, total: i128, count: i64) -> Result<i128> {
        if !self.is_average {
            return Ok(total);
        }
        let shift = u32::try_from(self.result_scale - self.scale).unwrap_or(0);
        let scaled = total.checked_mul(10_i128.pow(shift));
        if let Some(scaled) = scaled {
            return Ok(rounded_quotient(scaled, i128::from(count)));
        }
        // Divide before multiplying, so that a wide total does not overflow.
        let (count, power) = (i128::from(count), 10_i128.pow(shift));
        let whole = (total / count).checked_mul(power);
        let rest = (total % count).checked_mul(power).map(|rest| rounded_quotient(rest, count));
        let mean = whole.zip(rest).and_then(|(whole, rest)| whole.checked_add(rest));
        let mean = mean.filter(|mean| mean.unsigned_abs() < 10_u128.pow(DIGITS_MAX.into()));
        mean.ok_or_else(|| refusal(state::RANGE, too_long()))
    }
}

impl Total {
    /// Returns `None` if DataFusion's function handles the type.
    fn shape(&self, argument: &DataType) -> Option<Shape> {
        let DataType::Decimal128(_, scale) = argument else { return None };
        let result_scale = if self.is_average { QUOTIENT_SCALE.max(*scale) } else { *scale };
        Some(Shape { is_average: self.is_average, scale: *scale, result_scale })
    }

    fn shape_of(&self, args: &AccumulatorArgs) -> Option<Shape> {
        self.shape(args.expr_fields.first()?.data_type())
    }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        self.other.name()
    }

    /// Returns the aliases of DataFusion's function, which would otherwise still be found under
    /// them.
    fn aliases(&self) -> &[String] {
        self.other.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arguments else {
            return refused(state::NO_FUNCTION, format!("function {} takes one argument", self.name()));
        };
        let is_wide =
            self.is_average || !matches!(argument, DataType::Int8 | DataType::Int16 | DataType::Int32);
        Ok(vec![match argument {
            ty if is_int(ty) && is_wide => DataType::Decimal128(BIGINT_DIGITS, 0),
            ty if is_int(ty) => DataType::Int64,
            DataType::Null | DataType::Float32 => DataType::Float64,
            DataType::Float64 | DataType::Decimal128(..) | DataType::Decimal256(..) => argument.clone(),
            // The rewriting of expressions refuses it: the code of an error made here is lost.
            DataType::Interval(_) => argument.clone(),
            other => {
                let text = format!("function {}({}) does not exist", self.name(), type_name(other));
                return refused(state::NO_FUNCTION, text);
            }
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let argument = arguments.first().cloned().unwrap_or(DataType::Null);
        if let DataType::Interval(_) = argument {
            return Ok(argument);
        }
        match self.shape(&argument) {
            Some(shape) => Ok(shape.result_type()),
            None => self.other.return_type(arguments),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.shape_of(&args) {
            Some(shape) if args.is_distinct => {
                Ok(Box::new(DistinctAccumulator { shape, values: HashSet::new() }))
            }
            Some(shape) => Ok(Box::new(TotalAccumulator { shape, total: 0, count: 0 })),
            None => self.other.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields.first().map(|field| field.data_type().clone());
        let Some(shape) = argument.and_then(|argument| self.shape(&argument)) else {
            return self.other.state_fields(args);
        };
        let field = |name: &str, ty| Arc::new(Field::new(format_state_name(args.name, name), ty, true));
        Ok(match args.is_distinct {
            true => {
                let values = DataType::List(Arc::new(Field::new_list_field(shape.ty(), true)));
                vec![field("distinct", values)]
            }
            false => vec![field("total", shape.ty()), field("count", DataType::Int64)],
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match self.shape_of(&args) {
            Some(_) => !args.is_distinct,
            None => self.other.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match self.shape_of(&args) {
            Some(shape) => Ok(Box::new(GroupTotals { shape, totals: Vec::new(), counts: Vec::new() })),
            None => self.other.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.shape_of(&args) {
            Some(shape) if !args.is_distinct => Ok(Box::new(TotalAccumulator { shape, total: 0, count: 0 })),
            Some(_) => refused(state::UNSUPPORTED, "DISTINCT is not supported in a window's frame"),
            None => self.other.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// One total. A window's frame also removes values.
#[derive(Debug)]
struct TotalAccumulator {
    shape: Shape,
    total: i128,
    count: i64,
}

impl Accumulator for TotalAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.shape.values(&values[0])?;
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            self.shape.add(&mut self.total, value)?;
            self.count += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.shape.values(&values[0])?;
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            self.shape.add(&mut self.total, -value)?;
            self.count -= 1;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = match self.count {
            0 => None,
            count => Some(self.shape.result(self.total, count)?),
        };
        Ok(ScalarValue::Decimal128(result, DIGITS_MAX, self.shape.result_scale))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let total = ScalarValue::Decimal128(Some(self.total), DIGITS_MAX, self.shape.scale);
        Ok(vec![total, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let totals = states[0].as_primitive::<Decimal128Type>().iter().flatten();
        for (total, count) in totals.zip(states[1].as_primitive::<Int64Type>().iter().flatten()) {
            self.shape.add(&mut self.total, total)?;
            self.count += count;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<TotalAccumulator>()
    }
}

/// A total of distinct values.
#[derive(Debug)]
struct DistinctAccumulator {
    shape: Shape,
    values: HashSet<i128>,
}

impl Accumulator for DistinctAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Decimal128Type>().iter().flatten());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut total = 0;
        for value in &self.values {
            self.shape.add(&mut total, *value)?;
        }
        let result = match i64::try_from(self.values.len()) {
            Ok(0) | Err(_) => None,
            Ok(count) => Some(self.shape.result(total, count)?),
        };
        Ok(ScalarValue::Decimal128(result, DIGITS_MAX, self.shape.result_scale))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let scale = self.shape.scale;
        let values = self.values.iter().map(|value| ScalarValue::Decimal128(Some(*value), DIGITS_MAX, scale));
        let values: Vec<ScalarValue> = values.collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.shape.ty()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.values.extend(values.as_primitive::<Decimal128Type>().iter().flatten());
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of::<DistinctAccumulator>() + self.values.capacity() * (size_of::<i128>() + 1)
    }
}

/// Totals of groups.
struct GroupTotals {
    shape: Shape,
    totals: Vec<i128>,
    counts: Vec<i64>,
}

impl GroupTotals {
    fn resize(&mut self, groups: usize) {
        self.totals.resize(groups, 0);
        self.counts.resize(groups, 0);
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for GroupTotals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.resize(total_groups);
        let values = values[0].as_primitive::<Decimal128Type>();
        for (row, group) in groups.iter().enumerate() {
            if values.is_valid(row) && passes(filter, row) {
                self.shape.add(&mut self.totals[*group], values.value(row))?;
                self.counts[*group] += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (totals, counts) = (emit_to.take_needed(&mut self.totals), emit_to.take_needed(&mut self.counts));
        let one = |(total, count): (i128, i64)| match count {
            0 => Ok(None),
            count => self.shape.result(total, count).map(Some),
        };
        let results: Result<Decimal128Array> = totals.into_iter().zip(counts).map(one).collect();
        Ok(Arc::new(results?.with_data_type(self.shape.result_type())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let totals = Decimal128Array::from(emit_to.take_needed(&mut self.totals));
        let counts = Int64Array::from(emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(totals.with_data_type(self.shape.ty())), Arc::new(counts)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.resize(total_groups);
        let [totals, counts] = states else { return exec_err!("a total has two states") };
        let (totals, counts) = (totals.as_primitive::<Decimal128Type>(), counts.as_primitive::<Int64Type>());
        for (row, group) in groups.iter().enumerate() {
            if totals.is_valid(row) && counts.is_valid(row) {
                self.shape.add(&mut self.totals[*group], totals.value(row))?;
                self.counts[*group] += counts.value(row);
            }
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Decimal128Type>();
        let counted = |row: &usize| values.is_valid(*row) && passes(filter, *row);
        let rows = || 0..values.len();
        let totals: Decimal128Array =
            rows().map(|row| Some(if counted(&row) { values.value(row) } else { 0 })).collect();
        let counts: Int64Array = rows().map(|row| Some(i64::from(counted(&row)))).collect();
        Ok(vec![Arc::new(totals.with_data_type(self.shape.ty())), Arc::new(counts)])
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimals(values: &[Option<i128>]) -> ArrayRef {
        let array: Decimal128Array = values.iter().copied().collect();
        Arc::new(array.with_data_type(DataType::Decimal128(DIGITS_MAX, 0)))
    }

    const SUM: Shape = Shape { is_average: false, scale: 0, result_scale: 0 };
    const AVERAGE: Shape = Shape { is_average: true, scale: 0, result_scale: QUOTIENT_SCALE };

    #[test]
    fn totals_beyond_38_digits_are_refused() {
        let widest = 10_i128.pow(DIGITS_MAX.into()) - 1;
        let mut accumulator = TotalAccumulator { shape: SUM, total: 0, count: 0 };
        accumulator.update_batch(&[decimals(&[Some(widest), None])]).expect("it fits");
        assert!(accumulator.update_batch(&[decimals(&[Some(1)])]).is_err());
        let mut groups = GroupTotals { shape: SUM, totals: Vec::new(), counts: Vec::new() };
        assert!(groups.update_batch(&[decimals(&[Some(widest), Some(1)])], &[0, 0], None, 1).is_err());
    }

    #[test]
    fn averages_are_rounded_and_null_for_empty_groups() {
        let mut groups = GroupTotals { shape: AVERAGE, totals: Vec::new(), counts: Vec::new() };
        let values = [decimals(&[Some(1), Some(2), None, Some(2)])];
        groups.update_batch(&values, &[0, 0, 1, 0], None, 2).expect("values");
        let state = groups.state(EmitTo::All).expect("a state");
        let mut merged = GroupTotals { shape: AVERAGE, totals: Vec::new(), counts: Vec::new() };
        merged.merge_batch(&state, &[0, 1], 2).expect("merged");
        let found = merged.evaluate(EmitTo::All).expect("averages");
        let found: Vec<_> = found.as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(found, [Some(16_666_666_666_666_667), None]);
        let converted = groups.convert_to_state(&values, None).expect("a state");
        assert_eq!(converted[1].as_primitive::<Int64Type>().values(), &[1, 1, 0, 1]);
    }

    #[test]
    fn retracted_values_leave_the_total() {
        let mut accumulator = TotalAccumulator { shape: SUM, total: 0, count: 0 };
        accumulator.update_batch(&[decimals(&[Some(5), Some(7)])]).expect("values");
        accumulator.retract_batch(&[decimals(&[Some(5)])]).expect("values");
        assert_eq!(accumulator.evaluate().expect("a sum"), ScalarValue::Decimal128(Some(7), DIGITS_MAX, 0));
    }
}
