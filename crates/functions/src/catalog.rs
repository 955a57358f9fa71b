//! Names of the functions. A name has overloads with fixed types, or, as Cassandra's
//! `FunctionFactory`, makes one function for the types of the arguments.

use schema::CqlType;

use crate::argument::is_same;
use crate::function::Body;
use crate::math::Math;
use crate::number::NUMBERS;
use crate::vector::Similarity;
use crate::{Argument, Fit, Function, FunctionError, blob, cast, resolve};

impl Function {
    /// Resolves a call as Cassandra does: by name, by exact and weak matches of the arguments, and
    /// by the type that the caller wants. `name` is in lower case, or as written in quotes.
    ///
    /// # Errors
    /// Returns Cassandra's texts for an unknown name, and for arguments that fit no overload or
    /// several.
    pub fn resolve(
        name: &str,
        arguments: &[&dyn Argument],
        wanted: Option<&CqlType>,
    ) -> Result<Function, FunctionError> {
        if let Some(function) = made(name, arguments, wanted)? {
            return resolve::only(function, arguments);
        }
        let mut overloads = overloads(name);
        match overloads.len() {
            0 => Err(FunctionError::Unknown(name.to_owned())),
            1 => resolve::only(overloads.remove(0), arguments),
            _ => resolve::best(name, overloads, arguments, wanted),
        }
    }

    /// Returns `token` of a partition key of these types.
    ///
    /// # Errors
    /// Returns Cassandra's texts for another number of arguments, or other types.
    pub fn token(partition_key: &[CqlType], arguments: &[&dyn Argument]) -> Result<Function, FunctionError> {
        let function = Function::new("token", partition_key.to_vec(), CqlType::BigInt, Body::Token);
        resolve::only(function, arguments)
    }
}

/// Returns the overloads with fixed types. Empty: no such function.
fn overloads(name: &str) -> Vec<Function> {
    use CqlType as T;
    let of = |overloads: &[(&[CqlType], CqlType)], body| {
        let one = |(arguments, result): &(&[CqlType], CqlType)| {
            Function::new(name, arguments.to_vec(), result.clone(), body)
        };
        overloads.iter().map(one).collect::<Vec<_>>()
    };
    if let Some(math) = Math::named(name) {
        let one = |ty: &CqlType| Function::new(name, vec![ty.clone()], ty.clone(), Body::Math(math));
        return NUMBERS.iter().map(one).collect();
    }
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => of(&[(&[], T::TimeUuid)], Body::Now),
        "current_timestamp" | "currenttimestamp" => of(&[(&[], T::Timestamp)], Body::Now),
        "current_date" | "currentdate" => of(&[(&[], T::Date)], Body::Now),
        "current_time" | "currenttime" => of(&[(&[], T::Time)], Body::Now),
        "uuid" => of(&[(&[], T::Uuid)], Body::Uuid),
        "min_timeuuid" | "mintimeuuid" => of(&[(&[T::Timestamp], T::TimeUuid)], Body::MinTimeuuid),
        "max_timeuuid" | "maxtimeuuid" => of(&[(&[T::Timestamp], T::TimeUuid)], Body::MaxTimeuuid),
        "to_date" | "todate" => of(&[(&[T::TimeUuid], T::Date), (&[T::Timestamp], T::Date)], Body::Convert),
        "to_timestamp" | "totimestamp" => {
            of(&[(&[T::TimeUuid], T::Timestamp), (&[T::Date], T::Timestamp)], Body::Convert)
        }
        "to_unix_timestamp" | "tounixtimestamp" => of(
            &[(&[T::TimeUuid], T::BigInt), (&[T::Timestamp], T::BigInt), (&[T::Date], T::BigInt)],
            Body::Convert,
        ),
        "floor" => of(
            &[
                (&[T::Timestamp, T::Duration], T::Timestamp),
                (&[T::Timestamp, T::Duration, T::Timestamp], T::Timestamp),
                (&[T::TimeUuid, T::Duration], T::Timestamp),
                (&[T::TimeUuid, T::Duration, T::Timestamp], T::Timestamp),
                (&[T::Date, T::Duration], T::Date),
                (&[T::Date, T::Duration, T::Date], T::Date),
                (&[T::Time, T::Duration], T::Time),
            ],
            Body::Floor,
        ),
        _ => match blob::function(name) {
            Some(function) => vec![function],
            None => cast::overloads(name),
        },
    }
}

const STRINGS: &[CqlType] = &[CqlType::Text, CqlType::Ascii];
const TEXTS: &[CqlType] = &[CqlType::Text];
const INTS: &[CqlType] = &[CqlType::Int];
/// Arguments of `mask_inner` behind the text: characters at its start and end, padding.
const MASK_PARTS: &[CqlType] = &[CqlType::Int, CqlType::Int, CqlType::Text];

