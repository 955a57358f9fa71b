//! `min` and `max` of floating point in groups. In PostgreSQL NaN is the greatest value.
//! DataFusion's groups keep the value that they have when they meet NaN, so that the result depends
//! on the order of rows.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// Returns `min` or `max` of floating point. `None` for other functions and types.
pub(super) fn of_floats(name: &str, ty: &DataType) -> Option<Arc<AggregateUDF>> {
    let inner = match (name, ty) {
        ("min", DataType::Float32 | DataType::Float64) => min_udaf(),
        ("max", DataType::Float32 | DataType::Float64) => max_udaf(),
        _ => return None,
    };
    Some(Arc::new(AggregateUDF::new_from_impl(Extreme(inner))))
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Extreme(Arc<AggregateUDF>);

/// Compares numbers. NaN is the greatest, and equals itself.
fn compared(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

impl Extreme {
    fn groups<T: ArrowPrimitiveType + Send>(
        &self,
        ty: &DataType,
        least: T::Native,
        greatest: T::Native,
    ) -> Groups
    where
        T::Native: Into<f64>,
    {
        let (wanted, start) = match self.name() {
            "max" => (Ordering::Greater, least),
            _ => (Ordering::Less, greatest),
        };
        let next = move |found: &mut T::Native, value: T::Native| {
            if compared(value.into(), (*found).into()) == wanted {
                *found = value;
            }
        };
        Box::new(PrimitiveGroupsAccumulator::<T, _>::new(ty, next).with_starting_value(start))
    }
}

type Groups = Box<dyn GroupsAccumulator>;

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<datafusion::arrow::datatypes::FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Groups> {
        let ty = args.return_field.data_type();
        Ok(match ty {
            DataType::Float32 => self.groups::<Float32Type>(ty, f32::NEG_INFINITY, f32::NAN),
            _ => self.groups::<Float64Type>(ty, f64::NEG_INFINITY, f64::NAN),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
