//! Serialized collections, tuples and user types: iterators and encoders.
//!
//! ```text
//! list, set   i32 count, then each element as i32 length and bytes
//! map         i32 count, then each key and value as i32 length and bytes
//! tuple, udt  each field as i32 length and bytes; length −1 is null; trailing fields may be missing
//! vector      each element as bytes, after an unsigned vint with its length unless all elements have
//!             one length: see CqlType::element_len
//! ```
//!
//! The iterators accept any input: a malformed value yields one error and ends. They do not
//! allocate.

use super::ValueError;
use super::vint::{push_unsigned_vint, take_unsigned_vint};
use crate::CqlType;

/// Error of a collection with bytes after its last element.
pub(super) const EXTRANEOUS: &str = "there are bytes after the last element";
/// Error of a collection with a null.
pub(super) const NULL_INSIDE: &str = "null is not supported inside collections";

/// Iterator over the elements of a serialized list or set.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    left: u64,
    rest: &'a [u8],
}

/// Iterator over the keys and values of a serialized map.
#[derive(Clone, Debug)]
pub struct Pairs<'a>(Elements<'a>);

/// Iterator over the fields of a serialized tuple or user type. `None` is null. Trailing fields may
/// be missing.
#[derive(Clone, Debug)]
pub struct Components<'a> {
    rest: &'a [u8],
}

/// Iterator over the elements of a serialized vector.
#[derive(Clone, Debug)]
pub struct VectorElements<'a> {
    /// Length of each element. `None`: each follows its length.
    element_len: Option<usize>,
    left: u32,
    pub(super) rest: &'a [u8],
}

/// Iterates over the elements of a serialized list or set.
pub fn elements(bytes: &[u8]) -> Elements<'_> {
    counted(bytes, 1)
}

/// Iterates over the keys and values of a serialized map.
pub fn pairs(bytes: &[u8]) -> Pairs<'_> {
    Pairs(counted(bytes, 2))
}

/// Iterates over the fields of a serialized tuple or user type.
pub fn components(bytes: &[u8]) -> Components<'_> {
    Components { rest: bytes }
}

/// Iterates over the elements of a serialized vector of `dimension` values of type `element`.
pub fn vector_elements<'a>(element: &CqlType, dimension: u32, bytes: &'a [u8]) -> VectorElements<'a> {
    VectorElements { element_len: element.element_len(), left: dimension, rest: bytes }
}

fn counted(bytes: &[u8], parts: u64) -> Elements<'_> {
    match bytes.split_first_chunk::<4>() {
        Some((count, rest)) if count[0] < 0x80 => {
            Elements { left: u64::from(u32::from_be_bytes(*count)) * parts, rest }
        }
        // The count is missing or negative. Pretend that an element is missing, so that the
        // iterator reports an error.
        _ => Elements { left: 1, rest: &[] },
    }
}

impl Elements<'_> {
    /// Returns the number of remaining elements according to the count. A malformed value may have
    /// fewer.
    pub fn count_left(&self) -> u64 {
        self.left
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 && self.rest.is_empty() {
            return None;
        }
        let why = match (self.left, split_value(self.rest)) {
            (0, _) => EXTRANEOUS,
            (_, Some((Some(element), rest))) => {
                self.left -= 1;
                self.rest = rest;
                return Some(Ok(element));
            }
            (_, Some((None, _))) => NULL_INSIDE,
            (_, None) => "an element is cut short",
        };
        *self = Elements { left: 0, rest: &[] };
        Some(Err(ValueError::malformed("collection", why)))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.0.next()? {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        match self.0.next() {
            Some(Ok(value)) => Some(Ok((key, value))),
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(ValueError::malformed("collection", "a key has no value"))),
        }
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = Result<Option<&'a [u8]>, ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((field, rest)) = split_value(self.rest) else {
            self.rest = &[];
            return Some(Err(ValueError::malformed("tuple", "a field is cut short")));
        };
        self.rest = rest;
        Some(Ok(field))
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], ValueError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 && self.rest.is_empty() {
            return None;
        }
        let mut rest = self.rest;
        let length = match self.element_len {
            Some(length) => Some(length),
            None => take_unsigned_vint(&mut rest).and_then(|length| usize::try_from(length).ok()),
        };
        let why = match (self.left, length.and_then(|length| rest.split_at_checked(length))) {
            (0, _) => EXTRANEOUS,
            (_, Some((element, rest))) => {
                self.left -= 1;
                self.rest = rest;
                return Some(Ok(element));
            }
            (_, None) => "an element is cut short",
        };
        (self.left, self.rest) = (0, &[]);
        Some(Err(ValueError::malformed("vector", why)))
    }
}

/// Splits a `[length][bytes]` off the front. `None`: the bytes are truncated. `Some((None, …))`:
/// null.
fn split_value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Err(_) => Some((None, rest)),
        Ok(length) => rest.split_at_checked(length).map(|(value, rest)| (Some(value), rest)),
    }
}

/// Serializes a list, or a set whose elements the caller passes in order and without duplicates.
///
/// # Panics
/// Panics if a length or the count does not fit an `i32`. The protocol bounds values far below
/// that.
pub fn encode_list<'a>(elements: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    push_length(elements.len(), &mut out);
    for element in elements {
        push_value(element, &mut out);
    }
    out
}

/// Serializes a map whose keys the caller passes in order and without duplicates.
///
/// # Panics
/// Panics like [`encode_list`].
pub fn encode_map<'a>(pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    push_length(pairs.len(), &mut out);
    for (key, value) in pairs {
        push_value(key, &mut out);
        push_value(value, &mut out);
    }
    out
}

/// Serializes a tuple or a user type; `None` is null.
///
/// # Panics
/// Panics like [`encode_list`].
pub fn encode_tuple<'a>(fields: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        match field {
            Some(value) => push_value(value, &mut out),
            None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        }
    }
    out
}

/// Serializes a vector of values of type `element`, as many as its dimension.
pub fn encode_vector<'a>(element: &CqlType, elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let is_fixed = element.element_len().is_some();
    let mut out = Vec::new();
    for value in elements {
        if !is_fixed {
            push_unsigned_vint(value.len() as u64, &mut out);
        }
        out.extend_from_slice(value);
    }
    out
}

fn push_value(value: &[u8], out: &mut Vec<u8>) {
    push_length(value.len(), out);
    out.extend_from_slice(value);
}

fn push_length(length: usize, out: &mut Vec<u8>) {
    let length = i32::try_from(length).expect("lengths and counts inside a value fit an i32");
    out.extend_from_slice(&length.to_be_bytes());
}
