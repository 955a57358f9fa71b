//! Casts to types that are stored as text here: the text is checked, as PostgreSQL checks it. So
//! are the elements of arrays.

use std::net::IpAddr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::cast::as_string_array;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

use crate::engine::types::argument_errors;
use crate::failure::{refusal, state};

/// Types whose texts are checked.
const TYPES: [&str; 5] = ["uuid", "json", "jsonb", "inet", "cidr"];

/// Maximum length of a refused text in its error, characters.
const SHOWN_MAX: usize = 100;

/// Returns the function that checks texts of a type, which has the type's name. `None`: any text is
/// a value of it.
pub(crate) fn checked_by(ty: &str) -> Option<&'static str> {
    TYPES.into_iter().find(|checked| checked.eq_ignore_ascii_case(ty))
}

/// Registers the functions.
pub(crate) fn register(context: &SessionContext) {
    for ty in TYPES {
        let signature = Signature::user_defined(Volatility::Immutable);
        context.register_udf(ScalarUDF::new_from_impl(Checked { ty, signature }));
    }
}

/// A function of a text, or of an array of texts, that returns its argument as values of `ty`.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Checked {
    ty: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.ty
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::List(_)] => {
                Ok(vec![DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))])
            }
            [ty] if ty.is_string() || ty.is_null() => Ok(vec![DataType::Utf8]),
            _ => argument_errors::refuse_call(self.ty, arguments),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Utf8))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = args.args[0].to_array(args.number_rows)?;
        let DataType::List(item) = column.data_type() else {
            return Ok(ColumnarValue::Array(Arc::new(self.values(&column)?)));
        };
        let (_, offsets, texts, nulls) = column.as_list::<i32>().clone().into_parts();
        let values = Arc::new(self.values(&texts)?);
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(item.clone(), offsets, values, nulls)?)))
    }
}

impl Checked {
    fn values(&self, texts: &ArrayRef) -> Result<StringArray> {
        let texts = as_string_array(texts)?.iter();
        texts.map(|text| text.map(|text| self.value(text)).transpose()).collect()
    }

    fn value(&self, text: &str) -> Result<String> {
        let value = match self.ty {
            "uuid" => uuid(text),
            "json" | "jsonb" => {
                serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| text.to_owned())
            }
            _ => is_address(text).then(|| text.to_owned()),
        };
        value.ok_or_else(|| {
            let shown: String = text.chars().take(SHOWN_MAX).collect();
            refusal(state::TEXT, format!("invalid input syntax for type {}: \"{shown}\"", self.ty))
        })
    }
}

/// Returns the usual form of a uuid. PostgreSQL takes capitals, braces, and a hyphen, or none,
/// after each four digits.
fn uuid(text: &str) -> Option<String> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let (mut digits, mut may_break) = (String::with_capacity(32), false);
    for c in inner.chars() {
        match c {
            '-' if may_break => may_break = false,
            c if c.is_ascii_hexdigit() && digits.len() < 32 => {
                digits.push(c.to_ascii_lowercase());
                may_break = digits.len() % 4 == 0 && digits.len() < 32;
            }
            _ => return None,
        }
    }
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(uuid::Uuid::from_u128(number).to_string())
}

/// Returns true for an address, with the length of its network or without.
fn is_address(text: &str) -> bool {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= bits_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_the_forms_of_postgres() {
        let usual = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            usual,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(uuid(text).as_deref(), Some(usual), "{text}");
        }
        for text in
            ["", "x", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "a0e-ebc99", "{a0eebc999c0b4ef8bb6d6bb9bd380a11"]
        {
            assert_eq!(uuid(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_may_have_the_length_of_a_network() {
        for (text, expected) in [
            ("10.0.0.1", true),
            ("10.0.0.0/8", true),
            ("::1", true),
            ("fe80::/64", true),
            ("10.0.0.0/33", false),
            ("10.0.0", false),
            ("localhost", false),
            ("", false),
        ] {
            assert_eq!(is_address(text), expected, "{text}");
        }
    }
}
