//! Serialized CQL values: checks, comparison, an order-preserving encoding for keys, and text.
//!
//! A value is its serialized bytes, as drivers send them and files store them. No tree of objects
//! is built. A null has no bytes and is never passed to this module. An *empty* value is not null:
//! see [`is_empty`]. Keys have none, except of `text`, `ascii`, `blob` and `inet`.

mod calendar;
mod check;
mod collection;
mod decimal;
mod duration;
mod error;
pub mod json;
mod key;
mod literal;
mod order;
mod text;
mod timeuuid;
mod varint;
mod vint;

pub use calendar::{civil_of_days, days_of_civil};
pub use check::{canonical, check, is_empty};
pub use collection::{
    Components, Elements, Pairs, VectorElements, components, elements, encode_list, encode_map, encode_tuple,
    encode_vector, pairs, vector_elements,
};
pub use duration::{Duration, DurationError, units_length};
pub use error::ValueError;
pub use key::{decode_key_part, encode_key_part, prefix_end};
pub use literal::{Literal, from_literal, parse_text};
pub use order::compare;
pub use text::to_text;
pub use timeuuid::{max_timeuuid, min_timeuuid, timeuuid, unix_ms_of_timeuuid};
pub use varint::NUMBER_BYTES_MAX;

#[cfg(test)]
mod tests;
