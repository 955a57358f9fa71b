//! Bounds that DataFusion lacks: on plans and their rewriting, on results of functions, and on the
//! bytes of batches.

pub(crate) mod batch_width;
pub(crate) mod call_names;
pub(crate) mod folded_constants;
pub(crate) mod function_bounds;
pub(crate) mod planning;
