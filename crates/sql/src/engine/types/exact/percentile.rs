//! `percentile_cont`, computed from a sorted array: DataFusion rounds the place between two values
//! to a millionth.

use datafusion::arrow::array::{Array, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::engine::types::exact::type_names::{is_int, refused};
use crate::failure::state;

/// Name of the function of a sorted array and a fraction, which the rewriting of a statement calls.
pub(crate) const PERCENTILE: &str = "percentile_of";

/// Returns the function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(Percentile(Signature::user_defined(Volatility::Immutable)))
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Percentile(Signature);

impl ScalarUDFImpl for Percentile {
    fn name(&self) -> &'static str {
        PERCENTILE
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::List(item), fraction]
                if *item.data_type() == DataType::Float64
                    && (is_int(fraction)
                        || fraction.is_floating()
                        || fraction.is_decimal()
                        || fraction.is_null()) =>
            {
                Ok(vec![arguments[0].clone(), DataType::Float64])
            }
            _ => refused(state::NO_FUNCTION, "percentile_cont takes a fraction and ORDER BY of numbers"),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let (lists, fractions) = (arrays[0].as_list::<i32>(), arrays[1].as_primitive::<Float64Type>());
        let one = |row: usize| {
            if fractions.is_null(row) {
                return Ok(None);
            }
            let fraction = fractions.value(row);
            if !(0.0..=1.0).contains(&fraction) {
                return refused(state::RANGE, format!("percentile value {fraction} is not between 0 and 1"));
            }
            let values = lists.value(row);
            let values = values.as_primitive::<Float64Type>();
            if lists.is_null(row) || values.is_empty() {
                return Ok(None);
            }
            let place = fraction * (values.len() - 1) as f64;
            let (low, high) = (values.value(place.floor() as usize), values.value(place.ceil() as usize));
            Ok(Some(low + (place - place.floor()) * (high - low)))
        };
        let found: Result<Float64Array> = (0..lists.len()).map(one).collect();
        Ok(ColumnarValue::Array(std::sync::Arc::new(found?)))
    }
}
