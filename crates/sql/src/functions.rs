//! Functions of Postgres about what is not here: comments, sizes, functions, places on disk. Clients ask them beside what they want to know.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

/// Gives the same value, whatever it is asked about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Constant {
    name: String,
    signature: Signature,
    value: ScalarValue,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// A function without arguments that gives a text.
pub(crate) fn text(name: &str, text: String) -> ScalarUDF {
    constant(name, Signature::nullary(Volatility::Stable), ScalarValue::Utf8(Some(text)))
}

fn constant(name: &str, signature: Signature, value: ScalarValue) -> ScalarUDF {
    ScalarUDF::new_from_impl(Constant { name: name.to_owned(), signature, value })
}

/// Registers those that nobody has registered before.
pub(crate) fn register(context: &SessionContext) {
    let (no_text, no_number, truth) =
        (ScalarValue::Utf8(None), ScalarValue::Int64(None), ScalarValue::Boolean(Some(true)));
    let known = [
        ("col_description", &no_text),
        ("obj_description", &no_text),
        ("shobj_description", &no_text),
        ("pg_database_size", &no_number),
        ("pg_table_size", &no_number),
        ("pg_indexes_size", &no_number),
        ("pg_size_pretty", &no_text),
        ("pg_tablespace_location", &no_text),
        ("pg_function_is_visible", &truth),
        ("pg_type_is_visible", &truth),
        ("pg_get_function_arguments", &no_text),
        ("pg_get_function_identity_arguments", &no_text),
        ("pg_get_function_result", &no_text),
        ("pg_get_indexdef", &no_text),
        ("pg_get_serial_sequence", &no_text),
        ("pg_get_viewdef", &no_text),
    ];
    let state = context.state();
    for (name, value) in known.into_iter().filter(|(name, _)| !state.scalar_functions().contains_key(*name)) {
        context.register_udf(constant(name, Signature::variadic_any(Volatility::Stable), value.clone()));
    }
}