/// A parameter of a factory.
#[derive(Clone, Copy)]
enum Parameter {
    /// Any type. True: an argument without a type gets the one that the caller wants.
    Any(bool),
    /// Any type. The argument gets the type of the first one, if that has one.
    SameAsFirst,
    /// One of these types. An argument without a type gets the first.
    Fixed(&'static [CqlType]),
    Collection,
    ListOrSet,
    NumericListOrSet,
    Map,
    /// A vector of floats. A list literal becomes one. An argument without a type gets that of the
    /// other argument.
    Vector,
}

impl Parameter {
    /// Returns the type of an argument by itself.
    fn infer(self, argument: &dyn Argument, wanted: Option<&CqlType>) -> Option<CqlType> {
        let or_wanted = |ty: Option<CqlType>| ty.or_else(|| wanted.cloned());
        match self {
            Parameter::Any(true) | Parameter::SameAsFirst => or_wanted(argument.ty()),
            Parameter::Vector => match argument.list_length() {
                Some(length) => {
                    Some(CqlType::Vector(Box::new(CqlType::Float), u32::try_from(length).unwrap_or(u32::MAX)))
                }
                None => or_wanted(argument.ty()),
            },
            Parameter::Fixed(types) => argument.ty().or_else(|| types.first().cloned()),
            _ => argument.ty(),
        }
    }

    /// Returns the type of the argument at `at`, given the types of all by themselves.
    fn infer_among(self, at: usize, own: &[Option<CqlType>]) -> Option<CqlType> {
        match self {
            Parameter::SameAsFirst => own[0].clone().or_else(|| own[at].clone()),
            Parameter::Vector => own[at].clone().or_else(|| own.iter().flatten().next().cloned()),
            _ => own[at].clone(),
        }
    }

    /// Checks the type of an argument.
    fn check(self, name: &str, argument: &dyn Argument, ty: &CqlType) -> Result<(), FunctionError> {
        let element = match ty.thawed() {
            CqlType::List(element) | CqlType::Set(element) => Some(&**element),
            _ => None,
        };
        let (is_valid, requirement) = match self {
            Parameter::Any(_) | Parameter::SameAsFirst => (true, String::new()),
            Parameter::Fixed(types) => (
                types.iter().any(|expected| Fit::of(ty, expected) != Fit::No),
                format!("an argument of type {self}"),
            ),
            Parameter::Collection => (ty.is_collection(), "a collection argument".to_owned()),
            Parameter::ListOrSet => (element.is_some(), "a set or list argument".to_owned()),
            Parameter::NumericListOrSet => (
                element.is_some_and(|element| NUMBERS.contains(element)),
                "a numeric set/list argument".to_owned(),
            ),
            Parameter::Vector => (
                matches!(ty.thawed(), CqlType::Vector(element, _) if **element == CqlType::Float),
                "a float vector argument".to_owned(),
            ),
            Parameter::Map => (matches!(ty.thawed(), CqlType::Map(..)), "a map argument".to_owned()),
        };
        if is_valid {
            return Ok(());
        }
        let text = argument.text();
        Err(FunctionError::invalid(format!(
            "Function system.{name} requires {requirement}, but found argument {text} of type {ty}"
        )))
    }
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Parameter::Any(_) | Parameter::SameAsFirst => "any",
            Parameter::Fixed([CqlType::Text, CqlType::Ascii]) => "[text|varchar|ascii]",
            Parameter::Fixed(types) => return f.write_str(types[0].kind_name()),
            Parameter::Collection => "collection",
            Parameter::ListOrSet | Parameter::NumericListOrSet => "numeric_set_or_list",
            Parameter::Map => "map",
            Parameter::Vector => "vector<float, n>",
        })
    }
}

/// Returns the parameters of a factory, and the number of those that a call must have. `None`: no
/// factory has the name.
fn parameters(name: &str) -> Option<(&'static [Parameter], usize)> {
    use Parameter as P;
    const STRING: Parameter = P::Fixed(STRINGS);
    const TEXT: Parameter = P::Fixed(TEXTS);
    const INT: Parameter = P::Fixed(INTS);
    let all = |parameters: &'static [Parameter]| (parameters, parameters.len());
    Some(match name {
        "map_keys" | "map_values" => all(&[P::Map]),
        "collection_count" => all(&[P::Collection]),
        "collection_min" | "collection_max" => all(&[P::ListOrSet]),
        "collection_sum" | "collection_avg" => all(&[P::NumericListOrSet]),
        "to_json" | "tojson" => all(&[P::Any(false)]),
        "from_json" | "fromjson" => all(&[TEXT]),
        "similarity_cosine" | "similarity_euclidean" | "similarity_dot_product" => {
            all(&[P::Vector, P::Vector])
        }
        "mask_null" | "mask_default" => all(&[P::Any(false)]),
        "mask_replace" => all(&[P::Any(true), P::SameAsFirst]),
        "mask_inner" | "mask_outer" => (&[STRING, INT, INT, TEXT], 3),
        "mask_hash" => (&[P::Any(false), TEXT], 1),
        _ => return None,
    })
}

