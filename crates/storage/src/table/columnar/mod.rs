//! The columnar block: what version 2 of table files is made of. See `docs/file-format.md` for the whole picture.
//!
//! A block holds the rows of a stretch of (token, key, clustering), laid out by column: a reader of one row unpacks the keys and
//! the columns it wants, a scan hands columns on as they lie.

pub(crate) mod bits;
pub(crate) mod bounds;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod ints;
pub(crate) mod layout;
pub(crate) mod marks;
mod packing;
pub(crate) mod region;
pub(crate) mod values;

pub(crate) use decode::Block;
pub(crate) use encode::{BlockBuilder, HeadRef};

#[cfg(test)]
mod tests;
