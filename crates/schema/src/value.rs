//! Serialized CQL values: checks, comparison, an order-preserving encoding for keys, and text.
//!
//! A value is its serialized bytes, as drivers send them and files store them. No tree of objects
//! is built. A null has no bytes and is never passed to this module. Unlike Cassandra, this module
//! rejects *empty* values of types other than `text`, `ascii` and `blob`.

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

pub use calendar::{civil_of_days, days_of_civil};
pub use check::{canonical, check};
pub use collection::{
    Components, Elements, Pairs, components, elements, encode_list, encode_map, encode_tuple, pairs,
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