/// Infers the types of the arguments of a factory. The optional parameters are those from
/// `mandatory` on.
fn inferred(
    name: &str,
    parameters: &[Parameter],
    mandatory: usize,
    arguments: &[&dyn Argument],
    wanted: Option<&CqlType>,
) -> Result<Vec<CqlType>, FunctionError> {
    let signature = || {
        let one = |(i, parameter): (usize, &Parameter)| {
            if i < mandatory { parameter.to_string() } else { format!("[{parameter}]") }
        };
        let parameters: Vec<_> = parameters.iter().enumerate().map(one).collect();
        format!("system.{name}({})", parameters.join(", "))
    };
    if arguments.len() < mandatory || arguments.len() > parameters.len() {
        return Err(FunctionError::invalid(format!(
            "Invalid number of arguments for function {}",
            signature()
        )));
    }
    let own: Vec<_> =
        arguments.iter().zip(parameters).map(|(a, parameter)| parameter.infer(*a, wanted)).collect();
    let mut types = Vec::new();
    for (at, (argument, parameter)) in arguments.iter().zip(parameters).enumerate() {
        let ty = parameter.infer_among(at, &own).ok_or_else(|| {
            FunctionError::invalid(format!(
                "Cannot infer type of argument {} in call to function {}: use type casts to disambiguate",
                argument.text(),
                signature()
            ))
        })?;
        parameter.check(name, *argument, &ty)?;
        types.push(ty);
    }
    Ok(types)
}

/// Returns the function that a factory makes for the arguments. `None`: no factory has the name.
fn made(
    name: &str,
    arguments: &[&dyn Argument],
    wanted: Option<&CqlType>,
) -> Result<Option<Function>, FunctionError> {
    let Some((parameters, mandatory)) = parameters(name) else { return Ok(None) };
    let types = inferred(name, parameters, mandatory, arguments, wanted)?;
    if let Some(similarity) = Similarity::named(name) {
        if !is_same(&types[0], &types[1]) {
            return Err(FunctionError::invalid("All arguments must have the same vector dimensions"));
        }
        return Ok(Some(Function::new(name, types, CqlType::Float, Body::Similarity(similarity))));
    }
    let first = types[0].clone();
    let frozen = |ty: &CqlType| match ty {
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) | CqlType::Udt(_) => {
            CqlType::Frozen(Box::new(ty.clone()))
        }
        other => other.clone(),
    };
    let (result, body) = match (name, first.thawed()) {
        ("map_keys", CqlType::Map(key, _)) => (CqlType::Set(Box::new(frozen(key))), Body::MapKeys),
        ("map_values", CqlType::Map(_, value)) => (CqlType::List(Box::new(frozen(value))), Body::MapValues),
        ("collection_count", _) => (CqlType::Int, Body::CollectionCount),
        (_, CqlType::List(element) | CqlType::Set(element)) if name.starts_with("collection_") => {
            let aggregate = ["min", "max", "sum", "avg"].into_iter().find(|kind| name.ends_with(kind));
            ((**element).clone(), Body::CollectionAggregate(aggregate.unwrap_or("count")))
        }
        ("to_json" | "tojson", _) => (CqlType::Text, Body::ToJson),
        ("from_json" | "fromjson", _) => {
            let result = wanted.ok_or_else(|| {
                FunctionError::invalid(format!(
                    "{name}() cannot be used in the selection clause of a SELECT statement"
                ))
            })?;
            (result.clone(), Body::FromJson)
        }
        ("mask_null", _) => (first.clone(), Body::MaskNull),
        ("mask_default", _) => (first.clone(), Body::MaskDefault),
        ("mask_replace", _) => (first.clone(), Body::MaskReplace),
        ("mask_hash", _) => (CqlType::Blob, Body::MaskHash),
        (part, _) => (first.clone(), Body::MaskPart(part == "mask_inner")),
    };
    // Behind the first one, the arguments have fixed types.
    let others: &[CqlType] = match body {
        Body::MaskPart(_) => MASK_PARTS,
        Body::MaskHash => TEXTS,
        Body::MaskReplace => std::slice::from_ref(&first),
        _ => &[],
    };
    let types: Vec<_> = [&first].into_iter().chain(others).take(arguments.len()).cloned().collect();
    Ok(Some(Function::new(name, types, result, body)))
}
