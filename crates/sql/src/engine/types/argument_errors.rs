//! Calls and operators that do not fit their arguments: DataFusion's errors about them, in
//! PostgreSQL's words. DataFusion reports them as texts only.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::TypeSignature;
use datafusion::logical_expr_common::signature::Arity;

use crate::engine::types::exact::type_name;
use crate::failure::{Failure, state};

const NO_FUNCTION_HINT: &str =
    "No function matches the given name and argument types. You might need to add explicit type casts.";
const NO_OPERATOR_HINT: &str =
    "No operator matches the given name and argument types. You might need to add explicit type casts.";

/// Functions of PostgreSQL with another way to do the same.
const OTHERWISE: [(&str, &str); 2] = [
    ("pg_cancel_backend", "Expected SELECT pg_cancel_backend(7), with the number of one session."),
    ("pg_terminate_backend", "Expected SELECT pg_terminate_backend(7), with the number of one session."),
];

/// Returns the failure of a call that no function fits. `types` are PostgreSQL's names.
pub(crate) fn no_function(name: &str, types: &[String]) -> Failure {
    let text = format!("function {name}({}) does not exist", types.join(", "));
    Failure::new(state::NO_FUNCTION, text).with_hint(NO_FUNCTION_HINT)
}

/// Does the same as [`no_function`], for types of DataFusion, as an error that it passes on.
///
/// # Errors
/// Always.
pub(crate) fn refuse_call<T>(name: &str, types: &[DataType]) -> Result<T> {
    let types: Vec<String> = types.iter().map(type_name).collect();
    Err(no_function(name, &types).into())
}

/// Returns true if a function of this signature may have `count` arguments. Functions that check
/// their arguments themselves may have any number.
pub(crate) fn takes(signature: &TypeSignature, count: usize) -> bool {
    match signature {
        TypeSignature::OneOf(signatures) => signatures.iter().any(|one| takes(one, count)),
        TypeSignature::UserDefined => true,
        TypeSignature::Nullary => count == 0,
        TypeSignature::Variadic(_) | TypeSignature::VariadicAny => count > 0,
        other => other.arity() == Arity::Fixed(count),
    }
}

/// Converts the text of a planning error. `None` if it is about something else.
pub(crate) fn of_plan(text: &str) -> Option<Failure> {
    call(text).or_else(|| operator(text)).or_else(|| other(text))
}

fn call(text: &str) -> Option<Failure> {
    let (_, rest) = text.split_once("No function matches the given name and argument types '")?;
    let (call, _) = rest.split_once("'. You might need")?;
    let (name, types) = call.strip_suffix(')')?.split_once('(')?;
    Some(no_function(name, &split(types, ',').iter().map(|ty| named(ty)).collect::<Vec<_>>()))
}

fn operator(text: &str) -> Option<Failure> {
    const STARTS: [(&str, &str); 10] = [
        ("Cannot coerce arithmetic expression ", " to valid types"),
        ("Cannot infer common argument type for comparison operation ", ""),
        ("Cannot infer common argument type for logical boolean operation ", ""),
        ("Cannot infer common argument type for regex operation ", ""),
        ("Cannot infer common argument type for operation ", ""),
        ("Cannot infer common type for bitwise operation ", ""),
        ("Cannot infer common string type for string concat operation ", ""),
        ("Cannot get result type for arithmetic operation ", ": "),
        ("Cannot get result type for temporal operation ", ": "),
        ("Cannot get result type for decimal operation ", ": "),
    ];
    let (rest, end) = STARTS.iter().find_map(|(start, end)| Some((text.split_once(start)?.1, *end)))?;
    let operation = if end.is_empty() { rest } else { rest.split_once(end)?.0 };
    let operation = operation.lines().next()?;
    let parts = split(operation, ' ');
    let [left, operator @ .., right] = &parts[..] else { return None };
    let (left, right) = (named(left), named(right));
    let operator = operator.join(" ");
    if matches!(operator.as_str(), "AND" | "OR") {
        let ty = if left == "boolean" { right } else { left };
        return Some(not_boolean(&operator, &ty));
    }
    let text = format!("operator does not exist: {left} {operator} {right}");
    Some(Failure::new(state::NO_FUNCTION, text).with_hint(NO_OPERATOR_HINT))
}

