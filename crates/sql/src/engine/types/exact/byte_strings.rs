//! Values of `bytea`. DataFusion takes the characters of a constant text for its bytes, and the
//! bytes of a value for UTF-8 text. PostgreSQL reads a constant as `'\x41'` or with escapes, and
//! has few functions of `bytea`. Functions whose results would differ are refused.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::type_names::refused;
use crate::failure::state;

/// Functions that take bytes as PostgreSQL's do, and those of the passes of this folder.
const FUNCTIONS: &[&str] = &[
    "array_agg",
    "arrow_typeof",
    "cast",
    "coalesce",
    "concat",
    "concat_ws",
    "digest",
    "encode",
    "get_field",
    "greatest",
    "least",
    "make_array",
    "md5",
    "named_struct",
    "nullif",
    "nvl",
    "output",
    "row",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "struct",
];

pub(super) fn is_bytes(ty: &DataType) -> bool {
    matches!(ty, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// True if an expression is of type `bytea`.
pub(super) fn has_bytes(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|ty| is_bytes(&ty))
}

/// Refuses an operation on bytes.
///
/// # Errors
/// Always.
pub(super) fn not_supported<T>(what: &str) -> Result<T> {
    refused(state::UNSUPPORTED, format!("{what} of bytea is not supported"))
}

/// Replaces the length of bytes. `None` if no argument is of type `bytea`, or the function takes
/// bytes.
///
/// # Errors
/// The function would take bytes for characters.
pub(super) fn call(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    if !call.args.iter().any(|argument| has_bytes(argument, schema)) {
        return Ok(None);
    }
    match (call.func.name(), &call.args[..]) {
        ("length" | "octet_length" | "character_length", [bytes]) => Ok(Some(length(bytes.clone()))),
        // PostgreSQL pads, and breaks lines.
        ("encode", [_, Expr::Literal(format, _)]) if format.try_as_str().flatten() != Some("hex") => {
            refused(state::UNSUPPORTED, "encode: expected the format 'hex'")
        }
        (name, _) if FUNCTIONS.contains(&name) => Ok(None),
        (name, _) => not_supported(name),
    }
}

/// Returns half of the number of hexadecimal digits.
fn length(bytes: Expr) -> Expr {
    let text = |text: &str| Expr::Literal(ScalarValue::Utf8(Some(text.to_owned())), None);
    let digits = datafusion::functions::encoding::encode().call(vec![bytes, text("hex")]);
    let digits = datafusion::functions::unicode::character_length().call(vec![digits]);
    let digits = Expr::Cast(Cast::new(Box::new(digits), DataType::Int32));
    let two = Expr::Literal(ScalarValue::Int32(Some(2)), None);
    Expr::BinaryExpr(BinaryExpr::new(Box::new(digits), Operator::Divide, Box::new(two)))
}
