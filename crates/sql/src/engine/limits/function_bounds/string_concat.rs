//! The operator `||` on texts as a function, because only functions can be wrapped with bounds.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::scalar::ScalarValue;

use crate::engine::limits::call_names::{CallKey, joined, large_call};

/// Name of the function, also in `EXPLAIN`.
pub(super) const NAME: &str = "||";

/// See the head of this file. `key`: that of the call.
pub(super) fn function(key: CallKey) -> ScalarUDF {
    ScalarUDF::new_from_impl(StringConcat(Signature::user_defined(Volatility::Immutable), key))
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct StringConcat(Signature, CallKey);

impl ScalarUDFImpl for StringConcat {
    fn name(&self) -> &str {
        NAME
    }

    /// Returns the name of the operator's column, so that columns keep their names.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(large_call(NAME, self.1, args).unwrap_or_else(|| joined(args, " || ")))
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = arguments else { return plan_err!("|| takes two values") };
        let (left, right) = BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_input_types()?;
        Ok(vec![left, right])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [left, right] = arguments else { return plan_err!("|| takes two values") };
        BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_result_type()
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(NAME, self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = call.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        let columns =
            call.args.into_iter().map(|value| value.into_array(rows)).collect::<Result<Vec<_>>>()?;
        let field =
            |column: &datafusion::arrow::array::ArrayRef| Field::new("v", column.data_type().clone(), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let column = |place| Arc::new(Column::new("v", place)) as Arc<dyn PhysicalExpr>;
        let operator = BinaryExpr::new(column(0), Operator::StringConcat, column(1));
        let result = operator.evaluate(&RecordBatch::try_new(schema, columns)?)?.into_array(rows)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}