fn not_boolean(operator: &str, ty: &str) -> Failure {
    Failure::new(state::TYPE, format!("argument of {operator} must be type boolean, not type {ty}"))
}

fn other(text: &str) -> Option<Failure> {
    if let Some(ty) = text.strip_prefix("Unary operator 'NOT' requires a boolean expression, got ") {
        return Some(not_boolean("NOT", &named(ty)));
    }
    if text.starts_with("Unary operator '-' only supports") {
        let text = "operator does not exist: - of a value that is no number, interval or timestamp";
        return Some(Failure::new(state::NO_FUNCTION, text).with_hint(NO_OPERATOR_HINT));
    }
    if let Some(rest) = text.strip_prefix("table function '") {
        return Some(no_function(rest.split('\'').next()?, &[]));
    }
    if let Some(rest) = text.strip_prefix("Invalid function '") {
        let name = rest.split('\'').next()?;
        let text = format!("function {name} does not exist");
        let hint = OTHERWISE.iter().find(|(function, _)| *function == name);
        let hint = hint.map_or(NO_FUNCTION_HINT, |(_, otherwise)| otherwise);
        return Some(Failure::new(state::NO_FUNCTION, text).with_hint(hint));
    }
    if text == "Step cannot be zero" {
        return Some(Failure::new(state::INVALID, "step size cannot equal zero"));
    }
    let is_series = text.contains(" function requires 1 to 3 arguments");
    if is_series || text.starts_with("Argument #") && text.contains(" must be ") {
        let text = format!("function generate_series does not exist for these arguments: {text}");
        return Some(Failure::new(state::NO_FUNCTION, text).with_hint(NO_FUNCTION_HINT));
    }
    None
}

/// Splits a text at a separator outside of parentheses and quotes.
fn split(text: &str, by: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0_usize;
    let mut is_quoted = false;
    let mut from = 0;
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '(' | '<' | '[' if !is_quoted && is_open(text, at) => depth += 1,
            ')' | '>' | ']' if !is_quoted => depth = depth.saturating_sub(1),
            c if c == by && depth == 0 && !is_quoted => {
                parts.push(text[from..at].trim());
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns true if the bracket at a place opens the arguments of a type, and is no operator.
fn is_open(text: &str, at: usize) -> bool {
    text[..at].ends_with(|c: char| c.is_alphanumeric())
}

/// Returns PostgreSQL's name of a type that DataFusion's texts name.
fn named(ty: &str) -> String {
    let known = ty.parse::<DataType>();
    known.map_or_else(|_| ty.to_owned(), |ty| type_name(&ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_those_of_postgres() {
        for (text, code, expected) in [
            (
                "'abs' does not support zero arguments. No function matches the given name and argument types 'abs()'. \
              You might need to add explicit type casts.\n\tCandidate functions:",
                "42883",
                "function abs() does not exist",
            ),
            (
                "No function matches the given name and argument types \
                  'f(Utf8View, Decimal128(10, 2), Timestamp(µs, \"UTC\"))'. You might need to",
                "42883",
                "function f(text, numeric, timestamp with time zone) does not exist",
            ),
            (
                "Cannot coerce arithmetic expression Utf8View + Int64 to valid types",
                "42883",
                "operator does not exist: text + bigint",
            ),
            (
                "Cannot infer common argument type for comparison operation Boolean < Int64",
                "42883",
                "operator does not exist: boolean < bigint",
            ),
            (
                "Cannot infer common argument type for comparison operation Decimal128(3, 1) >= Boolean",
                "42883",
                "operator does not exist: numeric >= boolean",
            ),
            (
                "Cannot infer common argument type for comparison operation Int64 IS DISTINCT FROM Utf8",
                "42883",
                "operator does not exist: bigint IS DISTINCT FROM text",
            ),
            (
                "Cannot infer common argument type for logical boolean operation Boolean AND Int32",
                "42804",
                "argument of AND must be type boolean, not type integer",
            ),
            (
                "Unary operator 'NOT' requires a boolean expression, got Int64",
                "42804",
                "argument of NOT must be type boolean, not type bigint",
            ),
            ("table function 'foo' not found", "42883", "function foo() does not exist"),
        ] {
            let failure = of_plan(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((failure.code, failure.message.as_str()), (code, expected));
        }
        assert!(of_plan("table 'a.b.c' not found").is_none());
    }
}
