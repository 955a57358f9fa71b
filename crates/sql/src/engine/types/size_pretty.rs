//! `pg_size_pretty(bigint)`, by the rules of PostgreSQL (`dbsize.c`).

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Returns the function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(SizePretty(Signature::exact(vec![DataType::Int64], Volatility::Immutable)))
}

#[derive(PartialEq, Eq, Hash, Debug)]
struct SizePretty(Signature);

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &'static str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sizes = args.args[0].to_array(args.number_rows)?;
        let texts = sizes.as_primitive::<Int64Type>().iter().map(|size| size.map(pretty));
        Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())))
    }
}

/// Units after bytes.
const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];

/// Formats a number of bytes. Each unit but the last is used below about 20 of the next.
fn pretty(bytes: i64) -> String {
    if bytes.unsigned_abs() < 10 << 10 {
        return format!("{bytes} bytes");
    }
    // In half units, so that the last bit decides the rounding.
    let mut halves = bytes / 512;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    for larger in units {
        if halves.unsigned_abs() < (20 << 10) - 1 {
            break;
        }
        (halves, unit) = (halves / 1024, Some(larger));
    }
    let rounded = (halves + halves.signum()) / 2;
    format!("{rounded} {}", unit.expect("there are units"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of PostgreSQL 15.
    #[test]
    fn sizes_are_formatted_as_by_postgres() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_752, "11 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (1_000_000_000, "954 MB"),
            (i64::MAX, "8192 PB"),
            (i64::MIN, "-8192 PB"),
        ] {
            assert_eq!(pretty(bytes), expected, "{bytes}");
        }
    }
}
