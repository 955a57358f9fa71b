//! The columnar block, of which table files are made. `docs/file-format.md` has the complete
//! format.
//!
//! A block holds the rows of a range of (token, key, clustering), by column. A reader of one row
//! decompresses the keys and the columns it wants. A scan passes columns on in their layout.

pub(crate) mod bits;
pub(crate) mod bounds;
mod compress;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod ints;
pub(crate) mod layout;
pub(crate) mod marks;
pub(crate) mod region;
pub(crate) mod values;

pub(crate) use decode::Block;
pub(crate) use encode::{BlockBuilder, HeadRef};

#[cfg(test)]
mod tests;
