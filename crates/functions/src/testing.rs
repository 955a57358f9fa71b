//! Calls of functions in tests, by the texts of types and values.

use schema::CqlType;
use schema::value::{encode_list, encode_map, encode_tuple, encode_vector, parse_text, to_text};

use crate::{Argument, Context, Fit, Function, FunctionError};

/// The fixed present of tests: 2016-09-27 16:10:00.123456 UTC.
pub(crate) const NOW_MICROS: i64 = 1_474_992_600_123_456;

/// A column of this type, or a marker without a type.
pub(crate) struct Value(pub(crate) Option<CqlType>);

impl Argument for Value {
    fn ty(&self) -> Option<CqlType> {
        self.0.clone()
    }

    fn fit(&self, ty: &CqlType) -> Fit {
        self.0.as_ref().map_or(Fit::Weak, |own| Fit::of(own, ty))
    }

    fn text(&self) -> String {
        self.0.as_ref().map_or("?".to_owned(), |_| "a".to_owned())
    }
}

pub(crate) struct Fixed;

impl Context for Fixed {
    fn now_micros(&self) -> i64 {
        NOW_MICROS
    }

    fn random(&self) -> u64 {
        0x0123_4567_89ab_cdef
    }

    fn random_uuid(&self) -> [u8; 16] {
        0x0123_4567_89ab_4def_8123_4567_89ab_cdef_u128.to_be_bytes()
    }
}

pub(crate) fn ty(text: &str) -> CqlType {
    CqlType::parse(text, &|_| None).unwrap()
}

/// Parses a value. Elements of collections, and fields of tuples, have commas between them.
/// Keys and values of maps have colons.
pub(crate) fn value(ty: &CqlType, text: &str) -> Vec<u8> {
    let parts = |text: &str| text.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    match ty.thawed() {
        CqlType::List(e) | CqlType::Set(e) => {
            let parts: Vec<_> = parts(text).iter().map(|part| value(e, part)).collect();
            encode_list(parts.iter().map(Vec::as_slice))
        }
        CqlType::Map(k, v) => {
            let pair = |part: &String| {
                let (key, of) = part.split_once(':').unwrap();
                (value(k, key), value(v, of))
            };
            let pairs: Vec<_> = parts(text).iter().map(pair).collect();
            encode_map(pairs.iter().map(|(k, v)| (&k[..], &v[..])))
        }
        CqlType::Vector(e, _) => {
            let parts: Vec<_> = parts(text).iter().map(|part| value(e, part)).collect();
            encode_vector(e, parts.iter().map(Vec::as_slice))
        }
        CqlType::Tuple(types) => {
            let fields: Vec<_> = parts(text).iter().zip(types).map(|(part, ty)| value(ty, part)).collect();
            encode_tuple(fields.iter().map(|field| Some(&field[..])))
        }
        scalar => parse_text(scalar, text).unwrap(),
    }
}

/// Returns type and value of a call, or its error. An argument is `type text`, or `type null`.
pub(crate) fn call(name: &str, arguments: &[&str]) -> String {
    call_for(None, name, arguments)
}

/// Returns the same as [`call`] in a place of type `wanted`.
pub(crate) fn call_for(wanted: Option<&CqlType>, name: &str, arguments: &[&str]) -> String {
    let split = |argument: &&str| {
        let (of, text) = argument.rsplit_once(' ').unwrap();
        (ty(of), text.to_owned())
    };
    let arguments: Vec<_> = arguments.iter().map(split).collect();
    let columns: Vec<_> = arguments.iter().map(|(ty, _)| Value(Some(ty.clone()))).collect();
    let columns: Vec<&dyn Argument> = columns.iter().map(|column| column as &dyn Argument).collect();
    execute(Function::resolve(name, &columns, wanted), &arguments)
}

/// Calls a resolved function with values for its types.
pub(crate) fn execute(function: Result<Function, FunctionError>, arguments: &[(CqlType, String)]) -> String {
    let run = || {
        let function = function?;
        let bytes: Vec<Option<Vec<u8>>> =
            arguments.iter().map(|(ty, text)| (text != "null").then(|| value(ty, text))).collect();
        let values: Vec<_> = bytes.iter().map(Option::as_deref).collect();
        let result = function.call(&values, &Fixed)?;
        let text = result.map_or("null".to_owned(), |bytes| to_text(&function.result, &bytes));
        Ok(format!("{} {text}", function.result))
    };
    run().unwrap_or_else(|error: FunctionError| match error {
        FunctionError::Failed { .. } => format!("failure: {error}"),
        _ => format!("invalid: {error}"),
    })
}
