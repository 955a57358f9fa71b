//! Masking functions.

use schema::CqlType;
use schema::value::{Duration, encode_list, encode_map, encode_tuple, encode_vector, min_timeuuid};
use sha2::Digest;

use crate::{Function, FunctionError};

/// Padding if a call has none.
const PADDING: u16 = b'*' as u16;

/// Returns the fixed value that stands for all values of a type. Its size depends on the type only.
/// `None`: the type has none.
pub(crate) fn default(ty: &CqlType) -> Option<Vec<u8>> {
    Some(match ty {
        CqlType::Ascii | CqlType::Text => b"****".to_vec(),
        CqlType::Blob => Vec::new(),
        CqlType::Boolean | CqlType::TinyInt | CqlType::Varint => vec![0],
        CqlType::SmallInt => vec![0; 2],
        CqlType::Int | CqlType::Float | CqlType::Inet => vec![0; 4],
        CqlType::Date => (1_u32 << 31).to_be_bytes().to_vec(),
        CqlType::BigInt | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => {
            vec![0; 8]
        }
        CqlType::Decimal => vec![0; 5],
        CqlType::Duration => Duration::default().to_bytes(),
        CqlType::Uuid => vec![0; 16],
        CqlType::TimeUuid => min_timeuuid(0).to_vec(),
        CqlType::List(_) | CqlType::Set(_) => encode_list(std::iter::empty()),
        CqlType::Map(..) => encode_map(std::iter::empty()),
        CqlType::Tuple(types) => fields(types.iter()),
        CqlType::Udt(udt) => fields(udt.fields.iter().map(|(_, ty)| ty)),
        CqlType::Frozen(inner) => return default(inner),
        CqlType::Vector(element, dimension) => return vector(element, *dimension),
    })
}

fn fields<'t>(types: impl Iterator<Item = &'t CqlType>) -> Vec<u8> {
    let values: Vec<_> = types.map(default).collect();
    encode_tuple(values.iter().map(Option::as_deref))
}

/// Most bytes of the mask of a vector. A type is short, but has up to 2^31 elements.
const VECTOR_BYTES_MAX: usize = 1 << 20;

/// Returns a vector of masks. `None`: it is longer than [`VECTOR_BYTES_MAX`].
fn vector(element: &CqlType, dimension: u32) -> Option<Vec<u8>> {
    let element_mask = default(element)?;
    // Elements of types whose length varies follow their length, in at most 9 bytes.
    let bytes = (element_mask.len() + 9).checked_mul(dimension as usize)?;
    let masks = std::iter::repeat_n(&element_mask[..], dimension as usize);
    (bytes <= VECTOR_BYTES_MAX).then(|| encode_vector(element, masks))
}

/// Masks the inner or the outer part of a text. Arguments: text, characters at its start, at its
/// end, padding. As in Java, a character is a unit of UTF-16.
pub(crate) fn part(
    function: &Function,
    inner: bool,
    arguments: &[Option<&[u8]>],
) -> Result<Option<Vec<u8>>, FunctionError> {
    let argument = |at: usize| arguments.get(at).copied().flatten();
    let integer = |at: usize| {
        let bytes = argument(at).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map_or(0, |bytes| i64::from(i32::from_be_bytes(bytes)))
    };
    let padding = match argument(3).map(utf16) {
        None => PADDING,
        Some(padding) if padding.len() == 1 => padding[0],
        Some(padding) => {
            return Err(FunctionError::invalid(format!(
                "The padding argument for function system.{} should be single-character, but '{}' has {} characters.",
                function.name,
                String::from_utf16_lossy(&padding),
                padding.len()
            )));
        }
    };
    let Some(mut text) = argument(0).map(utf16) else { return Ok(None) };
    let (begin, end) = (integer(1), integer(2));
    let last = text.len() as i64 - 1 - end;
    for (at, unit) in text.iter_mut().enumerate() {
        let is_inner = (begin..=last).contains(&(at as i64));
        if is_inner == inner {
            *unit = padding;
        }
    }
    let is_ascii = function.result == CqlType::Ascii;
    // Java writes a character that it cannot encode as a question mark.
    let decoded = char::decode_utf16(text).map(|char| char.unwrap_or('?'));
    let masked: String = decoded.map(|char| if is_ascii && !char.is_ascii() { '?' } else { char }).collect();
    Ok(Some(masked.into_bytes()))
}

fn utf16(bytes: &[u8]) -> Vec<u16> {
    String::from_utf8_lossy(bytes).encode_utf16().collect()
}

/// Returns the hash of a value. Arguments: value, name of the algorithm.
pub(crate) fn hash(arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, FunctionError> {
    let argument = |at: usize| arguments.get(at).copied().flatten();
    let algorithm = String::from_utf8_lossy(argument(1).unwrap_or(b"SHA-256"));
    let hash: fn(&[u8]) -> Vec<u8> = match &*algorithm.to_ascii_uppercase() {
        "SHA-224" | "SHA224" => |value| sha2::Sha224::digest(value).to_vec(),
        "SHA-256" | "SHA256" => |value| sha2::Sha256::digest(value).to_vec(),
        "SHA-384" | "SHA384" => |value| sha2::Sha384::digest(value).to_vec(),
        "SHA-512" | "SHA512" => |value| sha2::Sha512::digest(value).to_vec(),
        "SHA-512/224" => |value| sha2::Sha512_224::digest(value).to_vec(),
        "SHA-512/256" => |value| sha2::Sha512_256::digest(value).to_vec(),
        "MD5" => |value| md5::Md5::digest(value).to_vec(),
        _ => return Err(FunctionError::invalid(format!("Hash algorithm not found: {algorithm}"))),
    };
    Ok(argument(0).map(hash))
}
