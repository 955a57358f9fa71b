//! Masks of columns: the function and its arguments, resolved and checked as in Cassandra.

use std::sync::Arc;

use cql::ast::{FunctionCall, Term};
use engine::{Error, Guardrails};
use schema::{ColumnMask, CqlType, MaskArgument};

use crate::bind::term::{Binder, Given, literal_type};

/// Parameter of a masking function after the value.
#[derive(Clone, Copy)]
enum Parameter {
    Int,
    Text,
    /// The type of the column.
    Value,
}

/// A masking function.
struct Masking {
    name: &'static str,
    /// Cassandra's text of all parameters.
    signature: &'static str,
    parameters: &'static [Parameter],
    /// Number of parameters that a call must give.
    required: usize,
}

use Parameter::{Int, Text, Value};

const MASKING: [Masking; 6] = [
    Masking { name: "mask_default", signature: "any", parameters: &[], required: 0 },
    Masking { name: "mask_hash", signature: "any, [text]", parameters: &[Text], required: 0 },
    Masking {
        name: "mask_inner",
        signature: "text|varchar|ascii, int, int, [text]",
        parameters: &[Int, Int, Text],
        required: 2,
    },
    Masking { name: "mask_null", signature: "any", parameters: &[], required: 0 },
    Masking {
        name: "mask_outer",
        signature: "text|varchar|ascii, int, int, [text]",
        parameters: &[Int, Int, Text],
        required: 2,
    },
    Masking { name: "mask_replace", signature: "any, same as first", parameters: &[Value], required: 1 },
];

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Returns the mask of the column `name` of this type.
///
/// # Errors
/// Returns Cassandra's error for a function that is unknown, masks nothing, or does not fit.
pub(super) fn resolve(name: &str, ty: &CqlType, call: &FunctionCall) -> Result<ColumnMask, Error> {
    let of_system = call.name.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system");
    let found = MASKING.iter().find(|masking| of_system && masking.name == call.name.name);
    let Some(masking) = found else {
        return match of_system && is_native(&call.name.name) {
            true => invalid(format!("Not-masking function {call} cannot be used for masking table columns")),
            false => invalid(format!(
                "Unable to find masking function for {name}, no declared function matches the signature {call}"
            )),
        };
    };
    let (function, given) = (masking.name, call.arguments.len());
    if !(masking.required..=masking.parameters.len()).contains(&given) {
        return invalid(format!(
            "Invalid number of arguments for function system.{function}({})",
            masking.signature
        ));
    }
    check_type(name, ty, call)?;
    let arguments = call.arguments.iter().zip(masking.parameters);
    let arguments = arguments.map(|(term, parameter)| {
        let ty = match parameter {
            Int => CqlType::Int,
            Text => CqlType::Text,
            Value => ty.clone(),
        };
        Ok::<_, Error>(MaskArgument { value: constant(function, &ty, term)?, ty })
    });
    let mask =
        ColumnMask { function: function.to_owned(), arguments: arguments.collect::<Result<_, Error>>()? };
    check_values(&mask)?;
    Ok(mask)
}

/// Checks that a function takes values of the type of a column, and returns such values.
fn check_type(name: &str, ty: &CqlType, call: &FunctionCall) -> Result<(), Error> {
    let is_text = matches!(ty, CqlType::Text | CqlType::Ascii);
    match call.name.name.as_str() {
        "mask_inner" | "mask_outer" if !is_text => invalid(format!(
            "Function system.{} requires an argument of type [text|varchar|ascii], but found argument {ty} of type \
             {ty}",
            call.name.name
        )),
        "mask_hash" if *ty != CqlType::Blob => invalid(format!(
            "Masking function {call} return type is blob. This is different to the type of the masked column {name} \
             of type {ty}. Masking functions can only be attached to table columns if they return the same data type \
             as the masked column."
        )),
        _ => Ok(()),
    }
}

/// Checks what a call would otherwise refuse for each row.
fn check_values(mask: &ColumnMask) -> Result<(), Error> {
    let text = |at: usize| mask.arguments.get(at).and_then(|argument| argument.value.as_deref());
    match mask.function.as_str() {
        "mask_inner" | "mask_outer" => match text(2).map(String::from_utf8_lossy) {
            Some(padding) if padding.chars().count() != 1 => invalid(format!(
                "The padding argument for function {} should be single-character, but '{padding}' has {} characters.",
                mask.function,
                padding.chars().count()
            )),
            _ => Ok(()),
        },
        "mask_hash" => match text(0).map(String::from_utf8_lossy) {
            Some(algorithm) if !["MD5", "SHA-1", "SHA-256", "SHA-512"].contains(&&*algorithm) => {
                invalid(format!("Hash algorithm {algorithm} not found"))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns the value of an argument.
fn constant(function: &str, ty: &CqlType, term: &Term) -> Result<Option<Vec<u8>>, Error> {
    let refused = || {
        let ty_of = match term {
            Term::Literal(literal) => literal_type(literal),
            _ => None,
        };
        let found = ty_of.map_or_else(|| "unknown".to_owned(), |ty| ty.to_string());
        Error::Invalid(format!(
            "Function system.{function} requires an argument of type {ty}, but found argument {term} of type {found}"
        ))
    };
    let mut binder = Binder::new(Arc::new(Guardrails::default()), 0);
    let bind = binder.bind("mask", ty, term).map_err(|_| refused())?;
    match bind.get(&[]).map_err(|_| refused())? {
        Given::Bytes(bytes) => Ok(Some(bytes.into_owned())),
        Given::Null | Given::Unset => Ok(None),
    }
}

/// Returns true for functions of Cassandra that mask nothing.
fn is_native(name: &str) -> bool {
    const NATIVE: [&str; 22] = [
        "abs",
        "avg",
        "count",
        "exp",
        "fromjson",
        "from_json",
        "log",
        "log10",
        "max",
        "maxwritetime",
        "min",
        "now",
        "round",
        "sum",
        "token",
        "tojson",
        "to_json",
        "ttl",
        "uuid",
        "writetime",
        "minwritetime",
        "current_timestamp",
    ];
    NATIVE.contains(&name) || name.starts_with("to_") || name.contains("_as_") || name.contains("similarity_")
}
