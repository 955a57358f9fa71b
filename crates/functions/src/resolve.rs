//! Choice among the overloads of a function, as by Cassandra's `FunctionResolver`.
//!
//! A single overload must accept the arguments. Of several, an exact match is taken. Without one, a
//! single weak match is taken.

use schema::CqlType;

use crate::{Argument, Fit, Function, FunctionError};

/// Returns the function if it accepts the arguments.
pub(crate) fn only(function: Function, arguments: &[&dyn Argument]) -> Result<Function, FunctionError> {
    let (name, expected, actual) = (&function.name, function.arguments.len(), arguments.len());
    if expected != actual {
        return Err(FunctionError::invalid(format!(
            "Invalid number of arguments in call to function system.{name}: {expected} required but {actual} \
             provided"
        )));
    }
    for (i, (argument, ty)) in arguments.iter().zip(&function.arguments).enumerate() {
        if argument.fit(ty) == Fit::No {
            return Err(FunctionError::invalid(format!(
                "Type error: {} cannot be passed as argument {i} of function system.{name} of type {ty}",
                argument.text()
            )));
        }
    }
    Ok(function)
}

/// Full name of the negation in errors of [`best`].
pub(crate) const NEGATION: &str = "system._negate";

/// Returns the best of several overloads. `name` is the one in errors, which repeat it as the
/// statement has it.
pub(crate) fn best(
    name: &str,
    overloads: Vec<Function>,
    arguments: &[&dyn Argument],
    wanted: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    let mut weak = Vec::new();
    for function in &overloads {
        let is_wanted = wanted.is_none_or(|wanted| Fit::of(&function.result, wanted) != Fit::No);
        match fit(function, arguments) {
            Fit::Exact if is_wanted => return Ok(function.clone()),
            Fit::Weak if is_wanted => weak.push(function),
            _ => {}
        }
    }
    match &weak[..] {
        [function] => Ok((*function).clone()),
        [] => Err(FunctionError::invalid(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            signatures(overloads.iter())
        ))),
        _ if name == NEGATION => {
            Err(FunctionError::Ambiguous("Ambiguous negation: use type casts to disambiguate".to_owned()))
        }
        _ => Err(FunctionError::Ambiguous(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
             disambiguate",
            signatures(weak.iter().copied())
        ))),
    }
}

fn fit(function: &Function, arguments: &[&dyn Argument]) -> Fit {
    if function.arguments.len() != arguments.len() {
        return Fit::No;
    }
    let fits = arguments.iter().zip(&function.arguments).map(|(argument, ty)| argument.fit(ty));
    fits.max().unwrap_or(Fit::Exact)
}

/// Returns the signatures in Cassandra's notation.
fn signatures<'a>(functions: impl Iterator<Item = &'a Function>) -> String {
    let signature = |function: &Function| {
        let name = schema::names::quoted(&function.name);
        format!("system.{name} : ({}) -> {}", types(&function.arguments), function.result)
    };
    functions.map(signature).collect::<Vec<_>>().join(", ")
}

fn types(types: &[CqlType]) -> String {
    types.iter().map(CqlType::to_string).collect::<Vec<_>>().join(", ")
}
