//! Parts of a statement that are bound to the schema: terms, restrictions, selected columns,
//! changes.

pub(crate) mod change;
pub(crate) mod choice;
pub(crate) mod elements;
pub(crate) mod expression;
pub(crate) mod filter;
pub(crate) mod indexed;
pub(crate) mod json;
pub(crate) mod mask;
pub(crate) mod names;
pub(crate) mod nearest;
pub(crate) mod projection;
pub(crate) mod restrict;
pub(crate) mod select;
pub(crate) mod show;
pub(crate) mod slice;
pub(crate) mod sought;
pub(crate) mod term;
pub(crate) mod tokens;
pub(crate) mod tuple;
pub(crate) mod types;
